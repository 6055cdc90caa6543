"""Tables, marks and claims, from outcomes written by hand."""

from __future__ import annotations

import csv
import io
import statistics
import subprocess
import sys

import pytest
from scipy import stats

from selfcal.core.errors import SelfcalError
from selfcal.core.settings import Settings
from selfcal.experiments import costs
from selfcal.experiments.compare import tables
from selfcal.experiments.compare.claims import claims
from selfcal.experiments.compare.latex import latex
from selfcal.experiments.compare.summary import Estimate, Summary
from selfcal.methods.table import METHODS
from selfcal.report.columns import COLUMNS

COMMON = {
    "samples": 1800,
    "features_sha256": "f",
    "reference_sha256": "r",
    "k": 5,
    "chosen": True,
    "scale": 1.0,
    "reference_examples": 100,
    "fid": 5.0,
    "kid": 0.1,
    "density": 1.0,
    "coverage": 0.9,
    "intra_density": 1.0,
    "intra_coverage": 0.9,
    "inception_score": 5.0,
    "accuracy": 0.9,
    "ece": 0.1,
    "intervals": None,
}


def outcome(method, labels, seed, labelled=None, state="done", **numbers):
    labelled = {"0.02": 2, "1.0": 100}[labels] if labelled is None else labelled
    about = {"method": method, "labels": labels, "seed": seed}
    result = COMMON | about | {"labelled": labelled} | numbers
    return about | {"state": state, "results": [result], "selection": []}


def row_of(text, method):
    return next(line for line in text.splitlines() if line.startswith(f"| {method} |"))


def test_the_interval_is_students():
    values = (3.0, 5.0, 10.0)
    low, high = stats.t.interval(0.95, 2, loc=statistics.fmean(values), scale=stats.sem(values))
    assert Estimate(values).reach == pytest.approx((high - low) / 2)
    assert Estimate((4.0,), alone=(3.0, 6.0)).reach == 1.5
    assert Estimate((4.0,)).reach is None


def test_best_is_computed_and_ties_as_printed_share_it():
    summary = Summary(
        [
            outcome("cg", "0.02", 0, intra_fid=20.04),
            outcome("cg-sc-all", "0.02", 0, intra_fid=20.0),
            outcome("cg-jr", "0.02", 0, intra_fid=30.0),
            outcome("cond", "0.02", 0, intra_fid=10.0),
        ]
    )
    text = tables.all_in_markdown(summary, ["a note"])
    assert "| **10.0** |" in row_of(text, "cond")
    assert "| <u>20.0</u> |" in row_of(text, "cg")
    assert "| <u>20.0</u> |" in row_of(text, "cg-sc-all")
    text_tex = latex(summary)
    assert r"cond & \textbf{10.0}" in text_tex
    assert r"cg-sc-all & \underline{20.0}" in text_tex
    assert r"2 \%: 2 labels" in text_tex
    assert "**" not in row_of(text, "cond").replace("**10.0**", ""), "where all have the same, nobody is best"


def test_marks_turn_with_the_numbers():
    """Higher is better for coverage, lower for intra-FID."""
    summary = Summary(
        [
            outcome("cg", "0.02", 0, intra_fid=20.0, coverage=0.9),
            outcome("cond", "0.02", 0, intra_fid=10.0, coverage=0.2),
        ]
    )
    assert summary.best(["cg", "cond"], "0.02", COLUMNS["coverage"]) == {"cg"}
    assert summary.best(["cg", "cond"], "0.02", COLUMNS["intra_fid"]) == {"cond"}


def test_fewer_seeds_divergence_and_failure_are_said():
    diverged = {"method": "cg-jem", "labels": "1.0", "seed": 0, "state": "done", "results": [], "diverged": {"step": 3}}
    failed = {"method": "cond", "labels": "0.02", "seed": 0, "state": "failed", "error": "no"}
    summary = Summary(
        [
            outcome("cg", "0.02", 0, intra_fid=1.0),
            outcome("cg", "0.02", 1, intra_fid=3.0),
            outcome("cg-jem", "0.02", 0, intra_fid=1.5, intervals={"intra_fid": [1.0, 2.0]}),
            outcome("cg", "1.0", 0, intra_fid=1.0),
            diverged,
            failed,
        ]
    )
    few, full = tables.all_in_markdown(summary, []).split("### 100")
    assert "| 1.5 (1 seed) |" in row_of(few, "cg-jem"), "fewer seeds: no mark, and no interval of another kind"
    assert "| diverged |" in row_of(full, "cg-jem")
    assert "| failed |" in row_of(few, "cond")
    assert "| not run |" in row_of(full, "cond")


