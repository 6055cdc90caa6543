"""Every folder that plain diffusers loads is adopted, or refused in a sentence; and what is made of it is the same."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from test_export import SEED, SEVERAL, without_selfcal

import selfcal
from selfcal.core.errors import SelfcalError
from selfcal.data.sources import load_data
from selfcal.interop.adopt import open_source
from selfcal.interop.export import export
from tiny_pipelines import diffusers, rewrite, save, tiny_unet

UNET = "diffusion_pytorch_model"


def flat(p, trained):
    """The network and its scheduler in one folder."""
    shutil.copytree(trained / "unet", p)
    shutil.copy(trained / "scheduler" / "scheduler_config.json", p)


def without_index(p, trained):
    shutil.copytree(trained, p)
    (p / "model_index.json").unlink()


def bare(p, trained):
    shutil.copytree(trained / "unet", p)


def pickled(p, trained):
    shutil.copytree(trained, p)
    net = diffusers.UNet2DModel.from_pretrained(p / "unet")
    (p / "unet" / f"{UNET}.safetensors").unlink()
    torch.save(net.state_dict(), p / "unet" / f"{UNET}.bin")


def half(p, trained):
    shutil.copytree(trained, p)
    net = diffusers.UNet2DModel.from_pretrained(p / "unet", torch_dtype=torch.float16)
    (p / "unet" / f"{UNET}.safetensors").unlink()
    net.save_pretrained(p / "unet", variant="fp16")


def sharded(p, trained):
    shutil.copytree(trained, p)
    net = diffusers.UNet2DModel.from_pretrained(p / "unet")
    (p / "unet" / f"{UNET}.safetensors").unlink()
    net.save_pretrained(p / "unet", max_shard_size="100KB")


def checkpoint(p, trained):
    """As diffusers' train_unconditional.py leaves it: an average that is good, and weights that are not yet."""
    shutil.copytree(trained / "scheduler", p / "scheduler")
    tiny_unet(width=16).save_pretrained(p / "checkpoint-500" / "unet")
    shutil.copytree(trained / "unet", p / "checkpoint-500" / "unet_ema")
    rewrite(p / "checkpoint-500" / "unet_ema" / "config.json", decay=0.9999, optimization_step=500)
    (p / "checkpoint-500" / "optimizer.bin").write_bytes(b"not ours")
    return p / "checkpoint-500", None


def with_average(p, trained):
    shutil.copytree(trained, p)
    shutil.copytree(p / "unet", p / "unet_ema")
    tiny_unet(width=16).save_pretrained(p / "unet")
    return p, "unet_ema"


def only_the_unet_folder(p, trained):
    shutil.copytree(trained, p)
    return p / "unet", None


ADOPTED = [flat, without_index, bare, pickled, half, sharded, checkpoint, with_average, only_the_unet_folder]


@pytest.mark.parametrize("layout", ADOPTED, ids=lambda f: f.__name__)
def test_layouts_that_are_adopted(trained, tmp_path, layout):
    """Their denoised images are those of the pipeline they were made of; half precision keeps three digits."""
    data = load_data("digits")
    path, subfolder = layout(tmp_path / "p", trained) or (tmp_path / "p", None)
    made = open_source(path, data, subfolder=subfolder)
    whole = open_source(trained, data)
    x, sigma = data.x[:8] + torch.randn(8, 1, 8, 8), torch.ones(8)
    bound = 5e-3 if layout is half else 1e-6
    torch.testing.assert_close(made.model.denoise(x, sigma), whole.model.denoise(x, sigma), rtol=0, atol=bound)
    assert ("no scheduler beside it" in made.words) == (layout is bare)
    assert ("--subfolder unet takes the others" in made.words) == (layout is checkpoint)


def test_live_models_are_adopted(trained):
    data = load_data("digits")
    pipeline = diffusers.DDPMPipeline.from_pretrained(trained)
    x, sigma = data.x[:8] + torch.randn(8, 1, 8, 8), torch.ones(8)
    expected = open_source(trained, data).model.denoise(x, sigma)
    betas = torch.linspace(1e-4, 0.02, 1000)
    from selfcal.interop.conventions import Conventions

    for source, conventions in (
        (pipeline, Conventions()),
        (pipeline.unet, Conventions()),
        (pipeline.unet, Conventions("epsilon", betas=betas)),
    ):
        made = open_source(source, data, conventions)
        torch.testing.assert_close(made.model.denoise(x, sigma), expected, rtol=0, atol=1e-5)
    assert "no scheduler beside it" in open_source(pipeline.unet, data).words


