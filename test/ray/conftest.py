"""Tests of horovod.ray, on real clusters of this machine: ``build/ray/bin/python -m pytest test/ray``.

A module shares one cluster, and leaves nothing behind.
"""

import os
import signal
import sys
from pathlib import Path

import pytest

# A job in the background of a shell ignores Ctrl-C, and so would the tests of it and the programs that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parents[2]
# The workers inherit it.
SEARCHED = [str(ROOT / "python"), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, SEARCHED))
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
# A client of Ray that comes first in a process does not find the token that Ray makes for its own clusters.
os.environ["RAY_AUTH_MODE"] = "disabled"
os.environ["RAY_raylet_start_wait_time_s"] = "120"  # on a busy machine
sys.path.insert(0, str(ROOT / "python"))


@pytest.fixture(scope="module")
def cluster():
    """A cluster of one node with 4 CPUs and 4 GPUs. Only its settings have the GPUs."""
    import ray

    yield ray.init(address="local", num_cpus=4, num_gpus=4, include_dashboard=False, log_to_driver=False)
    ray.shutdown()
