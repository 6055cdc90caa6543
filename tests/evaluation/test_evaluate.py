"""Which λ is chosen and by what, how many samples fit into the time, and that no evaluation is lost."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest
import torch

import selfcal
from command_line import typed_unwrapped as typed
from selfcal.cli.evaluate import print_other_counts
from selfcal.core.errors import SelfcalError
from selfcal.core.team import ALONE
from selfcal.data.dataset import Dataset
from selfcal.data.sources import load_data
from selfcal.diffusion.noise import Noise
from selfcal.diffusion.samples import Samples
from selfcal.diffusion.scores import UNLABELED
from selfcal.evaluation import choice, effort, history, label_free
from selfcal.evaluation import features as extractors
from selfcal.evaluation.choice import decides_nothing
from selfcal.evaluation.guide import Subject
from selfcal.evaluation.reference import Reference, class_references

QUICK = {"steps": 2, "intervals": False}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A pile of points of which only the labels of a CSV are known, and the same with all of them."""
    folder = tmp_path_factory.mktemp("few")
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    x = rng.normal(size=(200, 2)) + 4 * y[:, None]
    few = np.where(np.arange(200) < 8, y, -1)
    np.savez(folder / "few.npz", x=x, y=few)
    np.savez(folder / "all.npz", x=x, y=y)
    small = {"score.width": 16, "classifier.width": 16, "conditional.width": 16}

    def train(name, data, method):
        return selfcal.train(folder / f"{data}.npz", method, "4/class", folder / name, steps=60, settings=small)

    return {"few": train("few", "few", "cg"), "all": train("all", "all", "cg"), "free": train("free", "few", "cfg-all")}


@pytest.fixture
def run_of(trained, tmp_path):
    """A copy, whose metrics.json is its own."""

    def copy(name):
        shutil.copytree(trained[name].path, tmp_path / name)
        return selfcal.load(tmp_path / name)

    return copy


# --- which λ ------------------------------------------------------------------------------------------


def test_choosing_is_by_true_classes_else_by_the_guides_else_not_at_all():
    rows = {1.0: {"intra_fid": 3.0, "label_free_fid": 9.0}, 2.0: {"intra_fid": 2.0, "label_free_fid": 10.0}}
    both = choice.chosen([1.0, 2.0], rows)
    assert (both.scale, both.with_labels, both.without_labels) == (2.0, 2.0, 1.0)
    assert both.by == choice.WITH_LABELS
    told = both.in_json([], [{"scale": s, **row} for s, row in rows.items()])
    assert told["ratio"] == pytest.approx(1.5)
    assert told["ratio_on"] == "the samples λ was chosen on"
    reported = [{"scale": 1.0, "intra_fid": 4.0}, {"scale": 2.0, "intra_fid": 2.0}]
    assert both.in_json(reported, [])["ratio"] == pytest.approx(2.0)
    unlabelled = {s: row | {"intra_fid": None} for s, row in rows.items()}
    assert (choice.chosen([1.0, 2.0], unlabelled).scale, choice.chosen([1.0, 2.0], unlabelled).by) == (
        1.0,
        choice.WITHOUT_LABELS,
    )
    nothing = {s: {"intra_fid": None, "label_free_fid": None} for s in rows}
    assert choice.chosen([1.0, 2.0], nothing).scale is None
    assert choice.chosen([1.0], {}) == choice.Choice(1.0, choice.ONLY)


def test_where_the_guides_classes_cannot_decide_more_guidance_is_chosen():
    distances = {1.0: 9.0, 3.0: 8.0, 2.0: 7.9, 6.0: 8.2, 9.0: 8.4}  # 6 is within 5 % of 2, 9 is not
    rows = {s: {"intra_fid": d, "label_free_fid": d} for s, d in distances.items()}
    found = choice.chosen(list(distances), rows)
    assert (found.with_labels, found.without_labels) == (2.0, 6.0)


