"""What the documentation shows is true: programs run, blocks of Python are Python, commands and options exist."""

import ast
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HOROVODRUN = os.environ.get("HOROVODRUN", str(ROOT / "build" / "horovodrun"))
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]


def blocks(page, language):
    """The fenced blocks of a language in a page."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def test_there_are_programs():
    assert len(blocks(ROOT / "docs" / "start.md", "python")) == 1
    assert blocks(ROOT / "README.md", "python")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_are_python(page):
    for block in blocks(page, "python"):
        ast.parse(textwrap.dedent(block))


@pytest.mark.parametrize("page", ["README.md", "docs/start.md"])
def test_first_program_runs(page, tmp_path):
    program = tmp_path / "train.py"
    program.write_text(blocks(ROOT / page, "python")[0])
    command = [HOROVODRUN, "-np", "2", sys.executable, str(program)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "[0]<stdout>:" in result.stdout


def test_launcher_knows_the_options():
    known = subprocess.run([HOROVODRUN, "--help"], capture_output=True, text=True, timeout=60).stdout
    unknown = {
        f"{page.name}: {option}"
        for page in PAGES
        for block in blocks(page, "sh") + blocks(page, "")
        for line in block.splitlines()
        if line.lstrip("$ ").startswith("horovodrun ")
        for option in re.findall(r"(?<!\S)(--[a-z][a-z-]*)", line.split("python")[0])
        if not re.search(rf"{re.escape(option)}(?![a-z-])", known)
    }
    assert not unknown, f"horovodrun --help does not have: {sorted(unknown)}"
