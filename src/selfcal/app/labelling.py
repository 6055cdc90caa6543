"""Labels given by click: a stack of cards, each an image and, sooner or later, its class; saved as a table for `train`.

RUN/labels/labels-001.csv   what was known and what was clicked: `selfcal train DATA --labels` takes it
RUN/labels/new-001/*.png    labelled images that are not in the data yet, if any were dropped in
"""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from torch import Tensor

from selfcal.app.asking import same_image
from selfcal.app.runs import needed_guide
from selfcal.core.errors import SelfcalError
from selfcal.core.files import make_folder, surfaced, write_numbered, write_text
from selfcal.data.label_files import as_table
from selfcal.data.memory import KEPT
from selfcal.diffusion.generator import class_index
from selfcal.diffusion.pictures import pixels, png
from selfcal.diffusion.sample_files import as_image
from selfcal.diffusion.scores import UNLABELED
from selfcal.evaluation.suggestion import suggest
from selfcal.run import Run

MOST_CARDS = 1000


@dataclass(frozen=True)
class Card:
    """An image (1, *) to be labelled: from the pile, or, with no place in it, dropped in."""

    x: Tensor
    place: int | None
    label: int | None = None

    @property
    def file(self) -> str:
        """What a dropped image is called in the table, and wherever it is copied to."""
        return f"new-{hashlib.sha256(pixels(self.x.numpy()).tobytes()).hexdigest()[:12]}.png"


@dataclass(frozen=True)
class Labelling:
    """The cards of one person, the one that lies on top, and how many labels have been saved."""

    cards: tuple[Card, ...] = ()
    at: int = 0
    saved: frozenset[tuple[str | int, int]] = field(default_factory=frozenset)

    @property
    def card(self) -> Card | None:
        return self.cards[self.at] if self.at < len(self.cards) else None

    @property
    def given(self) -> list[Card]:
        return [card for card in self.cards if card.label is not None]

    @property
    def unsaved(self) -> int:
        return len(marks(self.given) - self.saved)

    def with_suggestions(self, run: Run, count: int) -> Labelling:
        """So many more cards, of images that are told by neither a label nor a card yet."""
        check_room(self.cards, count)
        labels = needed_guide(run).pool.y.clone()
        for card in self.cards:
            if card.place is not None:  # a skipped one is not asked again; its own class stands in for a label
                labels[card.place] = 0 if card.label is None else card.label
        places = suggest(run.generator, run.data.x, labels, count).tolist()
        new = tuple(Card(run.data.x[i : i + 1], i) for i in places)
        return replace(self, cards=self.cards + new, at=len(self.cards))

    def with_image(self, run: Run, x: Tensor) -> Labelling:
        """An image that somebody brings: the pile's own, if it is in it, else a new one, where data can grow."""
        check_room(self.cards, 1)
        place = same_image(x, run.data.x)
        if place is not None and run.pool.y[place] != UNLABELED:
            raise SelfcalError(
                f"this image is in {run.data.name} and has the label {run.classes[int(run.pool.y[place])]!r} already"
            )
        if place is None and run.data.files is None:
            raise SelfcalError(f"this image is not in {run.data.name}, and only a folder of images can be added to")
        card = Card(x, place)
        for i, other in enumerate(self.cards):
            if (other.place, other.file) == (place, card.file):
                return replace(self, at=i)
        return replace(self, cards=(*self.cards, card), at=len(self.cards))

    def labelled(self, run: Run, name: str) -> Labelling:
        """The card on top has this class; the next one comes up."""
        if self.card is None:
            return self
        card = replace(self.card, label=class_index(run.classes, name))
        return replace(self, cards=(*self.cards[: self.at], card, *self.cards[self.at + 1 :]), at=self.at + 1)

    def skipped(self) -> Labelling:
        return replace(self, at=min(self.at + 1, len(self.cards)))

    def back(self) -> Labelling:
        """To the card before, to label it anew."""
        return replace(self, at=max(0, self.at - 1))

    def save(self, run: Run) -> tuple[Labelling, str]:
        """A table of all labels, known and given, under a name that no file has yet; and where it is, in words."""
        if not self.given:
            raise SelfcalError("nothing has been labelled yet")
        new = [card for card in self.given if card.place is None]
        images = [(c.file, png(as_image(pixels(c.x.numpy())[0]))) for c in new]
        table = written(run.path, images, as_table(rows(run, self.given)))
        folder = images_of(table) if new else None
        return replace(self, saved=marks(self.given)), in_words(run, table, folder, len(self.given))


