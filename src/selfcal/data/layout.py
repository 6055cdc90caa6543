"""Which files of a folder are what, by where they lie: training or test images, of which class or of none.

photos/cat/1.png  photos/dog/2019/7.png  photos/unlabeled/123.png    class folders, however deep
photos/1.png  photos/2.png  …  photos/labels.csv                     a flat pile and a table of labels
photos/train/cat/…  photos/test/cat/…  photos/unlabeled/…            with images that are only judged by
photos/1.png  …  photos/test/cat/…                                   the same beside a flat pile

train, test and unlabeled may be written in any case; a folder `images/` that is alone is passed through.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from selfcal.core.errors import SelfcalError, listed
from selfcal.data.tree import Tree, grown

TRAIN = ("train", "training")
TEST = ("test", "testing")
VALIDATION = ("val", "valid", "validation")  # takes the part of test/ where that is missing or has no classes
HIDDEN = ("unlabeled", "unlabelled")
SPECIAL = (*TRAIN, *TEST, *VALIDATION, *HIDDEN)
PASSED_THROUGH = "images"


@dataclass
class Split:
    """Images, and the class folder each lies in: None for those in none."""

    root: Path
    files: list[Path] = field(default_factory=list)
    folders: list[str | None] = field(default_factory=list)

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(sorted({name for name in self.folders if name is not None}))

    def add(self, files: list[Path], folder: str | None) -> None:
        self.files += files
        self.folders += [folder] * len(files)


@dataclass
class Layout:
    """All that was found below a folder."""

    train: Split
    test: Split
    tables: list[Path]
    notes: list[str]


def survey(root: Path) -> Layout:
    tree = grown(root)
    train, hidden = _one(tree, TRAIN), _one(tree, HIDDEN)
    test = _test(tree, train)
    if train is None:
        split = _split(tree, without=test)
    else:
        _check_is_no_class(train, tree)
        split = _split(train)
        if hidden is not None:
            split.add(hidden.images_below(), None)
    tables = tree.tables or (train.tables if train else []) or _inner(tree).tables
    return Layout(split, Split(root) if test is None else _split(test), tables, _notes(tree, train, test))


def _one(tree: Tree, names: tuple[str, ...]) -> Tree | None:
    """The folder of one of these names, in any case."""
    found = [folder for name, folder in tree.folders.items() if name.lower() in names]
    if len(found) > 1:
        raise SelfcalError(f"{tree.path} has {' and '.join(f.path.name for f in found)}; keep the one that is meant")
    return found[0] if found else None


def _classes(tree: Tree) -> list[str]:
    return [name for name in tree.folders if name.lower() not in SPECIAL]


def _test(tree: Tree, train: Tree | None) -> Tree | None:
    """The folder of test images; one among class folders must have class folders itself."""
    test, validation = _one(tree, TEST), _one(tree, VALIDATION)
    for folder in (test, validation):
        if train is None and folder is not None and _classes(tree) and not folder.folders:
            name = folder.path.name
            raise SelfcalError(
                f"{folder.path} lies among class folders ({listed(_classes(tree), 5)}) and has none in it: if it is a "
                f"class, rename it; if it holds test images, put them into {name}/CLASS/, or the others into train/"
            )
    if test is not None and validation is not None and not _classes(_inner(test)):
        return validation
    return test or validation


def _check_is_no_class(train: Tree, tree: Tree) -> None:
    """A folder train/ of loose images, among others that hold images too: railways, perhaps."""
    rivals = [name for name in _classes(tree) if tree.folders[name].images_below()]
    if not train.folders and rivals:
        raise SelfcalError(
            f"{train.path} has no class folders, and beside it there are images in {listed(rivals)}: if "
            f"{train.path.name} is a class, put all of them into one more folder train/; if it holds the training "
            "images, move the others away"
        )


def _inner(tree: Tree) -> Tree:
    """The folder itself, or images/ where all its images are in that."""
    alone = [name for name in tree.folders if name.lower() not in HIDDEN]
    return tree.folders[alone[0]] if [n.lower() for n in alone] == [PASSED_THROUGH] and not tree.images else tree


def _split(tree: Tree, without: Tree | None = None) -> Split:
    """Loose images, then class folders in the order of their names, each with all that is below it."""
    inner = _inner(tree)
    split = Split(inner.path, list(inner.images), [None] * len(inner.images))
    groups = {name: folder for name, folder in inner.folders.items() if folder is not without}
    groups |= {} if inner is tree else {n: f for n, f in tree.folders.items() if n.lower() in HIDDEN}
    empty = []
    for name, folder in groups.items():
        if not name.isprintable():
            raise SelfcalError(
                f"the class folder {name!r} in {inner.path} has a name that cannot be written; rename it"
            )
        images, hidden = folder.images_below(), name.lower() in HIDDEN
        split.add(images, None if hidden else name)
        if not images and not hidden:
            empty.append(str(folder.path) + (f" ({words})" if (words := folder.unread_in_words()) else ""))
    if empty:
        raise SelfcalError(
            f"the class folder {empty[0]} holds no images; add some or remove it"
            if len(empty) == 1
            else f"{len(empty)} class folders hold no images: {listed(empty)}; add some or remove them"
        )
    return split


def _notes(tree: Tree, train: Tree | None, test: Tree | None) -> list[str]:
    notes, left = [], [f"{len(tree.images)} images beside it"] if train and tree.images else []
    if train is not None:
        used = [folder.path for folder in (train, test, _one(tree, HIDDEN)) if folder]
        left = [f"{name}/" for name, folder in tree.folders.items() if folder.path not in used] + left
        if left:
            notes.append(f"not read, since there is {train.path.name}/: {listed(left)}")
    if words := tree.unread_in_words():
        notes.append(f"not read: {words}; save them as JPEG or PNG to have them used")
    if nameless := [f.name for t in tree.all() for f in t.others if not f.suffix]:
        notes.append(f"not read, since their names have no ending: {listed(nameless, 5)}")
    return notes
