"""The built site answers what readers ask: its search puts the right page first, and its pages fit the screen."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from browser import Browser

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "build" / "docs"

built = pytest.mark.skipif(not (SITE / "searchindex.js").exists(), reason="build/docs is not built (make docs)")

QUESTIONS = {
    "hang": "errors#ranks-wait-for-one-another",
    "resume": "elastic",
    "crash": "errors",
    "slow": "performance#what-you-can-tune",
    "compress": "performance#what-you-can-tune",
    "NaN": "divergence#nans",
    "port": "launcher#addresses",
    "slurm": "schedulers",
    "out of memory": "errors#a-rank-has-failed",
    "install": "start",
    "externally managed": "start",
    "checkpoint": "elastic",
    "nccl": "gpu",
    "kubernetes": "kubernetes",
    "docker": "kubernetes",
    "ssh": "launcher",
    "exit code": "errors",
    "firewall": "launcher#addresses",
    "prometheus": "metrics",
    "DDP": "torch_distributed",
    "sampler": "start",
    "encryption": "security",
    "mpirun": "schedulers",
}


@built
@pytest.mark.skipif(not shutil.which("node"), reason="node is not installed (Debian: nodejs)")
def test_search_answers_questions():
    command = ["node", str(ROOT / "test" / "site_search.js"), str(SITE)]
    told = subprocess.run(command, input="\n".join(QUESTIONS), capture_output=True, text=True, timeout=120)
    assert told.returncode == 0, told.stderr
    answers = dict(zip(QUESTIONS, map(json.loads, told.stdout.splitlines())))
    assert len(answers) == len(QUESTIONS)
    wrong = {question: answers[question] for question, page in QUESTIONS.items() if answers[question][:1] != [page]}
    assert not wrong


# What readers see first: on a wide screen its code is not cut off, and on a phone no table of up to three columns.
FIRST = {"index", "start", "coming-from-horovod", "pytorch", "tensorflow", "keras", "jax", "elastic", "launching"}
FIRST |= {"errors", "performance", "status", "schedulers", "how-it-works"}

# What does not fit in the page that the browser shows. Tables and code that are too wide scroll in frames of their own.
MISFITS = """
((wide, first) => {
  const found = [];
  const page = document.documentElement;
  if (page.scrollWidth > page.clientWidth) found.push(`the page has ${page.scrollWidth} pixels`);
  for (const cell of document.querySelectorAll("table.docutils td")) {
    const content = document.createRange();
    content.selectNodeContents(cell);
    const lines = Math.round(content.getBoundingClientRect().height / parseFloat(getComputedStyle(cell).lineHeight));
    const words = cell.textContent.trim().split(/\\s+/);
    if (lines > 4 && words.length < 1.3 * lines && !cell.querySelector("code")) // a list of names may
      found.push(`a column of single words: ${words.join(" ")}`);
  }
  if (first && wide)
    for (const code of document.querySelectorAll(".highlight pre"))
      if (code.scrollWidth > code.clientWidth) found.push(`code is cut off: ${code.textContent.slice(0, 80)}`);
  if (first && !wide)
    for (const frame of document.querySelectorAll(".table-wrapper"))
      if (frame.scrollWidth > frame.clientWidth && frame.querySelector("tr").children.length <= 3)
        found.push(`a table is cut off: ${frame.textContent.trim().slice(0, 80)}`);
  return found;
})
"""


@built
@pytest.mark.skipif(not shutil.which("chromium"), reason="chromium is not installed")
def test_pages_fit_the_screen():
    """On a phone and on a laptop no page scrolls sideways, and no table has a column of single words."""
    pages = [page for page in sorted(SITE.rglob("*.html")) if "_static" not in page.parts]
    found = {}
    with Browser() as browser:
        for page in pages:
            name = str(page.relative_to(SITE).with_suffix(""))
            browser.visit(f"file://{page}")
            for width in (400, 1400):
                browser.size(width, 900)
                misfits = browser.value(f"{MISFITS}({json.dumps(width == 1400)}, {json.dumps(name in FIRST)})")
                if misfits:
                    found[name, width] = misfits
    assert len(pages) > 50 and not found
