"""Exported runs: loaded by plain diffusers where selfcal cannot be imported, they sample alike."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys

import pytest
import torch

import selfcal
from selfcal import cli
from selfcal.core.randomness import random_state
from selfcal.interop import portable
from selfcal.interop.export import export
from selfcal.interop.portable import portable_files

pytest.importorskip("diffusers")

PLAIN = """
import sys
sys.modules["selfcal"] = None
import torch
from diffusers import DiffusionPipeline
pipe = DiffusionPipeline.from_pretrained(sys.argv[1], trust_remote_code=True)
labels = ["3"] * 4 + [5] * 4
made = [pipe(class_labels=labels, guidance_scale=2.0, generator=torch.Generator().manual_seed(int(sys.argv[2])),
             output_type=kind).images for kind in ("pt", "pil")]
assert made[1][0].size == (8, 8)
torch.save(made[0], sys.argv[3])
again = pipe(class_labels=torch.tensor([3] * 4 + [5] * 4), guidance_scale=2.0, output_type="pt",
             generator=torch.Generator().manual_seed(int(sys.argv[2]))).images
assert torch.equal(again, made[0])
one = {"class_labels": 3}
for wrong in ({"class_labels": "nine"}, {"class_labels": []}, one | {"num_inference_steps": 0},
              one | {"guidance_scale": float("nan")}, one | {"output_type": "jpeg"},
              one | {"generator": [torch.Generator()]}):
    try:
        pipe(**wrong)
    except ValueError as error:
        print(error)
    else:
        raise SystemExit(f"{wrong} is accepted")
