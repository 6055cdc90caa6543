"""The paper's claims, each computed from the table: holds, does not hold, or not tested, with the numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from selfcal.experiments.compare.summary import HEADS, LOWER_IS_BETTER, Summary, digits_of
from selfcal.experiments.compare.tables import labels_in_words
from selfcal.methods.table import BEYOND, GUIDED

RULE = (
    "A claim holds where the means over the seeds say so, and more than half of the seeds; where these disagree, where "
    "the means are equal as printed, or where a rival lacks seeds or has not been run, nothing is decided."
)
FREE = ("cond", "cfg-labeled", "cfg-all")
PAPERS_GUIDED = tuple(m for m in GUIDED if m not in BEYOND)
OTHERS_GUIDED = tuple(m for m in PAPERS_GUIDED if m != "cg-sc-all")


@dataclass(frozen=True)
class Finding:
    """One comparison behind a claim: did it come out as claimed (None: nothing is decided), and the numbers."""

    held: bool | None
    words: str

    @property
    def answer(self) -> str:
        return "undecided" if self.held is None else "yes" if self.held else "no"


@dataclass(frozen=True)
class Claim:
    words: str
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> str:
        held = [f.held for f in self.findings]
        if not held:
            return "not tested"
        if len(set(held)) == 1:
            return {True: "holds", False: "does not hold", None: "undecided"}[held[0]]
        name, of = ("holds", True) if True in held else ("does not hold", False)
        return f"{name} in {held.count(of)} of {len(held)}"


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
            against_each(fewest, lambda m, y: versus(s, m, "cg", y, "density", or_equal=True)),
        ),
        Claim(
            "… but lose coverage (below plain guidance's).",
            against_each(fewest, lambda m, y: versus(s, "cg", m, y, "coverage")),
        ),
        Claim(
            "With the fewest labels, classifier-free methods have a higher generation accuracy than CG-SC-all.",
            against_each(fewest, lambda m, y: versus(s, m, "cg-sc-all", y, "accuracy")),
        ),
        Claim(
            "Guided methods lose less coverage than classifier-free ones from all labels to the fewest.",
            coverage_lost(s, fewest, all_labels),
        ),
        Claim(
            "A step of CG-JEM costs at least 8 steps of self-calibration (in the paper 6.03 s against .75 s).",
            jem_cost(s, costs),
        ),
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


def versus(s: Summary, better: str, worse: str, labels: str, metric: str, or_equal: bool = False) -> Finding | None:
    """Does `better` have the better mean over the seeds both have, and is it better on most of them?

    or_equal: a tie as printed is as good.
    """
    pairs = s.paired(better, worse, labels, metric)
    if not pairs:
        return None
    sign, digits = -1 if metric in LOWER_IS_BETTER else 1, digits_of(metric)
    a, b = (sum(column) / len(pairs) for column in zip(*pairs, strict=True))
    wins = sum(sign * x > sign * y or (or_equal and x == y) for x, y in pairs)
    seeds = f"{wins} of {len(pairs)} seeds" if len(pairs) > 1 else "one seed"
    where = labels_in_words(s, labels)
    words = f"{where}: {HEADS[metric]} {better} {a:.{digits}f}, {worse} {b:.{digits}f} ({seeds})"
    if round(a, digits) == round(b, digits):
        return Finding(True if or_equal else None, words)
    ahead = sign * a > sign * b
    most = 2 * (wins if ahead else len(pairs) - wins) > len(pairs)
    return Finding(ahead if most else None, words)


def best_of(s: Summary, favourite: str, rivals: Sequence[str], labels: str, metric: str) -> Finding | None:
    """Against every rival; the numbers are those of the toughest.

    A rival that has fewer seeds than the favourite is neither beaten nor ahead: while there is one, or one that
    has not been run, the claim can be refuted by the others but not hold.
    """
    met = {m: f for m in rivals if (f := versus(s, favourite, m, labels, metric)) is not None}
    if not met:
        return None

    def lead(rival: str) -> float:
        pairs = s.paired(favourite, rival, labels, metric)
        sign = -1 if metric in LOWER_IS_BETTER else 1
        return sum(sign * (mine - theirs) for mine, theirs in pairs) / len(pairs)

    seeds = len(s.of(favourite, labels))
    decided = {m: f.held for m, f in met.items() if len(s.paired(favourite, m, labels, metric)) == seeds}
    beaten, missing = [m for m in decided if decided[m]], [m for m in rivals if m not in met]
    words = f"{met[min(met, key=lead)].words}; {len(beaten)} of {len(met)} rivals beaten"
    if missing:
        words += f"; not run: {', '.join(missing)}"
    if False in decided.values():
        return Finding(False, words)
    return Finding(True if len(beaten) == len(rivals) else None, words)


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
    held = None if round(guided, 2) == round(free, 2) else guided < free
    return (Finding(held, f"mean fall of coverage: guided {guided:.2f}, classifier-free {free:.2f}"),)


def jem_cost(s: Summary, costs: Mapping[str, float]) -> tuple[Finding, ...]:
    jem, sc = costs.get("cg-jem · classifier"), costs.get("cg-sc-all · classifier")
    if jem is None or sc is None or not {"cg-jem", "cg-sc-all"} <= set(s.methods):
        return ()
    return (Finding(jem / sc >= 8, f"{jem / sc:.1f} steps, measured by make bench"),)


def claims_in_markdown(found: Sequence[Claim]) -> str:
    lines = [RULE + "\n"]
    for number, claim in enumerate(found, 1):
        lines.append(f"{number}. **{claim.verdict}** — {claim.words}")
        lines += [f"   - {f.answer}: {f.words}" for f in claim.findings]
    return "\n".join(lines) + "\n"
