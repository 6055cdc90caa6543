"""Nothing in selfcal can run code out of a file: no unpickling, no eval, no YAML, wherever one looks. And nothing
writes a file but the durable writer, core/files.py."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import selfcal

SOURCE = Path(selfcal.__file__).parent
# The one unpickler has a list of what it may build; its caller needs the name of its error.
ALLOWED = {
    "data/plain_pickle.py": {"pickle"},
    "data/cifar.py": {"pickle"},
    "evaluation/inception.py": {"torch.save"},  # plain tensors, for a library that reads nothing else
}

MODULES = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml", "ruamel"}
CALLS = {"eval", "exec", "compile", "__import__", "torch.load", "torch.save", "torch.jit.load", "pd.read_pickle"}


def offences(text: str) -> set[str]:
    """What a file does that it must not."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {name.name.split(".")[0] for name in node.names} & MODULES
        elif isinstance(node, ast.ImportFrom):
            found |= {(node.module or "").split(".")[0]} & MODULES
            if node.module == "torch":
                found |= {f"torch.{name.name}" for name in node.names} & CALLS
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            pickles = {k.arg: ast.unparse(k.value) for k in node.keywords}
            restricted = name == "torch.load" and pickles.get("weights_only") == "True"  # PyTorch's own list of types
            found |= set() if restricted else {name} & CALLS
            if name.rsplit(".", 1)[-1] in ("load", "read_array") and name.split(".")[0] in ("np", "numpy"):
                found |= set() if pickles.get("allow_pickle") == "False" else {"numpy without allow_pickle=False"}
            found |= {"allow_pickle"} if pickles.get("allow_pickle", "False") != "False" else set()
    return found


@pytest.mark.parametrize("file", sorted(SOURCE.rglob("*.py")), ids=lambda f: f.relative_to(SOURCE).as_posix())
def test_no_file_of_selfcal(file):
    assert offences(file.read_text("utf-8")) <= ALLOWED.get(file.relative_to(SOURCE).as_posix(), set())


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from pickle import loads",
        "import os, joblib.numpy_pickle",
        "import yaml as y",
        "x = eval('1')",
        "import torch\ntorch.load('f')",
        "import torch\ntorch.load('f', weights_only=False)",
        "from torch import load",
        "import numpy as np\nnp.load('f')",
        "import numpy as np\nnp.load('f', allow_pickle=True)",
        "np.lib.format.read_array(f)",
        "read(f, allow_pickle=yes)",
        "def f():\n    exec('1')",
    ],
)
def test_that_this_test_can_fail(text):
    assert offences(text)


# --- one writer -----------------------------------------------------------------------------------

METHODS = {
    "write_text",
    "write_bytes",
    "touch",
    "mkdir",
    "makedirs",
    "rename",
    "symlink_to",
    "hardlink_to",
    "save_file",
}
METHODS |= {"save_pretrained", "to_csv", "tofile"}
FUNCTIONS = {f"os.{name}" for name in ("open", "fdopen", "replace", "rename", "link", "symlink", "truncate", "mknod")}
FUNCTIONS |= {f"shutil.{name}" for name in ("copy", "copy2", "copyfile", "copytree", "move", "copyfileobj")}
FUNCTIONS |= {f"np.{name}" for name in ("save", "savez", "savez_compressed", "savetxt", "memmap")}
FUNCTIONS |= {"torch.save", "json.dump", "FileLock", "pickle.dump"}
WRITER = {"core/files.py", "core/temporary.py"}
MAY_WRITE = {
    "training/checkpoints.py": {"os.link", "rename"},  # a second name of a finished file; folders moved within a run
    "training/lock.py": {"FileLock"},  # the one that looks for links first
    "core/turns.py": {"FileLock"},
    "interop/pipeline.py": {"write_text", "shutil.copy", "shutil.copytree", "save_pretrained"},  # in filling_folder
    "interop/export.py": {"save_pretrained"},  # in writing_folder
    "evaluation/inception.py": {"tempfile", "torch.save"},  # into memory; a folder for a library that reads files only
    "app/server.py": {"tempfile"},  # gradio's uploads, gone when it stops
    "cli/commands.py": {"os.open"},  # /dev/null
}


def own_writes(text: str) -> set[str]:
    """How a file writes by itself."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        last = name.rsplit(".", 1)[-1]
        first = ast.unparse(node.args[0]) if node.args else ""
        named = {k.arg: ast.unparse(k.value) for k in node.keywords}
        found |= {name} & FUNCTIONS
        found |= {last} & METHODS if "." in name or last == "save_file" else set()
        found |= {"tempfile"} if name.startswith("tempfile.") else set()
        modes = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        modes += [ast.literal_eval(named["mode"])] if named.get("mode", "").startswith(("'", '"')) else []
        if last == "open" and any(set(m) <= set("rwaxbt+") and set(m) & set("wax+") for m in modes):
            found.add("open")
        pictures = last == "savefig" or (last == "save" and "format" in named)
        found |= {last} if pictures and first != "stream" else set()  # into memory
    return found


@pytest.mark.parametrize("file", sorted(SOURCE.rglob("*.py")), ids=lambda f: f.relative_to(SOURCE).as_posix())
def test_nothing_writes_but_the_durable_writer(file):
    name = file.relative_to(SOURCE).as_posix()
    if name not in WRITER:
        assert own_writes(file.read_text("utf-8")) == MAY_WRITE.get(name, set())


@pytest.mark.parametrize(
    "text",
    [
        "open('f', 'w')",
        "path.open('ab')",
        "open('f', mode='x')",
        "Path('f').write_text('x')",
        "(out / 'f').write_bytes(b'x')",
        "path.mkdir(parents=True)",
        "path.touch()",
        "a.rename(b)",
        "os.replace(a, b)",
        "os.open(path, flags)",
        "np.savez('f', x=x)",
        "torch.save(x, 'f')",
        "from safetensors.torch import save_file\nsave_file({}, 'f')",
        "figure.savefig('f.png')",
        "image.save(path, format='PNG')",
        "json.dump(x, stream)",
        "shutil.copytree(a, b)",
        "tempfile.mkdtemp()",
        "FileLock('f').acquire()",
    ],
)
def test_that_a_writer_of_its_own_is_found(text):
    assert own_writes(text)


def test_reading_and_memory_are_no_writes():
    assert not own_writes("open('f')\npath.open('rb')\nfigure.savefig(stream)\nx.replace('a', 'w')\nchart.save(stream)")
