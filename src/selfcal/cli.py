"""The command line: a thin layer over the Python API. Bad input is one sentence and exit code 2."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, CycloptsError, Parameter
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from selfcal import __version__
from selfcal.errors import SelfcalError

if TYPE_CHECKING:
    from selfcal.run import Run

app = App(
    name="selfcal",
    help="Class-conditional image generation when only a few images are labelled.",
    version=__version__,
    suppress_keyboard_interrupt=False,
)
out_console = Console()
problem_console = Console(stderr=True)


@app.command
def demo(*, out: Path = Path("runs/demo"), seed: int = 0, steps: int | None = None, count: int = 1800) -> None:
    """Show the paper's claim on digits with 2 % labels, in minutes.

    Trains, samples and evaluates CG and CG-SC-all, and writes DIR/report.html and DIR/results.json.
    Example: selfcal demo --out runs/demo

    Parameters
    ----------
    out
        Folder for the page, the results and the two runs; the same command continues an interrupted one.
    seed
        Chooses the labelled images, the first weights and all noise.
    steps
        Training steps of each network, instead of the preset's (fewer are quicker and worse).
    count
        Samples per guidance scale.
    """
    from selfcal.demo import demo as run_demo
    from selfcal.report.tables import print_results

    page = run_demo(out, seed=seed, steps=steps, count=count, show_progress=True)
    results = json.loads((out / "results.json").read_text("utf-8"))
    print_results(out_console, [r for r in results if r["chosen"]], "at the chosen λ")
    out_console.print(f"Open {page} in a browser.", soft_wrap=True)


@app.command
def methods() -> None:
    """Print the method table: networks, terms and weights, data each term sees, guidance, cost of a step.

    Example: selfcal methods
    """
    from selfcal import costs
    from selfcal.config import Settings
    from selfcal.methods import METHODS, Context

    measured = costs.measured()
    table = Table("method", "network", "loss: weight·term(data it sees)", "guides by", box=None, padding=(0, 1))
    table.add_column("step", justify="right")
    for row in METHODS.values():
        for i, stage in enumerate(row.stages(Settings())):
            terms = stage.terms(Context.typical())
            loss = " + ".join(f"{t.weight:g}·{name}({t.sees})" for name, t in terms.items())
            cost = measured.get(costs.key(row.name, stage))
            cells = (stage.name, loss, row.guide if i == 0 else "", "–" if cost is None else f"{cost:.1f}")
            table.add_row(row.name if i == 0 else "", *cells)
    out_console.print(table)
    out_console.print("step: cost of a training step in plain cross-entropy steps, as measured by make bench")


@app.command
def train(
    data: str,
    /,
    *,
    method: str = "cg-sc-all",
    labels: str = "0.02",
    out: Path,
    score: Path | None = None,
    steps: int | None = None,
    preset: str | None = None,
    seed: int = 0,
    set: Annotated[list[str] | None, Parameter(name="--set", negative=())] = None,
    dry_run: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Train what a method needs on DATA; the same command resumes an interrupted run.

    Example: selfcal train digits --method cg-sc-all --labels 0.02 --out runs/digits

    Parameters
    ----------
    data
        moons, digits, cifar10, cifar100, fashion, mnist, an .npz file (arrays x and y), or a folder of images (class
        sub-folders and/or unlabeled/).
    method
        A row of `selfcal methods`.
    labels
        What may be seen: a fraction (0.02), a count (4/class), or a CSV with the columns file,label.
    out
        The run directory to make or continue.
    score
        A finished run whose unconditional score model is used instead of training one.
    steps
        Training steps of each network, instead of the preset's.
    preset
        Settings to start from; by default the one that fits the data.
    seed
        Chooses the labelled images, the first weights and all noise.
    set
        Any other setting as key=value, for instance --set terms.sc_weight=10; may be repeated.
    dry_run
        Only say what it would take: parameters, FLOPs, memory, time on this machine. Writes nothing.
    """
    if dry_run:
        from selfcal.planning import plan
        from selfcal.report.plan_table import print_plan

        print_plan(out_console, plan(data, method, labels, seed=seed, steps=steps, preset=preset, settings=set or []))
        return
    from selfcal.fitting import train as run_training

    run = run_training(
        data,
        method,
        labels,
        out,
        seed=seed,
        steps=steps,
        score=score,
        preset=preset,
        settings=set or [],
        show_progress=True,
    )
    finished(run)