def noised(kind, x0, z):
    """What a trainer of each kind feeds its network, and what it asks for."""
    if kind == "ve":  # data in [0, 1]; F(x, σ) is the score
        sigma = 0.01 * 5000 ** torch.rand(len(x0))[:, None, None, None]
        return (x0 + 1) / 2 + sigma * z, sigma.flatten(), lambda out: sigma * out + z
    scheduler = KINDS[kind]
    if kind.startswith("edm"):
        sigma = (1.2 * torch.randn(len(x0)) - 0.5).exp()[:, None, None, None]
        noisy = x0 + sigma * z
        seen = scheduler.precondition_inputs(noisy, sigma)
        weight = (sigma**2 + 0.25).sqrt() / (0.5 * sigma)
        told = scheduler.precondition_noise(sigma.flatten())
        return seen, told, lambda out: weight * (scheduler.precondition_outputs(noisy, out, sigma) - x0)
    t = torch.randint(1000, (len(x0),))
    wanted = {"epsilon": z, "v_prediction": scheduler.get_velocity(x0, z, t), "sample": x0}[kind]
    return scheduler.add_noise(x0, z, t), t, lambda out: out - wanted


KINDS = {kind: diffusers.DDPMScheduler(prediction_type=kind) for kind in ("epsilon", "v_prediction", "sample")}
KINDS |= {"edm": diffusers.EDMEulerScheduler(sigma_data=0.5), "ve": diffusers.ScoreSdeVeScheduler(sigma_max=50.0)}


@pytest.mark.parametrize("kind", ["v_prediction", "sample", "edm", "ve"])
def test_models_trained_to_predict_other_things_pass_on_real_images(tmp_path, kind):
    """Each is trained as its kind is, for seconds, and then believed; read as another kind it is not."""
    torch.manual_seed(0)
    data = load_data("digits")
    net = tiny_unet(width=16, **({"time_embedding_type": "fourier"} if kind == "ve" else {}))
    optimiser = torch.optim.Adam(net.parameters())
    for step in range(200):
        optimiser.param_groups[0]["lr"] = 4e-3 * (1 - step / 200)
        x0 = data.x[torch.randint(len(data.x), (32,))]
        seen, told, missed = noised(kind, x0, torch.randn_like(x0))
        loss = missed(net(seen, told).sample).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    diffusers.DDPMPipeline(net, diffusers.DDPMScheduler()).save_pretrained(tmp_path / "p")
    KINDS[kind].save_pretrained(tmp_path / "p" / "scheduler")
    assert "denoises real examples" in open_source(tmp_path / "p", data).words
    KINDS["epsilon"].save_pretrained(tmp_path / "p" / "scheduler")
    with pytest.raises(SelfcalError, match=r"does not (predict|denoise)|another schedule"):
        open_source(tmp_path / "p", data)


def test_a_bare_network_that_is_no_ddpm_is_refused(tmp_path):
    """Nothing says how it was trained, and taken as DDPM it does not denoise."""
    tiny_unet().save_pretrained(tmp_path / "p")
    with pytest.raises(SelfcalError, match=r"taken as DDPM, (does not|was trained)"):
        open_source(tmp_path / "p", load_data("digits"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prediction_type": "v_prediction"}, r'does not predict "v": .* prediction_type .* should be "epsilon"'),
        ({"prediction_type": "sample"}, r'prediction_type of its scheduler should be "epsilon"'),
        ({"beta_schedule": "squaredcos_cap_v2"}, "another schedule than given: at σ"),
        ({"beta_end": 0.04}, "another schedule than given: at σ"),
        (
            {"_class_name": "EDMEulerScheduler", "sigma_min": 0.002, "sigma_max": 80.0, "sigma_data": 0.5},
            "does not den",
        ),
        ({"_class_name": "ScoreSdeVeScheduler", "sigma_min": 0.01, "sigma_max": 50.0}, "does not denoise as given"),
    ],
)
def test_a_scheduler_that_is_not_the_networks_own_is_refused(trained, tmp_path, changes, message):
    """Its configuration is read rightly, and is wrong: real images tell. The same for a live pipeline."""
    shutil.copytree(trained, tmp_path / "p")
    rewrite(tmp_path / "p" / "scheduler" / "scheduler_config.json", **changes)
    with pytest.raises(SelfcalError, match=message):
        open_source(tmp_path / "p", load_data("digits"))
    if "beta_end" in changes:
        live = diffusers.DDPMPipeline.from_pretrained(trained)
        live.scheduler = diffusers.DDPMScheduler(beta_end=0.04)
        with pytest.raises(SelfcalError, match=message):
            open_source(live, load_data("digits"))


