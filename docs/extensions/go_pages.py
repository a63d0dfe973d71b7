"""The directive ``godoc``: what ``go doc -all`` says of a package, with a section for each kind of name."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[2]


class GoDoc(SphinxDirective):
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        for file in (ROOT / self.arguments[0]).glob("*.go"):
            self.env.note_dependency(str(file))
        command = ["go", "doc", "-all", self.arguments[0]]
        text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        intro, *parts = re.split(r"^([A-Z]+)\n\n", text, flags=re.MULTILINE)
        found = [self.block(intro)]
        for title, body in zip(parts[::2], parts[1::2]):
            section = nodes.section(ids=[title.lower()], names=[title.lower()])
            section += nodes.title("", title.capitalize())
            section += self.block(body)
            found.append(section)
        return found

    def block(self, text: str) -> nodes.literal_block:
        return nodes.literal_block(text.rstrip(), text.rstrip(), language="go", force=True)


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("godoc", GoDoc)
    return {"parallel_read_safe": True}
