"""A run's networks as a diffusers pipeline. `export.py` writes this file, and all it needs, beside the weights."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from diffusers import ConfigMixin, DiffusionPipeline, ImagePipelineOutput, ModelMixin
from diffusers.configuration_utils import register_to_config
from torch import Tensor

from selfcal.core.files import filling_folder
from selfcal.diffusion.guidance import GUIDES
from selfcal.diffusion.noise import Noise
from selfcal.diffusion.samplers import SAMPLERS
from selfcal.nets.forms import ScoreModel
from selfcal.nets.own_module import OwnModule
from selfcal.nets.recipes import make_classifier, make_form, make_score_model

OUTPUTS = ("pil", "np", "pt")
HASHES = "weights.sha256.json"
MOST_STEPS, LARGEST_SIGMA = 10**6, 1e9


class Hashed(ModelMixin, ConfigMixin):
    """A network whose weights are hashed when they are written and verified when they are read, by whoever does it."""

    def save_pretrained(self, save_directory: str | Path, **keywords: Any) -> None:
        super().save_pretrained(save_directory, **keywords)
        found = {name: sha256_of(Path(save_directory) / name) for name in weights_in(Path(save_directory))}
        (Path(save_directory) / HASHES).write_text(json.dumps(found, indent=1) + "\n", "utf-8")

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **keywords: Any) -> Any:
        folder = Path(pretrained_model_name_or_path) / (keywords.get("subfolder") or "")
        if folder.is_dir():  # diffusers has brought what lies on a hub onto this machine before
            check_weights(folder)
        return super().from_pretrained(pretrained_model_name_or_path, **keywords)


def weights_in(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.suffix in (".safetensors", ".bin"))


def sha256_of(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_weights(folder: Path) -> None:
    """To the bit as they were written: one flipped bit would still make images."""
    try:
        promised = json.loads((folder / HASHES).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        raise ValueError(
            f"{folder / HASHES} cannot be read, so that nothing vouches for the weights beside it"
        ) from None
    there = weights_in(folder)
    if not isinstance(promised, dict) or sorted(promised) != there:
        raise ValueError(f"{folder} holds other weights than {HASHES} names; export the run again")
    for name in there:
        if sha256_of(folder / name) != promised[name]:
            raise ValueError(
                f"{folder / name} is damaged: its SHA-256 is not the one in {HASHES}; export the run again"
            )


class SelfcalScore(Hashed):
    """A score model made from its recipe."""

    @register_to_config
    def __init__(self, network: str, keywords: dict, form: str, form_keywords: dict) -> None:
        super().__init__()
        self.model = make_score_model((network, keywords), (form, form_keywords))

    def forward(self, x: Tensor, sigma: Tensor, *y: Tensor) -> Tensor:
        """In the precision of the weights, whatever the sampler's."""
        out: Tensor = self.model(x.to(self.dtype), sigma.to(self.dtype), *y)
        return out.to(x.dtype)


class SelfcalClassifier(Hashed):
    """A noise-aware classifier made from its recipe."""

    @register_to_config
    def __init__(self, network: str, keywords: dict, sigma_data: float) -> None:
        super().__init__()
        self.model = make_classifier((network, keywords), sigma_data)

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        out: Tensor = self.model(x.to(self.dtype), sigma.to(self.dtype))
        return out.to(x.dtype)