def test_without_class_references_nor_a_guide_no_scale_is_starred(run_of, capsys):
    run = run_of("free")
    code, out, err = typed(capsys, "evaluate", run.path, "--scales", "3,1,0", "--count", "20", "--steps", "2")
    assert code == 0, err
    assert "*" not in out
    assert "no λ is recommended" in " ".join(out.split())
    report = json.loads((run.path / "metrics.json").read_text())
    assert [r["chosen"] for r in report["results"]] == [False] * 3
    assert run.recommended_scale() == (0.0, None)


def test_without_class_references_the_guides_labels_choose(run_of, capsys):
    run = run_of("few")
    report = run.evaluate(scales=(4.0, 1.0, 0.0), count=40, **QUICK)
    assert report["chosen"]["by"] == choice.WITHOUT_LABELS
    values = {row["scale"]: row["label_free_fid"] for row in report["selection"]}
    tied = [scale for scale, value in values.items() if value <= (1 + choice.TIED) * min(values.values())]
    assert report["chosen"]["scale"] == max(tied)
    assert report["chosen"]["with_labels"] is None
    assert report["chosen"]["ratio"] is None
    assert [r["scale"] for r in report["results"] if r["chosen"]] == [report["chosen"]["scale"]]


def test_where_classes_are_known_both_are_told_and_how_far_apart(run_of):
    run = run_of("all")
    report = run.evaluate(scales=(0.0, 1.0, 3.0), count=60, **QUICK)
    told, rows = report["chosen"], {r["scale"]: r["intra_fid"] for r in report["results"]}
    assert told["scale"] == told["with_labels"]
    assert told["ratio"] == pytest.approx(rows[told["without_labels"]] / rows[told["with_labels"]])
    assert told["ratio_on"] == "reported samples"
    assert told["without_labels"] != 0.0, "unguided samples are of no class"


def test_the_guides_classes_with_a_perfect_guide_are_the_true_ones():
    """Then the distance is intra-FD itself, in the same space."""
    data = load_data("moons")
    truth = data.y

    class Oracle:
        networks = MappingProxyType({"classifier": None})
        noise, batch, team = Noise(0.02, 100), 10_000, ALONE

        def predict_proba(self, x, sigma):
            return torch.nn.functional.one_hot(truth, len(data.classes)).float()

    hidden = torch.full_like(truth, UNLABELED)
    subject = Subject(Oracle(), data, hidden, {})
    samples = Samples(data.x[::4] + 0.1, truth[::4], data.classes, {})
    measured = label_free.guides_classes(subject)(samples)
    assert measured == pytest.approx(Reference(data, extractors.find("auto", data)).intra_fid(samples), rel=1e-9)
    given = truth.clone()
    given[:10] = 1 - truth[:10]  # a label that was given is believed before the guide
    assert torch.equal(
        label_free.as_the_guide_labels(Subject(Oracle(), data, given, {}), torch.arange(len(given))).y, given
    )


def test_a_guide_that_sees_one_class_everywhere_chooses_nothing():
    data = load_data("moons")

    class Stubborn:
        networks = MappingProxyType({"classifier": None})
        noise, batch, team = Noise(0.02, 100), 10_000, ALONE

        def predict_proba(self, x, sigma):
            return torch.tensor([[1.0, 0.0]]).expand(len(x), 2)

    hidden = torch.full_like(data.y, UNLABELED)
    assert label_free.guides_classes(Subject(Stubborn(), data, hidden, {})) is None


# --- sample takes it ----------------------------------------------------------------------------------


