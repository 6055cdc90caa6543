"""selfcal's own code for an exported pipeline: the pipeline's module and all it imports, as files that need no selfcal.

    selfcal_pipeline.py             interop/pipeline.py
    selfcal_3f9ac1d2/nets_mlp.py    nets/mlp.py, and so on

Every file is copied whole; only `from selfcal.nets.mlp import` becomes `from .nets_mlp import`. The folder is named
after what is in it, so that two versions loaded by one process do not take each other's modules.
"""

from __future__ import annotations

import hashlib
import re
from importlib import resources
from pathlib import Path

from selfcal.core.files import make_folder, write_text

MAIN = "selfcal_pipeline"
OWN_IMPORT = re.compile(r"^from selfcal\.(\S+) import", re.MULTILINE)


def write_code(folder: Path) -> None:
    """The pipeline's module and the folder of its parts."""
    for name, text in portable_files().items():
        write_text(make_folder((folder / name).parent, within=folder) / Path(name).name, text)


def portable_files() -> dict[str, str]:
    """Relative path -> text."""
    modules = closure("interop.pipeline")
    main = modules.pop("interop.pipeline")
    parts = {
        f"{flat(name)}.py": OWN_IMPORT.sub(lambda m: f"from .{flat(m[1])} import", text)
        for name, text in modules.items()
    }
    package = "selfcal_" + hashlib.sha256("".join(parts.values()).encode()).hexdigest()[:8]
    main = OWN_IMPORT.sub(lambda m: f"from .{package}.{flat(m[1])} import", main)
    # diffusers copies only those files that this one imports itself
    listed = "\n".join(f"from .{package}.{flat(name)} import __name__ as _{flat(name)}" for name in sorted(modules))
    return {f"{MAIN}.py": f"{main}\n\n# All the parts, so that they are copied along:\n{listed}\n"} | {
        f"{package}/{name}": text for name, text in parts.items()
    }


def closure(start: str) -> dict[str, str]:
    """The module and everything of selfcal that it imports, by name."""
    texts: dict[str, str] = {}
    waiting = [start]
    while waiting:
        name = waiting.pop()
        if name not in texts:
            texts[name] = (resources.files("selfcal") / f"{name.replace('.', '/')}.py").read_text("utf-8")
            waiting += OWN_IMPORT.findall(texts[name])
    return texts


def flat(module: str) -> str:
    """ "nets.mlp" -> "nets_mlp"."""
    return module.replace(".", "_")
