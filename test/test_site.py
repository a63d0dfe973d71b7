"""The built site answers what readers ask: its search puts the right page first, and its pages fit the screen."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from browser import Browser

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "build" / "docs"

DRAWN = sorted((ROOT / "docs").rglob("*.svg"))

built = pytest.mark.skipif(not (SITE / "searchindex.js").exists(), reason="build/docs is not built (make docs)")
chromium = pytest.mark.skipif(not shutil.which("chromium"), reason="chromium is not installed (Debian: chromium)")

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


# Texts whose contrast to what is behind them is below 4.5, as WCAG 2.2 computes it (success criterion 1.4.3, for small
# text), and pictures that are not there.
UNREADABLE = """
(() => {
  const parsed = (text) => {
    const parts = text.match(/[\\d.]+/g).map(Number);
    const scale = text.startsWith("color(srgb") ? 255 : 1;
    return [...parts.slice(0, 3).map((part) => part * scale), parts[3] ?? 1];
  };
  const over = (above, below) => above.slice(0, 3).map((part, i) => part * above[3] + below[i] * (1 - above[3]));
  const luminance = (colour) => {
    const [red, green, blue] = colour.map((part) => {
      part /= 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  // What is behind the text of an element, and the share of the text's own colour that its ancestors' opacity leaves.
  const behind = (element) => {
    const layers = [];
    let opacity = 1;
    for (let e = element; e; e = e.parentElement) {
      const style = getComputedStyle(e);
      const layer = parsed(style.backgroundColor);
      opacity *= style.opacity;
      layers.push(layer);
      if (layer[3] === 1) break;
    }
    return [layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255]), opacity];
  };
  const found = new Set();
  const seen = new Set();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    const text = texts.currentNode.data.trim();
    if (!text || seen.has(element) || !element.checkVisibility({ visibilityProperty: true, opacityProperty: true }))
      continue;
    seen.add(element);
    const [ground, opacity] = behind(element);
    const own = parsed(getComputedStyle(element).color);
    const colour = over([...own.slice(0, 3), own[3] * opacity], ground);
    const [dark, bright] = [luminance(colour), luminance(ground)].sort((a, b) => a - b);
    const ratio = (bright + 0.05) / (dark + 0.05);
    if (ratio < 4.5) {
      const place = `${element.tagName.toLowerCase()}.${element.className} in ${element.parentElement.className}`;
      found.add(`${ratio.toFixed(1)}: ${place}: rgb(${colour.map(Math.round)}) on rgb(${ground.map(Math.round)})`);
    }
  }
  for (const image of document.images) if (!image.naturalWidth) found.add(`no picture: ${image.src}`);
  return [...found];
})()
"""

# Colours change at once.
STILL = """
const still = document.createElement("style");
still.textContent = "* { transition: none !important }";
document.head.append(still);
0
"""

# Where the drawings of a page begin, in pixels.
DRAWINGS = """
[...document.querySelectorAll('img[src$=".svg"]')].map((image) => {
  const box = image.getBoundingClientRect();
  return [box.x + scrollX, box.y + scrollY];
})
"""


def pages():
    """The pages of the site, by name."""
    files = [file for file in sorted(SITE.rglob("*.html")) if "_static" not in file.parts]
    assert len(files) > 50
    return {str(file.relative_to(SITE).with_suffix("")): f"file://{file}" for file in files}


@built
@chromium
def test_pages_fit_the_screen():
    """On a phone and on a laptop no page scrolls sideways, and no table has a column of single words."""
    found = {}
    with Browser() as browser:
        for name, address in pages().items():
            browser.visit(address)
            for width in (400, 1400):
                browser.size(width, 900)
                misfits = browser.value(f"{MISFITS}({json.dumps(width == 1400)}, {json.dumps(name in FIRST)})")
                if misfits:
                    found[name, width] = misfits
    assert not found


@built
@chromium
def test_pages_are_readable():
    """In the light and in the dark all texts stand out, and no picture is missing."""
    found = {}
    with Browser() as browser:
        browser.size(1400, 900)
        for name, address in pages().items():
            browser.visit(address)
            browser.value(STILL)
            for dark in (False, True):
                browser.dark(dark)
                unreadable = browser.value(UNREADABLE)
                if unreadable:
                    found[name, "dark" if dark else "light"] = unreadable
    assert not found


@built
@chromium
def test_drawings_are_dark_on_dark_pages():
    """The reader's system says whether a page is dark, or the switch on the page, which sets data-theme."""
    drawn = 0
    with Browser() as browser:
        browser.size(1400, 900)
        for name, address in pages().items():
            if '.svg"' not in (SITE / f"{name}.html").read_text():
                continue
            browser.visit(address)
            for system in (False, True):
                browser.dark(system)
                for theme in ("auto", "light", "dark"):
                    browser.value(f"document.body.dataset.theme = {json.dumps(theme)}")
                    dark = theme == "dark" or (theme == "auto" and system)
                    for x, y in browser.value(DRAWINGS):
                        paper = browser.pixel(x + 4, y + 4)
                        assert max(paper) < 64 if dark else min(paper) > 192, (name, system, theme, paper)
                        drawn += 1
    assert drawn >= 6 * 5  # of the five drawings of the pages


@pytest.mark.parametrize("drawing", DRAWN, ids=lambda file: file.name)
def test_drawings_darken_themselves(drawing):
    assert "@media (prefers-color-scheme: dark)" in drawing.read_text()