@app.command
def adopt(
    source: Path,
    /,
    *,
    data: str,
    method: str = "cg-sc-all",
    labels: str = "0.02",
    out: Path,
    steps: int | None = None,
    preset: str | None = None,
    seed: int = 0,
    set: Annotated[list[str] | None, Parameter(name="--set", negative=())] = None,
) -> None:
    """Make a pretrained unconditional model class-conditional: only the guide is trained; the same command resumes.

    Example: selfcal adopt ddpm-digits/ --data digits --labels 4/class --out runs/adopted

    Parameters
    ----------
    source
        A diffusers pipeline's folder (UNet2DModel), or a checkpoint of score_sde_pytorch (.pth or .safetensors).
    data
        Images like those the model was trained on, as for `selfcal train`.
    method
        A row of `selfcal methods` that guides by a classifier.
    labels
        As for `selfcal train`.
    out
        The run directory to make or continue.
    steps
        Training steps of the guide, instead of the preset's.
    preset
        As for `selfcal train`.
    seed
        As for `selfcal train`.
    set
        As for `selfcal train`.
    """
    from selfcal.adopting import adopt as run_adoption

    finished(
        run_adoption(
            source, data, labels, method, out, seed=seed, steps=steps, preset=preset, settings=set or [],
            show_progress=True,
        )
    )  # fmt: skip


@app.command
def export(run: Path, /, *, out: Path) -> None:
    """Write a finished run as a diffusers pipeline that loads without selfcal.

    Example: selfcal export runs/adopted --out pipeline/

    Parameters
    ----------
    run
        A finished run directory.
    out
        The folder to make. In Python: DiffusionPipeline.from_pretrained(folder, trust_remote_code=True), then
        pipe(class_labels=[3, 5], guidance_scale=2.0).
    """
    from selfcal.interop.export import export as write_pipeline
    from selfcal.run import load

    write_pipeline(load(run), out)
    out_console.print(
        f"{out} is written; in Python: DiffusionPipeline.from_pretrained({str(out)!r}, trust_remote_code=True)",
        soft_wrap=True,
        highlight=False,
        markup=False,
    )


@app.command
def sample(
    run: Path,
    /,
    *,
    classes: str | None = None,
    count: int = 64,
    scale: float | None = None,
    sampler: str | None = None,
    steps: int | None = None,
    guide: str | None = None,
    option: Annotated[list[str] | None, Parameter(name="--option", negative=())] = None,
    seed: int = 0,
    out: Path | None = None,
) -> None:
    """Generate images of the wanted classes, and a grid to look at.

    Example: selfcal sample runs/digits --classes 3,5 --count 64 --scale 1.5 --out threes-and-fives.npz

    Parameters
    ----------
    run
        A finished run directory.
    classes
        Class names separated by commas; all of them if left out.
    count
        Images in all, spread evenly over the classes.
    scale
        Strength of the guidance: λ of a classifier (1 if left out), or w of classifier-free guidance (0 if left out).
    sampler
        pc (the paper's), euler, heun, dpm++2m or dpm++2m-sde (the default).
    steps
        Steps of the sampler, instead of its own number.
    guide
        Instead of the method's: unconditional, classifier-only or classifier-only-unconditional.
    option
        An option of the sampler as key=value: snr (pc), churn (heun), eta (dpm++2m-sde).
    seed
        The same seed gives the same images.
    out
        A name ending in .npz, or a folder for PNGs by class; RUN/samples if left out.
    """
    from selfcal.report.pictures import sample_grid
    from selfcal.run import load

    opened = load(run)
    target = out or opened.path / "samples"
    picture = target.with_suffix(".png") if target.suffix == ".npz" else target / "grid.png"
    check_free(target, ours=out is None)
    made = opened.sample(
        classes=None if classes is None else opened.classes_named(classes),
        count=count,
        scale=scale,
        sampler=sampler,
        steps=steps,
        guide=guide,
        seed=seed,
        show_progress=True,
        **numbers(option),
    )
    if out is None:
        shutil.rmtree(target, ignore_errors=True)  # the run's own folder: the newest samples replace the last
    made.save(target)
    shown = ""
    if made.x.ndim == 4:
        sample_grid(made).save(picture)
        shown = f", a grid in {picture}"
    out_console.print(f"{len(made)} samples in {target}{shown}", soft_wrap=True, highlight=False)


