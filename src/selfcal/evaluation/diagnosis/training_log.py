"""How a run was trained, from its files alone: quick enough to be asked at the end of every training."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from selfcal.core.errors import SelfcalError
from selfcal.core.settings import Settings, resolve
from selfcal.methods.stage import Context, Stage
from selfcal.training.directory import RunDirectory
from selfcal.training.learned import IDLE, learned

FALLING = ("sc_fraction", "dsm_fraction", "ce")  # tell whether a network was still learning; the first that is logged
SHORT, NEXT_TO_NONE = 0.5, 0.25  # of the preset's steps: few, if it was still learning; few in any case
STILL = 0.05  # a loss that fell by so much in the second half of a training was still falling


@dataclass(frozen=True)
class NetworkLog:
    """One network's training."""

    name: str
    role: str
    step: int  # of the newest checkpoint
    steps: int  # as settings say
    preset_steps: int | None  # as the preset says
    loss: str | None  # of FALLING
    halfway: float | None  # that loss around the middle, over a tenth of the log
    end: float | None  # and at the end

    @property
    def fall(self) -> float:
        """What the second half took off it, as a share."""
        return 0.0 if not self.halfway or self.end is None else 1 - self.end / self.halfway

    @property
    def is_short(self) -> bool:
        """Far fewer steps than the preset takes, and still learning when they ended; or next to none."""
        share = 1.0 if self.preset_steps is None else self.steps / self.preset_steps
        return share < NEXT_TO_NONE or (share < SHORT and self.fall > STILL)


@dataclass(frozen=True)
class TrainingLog:
    """What is known of a training without its networks."""

    networks: tuple[NetworkLog, ...]
    asks_for_calibration: bool  # the method has the paper's term
    sc_weight: float
    preset_sc_weight: float | None

    @property
    def calibration_is_off(self) -> bool:
        return self.asks_for_calibration and self.sc_weight == 0

    def in_json(self) -> dict[str, Any]:
        more = [{"is_short": net.is_short, "fall": net.fall} for net in self.networks]
        networks = [asdict(net) | words for net, words in zip(self.networks, more, strict=True)]
        return asdict(self) | {"networks": networks}


def training_log(run: RunDirectory) -> TrainingLog:
    lines, preset = list(run.journal.lines()), preset_of(run)
    networks = []
    for stage in run.stages:
        of_stage = [line for line in lines if line["network"] == stage.name]
        loss = next((name for name in FALLING if any(name in line for line in of_stage)), None)
        values = [float(line[loss]) for line in of_stage if loss in line] if loss else []
        steps = stage.settings(run.settings).steps
        usual = None if preset is None or is_adopted(run, stage) else stage.settings(preset).steps
        networks.append(NetworkLog(stage.name, stage.role, run.step_of(stage), steps, usual, loss, *two_means(values)))
    usual_weight = None if preset is None else preset.terms.sc_weight
    return TrainingLog(tuple(networks), asks_for_calibration(run), run.settings.terms.sc_weight, usual_weight)


def is_adopted(run: RunDirectory, stage: Stage) -> bool:
    """A score model that was trained elsewhere counts as one of a single step."""
    return stage.role == "score" and stage.settings(run.settings).steps == 1


def preset_of(run: RunDirectory) -> Settings | None:
    """What the settings started from, as it is today; None where nobody noted it, or it is gone."""
    name = run.config.get("preset")
    try:
        return resolve(name) if isinstance(name, str) else None
    except SelfcalError:
        return None


def asks_for_calibration(run: RunDirectory) -> bool:
    context = Context(run.settings, 0.02, Context.typical().networks)
    return any("sc" in stage.terms(context) for stage in run.stages if stage.role == "classifier")


def two_means(values: list[float]) -> tuple[float | None, float | None]:
    """Around the middle of a log and at its end, each over a tenth of it; single batches are noise."""
    tenth = len(values) // 10
    if tenth < 1:
        return None, None
    middle = len(values) // 2
    return mean(values[middle - tenth : middle]), mean(values[-tenth:])


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def looks_off(run: RunDirectory) -> list[str]:
    """What a look at the files alone finds wrong, in words; the doctor knows more."""
    log, words = training_log(run), []
    fraction = learned(run.journal.lines()).get("classifier", {}).get("sc_fraction", 0.0)
    if log.calibration_is_off:
        words.append("self-calibration has the weight 0")
    elif log.asks_for_calibration and fraction > IDLE:
        words.append(f"self-calibration did not act (its loss is {fraction:.0%} of a zero inner score's)")
    words += [
        f"the {net.name} network had {net.steps:,} steps of the preset's {net.preset_steps:,}"
        for net in log.networks
        if net.is_short
    ]
    per_class = run.config["labelled"] / max(1, len(run.classes))
    if per_class < 2:
        words.append(f"{run.config['labelled']} labels for {len(run.classes)} classes are very few")
    return words