def marks(cards: Sequence[Card]) -> frozenset[tuple[str | int, int]]:
    """Which images have which labels."""
    return frozenset((c.file if c.place is None else c.place, c.label) for c in cards if c.label is not None)


def check_room(cards: Sequence[Card], count: int) -> None:
    if len(cards) + count > MOST_CARDS:
        raise SelfcalError(f"{len(cards)} images are on the stack, more than {MOST_CARDS} do not fit; save, and reload")


def rows(run: Run, given: Sequence[Card]) -> list[tuple[str, str]]:
    """(file, label): those that the run was trained with, then the given ones."""
    names = run.data.names
    named = [(c.file if c.place is None else names[c.place], run.classes[c.label or 0]) for c in given]
    return run.labels_seen() + named


def written(run: Path, images: Sequence[tuple[str, bytes]], text: str) -> Path:
    """The table under the first number that is free in the end, two pages may save at once; and new images beside."""
    with surfaced(f"cannot write to {run / 'labels'}"):
        folder = make_folder(run / "labels", within=run)
        while True:
            beside = write_numbered(lambda: images_of(free_name(folder)), images) if images else None
            table = free_name(folder) if beside is None else folder / f"{beside.name.replace('new-', 'labels-')}.csv"
            try:
                write_text(table, text, new=True)
                return table
            except BaseException as error:
                if beside is not None:
                    shutil.rmtree(beside, ignore_errors=True)
                if not isinstance(error, FileExistsError):
                    raise


def images_of(table: Path) -> Path:
    return table.with_name(table.stem.replace("labels-", "new-"))


def free_name(folder: Path) -> Path:
    """folder/labels-001.csv, or the first number that is free."""
    numbers = [int(m[1]) for p in folder.iterdir() if (m := re.fullmatch(r"(?:labels|new)-(\d+)(?:\.csv)?", p.name))]
    return folder / f"labels-{max(numbers, default=0) + 1:03d}.csv"


def in_words(run: Run, table: Path, folder: Path | None, count: int) -> str:
    """What was written, and on a line of its own the command that trains with it."""
    new, known = plural(count, "new label"), plural(len(run.pool.labelled), "known one")
    words = f"{new} saved, together with {known}, in {table}."
    if folder is not None:
        words += f" The images that are not in the data yet are in {folder}; copy them to its unlabelled ones first."
    return f"{words}\n{next_command(run, table, grown=folder is not None)}"


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def next_command(run: Run, table: Path, grown: bool) -> str:
    """As the run was asked for, with the new labels. The score model, which needs none, is taken over, unless the data
    has grown."""
    config = run.config
    asked, source = config.get("asked") or {}, str(config["data"]["source"])
    if run.settings.score.network.startswith("adopted"):
        return f"selfcal adopt … --labels {shlex.quote(str(table))} --out {shlex.quote(f'{run.path}-{table.stem}')}"
    words = ["selfcal", "train", source if source != KEPT else str(run.path / KEPT), "--method", run.method.name]
    words += ["--labels", str(table), "--seed", str(config["seed"])]
    for name in ("preset", "steps", "minutes"):
        words += [f"--{name}", str(asked[name])] if asked.get(name) is not None else []
    words += ["--size", str(config["data"]["size"])] if config["data"].get("size") else []
    words += ["--skip-broken"] if config["data"].get("skip_broken") else []
    for key, value in (asked.get("settings") or {}).items():
        words += ["--set", f"{key}={','.join(map(str, value)) if isinstance(value, list) else value}"]
    if not grown and any(stage.role == "score" for stage in run.stages) and "score" not in run.unfinished:
        words += ["--score", str(run.path)]
    return shlex.join([*words, "--out", f"{run.path}-{table.stem}"])
