"""From what was measured to what is wrong and what to do: each finding has its number and ends in a command.

Causes stand before what they cause: a guide that was trained too briefly is also over-confident, and more labels would
not cure it. RULES is that order; faults go before warnings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from selfcal.evaluation.choice import TIED
from selfcal.evaluation.diagnosis.commands import Commands
from selfcal.training.learned import IDLE

FAULT, WARNING = "fault", "warning"

# Chosen on digits, runs of seed 30 and label splits of the seeds 30 to 35; docs/results/doctor.md tells of others.
COPIED, REACHED = 0.3, 0.7  # share of samples that are copies; coverage, of what real images reach
FEWEST_SUSPECTS = 3
TRUSTED = 0.6  # share of labels that the others confirm, below which leaving out says nothing
SKILL = 0.25  # of the way from chance to certainty
LIMITS = {
    "held-out": (0.2, 0.15),  # accuracy on labelled images less that on others; calibration error
    "stand-in": (0.3, 0.25),  # labels that spread are sometimes wrong themselves
    "cross-fit": (1.0, 1.0),  # short trainings tell whether the labels can be learned at all, and no more
}
GAIN = -0.05  # of the denoising loss, by guidance
LEARNABLE = (0.03, 0.6)  # fraction of a zero score's loss that the score model has, where class and noise can be told


@dataclass(frozen=True)
class Finding:
    """What is wrong, by which number, and what to do."""

    name: str
    level: str  # FAULT or WARNING
    title: str
    number: str  # what was measured, in a sentence
    advice: str
    command: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def in_json(self) -> dict[str, Any]:
        return asdict(self)


Rule = Callable[[Mapping[str, Any], Commands], Finding | None]


def findings(measured: Mapping[str, Any], commands: Commands) -> list[Finding]:
    """The faults, then the warnings, causes first."""
    found = [finding for rule in RULES if (finding := rule(measured, commands)) is not None]
    return sorted(found, key=lambda finding: finding.level != FAULT)


# --- how it was trained -----------------------------------------------------------------------------


def unfinished(m: Mapping[str, Any], c: Commands) -> Finding | None:
    for net in m["training"]["networks"]:
        if net["step"] < net["steps"]:
            return Finding(
                "unfinished",
                FAULT,
                f"the {net['name']} network is not finished",
                f"it is at step {net['step']:,} of {net['steps']:,}",
                "let it come to its end",
                c.again(),
                {"step": net["step"], "steps": net["steps"]},
            )
    return None


def switched_off(m: Mapping[str, Any], c: Commands) -> Finding | None:
    """The method is one of self-calibration, and its weight is 0."""
    return idle(m, c) if m["training"]["sc_weight"] == 0 else None


def idle_anyway(m: Mapping[str, Any], c: Commands) -> Finding | None:
    """Measured; after what is a cause of it."""
    return idle(m, c) if m["training"]["sc_weight"] > 0 else None


def idle(m: Mapping[str, Any], c: Commands) -> Finding | None:
    """L_SC against a zero score's, averaged over the noise."""
    log, table = m["training"], m["acts"]
    if not log["asks_for_calibration"] or not table:
        return None
    fraction = mean(table, "guide")
    off = log["sc_weight"] == 0
    if not off and fraction <= IDLE:
        return None
    usual = log["preset_sc_weight"] or 1.0
    why = "is switched off (terms.sc_weight = 0)" if off else "does not act"
    weight = usual if off else 10 * log["sc_weight"]
    advice = f"train it with a weight of {weight:g}, so that this guide is not in truth a plain one"
    change = f"terms.sc_weight={weight:g}"
    if not off and c.pooled:
        advice, change = "give the classifier a head whose inner score can learn", "classifier.head=energy"
    return Finding(
        "calibration-idle",
        FAULT,
        f"self-calibration {why}",
        f"the guide's inner score has {fraction:.0%} of a zero score's loss"
        + (f", the score model's {mean(table, 'score'):.0%}" if table[0]["score"] is not None else ""),
        advice,
        c.anew(change),
        {"fraction": fraction, "sc_weight": log["sc_weight"]},
    )


