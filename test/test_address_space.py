"""A small limit on the address space, in which Go's runtime cannot start, is told in words."""

import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parent.parent


# In 400 MiB the runtime ends the process; in 1,000 it would start, and write where the process has its own memory.
@pytest.mark.parametrize("limit_mib", [400, 1000])
@pytest.mark.parametrize(
    "code, says",
    [
        ("from horovod.common import _lib; _lib.load()", "gorovod's engine cannot start in this process: the"),
        (
            "import sys; sys.argv = ['horovodrun', '--version']; from horovod import _program; _program.horovodrun()",
            "gorovod: it cannot start: the",
        ),
    ],
)
def test_a_small_address_space_is_told(limit_mib, code, says):
    result = subprocess.run(
        ["sh", "-c", f'ulimit -v {limit_mib << 10} && exec "$0" -c "$1"', sys.executable, code],
        env={"PYTHONPATH": str(_ROOT / "python")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert result.returncode == 1
    assert says + " limit on its address space" in result.stderr
    assert "ulimit -v unlimited" in result.stderr
    assert "goroutine" not in result.stderr and "runtime stack" not in result.stderr