def remove(p, *names):
    for name in names:
        shutil.rmtree(p / name) if (p / name).is_dir() else (p / name).unlink()


@pytest.mark.parametrize(
    ("spoil", "subfolder", "message"),
    [
        (lambda p: remove(p, "scheduler"), None, "has no scheduler_config.json"),
        (lambda p: remove(p, "unet"), None, "has no config.json"),
        (lambda p: None, "unet_ema", "no network in 'unet_ema'; it has unet"),
        (lambda p: None, "../x", "no network in '../x'"),
        (lambda p: remove(p, f"unet/{UNET}.safetensors"), None, "holds no weights"),
        (lambda p: (p / f"unet/{UNET}.safetensors").rename(p / f"unet/{UNET}.bin"), None, "not a checkpoint of plain"),
        (lambda p: rewrite(p / "model_index.json", movq=["d", "VQModel"]), None, "latent space of its movq"),
        (lambda p: rewrite(p / "model_index.json", prior=["d", "P"]), None, "guided by text"),
        (
            lambda p: rewrite(p / "scheduler/scheduler_config.json", _class_name="FlowMatchEulerDiscreteScheduler"),
            None,
            "scheduler FlowMatch",
        ),
        (lambda p: rewrite(p / "scheduler/scheduler_config.json", prediction_type="flow"), None, "predicts 'flow'"),
    ],
)
def test_layouts_that_are_refused(tmp_path, spoil, subfolder, message):
    path = save(tmp_path / "p", diffusers.DDPMScheduler())
    spoil(path)
    with pytest.raises(SelfcalError, match=message):
        open_source(path, load_data("digits"), subfolder=subfolder)


def test_names_on_the_hub_come_out_of_its_cache(trained, tmp_path, monkeypatch):
    import huggingface_hub.constants as hub

    monkeypatch.setattr(hub, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(hub, "HF_HUB_OFFLINE", True)
    repository = tmp_path / "models--somebody--ddpm-digits"
    commit = "0" * 40
    shutil.copytree(trained, repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    made = open_source("somebody/ddpm-digits", load_data("digits"))
    assert "UNet2DModel that predicts epsilon" in made.words
    assert open_source("https://huggingface.co/somebody/ddpm-digits", load_data("digits")).words == made.words
    with pytest.raises(SelfcalError, match="nobody/nothing does not exist here and is not in Hugging Face's cache"):
        open_source("nobody/nothing", load_data("digits"))


RESAVED = """
import sys
sys.modules["selfcal"] = None
import torch
from diffusers import DiffusionPipeline
DiffusionPipeline.from_pretrained(sys.argv[1], trust_remote_code=True).save_pretrained(sys.argv[2])
pipe = DiffusionPipeline.from_pretrained(sys.argv[1], trust_remote_code=True, torch_dtype=torch.float16)
made = pipe(class_labels=[3, 3, 5, 5], guidance_scale=0.4, num_inference_steps=6, output_type="pt",
            generator=torch.Generator().manual_seed(int(sys.argv[3]))).images
torch.save(made.float(), sys.argv[1] + "/made-in-half.pt")
"""


def test_half_precision_makes_the_round_trip_and_a_pipeline_can_be_saved_again(trained, tmp_path):
    """adopt -> export -> plain diffusers agrees to 1e-4: the run holds what the fp16 file says, in full precision.

    Where plain diffusers works in half precision it agrees to 0.02 of the span [0, 1]; seen: 0.005.
    """
    half(tmp_path / "half", trained)
    small = {"classifier.width": 8}
    run = selfcal.adopt(tmp_path / "half", "digits", "4/class", "cg", tmp_path / "run", steps=2, settings=small)
    export(run, tmp_path / "pipe")
    without_selfcal(tmp_path, RESAVED, tmp_path / "pipe", tmp_path / "again", SEED)
    shutil.rmtree(tmp_path / "modules")
    without_selfcal(tmp_path, SEVERAL, SEED, tmp_path / "pipe", tmp_path / "again")
    mine = run.sample(classes=[3, 5], count=4, scale=0.4, steps=6).x
    for folder in ("pipe", "again"):
        made = torch.load(tmp_path / folder / "made.pt")
        torch.testing.assert_close(made, (mine + 1) / 2, rtol=0, atol=1e-4)
    in_half = torch.load(tmp_path / "pipe" / "made-in-half.pt")
    torch.testing.assert_close(in_half, (mine + 1) / 2, rtol=0, atol=0.02)
    index = json.loads((tmp_path / "again" / "model_index.json").read_text())
    assert index["_class_name"] == ["selfcal_pipeline", "SelfcalPipeline"]
