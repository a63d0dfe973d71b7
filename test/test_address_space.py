"""A small limit on the address space, in which Go's runtime cannot start, is told in words."""

import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parent.parent


def _limited(code: str) -> subprocess.CompletedProcess:
    """A Python that runs ``code`` in 400 MB."""
    return subprocess.run(
        ["sh", "-c", 'ulimit -v 400000 && exec "$0" -c "$1"', sys.executable, code],
        env={"PYTHONPATH": str(_ROOT / "python")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    "code, before",
    [
        ("from horovod.common import _lib; _lib.load()", "gorovod's engine cannot start in this process: the"),
        (
            "import sys; sys.argv = ['horovodrun', '--version']; from horovod import _program; _program.horovodrun()",
            "horovodrun: it cannot start: the",
        ),
    ],
)
def test_a_small_address_space_is_told(code, before):
    result = _limited(code)
    assert result.returncode == 1
    assert before + " limit on its address space is 390 MiB (ulimit -v)" in result.stderr
    assert "ulimit -v unlimited" in result.stderr
    assert "goroutine" not in result.stderr and "runtime stack" not in result.stderr
