"""`selfcal adopt`: a pretrained unconditional model becomes class-conditional; only the guide is trained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from selfcal.core.errors import SelfcalError, unknown
from selfcal.core.progress import say
from selfcal.core.progress import wanted as shown
from selfcal.core.settings import pairs, resolve
from selfcal.data.dataset import Dataset
from selfcal.interop import diffusers, score_sde
from selfcal.interop.conventions import Conventions, Numbers, Time
from selfcal.interop.denoising_check import check_as_it_is, check_denoising
from selfcal.interop.layouts import check_parts, on_this_machine
from selfcal.interop.module import Maker, from_module
from selfcal.interop.source import Adopted, of_score
from selfcal.nets.forms import ScoreModel
from selfcal.nets.own_module import own_form
from selfcal.run import Run
from selfcal.training import processes, tracking
from selfcal.training.directory import recorded
from selfcal.training.donor import from_weights
from selfcal.training.fit import Watching, fit
from selfcal.training.request import Prepared, Request, default_preset
from selfcal.training.stage import OnStep

NONE_GIVEN = Conventions()
IN_WORDS = {
    "fresh": "is a network of its own",
    "score": "stands on its features, and trains them on",
    "score-frozen": "stands on its features as they are",
}
GUIDES_ON = tuple(IN_WORDS)
SHAPE = ("network", "width", "blocks", "multipliers", "attention", "patch", "head", "start", "fourier_scale")
LARGEST_ON_CPU = 4_000_000  # weights of an adopted network on which a guide is trained in minutes without a GPU


def adopt(
    source: Any,
    data: Any,
    labels: str | float | None = None,
    method: str = "cg-sc-all",
    out: str | Path = "runs/adopted",
    *,
    predicts: str | None = None,
    betas: Numbers | None = None,
    alphas_cumprod: Numbers | None = None,
    sigmas: Numbers | None = None,
    time: Time = None,
    module: Maker = None,
    subfolder: str | None = None,
    guide_on: str | None = None,
    seed: int = 0,
    steps: int | None = None,
    preset: str | None = None,
    settings: Mapping[str, Any] | Iterable[str] = (),
    size: int | None = None,
    skip_broken: bool = False,
    test_labels: str | Path | None = None,
    on_step: OnStep | None = None,
    track: str | Sequence[str] | None = None,
    show_progress: bool | None = None,
) -> Run:
    """Train a guide for a pretrained unconditional model, which stays as it is; the same call resumes.

        run = selfcal.adopt("google/ddpm-cifar10-32", "cifar10", "4/class", out="runs/ddpm")
        run = selfcal.adopt(net, "digits", "4/class", out="runs/net", predicts="epsilon", betas=betas)

    source: a folder that diffusers wrote or a hub's name, a checkpoint of score_sde_pytorch, a live pipeline or
    UNet2DModel; or any nn.Module or callable net(x, t) on images in [−1, 1], with its conventions:
    predicts: "epsilon", "v", "x0" (or "denoised"), or "score".
    betas, alphas_cumprod or sigmas: its schedule. The first two are of models that keep the variance (DDPM).
    time: what net is told: "index" (of the schedule), "sigma", or a smooth function of σ.
    module: the constructor's name, "my_package:make_net", or the constructor; kept as a name, for `selfcal.load`.
    subfolder: the folder of the network in a pipeline's, for instance "unet_ema".
    guide_on: "score", a guide that starts from the adopted network's way down and its middle and trains them on;
    "score-frozen", which leaves them as they are; "fresh", a network of its own. Left out: "score" for networks
    of up to 4 million weights (any, on a GPU) and images above 12 pixels, where it was best; "fresh" otherwise.

    The model is first tried on real examples: conventions under which it does not denoise are refused with the
    numbers seen. Noise is drawn from the σ that both the preset and the model know.
    """
    if guide_on is not None and guide_on not in GUIDES_ON:
        raise unknown("guide_on", guide_on, GUIDES_ON)
    changes, trackers = dict(pairs(settings)), tracking.named(track)
    if fixed := [key for key in changes if key.startswith("score.")]:
        raise SelfcalError(f"{fixed[0]} cannot be set: the score model is adopted from {named(source)} as it is")
    request = Request(data, method, labels, seed, steps, preset, changes, size, skip_broken, test_labels)
    pile = request.read()
    conventions = Conventions(predicts, betas, alphas_cumprod, sigmas, time)
    adopted, before = open_source(source, pile, conventions, module, subfolder), recorded(Path(out))
    usual = resolve(preset or default_preset(pile, score_given=True), changes)
    guide_on = guide_on or usual_guide(adopted, changes, usual.classifier.network, before)
    if guide_on != "fresh":
        if shaped := [key for key in changes if key.removeprefix("classifier.") in SHAPE]:
            raise SelfcalError(
                f"{shaped[0]} cannot be set: the guide stands on the adopted network; use guide_on = fresh"
            )
        changes = guide_on_score(adopted, guide_on, usual.noise.sigma_data) | changes
    request = replace(request, settings=changes | adopted.settings)
    wanted = request.prepared(pile)
    check_method(wanted)
    noise = common_noise(wanted, adopted, named(source))
    if before is not None:  # what both knew when the run began, whatever the preset is by now
        noise = {key: before["settings"]["noise"][key.removeprefix("noise.")] for key in noise}
    wanted = replace(request, settings=changes | adopted.settings | noise).prepared(pile, before)
    if shown(show_progress) and processes.accelerator().is_main_process:
        low, high = noise["noise.sigma_min"], noise["noise.sigma_max"]
        say(f"adopted {named(source)}: {adopted.words}; σ from {low:.3g} to {high:.3g}; the guide {IN_WORDS[guide_on]}")
    weights = {name: value.clone() for name, value in adopted.model.state_dict().items()}  # some may be shared
    donor = from_weights(weights, adopted.own)
    watching = Watching(on_step=on_step, show_progress=show_progress, track=trackers)
    return Run(fit(wanted, Path(out), donor, watching))


def usual_guide(adopted: Adopted, changes: Mapping[str, Any], by_size: str, before: Mapping | None) -> str:
    """As in the run that is there; else on the score, where docs/results/adopt.md found it best: for images of a size
    whose own guide is a U-Net, too, and unless another network was asked for, or a CPU would take days.

    by_size: the network of the guide that the preset has.
    """
    if before is not None:
        start = before["settings"]["classifier"]["start"]
        return start if start in GUIDES_ON else "fresh"
    if by_size != "ncsnpp" or any(f"classifier.{key}" in changes for key in SHAPE) or adopted.own is not None:
        return "fresh"
    weights = sum(p.numel() for p in adopted.model.parameters())
    return "score" if weights <= LARGEST_ON_CPU or torch.cuda.is_available() else "fresh"


def guide_on_score(adopted: Adopted, guide_on: str, sigma_data: float) -> dict[str, Any]:
    """Settings of a guide that stands on the adopted network's features."""
    net = {key.removeprefix("score."): value for key, value in adopted.settings.items()}
    if net["network"] == "adopted-module":
        raise SelfcalError(f"guide_on = {guide_on}: a module of your own may keep its features anywhere; use fresh")
    if net["network"] == "adopted":
        net = {"network": "adopted", "adopted": {**net["adopted"], "sigma_data": sigma_data}}
    kept = {key: value for key, value in net.items() if key not in ("form", "steps", "dropout")}
    return {f"classifier.{key}": value for key, value in (kept | {"start": guide_on, "head": "energy"}).items()}