pipe.to(torch.float64)
assert pipe(class_labels=3, num_inference_steps=2).images[0].size == (8, 8)
"""


SEED = str(random_state(0, "sampling", 0).initial_seed())  # of the first batch that a run samples


def without_selfcal(tmp_path, script, *arguments):
    """Run a script in a process of its own; what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ | {"OMP_NUM_THREADS": "1", "HF_MODULES_CACHE": str(tmp_path / "modules"), "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert "Expected types" not in done.stderr
    return done.stdout


def test_the_export_samples_alike_without_selfcal(adopted, tmp_path):
    with pytest.raises(SystemExit):
        cli.main(["export", str(adopted.path), "--out", str(tmp_path / "pipe")])
    said = without_selfcal(tmp_path, PLAIN, tmp_path / "pipe", SEED, tmp_path / "x.pt")
    assert "unknown class 'nine'; this model has 0, 1" in said
    mine = adopted.sample(classes=[3, 5], count=8, scale=2.0).x
    torch.testing.assert_close(torch.load(tmp_path / "x.pt"), (mine + 1) / 2, rtol=0, atol=1e-4)
    with pytest.raises(SystemExit) as stop:
        cli.main(["export", str(adopted.path), "--out", str(tmp_path / "pipe")])
    assert stop.value.code == 2


SEVERAL = """
import sys
sys.modules["selfcal"] = None
import torch
from diffusers import DiffusionPipeline
for folder in sys.argv[2:]:
    pipe = DiffusionPipeline.from_pretrained(folder, trust_remote_code=True)
    made = pipe(class_labels=[3, 3, 5, 5], guidance_scale=0.4, num_inference_steps=6, output_type="pt",
                generator=torch.Generator().manual_seed(int(sys.argv[1]))).images
    torch.save(made, folder + "/made.pt")
"""
OWN = [(network, method) for network in ("mlp", "ncsnpp") for method in ("cfg-all", "cg")]


def stirred(run):
    """Weights as if trained for long: fresh networks all but pass their input on, which would hide mistakes."""
    for network in run.networks.values():
        for weights in network.parameters():
            weights.data += 0.1 * torch.randn_like(weights)
    return run


def small_run(out, network, method):
    small = {
        f"{role}.{key}": value
        for role in ("score", "classifier", "conditional")
        for key, value in {"network": network, "width": 8, "blocks": 1, "multipliers": (1, 2)}.items()
    }
    return stirred(selfcal.train("digits", method, "2/class", out, steps=2, settings=small))


def test_networks_of_ones_own_are_exported_too(tmp_path):
    """Both kinds of network, with and without a classifier; their samples agree with the runs' own."""
    runs = {tmp_path / f"{n}-{m}": small_run(tmp_path / f"run-{n}-{m}", n, m) for n, m in OWN}
    for folder, run in runs.items():
        export(run, folder)
    without_selfcal(tmp_path, SEVERAL, SEED, *runs)
    for folder, run in runs.items():
        mine = run.sample(classes=[3, 5], count=4, scale=0.4, steps=6).x
        assert (mine.abs() < 1).float().mean() > 0.3, "pixels that are cut off could not tell networks apart"
        torch.testing.assert_close(torch.load(folder / "made.pt"), (mine + 1) / 2, rtol=0, atol=1e-4)


def test_the_index_names_the_networks_there_are(tmp_path):
    export(small_run(tmp_path / "run", "mlp", "cfg-all"), tmp_path / "p")
    index = json.loads((tmp_path / "p" / "model_index.json").read_text())
    assert index["score"] == [None, None]
    assert index["classifier"] == [None, None]
    assert index["conditional"][1] == "SelfcalScore"


def test_the_exported_code_is_whole_and_needs_no_selfcal():
    """Every file parses, imports nothing of selfcal, and finds all it imports in its own folder."""
    files = portable_files()
    (package,) = {name.split("/")[0] for name in files if "/" in name}
    assert package.startswith("selfcal_")
    for name, text in files.items():
        folder = package if "/" in name else ""
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                assert "selfcal" not in {a.name.split(".")[0] for a in node.names}, name
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                assert node.module.split(".")[0] != "selfcal", name
            elif isinstance(node, ast.ImportFrom):
                there = "/".join([*([folder] if folder else []), *node.module.split(".")])
                assert f"{there}.py" in files, (name, node.module)


def test_two_versions_of_the_code_have_folders_of_their_own(monkeypatch):
    (before,) = {name.split("/")[0] for name in portable.portable_files() if "/" in name}
    real = portable.closure
    monkeypatch.setattr(portable, "closure", lambda start: real(start) | {"nets.mlp": "WIDTH = 1"})
    (after,) = {name.split("/")[0] for name in portable.portable_files() if "/" in name}
    assert before != after


SPOILED = """
import json, sys
from pathlib import Path
sys.modules["selfcal"] = None
from diffusers import DiffusionPipeline
folder = Path(sys.argv[1])

def refusal(**call):
    try:
        pipe = DiffusionPipeline.from_pretrained(folder, trust_remote_code=True)
        pipe(class_labels=["3"], num_inference_steps=2, **call)
    except ValueError as error:
        print(error)
    else:
        raise SystemExit("nothing was noticed")

refusal(guidance_scale=1e300)
index = folder / "model_index.json"
whole = json.loads(index.read_text())
for value in (float("inf"), float("nan"), 1e300, 0.001):
    index.write_text(json.dumps(whole | {"sampling": whole["sampling"] | {"sigma_max": value}}))
    refusal()
index.write_text(json.dumps(whole))
weights = folder / "classifier" / "diffusion_pytorch_model.safetensors"
good = weights.read_bytes()
weights.write_bytes(good[:-50] + bytes([good[-50] ^ 1]) + good[-49:])
refusal()
weights.write_bytes(good)
(folder / "score" / "weights.sha256.json").write_text("{}")
refusal()
"""


def test_a_spoiled_pipeline_makes_no_images(adopted, tmp_path):
    """Finite images of the weights that were exported, or an error; also where one bit of them was flipped."""
    export(adopted, tmp_path / "pipeline")
    said = without_selfcal(tmp_path, SPOILED, tmp_path / "pipeline").splitlines()
    assert len(said) == 7
    assert "left the finite numbers at guidance_scale = 1e+300" in said[0]
    assert all("model_index.json" in line for line in said[1:5])
    assert "diffusion_pytorch_model.safetensors is damaged: its SHA-256" in said[5]
    assert "holds other weights than weights.sha256.json names" in said[6]
