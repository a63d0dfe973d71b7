"""The metrics of a job on Ray, which rank 0 or the elastic job's driver shows."""

import socket

import functions
import pytest

from horovod.ray import RayExecutor

pytestmark = pytest.mark.usefixtures("cluster")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.mark.parametrize("shape", [{"num_workers": 2}, {"min_workers": 2, "max_workers": 2}], ids=["static", "elastic"])
def test_a_job_shows_its_metrics(shape, caplog):
    port = free_port()
    executor = RayExecutor(**shape)
    executor.start(extra_env_vars={"GOROVOD_METRICS": str(port)})
    pages = executor.run(functions.until_shown, args=[f"http://127.0.0.1:{port}/metrics"])
    executor.shutdown()
    assert "horovod_world_size 2\n" in pages[0] and 'horovod_wait_seconds_total{rank="1"}' in pages[0]
    if "min_workers" in shape:
        assert f"metrics are at http://127.0.0.1:{port}/metrics" in caplog.text
