"""`selfcal adopt`: a run directory, from a pretrained model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from selfcal.cli.options import AS_IT_IS, KINDS_OF_DATA, Changes, Labels, Preset, Reading, RunOut, Seed, Whole
from selfcal.cli.terminal import app
from selfcal.cli.train import print_end


@app.command
def adopt(
    source: Path,
    /,
    *,
    data: Annotated[str, Parameter(help=f"Images like those the model was trained on: {KINDS_OF_DATA}")],
    method: str = "cg-sc-all",
    labels: Labels = None,
    out: RunOut,
    steps: Whole | None = None,
    preset: Preset = None,
    seed: Seed = 0,
    changes: Changes = None,
    reading: Reading = AS_IT_IS,
) -> None:
    """Make a pretrained unconditional model class-conditional: only the guide is trained; the same command resumes.

    Example: selfcal adopt ddpm-digits/ --data digits --labels 4/class --out runs/adopted

    Parameters
    ----------
    source
        A diffusers pipeline's folder (UNet2DModel), or a checkpoint of score_sde_pytorch (.pth or .safetensors).
    method
        A row of `selfcal methods` that guides by a classifier.
    steps
        Training steps of the guide, instead of the preset's.
    """
    from selfcal.interop.adopt import adopt as run_adoption

    options: dict[str, Any] = {"seed": seed, "steps": steps, "preset": preset, "settings": changes or []}
    options |= reading.choices()
    print_end(run_adoption(source, data, labels, method, out, show_progress=True, **options))
