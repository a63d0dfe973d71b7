"""Drivers of other kinds: one that is killed, and one of Ray Client."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time

import functions
import pytest
import ray

from horovod.ray import RayExecutor


@contextlib.contextmanager
def process(program, *arguments):
    """A Python that runs ``program``, until its stdin is closed, or it is killed."""
    command = [sys.executable, "-c", textwrap.dedent(program), *arguments]
    started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield started
    finally:
        started.stdin.close()
        started.stdout.close()
        started.wait(60)


def said(started, word):
    """What follows ``word`` in the first line of the output that begins with it."""
    for line in started.stdout:
        if line.startswith(word):
            return line[len(word) :].split()
    raise AssertionError(f"it ended without {word}")


def test_a_killed_driver_leaves_nothing(cluster):
    before = set(os.listdir("/dev/shm"))
    program = """
        import sys, functions, ray
        from horovod.ray import RayExecutor
        ray.init(address=sys.argv[1], log_to_driver=False)
        executor = RayExecutor(RayExecutor.create_settings(), num_workers=2)
        executor.start()
        executor.run(functions.place)
        print("pids", *[f.pid for f in ray.get([w.facts.remote() for w in executor.adapter.workers])], flush=True)
        executor.run(functions.slowly, args=[{0: 600, 1: 600}])
    """
    with process(program, cluster.address_info["address"]) as driver:
        pids = said(driver, "pids ")
        assert all(os.path.exists(f"/proc/{pid}") for pid in pids)
        driver.send_signal(signal.SIGKILL)
        end = time.monotonic() + 60
        while time.monotonic() < end and (
            any(os.path.exists(f"/proc/{pid}") for pid in pids) or ray.available_resources().get("CPU") != 4
        ):
            time.sleep(0.2)
        assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
        assert ray.available_resources().get("CPU") == 4
        groups = [group["state"] for group in ray.util.placement_group_table().values()]
        assert groups and set(groups) == {"REMOVED"}
    assert {name for name in os.listdir("/dev/shm") if "rovod" in name} <= before


def test_shutdown_after_rays_own(cluster):
    executor = RayExecutor(num_workers=1)
    executor.start()
    ray.shutdown()
    executor.shutdown()
    assert not ray.is_initialized()  # ray.kill would have begun a cluster


SERVER = """
    import sys, ray
    from ray.util.client.server.server import serve
    ray.init(address="local", num_cpus=3, include_dashboard=False, log_to_driver=False)
    server = serve("127.0.0.1", 0 if len(sys.argv) < 2 else int(sys.argv[1]))
    print("ready", flush=True)
    sys.stdin.read()
    server.stop(0)
    ray.shutdown()
"""


@pytest.fixture
def client():
    """This process as a client of a cluster with 3 CPUs."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ray.shutdown()
    with process(SERVER, str(port)) as server:
        said(server, "ready")
        yield ray.init(f"ray://127.0.0.1:{port}")
        ray.shutdown()


def test_ray_client(client):
    from ray.util.client import ray as client_ray

    assert client_ray.is_connected()
    executor = RayExecutor(RayExecutor.create_settings(), num_workers=2)
    executor.start(functions.Counter, [10])
    got = []
    assert executor.run(functions.log_steps, args=[2], callbacks=[got.append]) == [0, 1]
    assert got == [{"rank": 0, "step": 0}, {"rank": 0, "step": 1}]
    assert executor.execute(lambda counter: counter.count()) == [11, 12]
    assert executor.execute_single(lambda counter: counter.value) == 11
    assert [result[0] for result in ray.get(executor.run_remote(functions.place))] == [0, 1]
    with pytest.raises(KeyError, match="batch 7"):
        executor.run(functions.fail, args=["raise"])
    with pytest.raises(ray.exceptions.RayActorError, match="rank 1"):
        executor.run(functions.fail, args=["kill"])
    executor.shutdown()
    with pytest.raises(TimeoutError, match="Placement group creation timed out"):
        RayExecutor(RayExecutor.create_settings(placement_group_timeout_s=1), num_workers=9).start()


def test_elastic_jobs_of_ray_client(client):
    executor = RayExecutor(min_workers=2, max_workers=2)
    executor.start(functions.Counter, [10])
    got = []
    assert executor.run(functions.log_steps, args=[2], callbacks=[got.append]) == [0, 1]
    assert got == [{"rank": 0, "step": 0}, {"rank": 0, "step": 1}]
    assert executor.execute(lambda counter: counter.count()) == [11, 12]
    with pytest.raises(RuntimeError, match="rank 1.*batch 7"):
        executor.run(functions.fail, args=["raise"])
    executor.shutdown()
