"""Typed settings. Defaults live here; presets/*.toml hold only differences; an unknown key is an error."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from selfcal.core.bounds import MOST_SAMPLER_STEPS, MOST_STEPS
from selfcal.core.errors import SelfcalError, unknown

NETWORKS = ("score", "classifier", "conditional")
"""The roles a network can have; each has a section of settings of its own."""


def _from_commas(value: Any) -> Any:
    """ "1,2,2" -> ["1", "2", "2"]; "" -> []."""
    return [part for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Sizes = Annotated[
    tuple[Annotated[int, Field(ge=1, le=2**16)], ...], BeforeValidator(_from_commas), Field(max_length=64)
]
LARGEST = 1e9  # of numbers that fp32 must square; those of weights may be as large, too


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class NoiseSettings(Section):
    sigma_min: float = Field(0.02, ge=1 / LARGEST, le=LARGEST, description="smallest noise; data lies in [−1, 1]")
    sigma_max: float = Field(100.0, ge=1 / LARGEST, le=LARGEST, description="largest noise, where sampling starts")
    sigma_data: float = Field(
        0.5, ge=1 / LARGEST, le=LARGEST, description="spread of the data; scales network inputs (EDM's σ_d)"
    )

    @model_validator(mode="after")
    def _in_order(self) -> NoiseSettings:
        if not self.sigma_min < self.sigma_max:
            raise ValueError("noise.sigma_max must be larger than noise.sigma_min")
        return self


class DataSettings(Section):
    flips: bool = Field(False, description="mirror every other training image, chosen at random, left to right")


class NetworkSettings(Section):
    """One network and how it is trained."""

    network: str = Field(
        "mlp", description="mlp, ncsnpp (the paper's U-Net for images), or one that `selfcal adopt` took in"
    )
    width: int = Field(
        256, ge=1, le=2**16, description="of the mlp's layers, or channels of the U-Net at full resolution"
    )
    blocks: int = Field(3, ge=1, le=2**10, description="residual blocks; of the U-Net, at each resolution")
    multipliers: Sizes = Field((1, 2, 2, 2), description="ncsnpp: channels at each halving, in widths")
    attention: Sizes = Field((16,), description="ncsnpp: the resolutions at which pixels attend to each other")
    patch: int = Field(
        1, ge=1, le=64, description="ncsnpp: squares of so many pixels enter as one, with a channel for each of them"
    )
    head: str = Field(
        "energy",
        description="of an ncsnpp classifier: energy (a sum over pixels and resolutions, whose inner score can learn) "
        "or pooled (a mean over the innermost pixels)",
    )
    start: Literal["scratch", "score", "score-frozen"] = Field(
        "scratch",
        description="of a classifier: scratch, score (the score model's encoder, where it fits), or score-frozen "
        "(and it stays so)",
    )
    fourier_scale: float = Field(
        16.0, gt=0, le=LARGEST, description="ncsnpp: how finely it tells σ apart; the paper's 16 needs long training"
    )
    form: str = Field(
        "edm", description="how a score model uses its network: Karras et al.'s scaling, or the paper's F(x, σ)/σ"
    )
    adopted: dict[str, Any] = Field({}, description="what `selfcal adopt` noted of a model's network and schedule")
    dropout: float = Field(0.0, ge=0, lt=1, description="share of features dropped at random in training")
    sigma_centre: float | None = Field(
        None,
        ge=1 / LARGEST,
        le=LARGEST,
        description="train most around this σ (ln σ is normal there); all σ alike on a log scale if unset",
    )
    sigma_spread: float = Field(1.2, gt=0, le=LARGEST, description="standard deviation of ln σ around sigma_centre")
    steps: int = Field(8000, ge=1, le=MOST_STEPS, description="optimiser steps")
    batch: int = Field(128, ge=2, le=2**24, description="examples in a step; half of them labelled where labels matter")
    optimiser: str = Field(
        "adam",
        description="adam, or muon: matrices step alike in all directions, which takes far fewer steps on images",
    )
    lr: float = Field(1e-3, gt=0, le=LARGEST, description="learning rate after the warm-up")
    beta2: float = Field(0.999, ge=0, lt=1, description="how long Adam remembers squared gradients")
    warmup: int = Field(100, ge=0, le=MOST_STEPS, description="steps of linear warm-up")
    decay: float = Field(1.0, ge=0, le=LARGEST, description="lr falls as (1 − step/steps)^decay; 0 keeps it constant")
    clip: float = Field(1.0, gt=0, le=LARGEST, description="largest global gradient norm")
    ema: float = Field(0.999, ge=0, lt=1, description="decay of the weight average that is used afterwards")


class TermSettings(Section):
    """Weights of the terms of the paper (which method uses which: `selfcal methods`)."""

    sc_weight: float = Field(
        1.0,
        ge=0,
        le=LARGEST,
        description="λ_SC; multiplies ½‖σ s + z‖² summed over all pixels and channels (a zero inner score's is half "
        "their number), or their mean with sc_per_dimension",
    )
    sc_decay: float = Field(
        0.0,
        ge=0,
        le=LARGEST,
        description="λ_SC falls as (1 − step/steps)^sc_decay: the density first, the labels last; 0 keeps it constant",
    )
    sc_rebalance: bool = Field(
        True,
        description="weigh the two halves of a batch so that SC sees the pool's true share of labelled images",
    )
    sc_thinned: bool = Field(
        False,
        description="with sc_rebalance: by leaving labelled images out of SC at random, which spares their computation",
    )
    sc_lift: float = Field(
        0.0,
        ge=0,
        description="0 is the paper's λ(t) = σ²; else noise of σ counts 1 + (min(σ, sc_lift)/σ_d)² times, as in the "
        "score model's own loss up to that σ",
    )
    sc_per_dimension: bool = Field(False, description="mean instead of sum over pixels in the SC loss")
    ls_smoothing: float = Field(0.1, ge=0, lt=1, description="ε of label smoothing; the paper tried .1 and .05")
    jr_weight: float = Field(0.01, ge=0, le=LARGEST, description="weight of the Jacobian regularisation")
    jr_projections: int = Field(1, ge=1, le=2**10, description="random projections per step of the Jacobian's norm")
    dlsm_weight: float = Field(1.0, ge=0, le=LARGEST, description="weight of the likelihood score matching loss")
    dlsm_sigma_power: float = Field(2.0, ge=-4, le=4, description="λ(σ) = σ^power; the original repository uses 0")
    dlsm_per_dimension: bool = Field(False, description="mean over pixels; the original repository uses it")
    jem_weight: float = Field(1.0, ge=0, le=LARGEST, description="weight of the energy-based loss")
    jem_levels: int = Field(10, ge=2, le=2**16, description="noise levels of the recovery likelihood's ladder")
    jem_steps: int = Field(30, ge=1, le=2**16, description="Langevin steps; the naive form's original uses 20")
    jem_naive: bool = Field(False, description="persistent chains at every σ instead of recovery likelihood")
    robust_epsilon: float = Field(0.5, ge=0, le=LARGEST, description="radius of the L2 attack")
    robust_steps: int = Field(7, ge=1, le=2**16, description="steps of the attack")
    robust_grows: bool = Field(False, description="let the radius grow as max(1, σ/σ_d)")
    cfg_drop: float = Field(0.1, ge=0, le=1, description="probability of dropping a label (p_uncond)")
    online_weight: float = Field(
        1.0, ge=0, le=LARGEST, description="weight of the classifier's own targets (cg-sc-online)"
    )
    online_threshold: float = Field(0.9, ge=0, le=1, description="confidence on the clean image from which it teaches")
    online_sharpening: float = Field(
        2.0, gt=0, le=LARGEST, description="what its logits are multiplied by to make targets"
    )
    online_balanced: bool = Field(
        False,
        description="hold back classes that it says too often: only where the images hold all classes equally often",
    )
    pl_threshold: float = Field(0.9, ge=0, le=1, description="confidence from which a pseudo-label is kept")
    pl_rounds: int = Field(1, ge=1, le=100, description="times of labelling and training on")
    pl_warm_start: bool = Field(True, description="train on from the classifier that gave the labels")


class SamplingSettings(Section):
    sampler: str = Field("dpm++2m-sde", description="default sampler")
    steps: int | None = Field(
        None, ge=1, le=MOST_SAMPLER_STEPS, description="steps; the sampler's own default if unset"
    )
    batch: int = Field(1000, ge=1, le=2**24, description="images per sampling batch")


class RunSettings(Section):
    save_every: int = Field(1000, ge=1, le=MOST_STEPS, description="steps between checkpoints")
    log_every: int = Field(50, ge=1, le=MOST_STEPS, description="steps between lines of log.jsonl")
    keep: int = Field(2, ge=1, le=MOST_STEPS, description="checkpoints kept per network: the last ones")
    keep_every: int = Field(
        0, ge=0, le=MOST_STEPS, description="those at multiples of this step are kept for good; 0: none"
    )
    precision: Literal["fp32", "tf32", "bf16"] = Field(
        "fp32", description="of products: fp32, tf32 (on a GPU), or bf16 (logits and energies stay fp32)"
    )
    compile: bool = Field(
        False,
        description="let torch.compile make networks quicker: the first steps wait for it; guides whose training "
        "differentiates a gradient are compiled for sampling alone",
    )
    preview_every: int = Field(
        1000,
        ge=0,
        le=MOST_STEPS,
        description="steps between pictures of what the networks can do, samples/preview-*.png; 0: none",
    )


class Settings(Section):
    data: DataSettings = DataSettings()
    noise: NoiseSettings = NoiseSettings()
    score: NetworkSettings = NetworkSettings()
    classifier: NetworkSettings = NetworkSettings()
    conditional: NetworkSettings = NetworkSettings()
    terms: TermSettings = TermSettings()
    sampling: SamplingSettings = SamplingSettings()
    run: RunSettings = RunSettings()

    def dotted(self) -> dict[str, Any]:
        """Every setting by its dotted name, as JSON has it."""
        sections = self.model_dump(mode="json").items()
        return {f"{section}.{name}": value for section, values in sections for name, value in values.items()}

    def changed(self, changes: Mapping[str, Any]) -> Settings:
        """The same but for these, by their dotted names."""
        tree = self.model_dump(mode="json")
        for key, value in changes.items():
            _put(tree, key, value)
        return _validated(tree)

    def with_steps(self, steps: Mapping[str, int]) -> Settings:
        """The same with other numbers of steps, by network."""
        return self.changed({f"{role}.steps": number for role, number in steps.items()})


def presets() -> list[str]:
    folder = resources.files("selfcal.core") / "presets"
    return sorted(p.name.removesuffix(".toml") for p in folder.iterdir() if p.name.endswith(".toml"))


def preset_text(name: str) -> str:
    """A preset's file as it is."""
    if name not in presets():
        raise unknown("preset", name, presets())
    return (resources.files("selfcal.core") / "presets" / f"{name}.toml").read_text("utf-8")