def test_a_lost_seed_is_told_beside_the_mean_of_the_others():
    lost = {"method": "cg", "labels": "0.02", "seed": 1, "state": "done", "results": [], "diverged": {"step": 3}}
    summary = Summary([outcome("cg", "0.02", 0, intra_fid=1.0), lost, outcome("cond", "0.02", 1, intra_fid=2.0)])
    assert "| 1.0 (1 seed, 1 diverged) |" in row_of(tables.all_in_markdown(summary, []), "cg")


def test_only_methods_with_all_seeds_are_marked():
    """On seed 0 alone cg has 1.0, too: cg-jem would win by what it was not asked."""
    found = [outcome("cg", "0.02", s, intra_fid=v) for s, v in ((0, 1.0), (1, 9.0))]
    found += [outcome("cond", "0.02", s, intra_fid=v) for s, v in ((0, 2.0), (1, 9.0))]
    summary = Summary([*found, outcome("cg-jem", "0.02", 0, intra_fid=1.1)])
    assert summary.best(summary.methods, "0.02", COLUMNS["intra_fid"]) == {"cg"}


def test_the_csv_holds_every_value():
    summary = Summary([outcome("cg", "0.02", s, intra_fid=10.0 + s, scale=0.5 + s) for s in range(3)])
    rows = list(csv.DictReader(io.StringIO(tables.table_csv(summary))))
    mine = next(r for r in rows if r["metric"] == "intra_fid")
    assert (mine["mean"], mine["seeds"], mine["values"], mine["scales"]) == ("11", "0 1 2", "10 11 12", "0.5 1.5 2.5")


def test_outcomes_from_before_a_column_was_added_are_still_shown():
    old = outcome("cg", "0.02", 0, intra_fid=1.0)
    del old["results"][0]["inception_score"]
    text = tables.all_in_markdown(Summary([old, outcome("cond", "0.02", 0, intra_fid=2.0)]), [])
    heads = [head.strip() for head in text.splitlines()[2].split("|")]
    cells = [cell.strip() for cell in row_of(text, "cg").split("|")]
    assert cells[heads.index("IS ↑")] == "–"
    assert "1.0" in cells[heads.index("intra-FID ↓")]


def test_the_report_room_knows_neither_networks_nor_training():
    rooms = ("columns", "figures", "page", "pictures", "tables", "units")
    code = f"import sys; [__import__('selfcal.report.' + room) for room in {rooms}]; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "selfcal.report.tables" in modules
    strangers = ("selfcal.training", "selfcal.nets", "selfcal.methods", "selfcal.run", "selfcal.experiments")
    assert [m for m in modules if m.startswith(strangers)] == []


def test_numbers_measured_otherwise_are_refused():
    with pytest.raises(SelfcalError, match="cannot be compared"):
        Summary([outcome("cg", "0.02", 0, intra_fid=1.0), outcome("cg", "0.02", 1, intra_fid=1.0, samples=10)])


def verdicts(summary, measured=None):
    return {claim.words: claim.verdict for claim in claims(summary, measured or {})}


def test_claims_follow_the_numbers():
    def table(sc, cg):
        return Summary(
            [
                outcome(m, y, s, intra_fid=v + s)
                for y in ("0.02", "1.0")
                for s in (0, 1)
                for m, v in (("cg-sc-all", sc), ("cg", cg))
            ]
        )

    words = "With few labels, self-calibration on all images improves intra-FID over plain guidance."
    assert verdicts(table(10.0, 20.0))[words] == "holds"
    assert verdicts(table(20.0, 10.0))[words] == "does not hold"
    assert verdicts(Summary([outcome("cg", "0.02", 0, intra_fid=1.0)]))[words] == "not tested"
    found = next(c for c in claims(table(10.0, 20.0), {}) if c.words == words)
    assert found.findings[0].said() == "2 %: 2 labels: intra-FID cg-sc-all 10.5, cg 20.5 (2 of 2 seeds)"