@app.command
def evaluate(
    run: Path,
    /,
    *,
    scales: str | None = None,
    count: int | None = None,
    sampler: str | None = None,
    steps: int | None = None,
    guide: str | None = None,
    option: Annotated[list[str] | None, Parameter(name="--option", negative=())] = None,
    features: str = "auto",
    inception_weights: Path | None = None,
    intervals: bool = True,
    seed: int = 0,
) -> None:
    """Measure a run: every metric of the paper into RUN/metrics.json, and a table.

    Example: selfcal evaluate runs/digits --scales 0.5,1,2

    Parameters
    ----------
    run
        A finished run directory.
    scales
        Guidance scales separated by commas, or "paper" for its grid; the best is chosen on separate samples.
    count
        Samples per λ; as many as there are training images, at most 5000, if left out.
    sampler
        As for `selfcal sample`.
    steps
        As for `selfcal sample`.
    guide
        As for `selfcal sample`.
    option
        As for `selfcal sample`.
    features
        auto, cnn (trained on all labels; bundled for digits), identity (the numbers themselves),
        efficientnet-lite0 (its distance is FD-EffNetLite0, not FID) or inception.
    inception_weights
        The file of the TensorFlow-2015 Inception weights; implies --features inception.
    intervals
        95 % intervals for every number, by ten more measurements.
    seed
        Of the samples.
    """
    from selfcal.report.tables import print_results
    from selfcal.run import load

    opened = load(run)
    report = opened.evaluate(
        scales=wanted_scales(scales, opened.method.scales),
        count=count,
        sampler=sampler,
        steps=steps,
        guide=guide,
        features=features if inception_weights is None else f"inception:{inception_weights}",
        intervals=intervals,
        seed=seed,
        show_progress=True,
        **numbers(option),
    )
    if report["diverged"]:
        from selfcal.run import divergence_in_words

        out_console.print(f"{run} diverged: {divergence_in_words(report['diverged'])}", soft_wrap=True, highlight=False)
        return
    print_results(out_console, report["results"], str(run))
    if report["guide"]:
        clean = report["guide"][0]
        out_console.print(
            f"guide at σ_min ({report['guide_split']}): accuracy {clean['accuracy']:.3f}, "
            f"calibration error {clean['ece']:.3f}",
            highlight=False,
        )
    out_console.print(f"written to {opened.path / 'metrics.json'}", soft_wrap=True, highlight=False)
    if len(report["results"]) > 1:
        from selfcal.report.figures import guidance_curve

        figure = opened.path / "guidance.svg"
        figure.write_text(guidance_curve(report["results"]), encoding="utf-8")
        out_console.print(f"density, coverage and intra-FID over the scales: {figure}", soft_wrap=True, highlight=False)


@app.command
def compare(
    data: str,
    /,
    *,
    methods: str = "paper",
    labels: str = "0.02,0.2,1.0",
    seeds: int = 3,
    out: Path,
    jobs: int | None = None,
    steps: int | None = None,
    count: int | None = None,
    preset: str | None = None,
    seed: int = 0,
    set: Annotated[list[str] | None, Parameter(name="--set", negative=())] = None,
) -> None:
    """The paper's tables and figures over methods × labels × seeds; the same command resumes.

    Example: selfcal compare digits --methods cg,cg-sc-all,cond --labels 0.02,1.0 --seeds 3 --out runs/digits-grid

    Every cell is a run directory; finished ones are skipped, a failed one is recorded and tried again by the
    next command. A command with other methods, labels or seeds adds cells to the same folder.

    Parameters
    ----------
    data
        As for `selfcal train`.
    methods
        Names separated by commas; "paper" for the paper's, "all" for every row of `selfcal methods`.
    labels
        Choices of labels separated by commas, each as for `selfcal train`.
    seeds
        How many seeds; each chooses other labelled images, first weights and noise.
    out
        The folder to make or continue: table.md, table.csv, table.tex and report.html.
    jobs
        Cells at a time; as many as there are cores, or one on a GPU, if left out.
    steps
        Training steps of each network, instead of the preset's.
    count
        Samples per guidance scale.
    preset
        Settings to start from; by default the one that fits the data.
    seed
        The first seed.
    set
        Any other setting as key=value, for instance --set terms.sc_weight=10; may be repeated.
    """
    from selfcal.comparison import compare as run_comparison
    from selfcal.methods import BEYOND, METHODS
    from selfcal.report.comparison_page import print_comparison, write_comparison

    sets = {"all": list(METHODS), "paper": [m for m in METHODS if m not in BEYOND]}
    grid = run_comparison(
        data,
        sets.get(methods, [m.strip() for m in methods.split(",")]),
        [y.strip() for y in labels.split(",")],
        seeds,
        out,
        seed=seed,
        steps=steps,
        count=count,
        preset=preset,
        settings=set or [],
        jobs=jobs,
        command=shlex.join(["selfcal", *sys.argv[1:]]),
        show_progress=True,
    )
    page = write_comparison(grid.out)
    print_comparison(out_console, grid.out)
    out_console.print(f"Open {page} in a browser; the tables are beside it.", soft_wrap=True, highlight=False)
    failed = [cell for cell in grid.cells if cell.state(grid.out) == "failed"]
    for cell in failed:
        out_console.print(f"failed: {cell.name}, see {cell.outcome(grid.out)}", soft_wrap=True, highlight=False)
    if failed:
        sys.exit(3)


