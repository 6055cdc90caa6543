"""`selfcal export`: a run as a folder that plain diffusers loads, with its code, and without selfcal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from selfcal.core.errors import SelfcalError, look_up
from selfcal.core.files import make_folder, surfaced, write_json, write_text, writing_folder
from selfcal.diffusion.samplers import SAMPLERS
from selfcal.interop.portable import MAIN, write_code
from selfcal.nets.builders import form_recipe, network_recipe
from selfcal.run import Run
from selfcal.training.directory import unfinished_in_words
from selfcal.training.lock import check_claim

ROLES = ("score", "classifier", "conditional")


def export(run: Run, out: str | Path) -> Path:
    """Write the pipeline's folder; it must not exist yet, or be empty."""
    out = Path(out)
    check_claim(out, "new folder", mark="")
    if len(run.shape) != 3:
        raise SelfcalError(f"{run.path} makes points; a pipeline of diffusers makes images")
    try:
        from selfcal.interop import card, pipeline
    except ImportError:
        raise SelfcalError("export needs diffusers; install it with: pip install 'selfcal[diffusers]'") from None
    index: dict[str, Any] = {"_class_name": [MAIN, "SelfcalPipeline"], "_diffusers_version": version("diffusers")}
    if run.unfinished:
        raise SelfcalError(
            f"{run.path} is not finished ({unfinished_in_words(run.unfinished)}); give the train command again, then "
            "export it"
        )
    networks, readme = run.networks, card.card(run, out.name)  # before anything is written
    with whole_folder(out) as folder:
        for role in ROLES:
            if role not in networks or own_module(run, role):
                index[role] = [None, None]
                continue
            component = as_component(run, role, pipeline)
            component.model.load_state_dict(networks[role].state_dict())
            component.save_pretrained(folder / role, safe_serialization=True)
            write_code(folder / role)
            index[role] = [MAIN, type(component).__name__]
        write_code(folder)
        write_json(folder / "model_index.json", index | call_settings(run))
        write_text(folder / "README.md", readme)
    return out


@contextmanager
def whole_folder(out: Path) -> Iterator[Path]:
    """There with everything, or not at all; a full disk is one sentence, whoever writes to it."""
    real = out.resolve() if out.is_symlink() else out
    try:
        with surfaced(f"cannot write {out}"):
            make_folder(real.parent, within=real.parent)
            with writing_folder(real) as folder:
                yield folder
    except SafetensorError as error:  # diffusers writes the weights with it
        raise SelfcalError(f"cannot write {out}: {error}") from None


def own_module(run: Run, role: str) -> bool:
    """Whether its code is the user's, which nobody but the user can write."""
    return str(getattr(run.settings, role).network) == "adopted-module"


def missing(run: Run) -> str:
    """What an export cannot hold, in words; "" if it holds everything."""
    if not own_module(run, "score"):
        return ""
    return (
        "the guide is written; the score model is a module of your own, whose code is not: "
        "call pipe.use_module(net) with it before the pipeline"
    )


def as_component(run: Run, role: str, pipeline: Any) -> Any:
    """The network as diffusers knows it, made from its recipe, its weights still to be loaded."""
    settings, net = run.settings, getattr(run.settings, role)
    name, keywords = network_recipe(net, run.shape, 0 if role == "score" else len(run.classes))
    if role == "classifier":
        return pipeline.SelfcalClassifier(name, dict(keywords), settings.noise.sigma_data)
    form, form_keywords = form_recipe(net, settings)
    return pipeline.SelfcalScore(name, dict(keywords), form, dict(form_keywords))


def call_settings(run: Run) -> dict[str, Any]:
    """How the pipeline samples unless told otherwise. No lists: diffusers takes those for networks."""
    sampling = run.settings.sampling
    channels, height, width = run.shape
    return {
        "sampling": {
            "guide": run.method.guide,
            "scale": run.method.scale,
            "sampler": sampling.sampler,
            "steps": sampling.steps or look_up("sampler", sampling.sampler, SAMPLERS).steps,
            "sigma_min": run.noise.sigma_min,
            "sigma_max": run.noise.sigma_max,
        },
        "image_shape": {"channels": channels, "height": height, "width": width},
        "id2label": {str(i): name for i, name in enumerate(run.classes)},
    } | ({"module": run.settings.score.adopted} if own_module(run, "score") else {})