def test_sampling_takes_the_recorded_scale_and_says_so(run_of, capsys, tmp_path):
    run = run_of("few")
    arguments = ("sample", run.path, "--count", "2", "--steps", "2", "--out")
    code, out, _ = typed(capsys, *arguments, tmp_path / "a.npz")
    assert "λ = 1, the method's usual one; selfcal evaluate" in out
    run.evaluate(scales=(0.5, 2.5), count=20, **QUICK)
    scale = json.loads((run.path / "metrics.json").read_text())["chosen"]["scale"]
    code, out, _ = typed(capsys, *arguments, tmp_path / "b.npz")
    assert code == 0
    assert f"λ = {scale:g}, chosen by selfcal evaluate (intra-FD to the training images" in out
    with np.load(tmp_path / "b.npz") as made:
        assert json.loads(str(made["made"]))["scale"] == scale
    typed(capsys, *arguments, tmp_path / "c.npz", "--scale", "7")
    with np.load(tmp_path / "c.npz") as made:
        assert json.loads(str(made["made"]))["scale"] == 7
    code, _, err = typed(capsys, *arguments, tmp_path / "d.npz", "--scale", "much")
    assert code == 2
    assert "a number, or auto" in err
    with pytest.raises(SelfcalError, match="neither a number nor auto"):
        run.sample(count=2, scale="much")
    run.evaluate(scales=(7.0,), count=20, **QUICK)
    assert run.recommended_scale()[0] == scale, "a single scale recommends nothing"


def test_a_file_of_before_recommends_too():
    old = {"results": [{"scale": 0.5, "chosen": False, "selection_intra_fid": 2.0}]}
    old["results"].append({"scale": 2.0, "chosen": True, "selection_intra_fid": 1.0})
    assert history.recommended(old) == (2.0, "intra-FID")
    for spoiled in ({"results": [3]}, {"results": [], "chosen": {"scale": "x"}}, {"results": [], "earlier": 3}, None):
        assert history.recommended(spoiled) is None


# --- nothing is lost ----------------------------------------------------------------------------------


def test_evaluations_add_up_and_the_same_one_replaces_itself(run_of, capsys):
    run = run_of("few")
    first = run.evaluate(scales=(1.0,), count=20, **QUICK)
    run.evaluate(scales=(1.0,), count=30, **QUICK)
    report = run.evaluate(scales=(1.0,), count=20, sampler="heun", **QUICK)
    assert [e["results"][0]["samples"] for e in history.evaluations(report)] == [20, 30, 20]
    assert json.loads((run.path / "metrics.json").read_text()) == report
    assert report["earlier"][1]["results"] == first["results"]
    again = run.evaluate(scales=(1.0,), count=30, **QUICK)
    assert [e["results"][0]["samples"] for e in history.evaluations(again)] == [30, 20, 20]
    run.evaluate(scales=(1.0,), count=30, seed=1, **QUICK)
    assert len(json.loads((run.path / "metrics.json").read_text())["earlier"]) == 3
    code, out, _ = typed(capsys, "show", run.path)
    assert code == 0
    assert "3 earlier evaluation(s)" in out


def test_metrics_of_before_are_kept_as_they_are(run_of):
    run = run_of("few")
    old = {"results": [{"scale": 1.0, "samples": 7}], "selection": [], "guide": []}
    (run.path / "metrics.json").write_text(json.dumps(old))
    assert run.evaluate(scales=(1.0,), count=20, **QUICK)["earlier"] == [old]
    (run.path / "metrics.json").write_text("{")
    with pytest.raises(SelfcalError, match=r"metrics\.json cannot be read"):
        run.evaluate(scales=(1.0,), count=20, **QUICK)
    assert (run.path / "metrics.json").read_text() == "{"


# --- what fits into the time --------------------------------------------------------------------------


def test_the_number_of_samples_fits_into_the_time():
    data = load_data("digits")
    most = effort.how_many(None, data)
    assert effort.planned(None, data, 1e-6, 6, 1).count == most
    for seconds in (0.01, 0.1, 0.3):
        plan = effort.planned(None, data, seconds, 6, 1, minutes=4, sparing=True)
        assert plan.count in effort.LADDER or plan.count == most
        assert plan.seconds <= effort.SHARE * 240
        assert plan.for_choosing <= plan.count
        assert plan.seconds == pytest.approx(seconds * (plan.count + 6 * plan.for_choosing))
    assert effort.planned(None, data, 100.0, 6, 1).count == 50, "the least there is, whatever it takes"
    assert effort.planned(123, data, 100.0, 6, 6).count == 123, "asked for"
    words = effort.planned(200, data, 1.0, 2, 1).in_words([1.0, 2.0], 1)
    assert words == "drawing 200 samples, and 200 of each of λ = 1, 2 to choose one: about 10.0 min here"