def named(source: Any) -> str:
    return str(source) if isinstance(source, str | Path) else type(source).__name__


def open_source(
    source: Any,
    data: Dataset,
    conventions: Conventions = NONE_GIVEN,
    module: Maker = None,
    subfolder: str | None = None,
) -> Adopted:
    """A folder is a pipeline, a file a checkpoint, an object a pipeline or a module; each must fit the data."""
    if isinstance(source, str | Path):
        if not data.is_image:
            raise SelfcalError(f"{data.name} holds points; models of images are adopted")
        if conventions.given:
            raise SelfcalError(f"{conventions.given[0]}= is for modules; {source} says itself how it was trained")
        path = on_this_machine(source)
        return from_folder(path, data, subfolder) if path.is_dir() else from_checkpoint(path, data)
    if subfolder is not None:
        raise SelfcalError(f"subfolder= is for folders, not for a {named(source)}")
    if hasattr(source, "unet") and hasattr(source, "scheduler"):
        return from_pipeline(source, data)
    if type(source).__name__ == "UNet2DModel" and hasattr(source, "config") and not conventions.given:
        return fitting(diffusers.from_live(source, None, "UNet2DModel"), data, "UNet2DModel")
    if not callable(source):
        raise SelfcalError(f"a {named(source)} cannot be adopted; give a path, a pipeline, or a module net(x, t)")
    return from_module(source, data, conventions, module)


