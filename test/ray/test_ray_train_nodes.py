"""HorovodTrainer over several nodes: one that comes is used, one that lacks gorovod is named."""

import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import ray
import ray.train
from numbers_kept import save, saved
from ray.cluster_utils import Cluster
from ray.train import CheckpointConfig, RunConfig, ScalingConfig

from horovod.ray.train import HorovodTrainer

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cluster():
    """One node with room for one worker."""
    os.environ["RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"] = "0.5"
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()
    del os.environ["RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"]


def train_until_grown(config):
    """Steps until there are ``wanted`` ranks. Returns how many there were at the checkpoint, and how many there are."""
    import torch

    import horovod.torch as hvd

    hvd.init()
    checkpoint = ray.train.get_checkpoint()
    before = saved(checkpoint) if checkpoint else 0
    size = 0
    while size != config["wanted"]:
        size = int(hvd.allreduce(torch.ones(1), op=hvd.Sum, name="size").item())
        with tempfile.TemporaryDirectory() as folder:
            ray.train.report({"size": size}, checkpoint=save(size, folder) if hvd.rank() == 0 else None)
        time.sleep(0.2)
    return before, size


class Stepped(ray.train.UserCallback):
    """Creates ``path`` once the first step is done, in Ray Train's controller."""

    def __init__(self, path):
        self.path = path

    def after_report(self, run_context, metrics, checkpoint):
        self.path.touch()


def test_new_node_is_used(cluster, tmp_path):
    """With a range of workers, Ray Train starts on what there is, and starts anew on more when a node comes."""
    stepped = tmp_path / "stepped"
    trainer = HorovodTrainer(
        train_until_grown,
        train_loop_config={"wanted": 2},
        scaling_config=ScalingConfig(num_workers=(1, 2), elastic_resize_monitor_interval_s=1),
        run_config=RunConfig(
            storage_path=str(tmp_path), callbacks=[Stepped(stepped)], checkpoint_config=CheckpointConfig(num_to_keep=1)
        ),
    )
    with ThreadPoolExecutor() as pool:  # a node can be added in the main thread only
        run = pool.submit(trainer.fit)
        while not stepped.exists() and not run.done():
            time.sleep(0.1)
        node = cluster.add_node(num_cpus=1)
        assert run.result().return_value == (1, 2)
    cluster.remove_node(node)


def no_work():
    """Does nothing."""


def test_a_node_without_gorovod_is_named(cluster, tmp_path):
    """The run ends, and its error says which node cannot take part, and why."""
    node = cluster.add_node(num_cpus=1, env_vars={"PYTHONPATH": str(tmp_path)})
    with pytest.raises(ray.train.ControllerError, match="cannot import gorovod's horovod.ray") as caught:
        HorovodTrainer(
            no_work, scaling_config=ScalingConfig(num_workers=2), run_config=RunConfig(storage_path=str(tmp_path))
        ).fit()
    assert f"({node.node_id[:8]}) has" in str(caught.value)
    cluster.remove_node(node)
