"""Files of the repository as pages of the site, and links from pages to files.

A page that says "The site shows [FILE](../FILE) here." becomes that file. A link to a file outside of docs/, as it
works in a clone, leads to the repository. A link to no file is a warning, which `make docs` makes an error.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from sphinx.util import logging

ROOT = Path(__file__).resolve().parents[2]
SOURCES = "https://github.com/gorovod/gorovod/blob/main/"
SHOWN = re.compile(r"The site shows \[.+\]\((?P<path>.+)\) here\.\n")
LINK = re.compile(r"\]\((?![a-z]+:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
logger = logging.getLogger(__name__)


def shown_files() -> dict[str, str]:
    """Which file of the repository is shown as which page."""
    files = {}
    for page in (ROOT / "docs").rglob("*.md"):
        match = SHOWN.fullmatch(page.read_text())
        if match:
            file = (page.parent / match["path"]).resolve().relative_to(ROOT)
            files[str(file)] = str(page.relative_to(ROOT / "docs"))
    return files


def read(app: Any, docname: str, source: list[str]) -> None:
    folder = posixpath.dirname(f"docs/{docname}")
    files = shown_files()
    base = folder
    match = SHOWN.fullmatch(source[0])
    if match:
        file = posixpath.normpath(posixpath.join(folder, match["path"]))
        source[0], base = (ROOT / file).read_text(), posixpath.dirname(file)
        app.env.note_dependency(str(ROOT / file))

    def link(match: re.Match[str]) -> str:
        path, anchor = posixpath.normpath(posixpath.join(base, match["path"])), match["anchor"] or ""
        if not (ROOT / path).exists():
            logger.warning("there is no %s", path, location=docname)
        if path in files:
            path = "docs/" + files[path]
        if path.startswith("docs/"):
            return f"]({posixpath.relpath(path, folder)}{anchor})"
        return f"]({SOURCES}{path}{anchor})"

    if docname in {page.removesuffix(".md") for page in files.values()} or "](../" in source[0]:
        source[0] = LINK.sub(link, source[0])


def setup(app: Any) -> dict[str, bool]:
    app.connect("source-read", read)
    return {"parallel_read_safe": True}
