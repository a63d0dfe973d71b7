"""The public names are Horovod's, with its signatures; and the script that says so can tell."""

import importlib.util
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "scripts" / "compare_api.py"
TABLE = ROOT / "test" / "python" / "api_torch.txt"

pytestmark = pytest.mark.skipif("HOROVOD_RANK" in os.environ, reason="one process")

spec = importlib.util.spec_from_file_location("compare_api", SCRIPT)
compare_api = importlib.util.module_from_spec(spec)
spec.loader.exec_module(compare_api)


def test_names_and_signatures():
    result = subprocess.run(
        [sys.executable, str(SCRIPT), str(TABLE)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        timeout=100,
    )
    assert result.returncode == 0, [line for line in result.stdout.splitlines() if "✓" not in line]
    _, _, section = compare_api.section(TABLE, result.stdout.rstrip("\n"))
    page = compare_api.PAGE.read_text(encoding="utf-8")
    assert section.split() == page[page.index(section.split("\n")[0]) :].split()[: len(section.split())], (
        "docs/api.md is out of date; scripts/compare_api.py --write makes it anew"
    )


def ours(a, b=1, *, c=2):
    pass


@pytest.mark.parametrize(
    ("theirs", "wrong", "more"),
    [
        ("(a, b=1)", [], ["further argument c=2"]),
        ("(a, b=1, c=2)", ["c is keyword-only"], []),
        ("(a, b=2)", ["the default of b is 1"], ["further argument c=2"]),
        ("(b=1, a=0)", ["b is at place 2", "a is at place 1", "a has no default"], ["further argument c=2"]),
        ("(a, b)", [], ["b may be left out", "further argument c=2"]),
        ("(b=1)", ["b is at place 2", "further argument a"], ["further argument c=2"]),
        ("(a, d=1)", ["no argument d"], ["further argument b=1", "further argument c=2"]),
        ("(a, *b)", ["b is positional or keyword"], ["b may be left out", "further argument c=2"]),
    ],
)
def test_differences_are_seen(theirs, wrong, more):
    arguments = list(inspect.signature(ours).parameters.values())
    assert compare_api.differences(compare_api.parameters(theirs), arguments, {}) == (wrong, more)


def test_missing_names_and_wrong_bases_are_seen():
    assert compare_api.compare(inspect, "no_such_name(a)") == (["missing"], [])
    assert compare_api.compare(inspect, "Signature.no_such_name") == (["missing"], [])
    assert compare_api.compare(inspect, "EndOfBlock: Exception") == ([], [])
    assert compare_api.compare(inspect, "EndOfBlock: RuntimeError") == (["is no RuntimeError"], [])
    assert compare_api.compare(inspect, "Parameter.replace(a)")[0] != []
