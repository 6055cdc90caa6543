"""All commands, and how one is run: bad input is one sentence and exit code 2."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from typing import NoReturn

from cyclopts import CycloptsError, UnusedCliTokensError
from rich.text import Text

from selfcal.cli import (
    adopt,
    compare,
    demo,
    doctor,
    evaluate,
    export,
    info,
    methods,
    presets,
    report,
    sample,
    serve,
    show,
    suggest,
    toy,
    train,
)
from selfcal.cli.terminal import app, only_the_first_speaks, problem_console
from selfcal.core.console import encode_anything
from selfcal.core.errors import SelfcalError

__all__ = [
    "adopt",
    "app",
    "compare",
    "demo",
    "doctor",
    "evaluate",
    "export",
    "info",
    "main",
    "methods",
    "presets",
    "report",
    "sample",
    "serve",
    "show",
    "suggest",
    "toy",
    "train",
]

CONTINUE = {"train", "adopt", "compare", "demo", "toy"}  # after an interruption, where they were
BEGIN_ANEW = {"evaluate", "doctor", "report"}  # sample and export may be refused: what they wrote is not written over

OUT_OF_MEMORY = ("not enough memory", "out of memory", "can't allocate memory")


def main(arguments: list[str] | None = None) -> None:
    """Run a command; exit with 0, or with 2 and one sentence for anything the user can mend."""
    only_the_first_speaks()
    encode_anything()
    try:
        app(arguments, exit_on_error=False, print_error=False)
    except UnusedCliTokensError as error:
        refuse(f"{' '.join(error.unused_tokens or ())}: more than this command takes; see --help")
    except (SelfcalError, CycloptsError) as error:
        refuse(str(error))
    except BrokenPipeError:  # `selfcal show … | head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        refuse(f"{error.strerror or error}: {error.filename or 'a file that the system does not name'}")
    except UnicodeEncodeError as error:
        refuse(f"{error.object[max(0, error.start - 60) : error.end]} is not written in UTF-8; give it another name")
    except (MemoryError, RuntimeError) as error:  # torch says it so
        if isinstance(error, RuntimeError) and not any(words in str(error) for words in OUT_OF_MEMORY):
            raise
        refuse("the memory of this machine is used up; a smaller batch (--set), --count or network may fit")
    except KeyboardInterrupt as interruption:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)  # it is leaving; another one would only spoil the exit code
        typed = sys.argv[1:] if arguments is None else arguments
        problem_console.print(stopped(interruption, typed), soft_wrap=True)
        sys.exit(130)


def refuse(problem: str) -> NoReturn:
    """One sentence on one line, and exit code 2."""
    said = Text.assemble(("selfcal:", "bold red"), " ", " ".join(problem.split()))
    problem_console.print(said, soft_wrap=True)
    sys.exit(2)


def stopped(interruption: KeyboardInterrupt, typed: list[str]) -> str:
    """What is true after Ctrl-C, and no more: some commands go on where they were, some begin anew."""
    words, command = str(interruption), shlex.join(["selfcal", *typed])
    if typed and typed[0] in CONTINUE:
        return f"{words or 'interrupted'}; the same command continues:\n  {command}"
    anew = ", and the same command begins anew, with what is in the cache" if typed and typed[0] in BEGIN_ANEW else ""
    return words or f"interrupted; no file is half-written{anew}"
