"""Compares names with a table of Horovod's, and with docs/api.md."""

import importlib
import sys
from pathlib import Path

from pyspark.ml.param import Param

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import compare_api  # noqa: E402


def check_names(table):
    """Fail if a name of the table is missing or differs, a parameter has no setter or getter, or the page is older."""
    text, wrong = compare_api.report(table)
    assert not wrong, [line for line in text.splitlines() if line.startswith("| `") and "✓" not in line]
    for module, lines in compare_api.read(table):
        for path in [line for line in lines if line.count(".") == 1 and "(" not in line]:
            owner, name = path.split(".")
            cls = getattr(importlib.import_module(module), owner)
            if isinstance(getattr(cls, name), Param):
                word = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
                assert callable(getattr(cls, f"set{word}")) and callable(getattr(cls, f"get{word}")), path
    page = compare_api.PAGE.read_text(encoding="utf-8")
    assert compare_api.section(table, text)[2] in page, (
        "docs/api.md is out of date; scripts/compare_api.py --write makes it anew"
    )