def from_folder(source: Path, data: Dataset, subfolder: str | None = None) -> Adopted:
    return fitting(diffusers.load(source, subfolder), data, str(source))


def from_pipeline(pipeline: Any, data: Dataset) -> Adopted:
    """One of diffusers' in memory."""
    name = type(pipeline).__name__
    check_parts({part for part, value in pipeline.components.items() if value is not None}, name)
    scheduler = dict(pipeline.scheduler.config) | {"_class_name": type(pipeline.scheduler).__name__}
    return fitting(diffusers.from_live(pipeline.unet, scheduler, name), data, name)


def fitting(pipeline: diffusers.Pipeline, data: Dataset, name: str) -> Adopted:
    """Its images must be the data's, and it must denoise them: what its scheduler says of it may be wrong."""
    if pipeline.shape != data.shape:
        raise SelfcalError(f"{name} makes images shaped {pipeline.shape}, {data.name} has {data.shape}")
    low, high = pipeline.sigma_min, pipeline.sigma_max
    called = name if pipeline.known else f"{name}, taken as DDPM,"
    with torch.random.fork_rng(devices=[]):
        if conventions := pipeline.conventions:
            wrapped = ScoreModel(pipeline.model.network, own_form({"form": conventions.form()}))
            words = check_denoising(wrapped, data.x, low, high, called, diffusers.advice)
        else:
            words = check_as_it_is(pipeline.model, data.x, low, high, called)
    settings = {"network": "adopted", "form": "adopted", "adopted": pipeline.adopted}
    return Adopted(pipeline.model, of_score(settings), low, high, f"{pipeline.words}, {words}")


def from_checkpoint(source: Path, data: Dataset) -> Adopted:
    saved = score_sde.read(source)
    if saved.channels != data.shape[0]:
        raise SelfcalError(f"{source} makes images of {saved.channels} channels, {data.name} has {data.shape[0]}")
    architecture = dict(saved.architecture)
    halvings = len(architecture["multipliers"]) - 1
    if any(side % 2**halvings for side in data.shape[1:]):
        raise SelfcalError(
            f"{source} halves images {halvings} times, which those of {data.name} {data.shape} do not bear"
        )
    resolutions = [data.shape[1] // 2**level for level in architecture.pop("attention")]
    settings = {"network": "ncsnpp", "form": "ve", "attention": resolutions, "dropout": 0.0} | architecture
    with torch.random.fork_rng(devices=[]):
        seen = check_as_it_is(saved.model, data.x, saved.sigma_min, saved.sigma_max, str(source))
    words = f"NCSN++ of score_sde, {sum(p.numel() for p in saved.model.parameters()):,} parameters, {seen}"
    return Adopted(saved.model, of_score(settings), saved.sigma_min, saved.sigma_max, words)


def check_method(wanted: Prepared) -> None:
    if "score" not in {stage.name for stage in wanted.method.stages(wanted.settings)}:
        raise SelfcalError(
            f"{wanted.method.name} has no unconditional score model that could be adopted; "
            "take a method of classifier guidance"
        )


def common_noise(wanted: Prepared, adopted: Adopted, source: str | Path) -> dict[str, float]:
    noise = wanted.settings.noise
    low, high = max(noise.sigma_min, adopted.sigma_min), min(noise.sigma_max, adopted.sigma_max)
    if low >= high:
        raise SelfcalError(
            f"{source} knows σ from {adopted.sigma_min:.3g} to {adopted.sigma_max:.3g}, the settings ask for "
            f"{noise.sigma_min:.3g} to {noise.sigma_max:.3g}"
        )
    return {"noise.sigma_min": low, "noise.sigma_max": high}
