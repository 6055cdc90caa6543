"""The house: few rooms, short functions, plain names, and a public API that is there."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import selfcal
from selfcal.core.version import __version__

ROOT = Path(__file__).parents[1]
SOURCE = Path(selfcal.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))

LONGEST, LONGER_ONES = 40, 5  # lines of a function; how many may have more
MOST_PARAMETERS = 8
PUBLIC = {"train", "adopt", "compare", "evaluate"}  # what users type may take more parameters
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "misc", "common"}


def functions():
    """("run.py: Run.sample", its definition), methods and inner functions included."""

    def within(node, place):
        for child in ast.iter_child_nodes(node):
            name = getattr(child, "name", None)
            inner = f"{place}.{name}" if name else place
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield inner, child
            yield from within(child, inner)

    for file in FILES:
        for place, node in within(ast.parse(file.read_text("utf-8")), ""):
            yield f"{file.relative_to(SOURCE)}: {place.lstrip('.')}", node


def listed(counts):
    """One to a line, the largest first: pytest would cut a dictionary short."""
    return "\n" + "\n".join(f"{counts[place]:4d}  {place}" for place in sorted(counts, key=counts.get, reverse=True))


def test_the_root_has_few_entries():
    entries = sorted(p.name for p in SOURCE.iterdir() if p.name != "__pycache__")
    assert len(entries) <= 16, entries


def test_a_sampler_comes_alone():
    """In a fresh process: whoever wants a sampler does not wait for the rest."""
    script = """
import sys, selfcal.diffusion.samplers
print(*sorted(name for name in sys.modules if name.split(".")[0] == "selfcal"))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert len(done.stdout.split()) <= 5, done.stdout


def test_functions_fit_a_screen():
    lengths = {place: node.end_lineno - node.lineno + 1 for place, node in functions()}
    long = {place: lines for place, lines in lengths.items() if lines > LONGEST}
    assert len(long) <= LONGER_ONES, listed(long)


def parameters(node):
    """self, cls and **keywords aside."""
    a = node.args
    named = [p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs, *([a.vararg] if a.vararg else []))]
    return [name for name in named if name not in ("self", "cls")]


def test_few_parameters_but_for_what_users_type():
    many = {
        place: len(parameters(node))
        for place, node in functions()
        if node.name not in PUBLIC and len(parameters(node)) > MOST_PARAMETERS
    }
    assert not many, listed(many)


def test_every_module_is_named_after_what_is_in_it():
    named = {part for file in FILES for part in file.relative_to(SOURCE).with_suffix("").parts}
    assert not named & EMPTY_NAMES


@pytest.mark.parametrize("package", ["selfcal", "selfcal.diffusion", "selfcal.metrics"])
def test_every_public_name_can_be_imported(package):
    module = import_module(package)
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        assert getattr(module, name) is not None
    assert set(module.__all__) <= set(dir(module)), "editors complete what dir() lists"
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = module.no_such_name


def test_types_say_what_is_imported_on_first_use():
    """The names under TYPE_CHECKING, which type checkers and editors see, are those of __all__."""
    for package in ("selfcal", "selfcal.diffusion"):
        module = import_module(package)
        (block,) = (
            node
            for node in ast.parse(Path(module.__file__).read_text("utf-8")).body
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        )
        typed = {alias.name: node.module for node in block.body for alias in node.names}
        assert sorted(typed) == sorted(module.__all__)
        for name, home in typed.items():
            assert getattr(import_module(home), name) is getattr(module, name), name


def test_the_version_is_the_packages():
    assert __version__ == tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert selfcal.__version__ == __version__
