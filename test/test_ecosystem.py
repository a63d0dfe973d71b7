"""What make ecosystem concludes from the end of a program."""

import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "ecosystem"
if not FOLDER.is_dir():
    pytest.skip("the programs of make ecosystem are not here", allow_module_level=True)
sys.path.insert(0, str(FOLDER))
from programs import PROGRAMS  # noqa: E402
from run import judge  # noqa: E402

OURS = next(p for p in PROGRAMS if p.ours)


def test_a_program_says_what_passed(tmp_path):
    assert judge(OURS, 0, "[0]<stdout>:passed: 12 steps\n", tmp_path / "none") == ("passed: 12 steps", [], True)
    for status, output in ((0, ""), (0, "bypassed: nothing\n"), (1, "passed: 12 steps\n")):
        result, reasons, known = judge(OURS, status, output, tmp_path / "none")
        assert (result, len(reasons), known) == ("failed", 1, False), (status, output)