class SelfcalPipeline(DiffusionPipeline):
    """pipe(class_labels=["cat", 3], guidance_scale=2.0).images"""

    _optional_components = ["score", "classifier", "conditional"]  # noqa: RUF012

    def __init__(
        self,
        score: ModelMixin | None = None,
        classifier: ModelMixin | None = None,
        conditional: ModelMixin | None = None,
        sampling: dict | None = None,
        image_shape: dict | None = None,
        id2label: dict | None = None,
        module: dict | None = None,
    ) -> None:
        """sampling: {"guide", "scale", "sampler", "steps", "sigma_min", "sigma_max"}, how it samples unless told.

        module: the conventions of a score model whose code is not here; `use_module` brings it along.
        """
        super().__init__()
        self.register_modules(score=score, classifier=classifier, conditional=conditional)
        self.register_to_config(sampling=sampling, image_shape=image_shape, id2label=id2label, module=module)
        self.own_score: ScoreModel | None = None

    def use_module(self, network: Any) -> None:
        """The adopted network itself, net(x, t) as it was adopted: it becomes the score model."""
        if not self.config.module:
            raise ValueError("this pipeline has a score model; no module is missing")
        network = network.eval() if isinstance(network, torch.nn.Module) else network
        form = make_form(("adopted-module", {"adopted": self.config.module}))
        self.own_score = ScoreModel(OwnModule(network, self.config.module["whole"]), form)

    def save_pretrained(self, save_directory: str, **keywords: Any) -> None:
        """With the code beside it, so that what is loaded from there still loads."""
        with filling_folder(Path(save_directory), last="model_index.json") as target:
            super().save_pretrained(str(target), **{"repo_id": Path(save_directory).name} | keywords)
            self.add_code(target)

    def add_code(self, target: Path) -> None:
        package = Path(__file__).parent / make_form.__module__.rsplit(".", 2)[-2]
        if not package.is_dir():  # not an exported pipeline's own code
            return
        index = json.loads((target / "model_index.json").read_text("utf-8"))
        index["_class_name"] = [Path(__file__).stem, type(self).__name__]
        for role in self._optional_components:
            if getattr(self, role) is not None:
                index[role] = [Path(__file__).stem, type(getattr(self, role)).__name__]
        (target / "model_index.json").write_text(json.dumps(index, indent=1, ensure_ascii=False) + "\n", "utf-8")
        for folder in [target, *(target / r for r in self._optional_components if getattr(self, r) is not None)]:
            shutil.copy(__file__, folder / Path(__file__).name)
            ignored = shutil.ignore_patterns("*.pyc")
            shutil.copytree(package, folder / package.name, dirs_exist_ok=True, ignore=ignored)

    @torch.no_grad()
    def __call__(
        self,
        class_labels: Sequence[int | str] | Tensor | int | str,
        guidance_scale: float | None = None,
        num_inference_steps: int | None = None,
        sampler: str | None = None,
        generator: torch.Generator | None = None,
        output_type: str = "pil",
        return_dict: bool = True,
    ) -> Any:
        """One image for each label, a class's number or name. generator: on the CPU, makes the noise repeatable."""
        if isinstance(class_labels, Tensor):
            class_labels = class_labels.tolist()
        labels = [class_labels] if isinstance(class_labels, int | str) else list(class_labels)
        check_call(labels, guidance_scale, num_inference_steps, generator, output_type)
        y = torch.tensor([self.class_number(label) for label in labels], device=self.device)
        usual = self.config.sampling
        row = SAMPLERS[sampler or usual["sampler"]]
        usual_steps = usual["steps"] if sampler in (None, usual["sampler"]) else row.steps
        steps = usual_steps if num_inference_steps is None else num_inference_steps
        sigmas = row.levels(checked_noise(usual), steps)
        if self.config.module and self.own_score is None:
            name = self.config.module.get("module") or "a module of its maker's"
            raise ValueError(f"the score model is {name}, whose code is not here; give it: pipe.use_module(net)")
        networks = {
            "score": self.own_score or self.score,
            "classifier": self.classifier,
            "conditional": self.conditional,
        }
        scale = usual["scale"] if guidance_scale is None else guidance_scale
        score = GUIDES[usual["guide"]].score(networks, y, scale)
        shape = [self.config.image_shape[side] for side in ("channels", "height", "width")]
        x = sigmas[0] * torch.randn((len(y), *shape), generator=generator)
        x = finite(row.function(score, x.to(self.device), sigmas, rng=generator), scale)
        images: Any = (x.clamp(-1, 1).cpu() + 1) / 2
        if output_type != "pt":
            images = images.permute(0, 2, 3, 1).numpy()
        if output_type == "pil":
            images = self.numpy_to_pil(images)
        return ImagePipelineOutput(images=images) if return_dict else (images,)

    def class_number(self, label: int | str) -> int:
        names = self.config.id2label
        for number, name in names.items():
            if str(label) == name:
                return int(number)
        if str(label) in names:
            return int(label)
        raise ValueError(f"unknown class {label!r}; this model has {', '.join(names.values())}")


def finite(x: Tensor, scale: float) -> Tensor:
    if not x.isfinite().all():
        raise ValueError(f"sampling left the finite numbers at guidance_scale = {scale:g}; take a lower one")
    return x


def checked_noise(sampling: dict) -> Noise:
    """The range of σ is read from model_index.json, which anybody can write."""
    low, high = sampling["sigma_min"], sampling["sigma_max"]
    if not all(isinstance(v, int | float) and math.isfinite(v) for v in (low, high)) or not 0 < low < high:
        raise ValueError(f"model_index.json: σ from {low} to {high}; finite numbers above 0 are needed, in this order")
    if high > LARGEST_SIGMA:
        raise ValueError(f"model_index.json: sigma_max = {high:g}; at most {LARGEST_SIGMA:g} can be")
    return Noise(low, high)


def check_call(labels: list, scale: float | None, steps: int | None, generator: Any, output_type: str) -> None:
    """Before any work, in the caller's words."""
    if not labels:
        raise ValueError("class_labels is empty; one image is made for each label")
    if scale is not None and not 0 <= scale < float("inf"):
        raise ValueError(f"guidance_scale = {scale}: a number of at least 0 is needed")
    if steps is not None and not 1 <= steps <= MOST_STEPS:
        raise ValueError(f"num_inference_steps = {steps}: at least 1 and at most {MOST_STEPS} are needed")
    if generator is not None and not isinstance(generator, torch.Generator):
        raise ValueError("generator: one torch.Generator for all images is needed")
    if output_type not in OUTPUTS:
        raise ValueError(f"output_type = {output_type!r}; known: {', '.join(OUTPUTS)}")