def short(m: Mapping[str, Any], c: Commands) -> Finding | None:
    """All that were: a guide of full length for half a score model would mend nothing."""
    nets = [net for net in m["training"]["networks"] if net["is_short"]]
    if not nets:
        return None
    first, names = nets[0], " and the ".join(net["name"] for net in nets)
    steps = " and ".join(f"{net['preset_steps']:,}" for net in nets)
    return Finding(
        "too-short",
        FAULT,
        f"the {names} network{' was' if len(nets) == 1 else 's were'} trained too briefly",
        "; ".join(map(shortness, nets)),
        f"train {'it' if len(nets) == 1 else 'them'} for the preset's {steps} steps",
        c.anew(*(f"{net['role']}.steps={net['preset_steps']}" for net in nets)),
        {"steps": first["steps"], "preset_steps": first["preset_steps"], "fall": first["fall"]},
    )


def shortness(net: Mapping[str, Any]) -> str:
    share, fell = net["steps"] / net["preset_steps"], ""
    if net["halfway"] is not None:
        fell = f"; its {net['loss']} was {net['halfway']:.3g} halfway and {net['end']:.3g} at the end"
    return f"{net['name']}: {net['steps']:,} steps are {share:.0%} of the preset's {net['preset_steps']:,}{fell}"


# --- what came of it --------------------------------------------------------------------------------


def memorising(m: Mapping[str, Any], c: Commands) -> Finding | None:
    found = m["copies"]
    copied, coverage, usual = found["copied"], found["coverage"], found["real_coverage"]
    if copied is None or coverage is None or copied < COPIED or coverage > REACHED * usual:
        return None
    advice, command = c.against_copies()
    return Finding(
        "memorising",
        FAULT,
        f"samples are copies of the {m['labels']['labelled']} labelled images",
        f"{copied:.0%} of {found['samples']} samples lie nearer to a labelled image than 95 % of other real images do; "
        f"density {found['density']:.2f} with coverage {coverage:.2f}, where as many real images reach {usual:.2f}",
        advice,
        command,
        {"copied": copied, "density": found["density"], "coverage": coverage},
    )


def wrong_labels(m: Mapping[str, Any], c: Commands) -> Finding | None:
    found = m["suspects"]
    suspects, agreement = found["found"], found["agreement"]
    if len(suspects) < FEWEST_SUSPECTS or agreement is None or agreement < TRUSTED:
        return None
    first = ", ".join(f"{s['name']} ({s['label']}, rather {s['instead']})" for s in suspects[:3])
    return Finding(
        "wrong-labels",
        FAULT,
        "some labels are probably wrong",
        f"{len(suspects)} of {found['judged']} labels are contradicted by the others when left out, for instance "
        f"{first}; of all, {agreement:.0%} are confirmed",
        f"look at them in {c.page}, correct your labels, and train anew",
        c.relabelled(),
        {"suspects": len(suspects), "judged": found["judged"], "agreement": agreement},
    )


def overfits(m: Mapping[str, Any], c: Commands) -> Finding | None:
    """On clean images: what it knows of labelled ones and not of others."""
    table, own, labels = m["knows"]["by_sigma"], m["knows"]["labelled"], m["labels"]
    if not table:
        return few_labels(m, c)
    if m["knows"]["by"] is None:  # of trainings too short to tell
        return None
    accuracy, shown = table[0]["accuracy"], own[0]["accuracy"]
    chance, gap = 1 / c.classes, LIMITS[m["knows"]["by"]][0]
    if shown - accuracy < gap and accuracy >= chance + SKILL * (1 - chance):
        return None
    advice, command = c.more_labels(m["training"]["asks_for_calibration"])
    return Finding(
        "too-few-labels",
        FAULT,
        f"the guide knows its {labels['labelled']} labelled images and not the others",
        f"it is right on {shown:.0%} of the labelled images and on {accuracy:.0%} of {m['knows']['images']} others "
        f"({m['knows']['on']}), with a calibration error of {table[0]['ece']:.2f}; the class with the fewest labels "
        f"has {labels['fewest']}",
        advice,
        command,
        {"accuracy": accuracy, "on_labelled": shown, "ece": table[0]["ece"], "labelled": labels["labelled"]},
    )


