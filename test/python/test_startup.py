"""What ``import horovod.torch`` loads. Run by one plain Python: a rank loads the same."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif("HOROVOD_RANK" in os.environ, reason="one process")


def modules_after(module):
    program = f"import sys; before = set(sys.modules); import {module}; print(*set(sys.modules) - before)"
    run = subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, text=True, timeout=100)
    return set(run.stdout.split())


def test_the_import_waits_for_no_package_that_few_programs_need():
    packages = {name.partition(".")[0] for name in modules_after("horovod.torch") - modules_after("torch")}
    assert "horovod" in packages
    assert not packages & {"cloudpickle", "psutil", "asyncio", "http", "multiprocessing"}, packages
