"""The documentation's settings: `make docs` builds build/docs/index.html with Sphinx."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

project = "gorovod"
copyright = "gorovod's authors, Apache License 2.0"
release = re.search(r'Version = "(.+)"', (ROOT / "internal/base/version/version.go").read_text()).group(1)

sys.path.insert(0, str(ROOT / "docs" / "extensions"))
extensions = ["myst_parser", "sphinx_copybutton", "sphinx_design"]
extensions += ["api_pages", "go_pages", "repository_pages", "search_words"]  # of docs/extensions
smartquotes = False  # options keep their dashes
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]  # cards and tabs
exclude_patterns = ["extensions/**"]
# A code block in no language that Pygments knows is shown as it is.
suppress_warnings = ["misc.highlighting_failure"]
highlight_language = "none"  # of a block that names no language: a program's output
copybutton_prompt_text = "$ "

html_theme = "furo"
html_title = f"gorovod {release}"
html_copy_source = False
html_static_path = ["static"]
html_css_files = ["site.css"]
html_search_scorer = str(ROOT / "docs" / "extensions" / "scorer.js")