def purpose(name: str) -> str:
    """What a preset is for: the comment at the head of its file."""
    head = itertools.takewhile(lambda line: line.startswith("#"), preset_text(name).splitlines())
    return " ".join(line.removeprefix("#").strip() for line in head)


def read_preset(name: str) -> dict[str, Any]:
    """A preset's differences; `like = "other"` in its file starts from another preset."""
    tree = tomllib.loads(preset_text(name))
    whole: dict[str, Any] = read_preset(tree.pop("like")) if "like" in tree else {}
    for section, values in tree.items():
        whole[section] = whole.get(section, {}) | values
    return whole


def resolve(preset: str, changes: Mapping[str, Any] | Iterable[str] = (), steps: int | None = None) -> Settings:
    """Defaults, then the preset, then the user's changes ("terms.sc_weight=10"), checked as a whole."""
    tree = read_preset(preset)
    if steps is not None:
        for network in NETWORKS:
            tree.setdefault(network, {})["steps"] = steps
    for key, value in pairs(changes):
        _put(tree, key, value)
    return _validated(tree)


def _validated(tree: dict[str, Any]) -> Settings:
    try:
        return Settings.model_validate(tree)
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(str(part) for part in problem["loc"])
        value = "" if isinstance(problem["input"], dict) else f" = {problem['input']!r}"
        raise SelfcalError(f"setting {key}{value}: {problem['msg'].removeprefix('Value error, ').lower()}") from None


def pairs(changes: Mapping[str, Any] | Iterable[str]) -> list[tuple[str, Any]]:
    """Changes as (key, value), however they were given."""
    return list(changes.items()) if isinstance(changes, Mapping) else [_split(change) for change in changes]


def keys() -> dict[str, Any]:
    """Every setting by its dotted name, with its default."""
    return Settings().dotted()


def _split(change: str) -> tuple[str, str | None]:
    """ "score.sigma_centre=none" takes a preset's value back."""
    key, equals, value = change.partition("=")
    if not equals:
        raise SelfcalError(f"--set {change!r} is not of the form key=value")
    return key.strip(), None if value.strip().lower() == "none" else value.strip()


def _put(tree: dict[str, Any], key: str, value: Any) -> None:
    if key not in keys():
        raise unknown("setting", key, keys())
    section, name = key.split(".")
    tree.setdefault(section, {})[name] = value
