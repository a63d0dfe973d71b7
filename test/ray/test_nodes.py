"""Jobs over several nodes, some of which lack what a worker needs."""

import os
import shutil
import threading
from pathlib import Path

import functions
import pytest
import ray
from ray.cluster_utils import Cluster

import horovod
from horovod.ray import RayExecutor


@pytest.fixture(scope="module")
def nodes():
    """A cluster of two nodes with 2 CPUs each."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    cluster.add_node(num_cpus=2)
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def executor(**shape):
    return RayExecutor(RayExecutor.create_settings(placement_group_timeout_s=60), **shape)


def test_ranks_are_numbered_host_by_host(nodes):
    for shape, expected in (
        ({"num_hosts": 2, "num_workers_per_host": 2}, [(0, 0, 2), (1, 0, 2), (0, 1, 2), (1, 1, 2)]),
        ({"num_workers": 3}, [(0, 0, 2), (1, 0, 1), (0, 1, 2)]),
    ):
        job = executor(**shape)
        job.start()
        results = job.run(functions.place)
        job.shutdown()
        assert [result[0] for result in results] == list(range(len(expected)))
        assert [(local, cross, sizes) for _, _, local, _, cross, sizes in results] == expected


@pytest.mark.parametrize("lacks", ["gorovod", "its own version", "Horovod instead"])
def test_a_node_that_lacks_something_is_named(nodes, tmp_path, lacks):
    package = tmp_path / "horovod"
    if lacks == "its own version":
        shutil.copytree(Path(horovod.__file__).parent, package)
        (package / "_version.py").write_text('__version__ = "0.28.1+gorovod.0.0.9"\n')
        says = rf"has horovod 0.28.1\+gorovod.0.0.9 in {package} \(the driver has {horovod.__version__}".replace(
            horovod.__version__, ""
        )
    elif lacks == "Horovod instead":
        (package / "ray").mkdir(parents=True)
        (package / "__init__.py").write_text('__version__ = "0.28.1"\n')
        (package / "ray" / "__init__.py").touch()
        (package / "ray" / "worker.py").write_text(
            "class BaseHorovodWorker:\n    def __init__(self, world_rank=0, world_size=1):\n        pass\n"
        )
        says = rf"cannot import gorovod's horovod.ray: ModuleNotFoundError.*\(in {package}\)"
    else:
        says = "cannot import gorovod's horovod.ray: ModuleNotFoundError: No module named 'horovod'"
    node = nodes.add_node(num_cpus=2, env_vars={"PYTHONPATH": os.pathsep.join([str(tmp_path)])})
    try:
        with pytest.raises(RuntimeError, match=says) as caught:
            executor(num_hosts=3).start()
        assert f"({node.node_id[:8]})" in str(caught.value)
        for other in ray.nodes():
            assert (other["NodeID"][:8] in str(caught.value)) == (other["NodeID"] == node.node_id)
    finally:
        nodes.remove_node(node)


def test_a_lost_node_is_named(nodes):
    node = nodes.add_node(num_cpus=2)
    job = executor(num_hosts=3, num_workers_per_host=2)
    job.start()
    job.run(functions.place)
    lost = [rank for rank, w in enumerate(job.adapter.workers) if ray.get(w.node_id.remote()) == node.node_id]
    remover = threading.Timer(1, nodes.remove_node, [node], {"allow_graceful": False})
    remover.start()
    says = rf"node {node.node_id[:8]} \(.*\) is lost, and ranks {lost[0]} \(pid \d+\), {lost[1]} \(pid \d+\) with it"
    with pytest.raises(ray.exceptions.RayActorError, match=says) as caught:
        job.run(functions.slowly, args=[{r: 600 if r in lost else 0 for r in range(6)}])
    assert (caught.value.rank, caught.value.ranks) == (lost[0], lost)
    remover.join()
    job.shutdown()
