"""The paper's claims, each computed from the table: holds, does not hold, or not tested, with the numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from selfcal.methods import BEYOND, GUIDED
from selfcal.report.comparison_tables import labels_in_words
from selfcal.report.summary import HEADS, Summary, digits_of

FREE = ("cond", "cfg-labeled", "cfg-all")
PAPERS_GUIDED = tuple(m for m in GUIDED if m not in BEYOND)
OTHERS_GUIDED = tuple(m for m in PAPERS_GUIDED if m != "cg-sc-all")


@dataclass(frozen=True)
class Finding:
    """One comparison behind a claim: did it come out as claimed (None: a tie as printed), and the numbers."""

    held: bool | None
    words: str

    @property
    def answer(self) -> str:
        return "a tie" if self.held is None else "yes" if self.held else "no"


@dataclass(frozen=True)
class Claim:
    words: str
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> str:
        decided = [f.held for f in self.findings if f.held is not None]
        if not decided:
            return "undecided" if self.findings else "not tested"
        if all(decided):
            return "holds"
        return f"holds in {sum(decided)} of {len(decided)}" if any(decided) else "does not hold"


def claims(summary: Summary, costs: Mapping[str, float]) -> list[Claim]:
    """What the paper says of its method and its rivals, then what is hoped for beyond it."""
    few, all_labels = scarce(summary), full(summary)
    fewest = few[:1]
    s = summary
    return [
        Claim(
            "With few labels, self-calibration on all images improves intra-FID over plain guidance.",
            each(few, lambda y: versus(s, "cg-sc-all", "cg", y, "intra_fid")),
        ),
        Claim(
            "With few labels, CG-SC-all has the best intra-FID of the paper's guided methods.",
            each(few, lambda y: best_of(s, "cg-sc-all", OTHERS_GUIDED, y, "intra_fid")),
        ),
        Claim(
            "Unlabelled images help: CG-SC-all has a better intra-FID than CG-SC-labeled with few labels.",
            each(few, lambda y: versus(s, "cg-sc-all", "cg-sc-labeled", y, "intra_fid")),
        ),
        Claim(
            "Self-calibration improves intra-FID over plain guidance with all labels too.",
            each(all_labels, lambda y: versus(s, "cg-sc-all", "cg", y, "intra_fid")),
        ),
        Claim(
            "Self-calibration lowers the guide's calibration error.",
            each(s.labels, lambda y: versus(s, "cg-sc-all", "cg", y, "ece")),
        ),
        Claim(
            "With few labels, CG-SC-all has a better intra-FID than every classifier-free method.",
            each(few, lambda y: best_of(s, "cg-sc-all", FREE, y, "intra_fid")),
        ),
        Claim(
            "With the fewest labels, classifier-free methods keep their density (at least plain guidance's) …",
            against_each(fewest, lambda m, y: versus(s, m, "cg", y, "density")),
        ),
        Claim(
            "… but lose coverage (below plain guidance's).",
            against_each(fewest, lambda m, y: versus(s, "cg", m, y, "coverage")),
        ),
        Claim(
            "Classifier-free methods have the higher generation accuracy with the fewest labels.",
            against_each(fewest, lambda m, y: versus(s, m, "cg-sc-all", y, "accuracy")),
        ),
        Claim(
            "Guided methods lose less coverage than classifier-free ones from all labels to the fewest.",
            coverage_lost(s, fewest, all_labels),
        ),
        Claim("A step of CG-JEM costs at least 8 steps of self-calibration (6.03 s against .75 s).", jem_cost(costs)),
        Claim(
            "Beyond the paper: training on with its own labels (CG-SC-PL) has a better intra-FID than CG-SC-all.",
            each(few, lambda y: versus(s, "cg-sc-pl", "cg-sc-all", y, "intra_fid")),
        ),
        Claim(
            "Beyond the paper: a conditional model on those labels (DPT) has a better intra-FID than CG-SC-all.",
            each(few, lambda y: versus(s, "dpt", "cg-sc-all", y, "intra_fid")),
        ),
    ]


def scarce(summary: Summary) -> list[str]:
    """Choices of labels that leave images unlabelled."""
    return [y for y in summary.labels if y not in full(summary)]


def full(summary: Summary) -> list[str]:
    known = {r["labels"]: r["labelled"] >= r["reference_examples"] for r in summary.results}
    return [y for y in summary.labels if known.get(y)]


def each(labels: Sequence[str], find: Callable[[str], Finding | None]) -> tuple[Finding, ...]:
    return tuple(found for y in labels if (found := find(y)) is not None)


def against_each(labels: Sequence[str], find: Callable[[str, str], Finding | None]) -> tuple[Finding, ...]:
    """One finding for each classifier-free method."""
    return tuple(found for m in FREE for y in labels if (found := find(m, y)) is not None)


def versus(s: Summary, better: str, worse: str, labels: str, metric: str) -> Finding | None:
    """Is the mean of `better` the better one, over the seeds both have?"""
    pairs = s.paired(better, worse, labels, metric)
    if not pairs:
        return None
    sign = -1 if metric in ("intra_fid", "fid", "ece", "kid") else 1
    a, b = (sum(column) / len(pairs) for column in zip(*pairs, strict=True))
    wins, digits = sum(sign * x > sign * y for x, y in pairs), digits_of(metric)
    seeds = f"{wins} of {len(pairs)} seeds" if len(pairs) > 1 else "one seed"
    where = labels_in_words(s, labels)
    words = f"{where}: {HEADS[metric]} {better} {a:.{digits}f}, {worse} {b:.{digits}f} ({seeds})"
    return Finding(None if round(a, digits) == round(b, digits) else sign * a > sign * b, words)


def best_of(s: Summary, favourite: str, rivals: Sequence[str], labels: str, metric: str) -> Finding | None:
    """Against the rival with the best mean."""
    met = [m for m in rivals if s.paired(favourite, m, labels, metric)]
    if not met:
        return None
    found = [versus(s, favourite, m, labels, metric) for m in met]
    lost = [f for f in found if f and f.held is False]
    means = {m: e.mean for m in met if (e := s.estimate(m, labels, metric))}
    toughest = min(means, key=lambda m: means[m] if metric in ("intra_fid", "fid", "ece") else -means[m])
    shown = lost[0] if lost else versus(s, favourite, toughest, labels, metric)
    assert shown is not None, "the toughest rival has been met"
    return Finding(not lost, f"{shown.words}; {len(met) - len(lost)} of {len(met)} rivals beaten")


def coverage_lost(s: Summary, fewest: Sequence[str], all_labels: Sequence[str]) -> tuple[Finding, ...]:
    """Mean fall of coverage in both families."""
    if not fewest or not all_labels:
        return ()

    def fall(methods: Sequence[str]) -> float | None:
        pairs = [(s.estimate(m, all_labels[0], "coverage"), s.estimate(m, fewest[0], "coverage")) for m in methods]
        falls = [a.mean - b.mean for a, b in pairs if a and b]
        return sum(falls) / len(falls) if falls else None

    guided, free = fall(PAPERS_GUIDED), fall(FREE)
    if guided is None or free is None:
        return ()
    return (Finding(guided < free, f"mean fall of coverage: guided {guided:.2f}, classifier-free {free:.2f}"),)


def jem_cost(costs: Mapping[str, float]) -> tuple[Finding, ...]:
    jem, sc = costs.get("cg-jem · classifier"), costs.get("cg-sc-all · classifier")
    if jem is None or sc is None:
        return ()
    return (Finding(jem / sc >= 8, f"{jem / sc:.1f} steps, measured by make bench"),)


def claims_in_markdown(found: Sequence[Claim]) -> str:
    lines = []
    for number, claim in enumerate(found, 1):
        lines.append(f"{number}. **{claim.verdict}** — {claim.words}")
        lines += [f"   - {f.answer}: {f.words}" for f in claim.findings]
    return "\n".join(lines) + "\n"
