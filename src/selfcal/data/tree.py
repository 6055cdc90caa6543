"""What lies below a folder: images, tables, and files that are not read. No link leads out of it, nor in circles."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from selfcal.core.bounds import check_name
from selfcal.data.images import ENDINGS, UNREAD
from selfcal.data.limits import check_inside

TABLES = {".csv", ".tsv"}
NO_DATA = {"__macosx"}  # what archives made on a Mac hold beside the images


@dataclass
class Tree:
    """A folder: its own files by kind, and the folders in it by name, all in the order of their names."""

    path: Path
    images: list[Path] = field(default_factory=list)
    tables: list[Path] = field(default_factory=list)
    unread: list[Path] = field(default_factory=list)  # images in formats that we do not read
    others: list[Path] = field(default_factory=list)
    folders: dict[str, Tree] = field(default_factory=dict)

    def all(self) -> Iterator[Tree]:
        """This folder and all below it."""
        yield self
        for folder in self.folders.values():
            yield from folder.all()

    def images_below(self) -> list[Path]:
        return sorted(image for tree in self.all() for image in tree.images)

    def unread_in_words(self) -> str:
        """ "12 .heic, 1 .psd", or nothing."""
        endings = Counter(file.suffix.lower() for tree in self.all() for file in tree.unread)
        return ", ".join(f"{count} {ending}" for ending, count in sorted(endings.items()))


def grown(root: Path, folder: Path | None = None, above: tuple[str, ...] = ()) -> Tree:
    """The tree of a folder, links within `root` followed. Names that begin with a dot are not looked at."""
    tree = Tree(folder or root)
    real = os.path.realpath(tree.path)
    for path in sorted(tree.path.iterdir()):
        if path.name.startswith(".") or path.name.lower() in NO_DATA:
            continue
        ending = path.suffix.lower()
        if path.is_dir():
            if path.is_symlink():
                check_inside(path, root)
            if os.path.realpath(path) not in (*above, real):
                tree.folders[path.name] = grown(root, path, (*above, real))
        elif path.is_file():
            if ending in ENDINGS:
                check_name(path)
                if path.is_symlink():
                    check_inside(path, root)
            _kind(tree, ending).append(path)
    return tree


def _kind(tree: Tree, ending: str) -> list[Path]:
    if ending in ENDINGS:
        return tree.images
    return tree.tables if ending in TABLES else tree.unread if ending in UNREAD else tree.others
