"""The paper's claims, each computed from the table: holds, does not hold, or not tested, with the numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from selfcal.core.escapes import markdown
from selfcal.experiments.compare.findings import (
    Finding,
    Findings,
    Test,
    beats,
    beats_all,
    each_of,
    everywhere,
    with_all_labels,
    with_few_labels,
    with_fewest_labels,
)
from selfcal.experiments.compare.summary import Summary
from selfcal.methods.table import BEYOND, GUIDED
from selfcal.report.columns import COLUMNS

RULE = (
    "A claim holds where the means over the seeds say so, and more than half of the seeds; where these disagree, where "
    "the means are equal as printed, or where a rival lacks seeds or has not been run, nothing is decided."
)
FREE = ("cond", "cfg-labeled", "cfg-all")
PAPERS_GUIDED = tuple(m for m in GUIDED if m not in BEYOND)
OTHERS_GUIDED = tuple(m for m in PAPERS_GUIDED if m != "cg-sc-all")


@dataclass(frozen=True)
class Claim:
    """A sentence, and what speaks for or against it."""

    words: str
    findings: Findings

    @property
    def verdict(self) -> str:
        held = [f.held for f in self.findings]
        if not held:
            return "not tested"
        if len(set(held)) == 1:
            return {True: "holds", False: "does not hold", None: "undecided"}[held[0]]
        name, of = ("holds", True) if True in held else ("does not hold", False)
        return f"{name} in {held.count(of)} of {len(held)}"


def coverage_lost(s: Summary, costs: Mapping[str, float]) -> Findings:
    """Mean fall of coverage in both families."""
    fewest, complete, coverage = with_fewest_labels(s), with_all_labels(s), COLUMNS["coverage"]
    if not fewest or not complete:
        return ()

    def fall(methods: Sequence[str]) -> float | None:
        pairs = [(s.estimate(m, complete[0], coverage), s.estimate(m, fewest[0], coverage)) for m in methods]
        falls = [a.mean - b.mean for a, b in pairs if a and b]
        return sum(falls) / len(falls) if falls else None

    guided, free = fall(PAPERS_GUIDED), fall(FREE)
    if guided is None or free is None:
        return ()
    held = None if round(guided, 2) == round(free, 2) else guided < free
    return (Finding(held, f"mean fall of coverage: guided {guided:.2f}, classifier-free {free:.2f}"),)


def jem_cost(s: Summary, costs: Mapping[str, float]) -> Findings:
    jem, sc = costs.get("cg-jem · classifier"), costs.get("cg-sc-all · classifier")
    if jem is None or sc is None or not {"cg-jem", "cg-sc-all"} <= set(s.methods):
        return ()
    return (Finding(jem / sc >= 8, f"{jem / sc:.1f} steps, measured by make bench"),)


CLAIMS: dict[str, Test] = {  # what the paper says of its method and its rivals, then what is hoped for beyond it
    "With few labels, self-calibration on all images improves intra-FID over plain guidance.": (
        beats("cg-sc-all", "cg", "intra_fid", with_few_labels)
    ),
    "With few labels, CG-SC-all has the best intra-FID of the paper's guided methods.": (
        beats_all("cg-sc-all", OTHERS_GUIDED, "intra_fid", with_few_labels)
    ),
    "Unlabelled images help: CG-SC-all has a better intra-FID than CG-SC-labeled with few labels.": (
        beats("cg-sc-all", "cg-sc-labeled", "intra_fid", with_few_labels)
    ),
    "Self-calibration improves intra-FID over plain guidance with all labels too.": (
        beats("cg-sc-all", "cg", "intra_fid", with_all_labels)
    ),
    "Self-calibration lowers the guide's calibration error.": beats("cg-sc-all", "cg", "ece", everywhere),
    "With few labels, CG-SC-all has a better intra-FID than every classifier-free method.": (
        beats_all("cg-sc-all", FREE, "intra_fid", with_few_labels)
    ),
    "With the fewest labels, classifier-free methods keep their density (at least plain guidance's) …": (
        each_of(*(beats(m, "cg", "density", with_fewest_labels, or_equal=True) for m in FREE))
    ),
    "… but lose coverage (below plain guidance's).": (
        each_of(*(beats("cg", m, "coverage", with_fewest_labels) for m in FREE))
    ),
    "With the fewest labels, classifier-free methods have a higher generation accuracy than CG-SC-all.": (
        each_of(*(beats(m, "cg-sc-all", "accuracy", with_fewest_labels) for m in FREE))
    ),
    "Guided methods lose less coverage than classifier-free ones from all labels to the fewest.": coverage_lost,
    "A step of CG-JEM costs at least 8 steps of self-calibration (in the paper 6.03 s against .75 s).": jem_cost,
    "Beyond the paper: training on with its own labels (CG-SC-PL) has a better intra-FID than CG-SC-all.": (
        beats("cg-sc-pl", "cg-sc-all", "intra_fid", with_few_labels)
    ),
    "Beyond the paper: a conditional model on those labels (DPT) has a better intra-FID than CG-SC-all.": (
        beats("dpt", "cg-sc-all", "intra_fid", with_few_labels)
    ),
}


def claims(summary: Summary, costs: Mapping[str, float]) -> list[Claim]:
    return [Claim(words, test(summary, costs)) for words, test in CLAIMS.items()]


def claims_in_markdown(verdicts: Sequence[Claim]) -> str:
    lines = [RULE + "\n"]
    for number, claim in enumerate(verdicts, 1):
        lines.append(f"{number}. **{claim.verdict}** — {claim.words}")
        lines += [f"    - {f.answer}: {f.said(markdown)}" for f in claim.findings]
    return "\n".join(lines) + "\n"
