"""Where the parts of a diffusers model lie: a pipeline's folder, a network alone, a checkpoint, a name on the hub."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

from selfcal.core.errors import SelfcalError
from selfcal.core.files import read_json

LATENT = ("vae", "vqvae", "movq", "image_encoder")
TEXT = ("text_encoder", "tokenizer", "prior")
OWN = ("unet", "scheduler")
AVERAGED, PLAIN = "unet_ema", "unet"
STEM = "diffusion_pytorch_model"
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
HUB_ADDRESS = re.compile(r"hf://|https://(huggingface\.co|hf\.co)/")  # as copied from a browser
NEEDED = ["*.json", "*.safetensors", "*.bin"]  # of a hub's repository


@dataclass(frozen=True)
class Layout:
    """The folder of the network, its scheduler's configuration if there is one, and what is worth saying."""

    network: Path
    scheduler: dict[str, Any] | None
    note: str = ""

    @property
    def weights(self) -> Path:
        """The file, or the index of files, to load: safetensors before pickles, full precision before half."""
        for ending in ("safetensors", "bin"):
            plain = [self.network / f"{STEM}.{ending}", self.network / f"{STEM}.{ending}.index.json"]
            variants = sorted(self.network.glob(f"{STEM}.*.{ending}")) + sorted(
                self.network.glob(f"{STEM}.{ending}.index.*.json")
            )
            for file in (*plain, *variants):
                if file.is_file() and not re.search(r"-\d{5}-of-\d{5}", file.name):
                    return file
        raise SelfcalError(f"{self.network} holds no weights: no {STEM}.safetensors and no {STEM}.bin")

    @property
    def variant(self) -> str | None:
        """ "fp16" of diffusion_pytorch_model.fp16.safetensors."""
        words = self.weights.name.removeprefix(f"{STEM}.").split(".")
        return next((word for word in words if word not in ("safetensors", "bin", "index", "json")), None)


def find(path: Path, subfolder: str | None = None) -> Layout:
    """The parts in a folder, however they are laid out; or what is missing."""
    index = path / "model_index.json"
    if index.is_file():
        parts = read_part(index)
        check_parts({name for name, part in parts.items() if name[:1] != "_" and part != [None, None]}, path)
    network, note = network_folder(path, subfolder, whole=index.is_file())
    return Layout(network, scheduler_of(path, network), note)


def network_folder(path: Path, subfolder: str | None, whole: bool) -> tuple[Path, str]:
    """whole: a pipeline, whose unet is what it samples with."""
    if subfolder is not None:
        folder = path / subfolder
        if folder.resolve().parent != path.resolve() or not (folder / "config.json").is_file():
            there = sorted(p.parent.name for p in path.glob("*/config.json"))
            raise SelfcalError(f"{path} has no network in {subfolder!r}; it has {', '.join(there) or 'none'}")
        return folder, ""
    if whole:
        return path / PLAIN, ""
    if (path / "config.json").is_file():
        return path, ""
    for name in (AVERAGED, PLAIN):  # a checkpoint of diffusers' trainer, which samples with the averaged one
        if (path / name / "config.json").is_file():
            other = name == AVERAGED and (path / PLAIN / "config.json").is_file()
            return path / name, "the averaged weights of unet_ema; --subfolder unet takes the others" if other else ""
    raise SelfcalError(
        f"{path} is not a diffusers pipeline: it has no model_index.json, and no network (config.json) in it, in unet/ "
        "or in unet_ema/"
    )


def scheduler_of(path: Path, network: Path) -> dict[str, Any] | None:
    """Beside the network, or where a trainer's final pipeline has it."""
    around = [path / "scheduler", path, network, network.parent / "scheduler"]
    if re.fullmatch(r"checkpoint-\d+", path.name) or network.parent.name.startswith("checkpoint-"):
        around += [path.parent / "scheduler", network.parent.parent / "scheduler"]
    for folder in around:
        if (folder / "scheduler_config.json").is_file():
            return read_part(folder / "scheduler_config.json")
    if (path / "model_index.json").is_file():
        raise SelfcalError(f"{path / 'scheduler'} is not a diffusers pipeline: it has no scheduler_config.json")
    return None


def read_part(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise SelfcalError(f"{file.parent} is not a diffusers pipeline: it has no {file.name}")
    found = read_json(file)
    if not isinstance(found, dict):
        raise SelfcalError(f"{file} is not a configuration of diffusers")
    return found


def check_parts(parts: set[str], name: object) -> None:
    for part in LATENT:
        if part in parts:
            raise SelfcalError(f"{name} generates in the latent space of its {part}; only pixel models can be adopted")
    for part in TEXT:
        if part in parts:
            raise SelfcalError(f"{name} is guided by text (it has a {part}); only unconditional models can be adopted")
    if not parts.issuperset(OWN):
        raise SelfcalError(f"{name} has no unet and scheduler; it holds {', '.join(sorted(parts))}")
    if not parts.issubset((*OWN, AVERAGED)):
        strange = ", ".join(sorted(parts.difference(OWN)))
        raise SelfcalError(f"{name} has parts whose meaning selfcal does not know ({strange}); it cannot be adopted")


def on_this_machine(source: str | Path) -> Path:
    """A path as it is; "owner/name" that is none here, out of the hub's cache, or over the network into it."""
    if isinstance(source, str):
        source = HUB_ADDRESS.sub("", source).removesuffix("/") if HUB_ADDRESS.match(source) else source
    path = Path(source)
    if path.exists() or not isinstance(source, str) or not HUB_NAME.fullmatch(source):
        return path
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        return path
    for offline in (True, False):
        try:
            return Path(snapshot_download(source, allow_patterns=NEEDED, local_files_only=offline))
        except Exception as error:  # of the network, of the hub, of the cache: whichever it was
            problem = error
    said = (str(problem).strip() or type(problem).__name__).splitlines()[0]
    raise SelfcalError(
        f"{source} does not exist here and is not in Hugging Face's cache, and the hub did not give it: "
        f"{shorten(said, 160, placeholder=' …')}"
    )
