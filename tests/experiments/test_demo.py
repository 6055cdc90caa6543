"""The demo, shortened: the files, their form, and a page that opens offline."""

from __future__ import annotations

import json
import re

import pytest

from selfcal.core.errors import SelfcalError
from selfcal.experiments.demo.demo import demo
from selfcal.experiments.demo.page import what_one_sees, write_page
from selfcal.report.columns import DEMO, RESULTS

FIELDS = {
    "method",
    "labels",
    "seed",
    "scale",
    "intra_fid",
    "fid",
    "density",
    "coverage",
    "intra_density",
    "intra_coverage",
    "accuracy",
    "ece",
    "samples",
    "features_sha256",
}


@pytest.fixture(scope="module")
def short_demo(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "out"
    demo(out, steps=15, scales=(0.5, 2.0), count=100)
    return out


def test_results_have_one_entry_per_method_and_scale(short_demo):
    results = json.loads((short_demo / "results.json").read_text())
    assert [(r["method"], r["scale"]) for r in results] == [
        ("cg", 0.5),
        ("cg", 2.0),
        ("cg-sc-all", 0.5),
        ("cg-sc-all", 2.0),
    ]
    for r in results:
        assert r.keys() >= FIELDS | {column.key for column in RESULTS}
        assert r["samples"] == 100
        assert all(isinstance(r[key], float) for key in ("intra_fid", "fid", "density", "coverage", "accuracy", "ece"))
    assert [sum(r["chosen"] for r in results if r["method"] == m) for m in ("cg", "cg-sc-all")] == [1, 1]


def test_lambda_is_chosen_on_other_samples_than_those_reported(short_demo):
    results = json.loads((short_demo / "results.json").read_text())
    for method in ("cg", "cg-sc-all"):
        mine = [r for r in results if r["method"] == method]
        assert next(r for r in mine if r["chosen"]) == min(mine, key=lambda r: r["selection_intra_fid"])
        assert all(r["selection_intra_fid"] != r["intra_fid"] for r in mine)


def test_both_methods_share_score_model_and_budget(short_demo):
    configs = [json.loads((short_demo / "runs" / m / "config.json").read_text()) for m in ("cg", "cg-sc-all")]
    assert configs[0]["settings"] == configs[1]["settings"]
    assert configs[0]["labels_sha256"] == configs[1]["labels_sha256"]
    hashes = [
        json.loads((short_demo / "runs" / m / "checkpoints/score/step-00000015/manifest.json").read_text())
        for m in ("cg", "cg-sc-all")
    ]
    assert hashes[0]["ema.safetensors"] == hashes[1]["ema.safetensors"]


def test_the_page_is_self_contained(short_demo):
    page = (short_demo / "report.html").read_text("utf-8")
    assert page.count("data:image/png;base64,") == 4
    assert page.count("<svg") == 3
    links = re.findall(r"""(?:src|href)\s*=\s*["']([^"'#]+)""", page)
    assert all(link.startswith("data:") for link in links), "nothing may be fetched"
    for word in ("intra-FID", "calibration error", "CG-SC-all", "seed 0"):
        assert word in page
    best = next(r for r in json.loads((short_demo / "results.json").read_text()) if r["chosen"])
    for column in DEMO:
        row = page[page.index(f"<td>{column.long_title}</td>") :].split("</tr>")[0]
        assert f">{column.written(best[column.key])}</td>" in row


def test_the_page_is_made_from_the_files_alone(short_demo):
    before = (short_demo / "report.html").read_text("utf-8")
    (short_demo / "report.html").unlink()
    assert write_page(short_demo).read_text("utf-8") == before


def test_the_sentences_follow_the_numbers():
    guides = {
        "cg": [{"sigma": 1.0, "accuracy": 0.5, "ece": 0.2}] * 3,
        "cg-sc-all": [{"sigma": 1.0, "accuracy": 0.7, "ece": 0.1}] * 3,
    }
    row = {"labelled": 30, "accuracy": 0.9}
    better = what_one_sees({"cg": row | {"intra_fid": 100.0}, "cg-sc-all": row | {"intra_fid": 40.0}}, guides)
    worse = what_one_sees({"cg": row | {"intra_fid": 40.0}, "cg-sc-all": row | {"intra_fid": 60.0}}, guides)
    assert "60% lower" in better[0]
    assert "50% higher" in worse[0]


def test_a_demo_does_not_overwrite_other_files(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(SelfcalError, match="not a demo"):
        demo(tmp_path, steps=1)
