"""HorovodTrainer on a real Ray cluster: the runs that a user makes, and how they fail."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import ray
import ray.data
import ray.train
from numbers_kept import save, saved
from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig

from horovod.ray.train import HorovodConfig, HorovodTrainer

WORKERS = 2
ROOM = WORKERS + 1  # Ray Data takes a CPU of its own


@pytest.fixture(scope="module")
def cluster():
    """One node with room for two workers and Ray Data. Ray Train polls its workers often, to make tests quick."""
    os.environ["RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"] = "0.5"
    yield ray.init(address="local", num_cpus=ROOM, include_dashboard=False, log_to_driver=False)
    ray.shutdown()
    del os.environ["RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"]


def train_on_shards(config):
    """Sums a dataset over all ranks, reports each step, and leaves a checkpoint."""
    import tempfile

    import torch

    import horovod.torch as hvd

    hvd.init()
    context = ray.train.get_context()
    assert (hvd.rank(), hvd.size()) == (context.get_world_rank(), context.get_world_size())
    assert (hvd.local_rank(), hvd.local_size()) == (context.get_local_rank(), context.get_local_world_size())
    if hvd.rank() == 0:
        Path(config["key"]).write_text(os.environ["HOROVOD_SECRET_KEY"])
    mine = sum(int(row["id"]) for row in ray.train.get_dataset_shard("train").iter_rows())
    for step in range(2):
        total = hvd.allreduce(torch.tensor([mine]), op=hvd.Sum).item()
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = save(total + step, folder) if hvd.rank() == 0 else None
            ray.train.report({"total": total, "step": step}, checkpoint=checkpoint)
    return {"mine": mine, "shared": os.environ["HOROVOD_RANK"]}


@pytest.mark.smoke
def test_reports_checkpoints_datasets(cluster, tmp_path):
    """A run gives what its ranks computed together; nothing that Ray keeps of it has the secret."""
    result = HorovodTrainer(
        train_on_shards,
        train_loop_config={"key": str(tmp_path / "key")},
        scaling_config=ScalingConfig(num_workers=WORKERS),
        run_config=RunConfig(storage_path=str(tmp_path), checkpoint_config=CheckpointConfig(num_to_keep=1)),
        datasets={"train": ray.data.range(10)},
    ).fit()
    assert result.metrics["total"] == sum(range(10)) and result.metrics["step"] == 1
    assert saved(result.checkpoint) == sum(range(10)) + 1
    assert result.return_value["shared"] == "0" and 0 < result.return_value["mine"] < sum(range(10))
    key = (tmp_path / "key").read_text().encode()
    assert len(key) == 64
    session = Path(ray._private.worker.global_worker.node.get_session_dir_path())
    files = [path for path in session.rglob("*") if path.is_file()]
    assert any("train" in path.name for path in files)  # Ray's logs are there
    assert not [path for path in files if key in path.read_bytes()]


def train_and_die(config):
    """Counts steps, with a checkpoint each. Rank 1 kills itself at step 4, once."""
    import tempfile

    import torch

    import horovod.torch as hvd

    hvd.init()
    checkpoint = ray.train.get_checkpoint()
    first = saved(checkpoint) + 1 if checkpoint else 0
    for step in range(first, 7):
        hvd.allreduce(torch.ones(1), name="step")
        with tempfile.TemporaryDirectory() as folder:
            ray.train.report({"step": step, "first": first}, checkpoint=save(step, folder) if hvd.rank() == 0 else None)
        if step == 4 and hvd.rank() == 1 and not os.path.exists(config["died"]):
            Path(config["died"]).touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return first


def test_dead_worker_restart_resume(cluster, tmp_path):
    """A run starts from a checkpoint of another run; after a death it goes on from its own."""
    (tmp_path / "old").mkdir()
    result = HorovodTrainer(
        train_and_die,
        train_loop_config={"died": str(tmp_path / "died")},
        scaling_config=ScalingConfig(num_workers=WORKERS),
        run_config=RunConfig(name="resumed", storage_path=str(tmp_path), failure_config=FailureConfig(max_failures=1)),
        resume_from_checkpoint=save(1, tmp_path / "old"),
    ).fit()
    assert (tmp_path / "died").exists()
    assert [metrics["first"] for _, metrics in result.best_checkpoints][0] == 2  # the old run's
    assert 3 <= result.return_value <= 5  # its own: the last ones may have been under way
    assert saved(result.checkpoint) == 6


def fail(config):
    import torch

    import horovod.torch as hvd

    hvd.init()
    for _ in range(5):
        hvd.allreduce(torch.ones(1))
    if hvd.rank() == 1:
        if config["how"] == "raise":
            raise ValueError("a mistake of rank 1")
        os.kill(os.getpid(), signal.SIGKILL)
    hvd.allreduce(torch.ones(1), name="last")


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_failure_names_rank(cluster, tmp_path, how):
    """Without restarts, the error has the rank that failed first, and its own reason."""
    with pytest.raises(ray.train.WorkerGroupError) as error:
        HorovodTrainer(
            fail,
            train_loop_config={"how": how},
            scaling_config=ScalingConfig(num_workers=WORKERS),
            run_config=RunConfig(storage_path=str(tmp_path)),
        ).fit()
    if how == "raise":
        assert "a mistake of rank 1" in str(error.value)
        assert isinstance(error.value.worker_failures[1], ValueError)
    else:  # Ray may notice the death after the other rank
        assert "rank 1 on host" in str(error.value) or 1 in error.value.worker_failures
    for rank, reason in error.value.worker_failures.items():
        assert rank == 1 or "rank 1 " in str(reason)


def test_no_room(cluster, tmp_path):
    """If there is no room for the workers, the error says what there is, and what was asked for."""
    with pytest.raises(ray.train.ControllerError) as error:
        HorovodTrainer(
            fail,
            train_loop_config={"how": "raise"},
            horovod_config=HorovodConfig(placement_group_timeout_s=1),
            scaling_config=ScalingConfig(num_workers=ROOM + 1),
            run_config=RunConfig(storage_path=str(tmp_path)),
        ).fit()
    assert isinstance(error.value.controller_failure, TimeoutError)
    text = str(error.value.controller_failure)
    assert text.startswith(
        "Placement group creation timed out. Make sure your cluster either has enough resources or use an autoscaling "
        "cluster."
    )
    assert f"{ROOM + 1} " in text and "CPU" in text


def test_local_mode(cluster, tmp_path):
    """With no workers, Ray Train calls the function here, as the only rank."""

    def alone():
        import horovod.torch as hvd

        hvd.init()
        ray.train.report({"size": hvd.size(), "resumed": saved(ray.train.get_checkpoint())})
        hvd.shutdown()

    result = HorovodTrainer(
        alone, scaling_config=ScalingConfig(num_workers=0), resume_from_checkpoint=save(7, tmp_path)
    ).fit()
    assert result.metrics == {"size": 1, "resumed": 7}


def test_a_ray_that_lacks_an_inner_name_is_told():
    """The error says which name, and which Ray works."""
    program = (
        "import ray.train.v2._internal.execution.callback as c; del c.WorkerGroupCallback; import horovod.ray.train"
    )
    ended = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)
    said = ended.stderr.splitlines()[-1]
    assert said.startswith(f"ImportError: this Ray, {ray.__version__}, lacks what gorovod uses inside it"), said
    assert "WorkerGroupCallback" in said and "works with Ray 2.60" in said


@pytest.mark.smoke
def test_config():
    """The arguments of Ray's HorovodConfig are accepted. One without effect says so, and is not kept."""
    with pytest.warns(UserWarning, match="a fresh secret"):
        config = HorovodConfig(nics={"lo"}, verbose=2, key="a secret", timeout_s=20)
    assert "a secret" not in repr(config) and config.key is None
    assert config.environment() == {"HOROVOD_GLOO_TIMEOUT_SECONDS": "20", "HOROVOD_LOG_LEVEL": "debug"}
    assert config.interfaces() == ["lo"]
    assert config.start_timeout.remaining() > 0
    with pytest.raises(ValueError, match="timeout_s"):
        HorovodConfig(timeout_s=0)
    with pytest.raises(TypeError, match="HorovodConfig: timeout_s='x': a number"):
        HorovodConfig(timeout_s="x")
    with pytest.raises(TypeError, match="HorovodConfig: nics=5: a list"):
        HorovodConfig(nics=5)
    with pytest.raises(TypeError, match="horovod_config"):
        HorovodTrainer(lambda: None, horovod_config={"timeout_s": 3})
    with pytest.raises(DeprecationWarning, match="metadata"):
        HorovodTrainer(lambda: None, metadata={"a": 1})