def test_evaluate_as_a_newcomer_types_it(run_of, capsys):
    """One row, at a λ of the grid chosen on fewer samples; --minutes must be a time."""
    run = run_of("all")
    code, out, err = typed(capsys, "evaluate", run.path, "--count", "40", "--steps", "2", "--no-intervals")
    assert code == 0, err
    report = json.loads((run.path / "metrics.json").read_text())
    assert [row["scale"] for row in report["selection"]] == list(run.method.grids["wide"])
    (row,) = report["results"]
    assert row["scale"] == report["chosen"]["scale"]
    assert "was chosen by intra-FD to images of known class; selfcal sample" in " ".join(out.split())
    code, _, err = typed(capsys, "evaluate", run.path, "--minutes", "0")
    assert code == 2
    assert "a time above 0" in err


# --- what can be said of photos -----------------------------------------------------------------------


def test_a_test_split_stands_in_where_training_images_have_no_classes():
    whole = load_data("digits")
    pile = replace(whole, y=torch.where(torch.arange(len(whole.y)) < 60, whole.y, UNLABELED))
    assert class_references(whole)[0] == "train"
    split, images = class_references(pile)
    assert split == "test"
    assert torch.equal(images.x, whole.x_test)
    judge = extractors.identity(pile)
    reference = Reference(pile, judge)
    samples = Samples(whole.x[:200], whole.y[:200], whole.classes, {})
    known = replace(whole, x=whole.x_test, y=whole.y_test, names=whole.names[: len(whole.x_test)])
    values, expected = reference.measure(samples)[0], Reference(known, judge).measure(samples)[0]
    assert values["intra_fid"] == pytest.approx(expected["intra_fid"])
    assert values["fid"] == pytest.approx(Reference(whole, judge).measure(samples)[0]["fid"]), "against all images"
    rows = reference.by_class(samples)
    assert [row["class"] for row in rows] == list(whole.classes)
    assert sum(row["intra_fid"] for row in rows) / 10 == pytest.approx(values["intra_fid"])
    nothing = replace(pile, x_test=pile.x_test[:0], y_test=pile.y_test[:0])
    assert class_references(nothing)[0] is None
    assert Reference(nothing, judge).measure(samples)[0]["intra_fid"] is None


def photos(each, side=28, channels=3):
    y = torch.arange(2 * each) % 2
    x = torch.rand(2 * each, channels, side, side) * 0.5 - 0.9 * y.float().view(-1, 1, 1, 1) + 0.2
    names = tuple(map(str, range(2 * each)))
    return Dataset("photos", x, y, ("a", "b"), names, x[:0], y[:0])


def test_photos_are_judged_by_a_network_of_photos_and_few_labels_give_a_second_opinion():
    pytest.importorskip("efficientnet_lite_pytorch")
    few = extractors.find("auto", photos(4))
    assert few.name.startswith("efficientnet-lite0")
    assert few.classify is None
    data = photos(4)
    samples = Samples(data.x, data.y, data.classes, {})
    values, intervals = Reference(data, few).measure(samples, intervals=True)
    assert values["agreement"] > 0.8
    assert values["accuracy"] is None
    assert "agreement" in intervals
    many = extractors.find("auto", photos(12))
    assert many.second is None
    assert many.classify is not None


