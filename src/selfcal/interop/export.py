"""`selfcal export`: a run as a folder that plain diffusers loads, with its code, and without selfcal."""

from __future__ import annotations

import ast
import json
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any

import selfcal
from selfcal.core.errors import SelfcalError
from selfcal.diffusion import samplers
from selfcal.nets.builders import KINDS, score_recipes
from selfcal.run import Run

MODULES = (
    "core/errors.py",
    "diffusion/noise.py",
    "nets/layers.py",
    "nets/mlp.py",
    "nets/blocks.py",
    "nets/ncsnpp.py",
    "nets/forms.py",
    "nets/foreign.py",
    "nets/classifier.py",
    "nets/recipes.py",
    "diffusion/samplers.py",
    "diffusion/guidance.py",
    "interop/pipeline.py",
)
"""What a pipeline is made of, in the order of their imports."""
FILE = "selfcal_portable"
CARD = """# {title}

Made by [selfcal](https://arxiv.org/abs/2307.04081) {version}, method {method}. Classes: {classes}.

```python
from diffusers import DiffusionPipeline

pipe = DiffusionPipeline.from_pretrained("{folder}", trust_remote_code=True)  # runs {file}.py in this folder
pipe(class_labels=[{example!r}], guidance_scale={scale}).images[0]
```

To keep it elsewhere copy the whole folder: `save_pretrained` leaves the code behind.
"""


def export(run: Run, out: str | Path) -> Path:
    """Write the pipeline's folder; it must not exist yet, or be empty."""
    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SelfcalError(f"{out} already holds something; choose another --out")
    if len(run.shape) != 3:
        raise SelfcalError(f"{run.path} makes points; a pipeline of diffusers makes images")
    try:
        from selfcal.interop import pipeline
    except ImportError:
        raise SelfcalError("export needs diffusers; install it with: pip install 'selfcal[diffusers]'") from None
    index: dict[str, Any] = {
        "_class_name": [FILE, "SelfcalPipeline"],
        "_diffusers_version": version("diffusers"),
    }
    networks = run.networks  # complains about unfinished runs before anything is written
    source = portable_source()
    for role, network in networks.items():
        component = as_component(run, role, pipeline)
        component.model.load_state_dict(network.state_dict())
        component.save_pretrained(out / role, safe_serialization=True)
        (out / role / f"{FILE}.py").write_text(source, encoding="utf-8")
        index[role] = [FILE, type(component).__name__]
    for role in {"score", "classifier", "conditional"} - set(networks):
        index[role] = [None, None]
    (out / f"{FILE}.py").write_text(source, encoding="utf-8")
    (out / "model_index.json").write_text(json.dumps(index | call_settings(run), indent=1), encoding="utf-8")
    (out / "README.md").write_text(card(run, out), encoding="utf-8")
    return out


def as_component(run: Run, role: str, pipeline: Any) -> Any:
    settings, classes = run.settings, len(run.classes)
    net = getattr(settings, role)
    if role == "classifier":
        name, keywords = KINDS[net.network].classifier(net, run.shape, classes)
        return pipeline.SelfcalClassifier(name, dict(keywords), settings.noise.sigma_data)
    network, form = score_recipes(net, settings, run.shape, classes if role == "conditional" else 0)
    return pipeline.SelfcalScore(network[0], dict(network[1]), form[0], dict(form[1]))


def call_settings(run: Run) -> dict[str, Any]:
    """How the pipeline samples unless told otherwise. No lists: diffusers takes those for networks."""
    chosen = run.settings.sampling
    channels, height, width = run.shape
    return {
        "guide": run.method.guide,
        "scale": run.method.scale,
        "sampler": chosen.sampler,
        "steps": chosen.steps or samplers.find(chosen.sampler).steps,
        "sigma_min": run.noise.sigma_min,
        "sigma_max": run.noise.sigma_max,
        "image_shape": {"channels": channels, "height": height, "width": width},
        "id2label": {str(i): name for i, name in enumerate(run.classes)},
    }


def card(run: Run, out: Path) -> str:
    return CARD.format(
        title=out.name,
        version=selfcal.__version__,
        method=run.method.name,
        classes=", ".join(run.classes),
        folder=out.name,
        file=FILE,
        example=run.classes[0],
        scale=run.method.scale,
    )


def portable_source() -> str:
    """The modules in one file, without their imports of each other."""
    parts = [
        f'"""Written by selfcal {selfcal.__version__} (Apache-2.0): the networks, guidance and samplers of a run."""'
    ]
    parts += ["from __future__ import annotations", "UNLABELED = -1"]
    for name in MODULES:
        text = (resources.files("selfcal") / name).read_text("utf-8")
        parts.append(f"# --- {name} ---\n\n{without_own_imports(text)}")
    return "\n\n".join(parts) + "\n"


def without_own_imports(text: str) -> str:
    lines = text.splitlines()
    for node in ast.parse(text).body:
        ours = isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("selfcal", "__future__")
        if ours:
            for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[number] = ""
    return "\n".join(lines).strip()