def test_a_claim_over_all_rivals_falls_with_one_of_them():
    outcomes = [
        outcome(m, "0.02", 0, intra_fid=v)
        for m, v in (("cg-sc-all", 10.0), ("cg", 20.0), ("cg-jr", 9.0), ("cond", 5.0))
    ]
    found = next(c for c in claims(Summary(outcomes), {}) if "best intra-FID of the paper's guided" in c.words)
    assert found.verdict == "does not hold"
    assert "cg-jr 9.0" in found.findings[0].words
    assert "1 of 2 rivals beaten; not run: cg-ls" in found.findings[0].words
    found = next(c for c in claims(Summary(outcomes), {}) if "every classifier-free method" in c.words)
    assert found.verdict == "does not hold"


def test_a_claim_over_all_rivals_is_open_while_one_has_not_been_run():
    values = {"cg-sc-all": 10.0, "cond": 20.0, "cfg-labeled": 20.0}
    found = [outcome(m, "0.02", 0, intra_fid=v) for m, v in values.items()]

    def verdict(outcomes):
        return next(c.verdict for c in claims(Summary(outcomes), {}) if "every classifier-free method" in c.words)

    assert verdict(found) == "undecided"
    assert verdict([*found, outcome("cfg-all", "0.02", 0, intra_fid=11.0)]) == "holds"
    assert verdict([*found, outcome("cfg-all", "0.02", 0, intra_fid=10.0)]) == "undecided"
    assert verdict([*found, outcome("cfg-all", "0.02", 0, intra_fid=9.0)]) == "does not hold"


def test_a_rival_with_fewer_seeds_decides_nothing():
    found = [outcome("cg-sc-all", "0.02", s, intra_fid=10.0) for s in (0, 1)]
    found += [outcome(m, "0.02", s, intra_fid=20.0) for m in ("cond", "cfg-labeled") for s in (0, 1)]
    for value in (9.0, 11.0):  # ahead or behind, one seed of two says neither
        rival = outcome("cfg-all", "0.02", 0, intra_fid=value)
        claim = next(c for c in claims(Summary([*found, rival]), {}) if "every classifier-free method" in c.words)
        assert claim.verdict == "undecided"
        assert f"cfg-all {value:.1f} (one seed); 2 of 3 rivals beaten" in claim.findings[0].words


def test_means_that_one_seed_decides_decide_nothing():
    pairs = ((90.0, 200.0), (109.0, 100.0))
    found = [
        outcome(m, "0.02", s, intra_fid=pair[i])
        for s, pair in enumerate(pairs)
        for i, m in enumerate(("cg-sc-all", "cg"))
    ]
    words = "With few labels, self-calibration on all images improves intra-FID over plain guidance."
    assert verdicts(Summary(found))[words] == "undecided"
    found += [outcome(m, "0.02", 2, intra_fid=v) for m, v in (("cg-sc-all", 50.0), ("cg", 60.0))]
    assert verdicts(Summary(found))[words] == "holds"


def test_at_least_as_dense_includes_as_dense():
    found = [outcome(m, "0.02", 0, intra_fid=1.0, density=0.5) for m in ("cg", "cond")]
    words = next(w for w in verdicts(Summary(found)) if "keep their density" in w)
    assert verdicts(Summary(found))[words] == "holds"


def test_a_tie_as_printed_decides_nothing():
    summary = Summary([outcome(m, "0.02", 0, intra_fid=v) for m, v in (("cg-sc-all", 10.01), ("cg", 10.04))])
    words = "With few labels, self-calibration on all images improves intra-FID over plain guidance."
    assert verdicts(summary)[words] == "undecided"


def test_the_claim_on_cost_reads_the_measured_costs():
    words = next(w for w in verdicts(Summary([outcome("cg", "0.02", 0, intra_fid=1.0)])) if "CG-JEM costs" in w)
    summary = Summary([outcome(m, "0.02", 0, intra_fid=1.0) for m in ("cg-jem", "cg-sc-all")])
    slow = {"cg-jem · classifier": 18.0, "cg-sc-all · classifier": 2.0}
    assert verdicts(summary, slow)[words] == "holds"
    assert verdicts(summary, slow | {"cg-jem · classifier": 8.0})[words] == "does not hold"


def test_every_network_of_the_table_has_a_measured_cost():
    known = costs.measured()
    wanted = {costs.key(m.name, stage) for m in METHODS.values() for stage in m.stages(Settings())}
    assert wanted == set(known)
    assert known["cg · classifier"] == 1.0