@app.command
def report(folder: Path, /) -> None:
    """Make the page and tables of a comparison, a toy or a demo again, from its results files alone.

    Example: selfcal report runs/digits-grid

    Parameters
    ----------
    folder
        What `selfcal compare`, `selfcal toy` or `selfcal demo` made.
    """
    from selfcal.report import PAGES

    for mark, write in PAGES.items():
        if (folder / mark).is_file():
            out_console.print(f"Open {write(folder)} in a browser.", soft_wrap=True, highlight=False)
            return
    raise SelfcalError(f"{folder} holds no results: none of {', '.join(PAGES)} is there")


@app.command
def toy(
    *,
    out: Path = Path("runs/toy"),
    methods: str = "cg,cg-sc-all,cg-dlsm,cg-jem",
    labels: int = 60,
    seeds: int = 10,
    seed: int = 0,
    steps: int | None = None,
    jem_steps: int | None = None,
    jobs: int = 2,
    set: Annotated[list[str] | None, Parameter(name="--set", negative=())] = None,
) -> None:
    """Compare the gradients of classifiers with the exact ones, on two moons with few labels.

    Writes DIR/report.html, table.md, results.json, fields.png and paths.png; the same command continues.
    Example: selfcal toy --out runs/toy --seeds 10 --labels 60

    Parameters
    ----------
    out
        Folder for the page, the table, the figures and each seed's results.
    methods
        Rows of `selfcal methods` that guide by a classifier, separated by commas.
    labels
        How many of the 2000 points of a seed are labelled.
    seeds
        How many times all is repeated, each time with other points, weights and noise.
    seed
        The first seed.
    steps
        Training steps of each classifier, instead of the preset's 4000.
    jem_steps
        Training steps of cg-jem, whose Langevin chains are dear; an eighth of the others' if left out.
    jobs
        Processes side by side, one thread each.
    set
        Any other setting as key=value, for instance --set terms.sc_weight=10; may be repeated.
    """
    from selfcal.report.toy_table import print_table
    from selfcal.toy import toy as run_toy

    page = run_toy(
        out,
        rivals=[m.strip() for m in methods.split(",") if m.strip()],
        labels=labels,
        seed=seed,
        seeds=seeds,
        steps=steps,
        jem_steps=jem_steps,
        settings=set or [],
        jobs=jobs,
        show_progress=True,
    )
    print_table(out_console, json.loads((out / "results.json").read_text("utf-8")))
    out_console.print(f"Open {page} in a browser.", soft_wrap=True)