def few_labels(m: Mapping[str, Any], c: Commands) -> Finding | None:
    """Where not even one label can be left out, nobody can say what the guide knows: that is the finding."""
    labels = m["labels"]
    if not m["knows"]["labelled"] or labels["fewest"] > 1:
        return None
    advice, command = c.more_labels(m["training"]["asks_for_calibration"])
    return Finding(
        "too-few-labels",
        FAULT,
        f"{labels['labelled']} labels are too few to know whether the guide knows anything",
        f"the class with the fewest labels has {labels['fewest']}, so that none can be left out to judge by",
        advice,
        command,
        {"labelled": labels["labelled"], "fewest": labels["fewest"]},
    )


# --- consequences -----------------------------------------------------------------------------------


def overconfident(m: Mapping[str, Any], c: Commands) -> Finding | None:
    by = m["knows"]["by"]
    table = m["knows"]["by_sigma"] if by else []
    worst = max(table, key=lambda row: row["ece"], default=None)
    if worst is None or worst["ece"] < LIMITS[by][1] or worst["confidence"] < worst["accuracy"]:
        return None
    advice, command = c.calibrated(m["training"]["asks_for_calibration"])
    return Finding(
        "over-confident",
        WARNING,
        f"the guide is over-confident at σ = {worst['sigma']:.2g}",
        f"it is {worst['confidence']:.0%} sure there and right on {worst['accuracy']:.0%}: calibration error "
        f"{worst['ece']:.2f}",
        advice,
        command,
        {"sigma": worst["sigma"], "ece": worst["ece"]},
    )


def pulls_away(m: Mapping[str, Any], c: Commands) -> Finding | None:
    """Where class and noise can be told apart at all, by the score model's loss."""
    low, high = LEARNABLE
    rows = [p for p, a in zip(m["pulls"], m["acts"], strict=True) if a["score"] is not None and low < a["score"] < high]
    if not rows or (gain := mean(rows, "gain")) >= GAIN:
        return None
    worst = min(rows, key=lambda row: row["gain"])
    advice, command = c.calibrated(m["training"]["asks_for_calibration"])
    return Finding(
        "pulls-away",
        WARNING,
        "guidance pulls away from the class it is asked for",
        f"guided by the true class, denoising gets {-gain:.0%} worse on average between σ = {rows[0]['sigma']:.2g} and "
        f"{rows[-1]['sigma']:.2g} ({-worst['gain']:.0%} at {worst['sigma']:.2g}); it should get better",
        advice,
        command,
        {"gain": gain, "worst": worst["gain"], "sigma": worst["sigma"]},
    )


def edge(m: Mapping[str, Any], c: Commands) -> Finding | None:
    curve, scale = m["scale"]["curve"], m["scale"]["scale"]
    if len(curve) < 2 or scale != curve[-1]["scale"]:
        return None
    before, last = curve[-2]["label_free_fid"], curve[-1]["label_free_fid"]
    if min(row["label_free_fid"] for row in curve[:-1]) <= (1 + TIED) * last:
        return None  # the curve is flat before its end: nothing says that more would help
    return Finding(
        "scale-at-the-edge",
        WARNING,
        f"the best λ is the largest tried, {scale:g}",
        f"the label-free distance is {last:.1f} there and {before:.1f} at {curve[-2]['scale']:g}",
        "try larger ones",
        c.evaluated([scale, 1.5 * scale, 2 * scale, 3 * scale]),
        {"scale": scale},
    )


def mean(rows: Sequence[Mapping[str, Any]], key: str) -> float:
    return float(sum(row[key] for row in rows) / len(rows))


RULES: tuple[Rule, ...] = (
    unfinished,
    switched_off,
    short,
    idle_anyway,
    memorising,
    wrong_labels,
    overfits,
    overconfident,
    pulls_away,
    edge,
)
