"""The metrics of an elastic job on Spark, which its driver shows."""

import io
import socket

import functions
import pytest

import horovod.spark


@pytest.mark.parametrize("where", ["env", "driver"])
def test_an_elastic_job_shows_its_metrics(spark, monkeypatch, caplog, where):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    if where == "driver":
        monkeypatch.setenv("GOROVOD_METRICS", str(port))
    env = {"GOROVOD_METRICS": str(port)} if where == "env" else {}
    out = io.StringIO()
    address = f"http://127.0.0.1:{port}/metrics"
    pages = horovod.spark.run_elastic(functions.until_shown, (address,), num_proc=2, env=env, stdout=out, stderr=out)
    assert "horovod_world_size 2\n" in pages[0] and 'horovod_wait_seconds_total{rank="1"}' in pages[0]
    assert f"metrics are at {address}" in caplog.text
