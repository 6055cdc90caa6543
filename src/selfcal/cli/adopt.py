"""`selfcal adopt`: a run directory, from a pretrained model."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from selfcal.cli.options import AS_IT_IS, KINDS_OF_DATA, Changes, Labels, Preset, Reading, RunOut, Seed, Track, Whole
from selfcal.cli.terminal import app
from selfcal.cli.train import print_end


@app.command
def adopt(
    source: str,
    /,
    *,
    data: Annotated[str, Parameter(help=f"Images like those the model was trained on: {KINDS_OF_DATA}")],
    method: str = "cg-sc-all",
    labels: Labels = None,
    out: RunOut,
    subfolder: str | None = None,
    guide_on: str | None = None,
    steps: Whole | None = None,
    preset: Preset = None,
    seed: Seed = 0,
    changes: Changes = None,
    track: Track = None,
    reading: Reading = AS_IT_IS,
) -> None:
    """Make a pretrained unconditional model class-conditional: only the guide is trained; the same command resumes.

    Example: selfcal adopt ddpm-digits/ --data digits --labels 4/class --out runs/adopted

    Parameters
    ----------
    source
        A folder that diffusers wrote (a pipeline, a UNet2DModel, a trainer's checkpoint), the name of one on the hub
        (google/ddpm-cifar10-32), or a checkpoint of score_sde_pytorch (.pth or .safetensors). Modules: in Python.
    method
        A row of `selfcal methods` that guides by a classifier.
    subfolder
        The folder of the network within the pipeline's, for instance unet_ema.
    guide_on
        score: on the adopted network's features; score-frozen: as they are; fresh: on none. Left out: what was best.
    steps
        Training steps of the guide, instead of the preset's.
    """
    from selfcal.interop.adopt import adopt as run_adoption

    options: dict[str, Any] = {"seed": seed, "steps": steps, "preset": preset, "settings": changes or []}
    options |= {"subfolder": subfolder, "guide_on": guide_on, "track": track} | reading.choices()
    print_end(run_adoption(source, data, labels, method, out, show_progress=True, **options))