def test_features_that_know_no_labels_serve_for_choosing_without_labels(monkeypatch):
    """Nothing is computed twice: the images' features of the evaluation are taken."""
    data = photos(12)
    judge = extractors.Features("stand-in", "0" * 64, lambda x: x.flatten(1)[:, :5], knows_no_labels=True)
    measured = Reference(data, judge)
    monkeypatch.setattr(extractors, "without_true_labels", None)

    class Oracle:
        networks = MappingProxyType({"classifier": None})
        noise, batch, team = Noise(0.02, 100), 10_000, ALONE

        def predict_proba(self, x, sigma):
            return torch.nn.functional.one_hot(data.y, 2).float()

    hidden = torch.full_like(data.y, UNLABELED)
    samples = Samples(data.x.flip(0), data.y.flip(0), data.classes, {})
    found = label_free.guides_classes(Subject(Oracle(), data, hidden, {}), measured)
    assert found.judge is measured.judge
    assert found(samples) == pytest.approx(0.0, abs=1e-6), "the same images"


def test_which_images_are_photos(monkeypatch):
    assert extractors.wants_photos(photos(1, 32))
    assert not extractors.wants_photos(photos(1, 24))
    assert not extractors.wants_photos(photos(1, 28, 1))
    assert extractors.wants_photos(photos(1, 33, 1)), "the small network would take too long"
    assert not extractors.wants_photos(load_data("moons"))
    monkeypatch.setattr(extractors.efficientnet, "is_installed", lambda: False)
    assert extractors.find("auto", photos(4, 40)).name == "pixels"


def test_a_judges_training_goes_on_where_it_was_stopped(monkeypatch):
    """With the same bits as one that was never stopped; what was kept on the way is gone at the end."""
    from selfcal.evaluation import judge as judging
    from selfcal.evaluation.cache import cache_folder, kept

    data = photos(20, 8)
    monkeypatch.setattr(judging, "STEPS", 12)
    monkeypatch.setattr(judging, "SAVE_SECONDS", -1.0)
    whole = judging.fit(judging.Judge(3, 2, 8), data)
    saves = []

    def stopping(name, tensors):
        keep(name, tensors)
        saves.append(int(tensors["step"]))
        if len(saves) == 5:
            raise KeyboardInterrupt

    keep = judging.keep
    monkeypatch.setattr(judging, "keep", stopping)
    with pytest.raises(KeyboardInterrupt):
        judging.trained_on(data)
    (file,) = cache_folder().glob("judge-*-unfinished*")
    assert int(kept(file.stem)["step"]) == 5
    again, _ = judging.trained_on(data)
    assert saves[5:] == list(range(6, 13))
    assert all(torch.equal(a, b) for a, b in zip(again.state_dict().values(), whole.state_dict().values(), strict=True))
    assert not list(cache_folder().glob("*unfinished*"))


@pytest.mark.parametrize(
    ("values", "tied"), [([2663.0, 2656.0, 2643.0], True), ([30.0, 20.0], False), ([None, 3.0], False), ([3.0], False)]
)
def test_a_distance_that_is_the_same_at_every_scale_decides_nothing(values, tied):
    assert decides_nothing([{"scale": i, "label_free_fid": value} for i, value in enumerate(values)]) is tied


def test_agreement_of_every_class_where_no_judge_knows_them():
    """A second classifier that takes everything for class 0: all of that one, none of the others."""
    data = load_data("digits")
    judge = extractors.Features("x", "0" * 64, lambda x: x.flatten(1), second=lambda x: torch.eye(10)[[0] * len(x)])
    samples = Samples(data.x[:40], torch.arange(40) % 10, data.classes, {})
    rows = Reference(data, judge).by_class(samples)
    assert [row["agreement"] for row in rows] == [1.0] + [0.0] * 9


def test_counts_that_do_not_compare_are_said(capsys):
    print_other_counts({"results": [{"samples": 50}], "earlier": [{"results": [{"samples": 300}]}]})
    said = " ".join(capsys.readouterr().out.split())
    assert "earlier evaluations had 300 samples" in said
    assert "--count 300" in said
    print_other_counts({"results": [{"samples": 50}], "earlier": [{"results": [{"samples": 50}]}, {"results": []}]})
    assert capsys.readouterr().out == ""
