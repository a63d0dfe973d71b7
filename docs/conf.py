"""The documentation's settings: `make docs` builds build/docs/index.html with Sphinx."""

import re
from pathlib import Path

from sphinx.util import logging

logger = logging.getLogger(__name__)
ROOT = Path(__file__).resolve().parent.parent
SOURCES = "https://github.com/gorovod/gorovod/blob/main/"

project = "gorovod"
copyright = "gorovod's authors, Apache License 2.0"
release = re.search(r'Version = "(.+)"', (ROOT / "internal/version/version.go").read_text()).group(1)

extensions = ["myst_parser", "sphinx_copybutton"]
myst_heading_anchors = 4
exclude_patterns = ["lab/**"]
# A code block in no language that Pygments knows is shown as it is.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_title = f"gorovod {release}"
html_copy_source = False


def links_to_repository(app, docname, source):
    """Lets a link to a file outside of docs/, as it works in a clone, lead to the repository."""

    def link(match):
        if not (ROOT / match[1].partition("#")[0]).exists():
            logger.warning("%s: there is no %s", docname, match[1])
        return f"]({SOURCES}{match[1]})"

    source[0] = re.sub(r"\]\(\.\./([^)]+)\)", link, source[0])


def setup(app):
    app.connect("source-read", links_to_repository)
