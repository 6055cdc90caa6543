"""Model cards: read by the Hub's own library, true to metrics.json, and whatever a class is called does no harm."""

from __future__ import annotations

import json
import re

import pytest
from PIL import Image

import selfcal
from selfcal.core.errors import SelfcalError
from selfcal.interop.export import export

hub = pytest.importorskip("huggingface_hub")
pytest.importorskip("diffusers")

SMALL = {f"{role}.{key}": v for role in ("score", "classifier") for key, v in {"width": 8, "blocks": 1}.items()}
NASTY = ("<img src=x onerror=alert(1)>", "[a](javascript:b) | `c` **d**", "---", "# no heading: 'x'", "été ☃")


def written(run, folder):
    text = (export(run, folder) / "README.md").read_text("utf-8")
    return text, hub.ModelCard(text).data


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    run = selfcal.train(
        "digits", "cg-sc-all", "4/class", tmp_path_factory.mktemp("card") / "r", steps=3, settings=SMALL
    )
    run.evaluate(scales=[1.0, 2.0], count=200, steps=3, curve=False, label_free=False)
    return run


def test_before_an_evaluation_it_says_that_nothing_is_known(tmp_path):
    run = selfcal.train("digits", "cg", "2/class", tmp_path / "r", steps=2, settings=SMALL)
    text, data = written(run, tmp_path / "p")
    assert "It was not evaluated before it was exported" in text
    assert data.library_name == "diffusers"
    assert data.pipeline_tag == "unconditional-image-generation"
    assert data.eval_results is None
    assert "guidance_scale=1)" in text
    for heading in ("Use", "Data and labels", "How good it is", "Limits", "Misuse", "Licence", "Cite"):
        assert f"\n## {heading}\n" in text
    assert "| labelled | 20 of these images (" in text


def test_numbers_are_those_of_metrics_json_with_their_intervals(evaluated, tmp_path):
    (result,) = json.loads((evaluated.path / "metrics.json").read_text())["results"]
    text, data = written(evaluated, tmp_path / "digits-model")
    told = {r.metric_type: r for r in data.eval_results}
    assert {"intra_fd", "fd", "density", "coverage", "accuracy", "ece"} <= set(told), "no FID but Inception's"
    assert told["intra_fd"].metric_value == result["intra_fid"]
    assert told["intra_fd"].metric_args["interval_95"] == result["intervals"]["intra_fid"]
    assert told["intra_fd"].metric_args["samples"] == 200
    assert "samples" not in (told["ece"].metric_args or {})  # the guide is judged on real images
    low, high = result["intervals"]["intra_fid"]
    assert re.search(rf"\| intra.*\| {result['intra_fid']:.1f} \| {low:.1f} to {high:.1f} \|", text)
    assert f"guidance_scale={result['scale']:g})" in text
    assert "200 samples" in text
    assert f"right about {result['guide_accuracy']:.0%} of clean images" in text
    assert str(evaluated.path.parent) not in text, "where things lie is nobody's business"


def test_numbers_of_other_weights_are_left_out(evaluated, tmp_path):
    file = evaluated.path / "metrics.json"
    before = file.read_text()
    try:
        file.write_text(json.dumps(json.loads(before) | {"weights": "0" * 64}))
        text, data = written(evaluated, tmp_path / "p")
    finally:
        file.write_text(before)
    assert "trained on after its last evaluation" in text
    assert data.eval_results is None


@pytest.mark.parametrize("spoiled", [{"samples": "many"}, {"intervals": {"fid": [1]}}, {"features": 3}, {"scale": -1}])
def test_a_spoiled_metrics_json_is_a_sentence_and_nothing_is_written(evaluated, tmp_path, spoiled):
    file = evaluated.path / "metrics.json"
    before = file.read_text()
    whole = json.loads(before)
    whole["results"][0] |= spoiled
    try:
        file.write_text(json.dumps(whole))
        with pytest.raises(SelfcalError, match=rf"metrics.json cannot be read: {next(iter(spoiled))}"):
            export(evaluated, tmp_path / "p")
    finally:
        file.write_text(before)
    assert not (tmp_path / "p").exists()


def test_whatever_a_class_is_called_is_only_a_name(tmp_path):
    """Rendered as the Hub does (CommonMark with tables): no tag, no link, no heading, no row of its own."""
    markdown = pytest.importorskip("markdown_it").MarkdownIt("commonmark").enable("table")
    for place, name in enumerate(NASTY):
        folder = tmp_path / "photos" / name.replace("/", "")
        folder.mkdir(parents=True)
        for number in range(2):
            Image.new("L", (8, 8), 40 * place + 20 * number).save(folder / f"{number}.png")
    run = selfcal.train(tmp_path / "photos", "cg", "all", tmp_path / "r", steps=2, settings=SMALL)
    text, data = written(run, tmp_path / "p")
    assert data.library_name == "diffusers"
    html = markdown.render(text.split("---\n", 2)[2])
    plain = re.sub(r"<[^>]*>", "", html).replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"')
    for name in NASTY:
        assert name.replace("/", "") in plain
    assert "<img" not in html
    assert "javascript" not in "".join(re.findall(r"<a[^>]*>", html))
    assert html.count("<h1>") == 1
    assert html.count("<h2>") == 7
