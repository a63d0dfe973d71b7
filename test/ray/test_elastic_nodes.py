"""Elastic jobs on clusters of several nodes, which come and go."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import ray
from elastic_trains import check_commits, journals

from horovod.ray import RayExecutor
from horovod.ray.elastic_v2 import RayHostDiscovery
from horovod.runner.elastic.discovery import FixedHosts


@pytest.fixture
def nodes():
    """A cluster whose head has no CPUs."""
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def until(holds, what, limit=60):
    end = time.monotonic() + limit
    while not holds():
        assert time.monotonic() < end, f"no {what} within {limit} s"
        time.sleep(0.1)


def sizes(folder):
    """The sizes of the worlds in which workers have committed, oldest first."""
    entries = sorted((e for w in journals(folder).values() for e in w if e["phase"] == "commit"), key=lambda e: e["at"])
    return [e["size"] for e in entries]


def test_a_new_node_is_used_and_one_that_goes_is_left(nodes, tmp_path, caplog):
    nodes.add_node(num_cpus=1)
    goes = nodes.add_node(num_cpus=1)
    folder, stop = tmp_path / "journals", tmp_path / "stop"
    folder.mkdir()
    executor = RayExecutor(min_workers=2, elastic_timeout=60)
    executor.start()
    with ThreadPoolExecutor(1) as thread:  # only the main thread may add nodes
        run = thread.submit(executor.run, until_told, args=[str(folder), str(stop)])
        try:
            until(lambda: run.done() or sizes(folder)[-1:] == [2], "job of 2 workers")
            nodes.add_node(num_cpus=1)
            until(lambda: run.done() or sizes(folder)[-1:] == [3], "job of 3 workers")
            nodes.remove_node(goes)
            until(lambda: run.done() or sizes(folder)[-1:] == [2], "job of 2 workers again")
        finally:
            stop.touch()
        results = run.result(60)
    assert len(results) == 2
    assert results[0]["step"] == results[1]["step"]
    said = [r.message for r in caplog.records if r.name == "horovod.ray"]
    assert any("going on with 3 of 3 workers: worker 2 has joined" in s for s in said), said
    assert any("going on with 2 of 2 workers" in s for s in said), said
    check_commits(folder, results, results[0]["step"])


def test_nothing_is_started_on_a_killed_node(nodes, tmp_path, caplog):
    """Ray notices a lost node only after many seconds, but says at once that its connections to the actors are lost."""
    nodes.add_node(num_cpus=1)
    victim = nodes.add_node(num_cpus=2)
    folder, stop = tmp_path / "journals", tmp_path / "stop"
    folder.mkdir()
    executor = RayExecutor(min_workers=1, elastic_timeout=60, cooldown_range=(1, 1))
    executor.start()
    with ThreadPoolExecutor(1) as thread:
        run = thread.submit(executor.run, until_told, args=[str(folder), str(stop)])
        try:
            until(lambda: run.done() or sizes(folder)[-1:] == [3], "job of 3 workers")
            nodes.remove_node(victim, allow_graceful=False)
            until(lambda: run.done() or sizes(folder)[-1:] == [1], "job of 1 worker")
            alive = {node["NodeID"]: node["Alive"] for node in ray.nodes()}
            until(lambda: sum(node["Alive"] for node in ray.nodes()) == 2, "notice of Ray's")
        finally:
            stop.touch()
        (result,) = run.result(60)
        assert result["pid"] == journals(folder)[result["worker"]][0]["pid"]
    said = [r.message for r in caplog.records if r.name == "horovod.ray"]
    lost = [s for s in said if "cannot be reached: Ray has lost the connection to it" in s or "lost with its node" in s]
    assert len(lost) == 2 and alive[victim.node_id], said
    assert not any("again" in s or "is ended" in s or "workers to start" in s for s in said), said


def until_told(folder, stop):
    """Train until the file ``stop`` is there."""
    import os

    from elastic_trains import trains

    return trains(1 << 30, folder, every=0.05, enough=lambda: os.path.exists(stop))


def test_hosts_of_ones_own_discovery(nodes, tmp_path):
    nodes.add_node(num_cpus=2, resources={"node:a": 1})
    nodes.add_node(num_cpus=2, resources={"node:b": 1})
    settings = RayExecutor.create_settings()
    settings.discovery = FixedHosts({"a": 1, "b": 1})
    executor = RayExecutor(settings, min_workers=2, override_discovery=False)
    executor.start()

    def where():
        import horovod.torch as hvd

        hvd.init()
        return hvd.local_size(), hvd.cross_rank()

    assert executor.run(where) == [(1, 0), (1, 1)]
    settings.discovery.set({"nowhere": 2})
    with pytest.raises(RuntimeError, match="no node of the cluster is called 'nowhere'"):
        executor.run(where)


def test_discovery_counts_slots(nodes):
    nodes.add_node(num_cpus=5, num_gpus=2)
    assert list(RayHostDiscovery(cpus_per_worker=2).find_available_hosts_and_slots().values()) == [2]
    assert list(RayHostDiscovery(True, 1, 1).find_available_hosts_and_slots().values()) == [2]
    assert list(RayHostDiscovery(True, 1, 2).find_available_hosts_and_slots().values()) == [1]
    assert RayHostDiscovery(True, 1, 3).find_available_hosts_and_slots() == {}
    nodes.add_node(num_cpus=1)
    assert sum(RayHostDiscovery().find_available_hosts_and_slots().values()) == 6
