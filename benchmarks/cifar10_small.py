"""Real CIFAR-10 on a CPU: the preset cifar10-small for some minutes, and a page about what came of it.

    python benchmarks/cifar10_small.py cifar10 --minutes 20     (or a folder with train/ and test/, or an .npz)

Steps are chosen from timed ones so that both trainings take the minutes asked for. The same command continues.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

from matplotlib.axes import Axes

import selfcal
from selfcal.diffusion.pictures import captioned_grid
from selfcal.report.figures import OTHERS, panel, svg
from selfcal.run import Run
from selfcal.training.plan import plan
from selfcal.training.request import Request

PRESET, METHOD, LABELS = "cifar10-small", "cg-sc-all", 0.05
SHARES = {"score": 0.6, "classifier": 0.4}  # of the time
PAGE = Path("docs/results")


def steps_for(data: str, minutes: float, file: Path) -> dict[str, int]:
    """Steps of each network, timed once and then remembered, so that the command continues the same run."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        stages = plan(Request(data, METHOD, LABELS, preset=PRESET).prepared()).stages
        steps = {f"{s.name}.steps": int(60 * minutes * SHARES[s.name] / s.seconds) for s in stages}
        file.write_text(json.dumps(steps))
    found: dict[str, int] = json.loads(file.read_text())
    return found


def losses(run: Run, network: str, name: str) -> tuple[list[int], list[float]]:
    lines = [json.loads(line) for line in (run.path / "log.jsonl").read_text().splitlines()]
    mine = [line for line in lines if line["network"] == network]
    return [line["step"] for line in mine], [line[name] for line in mine]


def smooth(values: list[float], window: int = 40) -> list[float]:
    return [statistics.mean(values[max(0, i - window) : i + 1]) for i in range(len(values))]


def draw(axes: Axes, run: Run, network: str, name: str) -> str:
    """A curve, and in words what its last two quarters were."""
    steps, values = losses(run, network, name)
    axes.plot(steps, values, color=OTHERS[0], alpha=0.2, lw=0.7)
    axes.plot(steps, smooth(values), color=OTHERS[0])
    axes.set_title(f"{network}: {name}")
    axes.set_xlabel("step")
    axes.set_yscale("log")
    third, last = values[len(values) // 2 : 3 * len(values) // 4], values[3 * len(values) // 4 :]
    before, now = statistics.mean(third), statistics.mean(last)
    noise = (statistics.variance(third) / len(third) + statistics.variance(last) / len(last)) ** 0.5
    falls = "yes" if before - now > 2 * noise else "not beyond its noise"
    return f"| {network}: {name} | {before:.4g} | {now:.4g} | {noise:.2g} | {falls} |"


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("data")
    asked.add_argument("--minutes", type=float, default=20)
    asked.add_argument("--out", type=Path, default=Path("runs/cifar10-small"))
    asked.add_argument("--count", type=int, default=1000, help="samples per λ")
    asked.add_argument("--scales", default="2", help="guidance scales, separated by commas")
    asked.add_argument("--page", type=Path, default=PAGE)
    wanted = asked.parse_args()
    steps = steps_for(wanted.data, wanted.minutes, wanted.out.with_suffix(".steps.json"))
    run = selfcal.train(wanted.data, METHOD, LABELS, wanted.out, preset=PRESET, settings=steps, show_progress=True)
    report = run.evaluate(
        scales=[float(scale) for scale in wanted.scales.split(",")],
        count=wanted.count,
        features="efficientnet-lite0",
        intervals=False,
        show_progress=True,
    )
    best = next(r for r in report["results"] if r["chosen"])
    wanted.page.mkdir(parents=True, exist_ok=True)
    samples = run.sample(count=80, scale=best["scale"])
    captioned_grid(samples.x.numpy(), samples.y.numpy(), run.classes).save(wanted.page / "cifar10-small.png")
    figure, axes = panel(3)
    curves = [("score", "dsm"), ("classifier", "ce"), ("classifier", "sc")]
    rows = [draw(a, run, *curve) for a, curve in zip(axes, curves, strict=True)]
    (wanted.page / "cifar10-small.svg").write_text(svg(figure), encoding="utf-8")
    (wanted.page / "cifar10-small.md").write_text(page(run, report, rows, wanted.minutes), encoding="utf-8")


def page(run: Run, report: dict, rows: list[str], minutes: float) -> str:
    keys = ("scale", "intra_fid", "fid", "density", "coverage", "intra_density", "intra_coverage", "accuracy")
    heads = ("λ", "intra-FD", "FD-EffNetLite0", "density", "coverage", "intra-density", "intra-coverage", "accuracy")
    table = "\n".join("| " + " | ".join(f"{r[k]:.3g}" for k in keys) + " |" for r in report["results"])
    first, guide = report["results"][0], report["guide"][0]
    trained = {s.name: s.settings(run.settings).steps for s in run.stages}
    return f"""# CIFAR-10 on a CPU

Made by `python benchmarks/cifar10_small.py DATA --minutes {minutes:g}`: preset `{PRESET}`, {METHOD},
{LABELS:.0%} labels ({run.config["labelled"]} of {run.config["data"]["examples"]} images), seed {run.config["seed"]}; \
{trained["score"]} steps of the score model, {trained["classifier"]} of the guide.
Less than a hundred-thousandth of the paper's work: it shows that everything runs on real photos, not how good it gets.

![Samples, a class in each row](cifar10-small.png)

| {" | ".join(heads)} |
|{"---|" * len(heads)}
{table}

{first["samples"]} samples per λ, {first["sampler"]} with {first["evaluations"]} evaluations, features \
{first["features"]} ({first["features_sha256"][:12]}), k = {first["k"]}, reference:
{first["reference_examples"]} training images. Accuracy is a linear classifier's on the same features. The guide
at σ_min on the {report["guide_split"]} split: accuracy {guide["accuracy"]:.3f}, calibration error {guide["ece"]:.3f}.

![Losses](cifar10-small.svg)

| loss | mean of the third quarter | of the last | standard error of their difference | still falls |
|---|---|---|---|---|
{chr(10).join(rows)}
"""


if __name__ == "__main__":
    main()
