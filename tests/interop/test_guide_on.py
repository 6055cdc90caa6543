"""Guides that stand on the adopted network's own way down."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from test_export import SEED, SEVERAL, without_selfcal

import plain_ddpm
import selfcal
from selfcal.core.errors import SelfcalError
from selfcal.interop.export import export
from selfcal.nets.foreign_encoder import AdoptedEncoder
from tiny_pipelines import diffusers, save

FEW = {"classifier.batch": 8, "run.save_every": 2}


def test_its_features_are_the_networks_own(tmp_path):
    """Those that the U-Net itself makes on its way, at its own scale and level; attention included."""
    changes = {"down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D")}
    net = diffusers.UNet2DModel(
        sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8, 16),
        norm_num_groups=4, attention_head_dim=4, **changes,
    )  # fmt: skip
    scheduler = diffusers.DDPMScheduler()
    adopted = {"unet": dict(net.config), "scheduler": dict(scheduler.config) | {"_class_name": "DDPMScheduler"}}
    encoder = AdoptedEncoder(adopted | {"sigma_data": 0.5})
    encoder.unet.load_state_dict({k: v for k, v in net.state_dict().items() if k in encoder.unet.state_dict()})
    level = 300
    kept = float(scheduler.alphas_cumprod[level])
    sigma = torch.full((2,), ((1 - kept) / kept) ** 0.5)
    x = torch.randn(2, 1, 8, 8)
    seen = {}
    net.mid_block.register_forward_hook(lambda m, i, out: seen.update(inner=out))
    net.down_blocks[0].resnets[0].register_forward_hook(lambda m, i, out: seen.update(first=out))
    net(x * kept**0.5, level)
    total = (sigma**2 + 0.25).sqrt()[:, None, None, None]
    features, inner, _ = encoder(x / total, sigma)
    torch.testing.assert_close(inner, seen["inner"], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(features[0], seen["first"], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("guide_on", ["score", "score-frozen"])
def test_a_guide_on_the_score_trains_resumes_and_is_exported(trained, tmp_path, guide_on):
    """Its second derivatives exist (self-calibration), frozen features stay, and the export makes the same images."""

    def adopt():
        out = tmp_path / "r"
        return selfcal.adopt(trained, "digits", "4/class", "cg-sc-all", out, steps=4, settings=FEW, guide_on=guide_on)

    run = adopt()
    classifier, score = run.networks["classifier"], run.networks["score"]
    same = torch.equal(classifier.network.encoder.unet.conv_in.weight, score.network.unet.conv_in.weight)
    assert same == (guide_on == "score-frozen")
    assert selfcal.load(run.path).predict_proba(run.data.x_test[:3]).shape == (3, 10)
    if guide_on == "score":
        export(run, tmp_path / "pipe")
        without_selfcal(tmp_path, SEVERAL, SEED, tmp_path / "pipe")
        mine = run.sample(classes=[3, 5], count=4, scale=0.4, steps=6).x
        made = torch.load(tmp_path / "pipe" / "made.pt")
        torch.testing.assert_close(made, (mine + 1) / 2, rtol=0, atol=1e-4)


def test_a_frozen_guide_goes_on_where_it_was(trained, tmp_path):
    """Interrupted and continued, it ends with the very same bits as one that was left alone."""
    options = {"steps": 4, "settings": FEW, "guide_on": "score-frozen"}
    whole = selfcal.adopt(trained, "digits", "4/class", "cg", tmp_path / "whole", **options)

    def stop(network, step, values):
        if step == 3:
            raise KeyboardInterrupt

    once = {**options, "settings": FEW | {"run.log_every": 1}}
    with pytest.raises(KeyboardInterrupt):
        selfcal.adopt(trained, "digits", "4/class", "cg", tmp_path / "cut", on_step=stop, **once)
    cut = selfcal.adopt(trained, "digits", "4/class", "cg", tmp_path / "cut", **once)
    hashes = [r.describe()["weights_sha256"]["classifier"] for r in (whole, cut)]
    assert hashes[0] == hashes[1]


def test_what_is_best_is_the_default(tmp_path, monkeypatch, capsys):
    """On the score; fresh where another network is asked for, for tiny images, and where a CPU would take days.

    A run goes on as it began. These networks are untrained: what is tested is the choice.
    """
    monkeypatch.setattr("selfcal.interop.adopt.check_denoising", lambda *given: "denoises")
    x, y = np.random.default_rng(0).integers(0, 256, (40, 16, 16), dtype=np.uint8), np.arange(40) % 2
    source = save(tmp_path / "p", diffusers.DDPMScheduler(), size=16)

    def adopt(name, source=source, data=(x, y), **options):
        options = {"steps": 2, "settings": FEW, "show_progress": True} | options
        return selfcal.adopt(source, data, "4/class", "cg", tmp_path / name, **options).settings.classifier.start

    assert adopt("plain") == "score"
    assert "the guide stands on its features, and trains them on" in " ".join(capsys.readouterr().err.split())
    assert adopt("shaped", settings=FEW | {"classifier.width": 8}) == "scratch"
    assert adopt("preset", preset="images") == "scratch"
    assert adopt("fresh", guide_on="fresh") == "scratch"
    assert adopt("tiny", save(tmp_path / "q", diffusers.DDPMScheduler()), (x[:, :8, :8], y)) == "scratch"
    monkeypatch.setattr("selfcal.interop.adopt.LARGEST_ON_CPU", 100)
    assert adopt("large") == "scratch"
    for name, start in (("plain", "score"), ("fresh", "scratch")):
        assert adopt(name) == start, "the same run, without being told again"


def test_where_it_cannot_stand(trained, tmp_path):
    with pytest.raises(SelfcalError, match=r"classifier\.width cannot be set: the guide stands on the adopted network"):
        selfcal.adopt(
            trained, "digits", "4/class", "cg", tmp_path / "no", guide_on="score", settings={"classifier.width": 8}
        )
    with pytest.raises(SelfcalError, match="a module of your own may keep its features anywhere"):
        selfcal.adopt(
            plain_ddpm.trained(),
            "digits",
            "4/class",
            "cg",
            tmp_path / "no",
            predicts="epsilon",
            betas=plain_ddpm.BETAS,
            guide_on="score",
        )
    with pytest.raises(SelfcalError, match="unknown guide_on 'scores'; did you mean 'score'"):
        selfcal.adopt(plain_ddpm.trained(), "digits", "4/class", "cg", tmp_path / "no", guide_on="scores")
