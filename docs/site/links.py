"""Look at every link of a built site: python docs/site/links.py build/site

Links within the site must lead to a file, and to a place in it that is there. Links out of it are only read, since a
build must not need the network: https, a host, nothing but the characters that addresses are made of.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ADDRESS = re.compile(r"https?://[\w-]+(\.[\w-]+)+(:\d+)?(/[\w\-.~%!$&'()*+,;=:@/]*)?(\?[^\s#]*)?(#[^\s#]*)?", re.ASCII)


class Page(HTMLParser):
    """The links of a page, and the places in it that can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value is not None:
                self.links.append(value)
            elif name == "id" and value:
                self.places.add(value)


def dead_links(site: Path) -> Iterator[str]:
    """Each as "page: link"."""
    pages = {file.resolve(): Page(file.read_text("utf-8")) for file in sorted(site.rglob("*.html"))}
    for file, page in pages.items():
        for link in page.links:
            if not leads_somewhere(link, file, pages):
                yield f"{file.relative_to(site.resolve())}: {link}"


def leads_somewhere(link: str, file: Path, pages: dict[Path, Page]) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return parts.scheme in ("mailto", "data") or ADDRESS.fullmatch(link) is not None
    target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
    target = target / "index.html" if target.is_dir() else target
    if not parts.fragment or target not in pages:
        return target.exists()
    return unquote(parts.fragment) in pages[target].places


def main() -> None:
    site = Path(sys.argv[1])
    pages = len(list(site.rglob("*.html")))
    if not pages:
        sys.exit(f"{site} holds no pages")
    dead = list(dead_links(site))
    print(*dead, sep="\n", end="\n" if dead else "")
    print(f"{pages} pages, {len(dead)} dead links")
    sys.exit(bool(dead))


if __name__ == "__main__":
    main()