@app.command
def show(run: Path, /, *, json_: Annotated[bool, Parameter(name="--json", negative=())] = False) -> None:
    """What a run is: method, data, step, settings, metrics, hashes of its weights.

    Example: selfcal show runs/digits --json

    Parameters
    ----------
    run
        A run directory, finished or not.
    json_
        Print everything as JSON.
    """
    from selfcal.report.tables import print_results
    from selfcal.run import load

    about = load(run).describe()
    if json_:
        print(json.dumps(about, indent=1, ensure_ascii=False))
        return
    data = about["data"]
    table = Table(box=None, show_header=False, padding=(0, 2))
    table.add_row("method", about["method"])
    table.add_row(
        "data",
        f"{data['name']}: {data['examples']} examples, {len(data['classes'])} classes, {data['shape']}",
    )
    table.add_row("labels", f"{about['labels']} ({about['labelled']} seen), seed {about['seed']}")
    for network, wanted in about["steps"].items():
        sha = about["weights_sha256"].get(network, "")
        table.add_row(network, f"step {about['step'].get(network, 0)} of {wanted}   {sha[:16]}")
    for section, values in about["settings"].items():
        table.add_row(section, "  ".join(f"{k}={v}" for k, v in values.items() if not isinstance(v, dict)))
    out_console.print(table)
    if about["diverged"]:
        out_console.print(f"diverged: {about['diverged']}", highlight=False)
    if about["metrics"] and about["metrics"]["results"]:
        try:
            print_results(out_console, about["metrics"]["results"], "metrics.json")
        except (KeyError, TypeError, ValueError, AttributeError):
            raise SelfcalError(
                f"{run / 'metrics.json'} is not as `selfcal evaluate` writes it; evaluate again"
            ) from None


def finished(run: Run) -> None:
    """What came of a training, and what to type next."""
    if run.diverged:
        from selfcal.run import divergence_in_words

        out_console.print(f"{run.path} diverged: {divergence_in_words(run.diverged)}", soft_wrap=True, highlight=False)
        sys.exit(3)  # a result, recorded in the run, but nothing a script should go on with
    for stage, labels_given in (run.pseudo_labels or {}).items():
        right = "" if labels_given["right"] is None else f", {labels_given['right']:.1%} of them right"
        out_console.print(
            f"{stage}: {labels_given['kept']} of {labels_given['unlabelled']} unlabelled images got a label{right}",
            highlight=False,
        )
    out_console.print(
        f"{run.path} is finished: {run.method.title}, "
        f"{run.config['labelled']} of {run.config['data']['examples']} labels seen.\n"
        f"Next: selfcal sample {run.path} --out samples.npz, or selfcal evaluate {run.path}",
        soft_wrap=True,
        highlight=False,
    )


def check_free(target: Path, ours: bool) -> None:
    """Before the work: can the samples be written there without mixing with other files?"""
    if target.suffix == ".npz" and target.is_dir():
        raise SelfcalError(f"{target} is a folder; give --out another name")
    if target.suffix != ".npz" and not ours and target.is_dir() and any(target.iterdir()):
        raise SelfcalError(f"the folder {target} is not empty; give --out another name")
    for parent in [target, *target.parents] if target.suffix != ".npz" else target.parents:
        if parent.is_file():
            raise SelfcalError(f"{parent} is a file, not a folder; give --out another name")


def wanted_scales(text: str | None, paper: tuple[float, ...]) -> list[float] | None:
    if text is None:
        return None
    asked = list(paper) if text == "paper" else [number(s, "--scales") for s in text.split(",")]
    return list(dict.fromkeys(asked))


def number(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SelfcalError(f"{where} {text!r} is not a number") from None


def numbers(options: list[str] | None) -> dict[str, float]:
    """["eta=1"] -> {"eta": 1.0}."""
    found = {}
    for option in options or []:
        key, equals, value = option.partition("=")
        if not equals:
            raise SelfcalError(f"--option {option!r} is not of the form key=value")
        found[key] = number(value, f"--option {key}")
    return found


def main(arguments: list[str] | None = None) -> None:
    """Run a command; exit with 0, or with 2 and one sentence for anything the user can mend."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what can be saved is saved
    try:
        app(arguments, exit_on_error=False, print_error=False)
    except (SelfcalError, CycloptsError) as error:
        said = " ".join(str(error).split()).encode("utf-8", "backslashreplace").decode()
        problem_console.print(f"[bold red]selfcal:[/] {escape(said)}", soft_wrap=True)
        sys.exit(2)
    except BrokenPipeError:  # `selfcal show … | head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        problem_console.print(
            f"[bold red]selfcal:[/] {escape(str(error.strerror or error))}:{escape(where)}", soft_wrap=True
        )
        sys.exit(2)
    except KeyboardInterrupt as interruption:
        command = shlex.join(["selfcal", *(sys.argv[1:] if arguments is None else arguments)])
        said = f"{str(interruption) or 'interrupted'}; the same command continues:\n  {command}"
        problem_console.print(said, soft_wrap=True, markup=False, highlight=False)
        sys.exit(130)


if __name__ == "__main__":
    main()
