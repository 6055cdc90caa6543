"""What every event of the page shares: one computation at a time, and problems in words."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import gradio as gr

from selfcal.core.errors import SelfcalError
from selfcal.core.escapes import html

PRIVATE: dict[str, Any] = {"api_visibility": "private"}
ONE_AT_A_TIME: dict[str, Any] = {"concurrency_limit": 1, "concurrency_id": "networks"} | PRIVATE


def spoken(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function; what the user can mend is shown to them, and is no error of the server's."""
    if inspect.isgeneratorfunction(function):

        @wraps(function)
        def generate(*values: Any) -> Iterator[Any]:
            try:
                yield from function(*values)
            except SelfcalError as problem:
                raise in_words(problem) from None

        return generate

    @wraps(function)
    def call(*values: Any) -> Any:
        try:
            return function(*values)
        except SelfcalError as problem:
            raise in_words(problem) from None

    return call


def in_words(problem: SelfcalError) -> gr.Error:
    return gr.Error(html(problem), title="That did not work", print_exception=False)
