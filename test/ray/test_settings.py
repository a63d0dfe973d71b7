"""Settings, places, loggers, and names of Horovod's."""

import os
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

from horovod.ray import BaseHorovodWorker, RayExecutor, _checks, ray_logger
from horovod.ray._elastic_hosts import Nodes
from horovod.ray._elastic_job import ElasticJob, Spec
from horovod.ray._elastic_job import _Worker as Worker
from horovod.ray._facts import Facts
from horovod.ray._static import host_by_host, visible_gpus
from horovod.ray.runner import Coordinator, MiniSettings
from horovod.runner.util import network

ROOT = Path(__file__).resolve().parents[2]


def test_create_settings(tmp_path):
    file = tmp_path / "key"
    settings = RayExecutor.create_settings(ssh_identity_file=str(file), ssh_str="s3cret", nics=["lo"])
    assert (settings.timeout_s, settings.placement_group_timeout_s, settings.nics) == (30, 100, ["lo"])
    assert (settings.verbose, settings.elastic, settings.key, settings.ssh_port) == (1, False, None, None)
    assert 29 < settings.start_timeout.remaining() <= 30
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("s3cret", 0o600)
    RayExecutor.create_settings(ssh_identity_file=str(file), ssh_str="another")
    assert file.read_text() == "s3cret"
    assert MiniSettings().timeout_s == 300
    with pytest.raises(TypeError, match="settings.verbose"):
        RayExecutor.create_settings(verbose=True)
    with pytest.raises(ValueError, match="ssh_identity_file"):
        RayExecutor.create_settings(ssh_str="s3cret")


def test_coordinator():
    coordinator = Coordinator(MiniSettings())
    for rank in range(5):
        coordinator.register(f"host{rank % 2}", f"node{rank % 2}", rank)
    assert coordinator.world_size == 5
    assert coordinator.hostnames == {"host0", "host1"}
    assert coordinator.node_id_string == "node0:3,node1:2"
    places = coordinator.finalize_registration()
    names = ("HOSTNAME", "RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
    assert [[places[rank][f"HOROVOD_{name}"] for name in names] for rank in range(5)] == [
        ["node0", 0, 5, 0, 3, 0, 2],
        ["node1", 1, 5, 0, 2, 1, 2],
        ["node0", 2, 5, 1, 3, 0, 2],
        ["node1", 3, 5, 1, 2, 1, 2],
        ["node0", 4, 5, 2, 3, 0, 1],
    ]


def test_ranks_are_numbered_host_by_host():
    assert host_by_host(["b", "a", "b", "c", "a"]) == [0, 2, 1, 4, 3]


def facts(node="n", gpus=(), python=None, gorovod=None):
    own = {"python": "3.11.2", "gorovod": "1"}
    return Facts(node, "host", "10.0.0.1", 7, list(gpus), python or own["python"], gorovod or own["gorovod"], "/p", "")


def test_gpus_are_listed_by_local_rank():
    seen = visible_gpus([facts("a", ["1"]), facts("b", ["0"]), facts("a", ["0"]), facts("c")])
    assert seen == [{"CUDA_VISIBLE_DEVICES": gpus} for gpus in ("1,0", "0", "1,0")] + [{}]


def test_worker_as_an_object(monkeypatch):
    for name in ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_SECRET_KEY", "SOME"):
        monkeypatch.setenv(name, "0")
    worker = BaseHorovodWorker(world_rank=2, world_size=3)
    assert (os.environ["HOROVOD_RANK"], os.environ["HOROVOD_SIZE"]) == ("2", "3")
    worker.update_env_vars({"SOME": 1})
    assert worker.env_vars()["SOME"] == "1"
    assert worker.execute(lambda executable: executable) is None
    worker.start_executable(dict, [], {"a": 1})
    assert worker.execute(lambda executable: executable) == {"a": 1}
    assert worker.hostname() == os.uname().nodename


def test_logging_to_nobody_warns_once(monkeypatch):
    monkeypatch.setenv("HOROVOD_RANK", "0")
    with pytest.warns(UserWarning, match="callbacks"):
        ray_logger.log({"a": 1})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ray_logger.log({"a": 1})


def test_driver_ip():
    assert network.get_driver_ip(["lo"]) == "127.0.0.1"
    assert network.get_driver_ip(["no-such-nic", "lo"]) == "127.0.0.1"
    assert network.get_driver_ip()
    with pytest.raises(RuntimeError, match="no-such-nic.*this host has.*lo"):
        network.get_driver_ip(["no-such-nic"])


def test_another_python_is_refused(cluster):
    own = _checks.of_this_process()
    with pytest.raises(RuntimeError, match=r"10.0.0.1 \(n\) has Python 3.8.1 \(the driver has 3"):
        _checks.same_as_driver([own, facts(python="3.8.1", gorovod=own.gorovod)])
    _checks.same_as_driver([own])


def test_an_elastic_job_that_ends_waits_for_no_room():
    job = ElasticJob()
    job._spec = Spec(config={"min": 2}, per_worker={"CPU": 1}, variables={}, name="train", work=None)
    assert "room for 2 workers" in job._lacks(0)
    job._values[0] = None  # worker 0's function has returned
    assert job._lacks(0) == ""


def test_an_elastic_job_waits_for_no_worker_that_starts_only_to_end():
    """Ray may take seconds to start the process of an actor, although the actor has been killed."""
    job, told = ElasticJob(), []
    job._nodes = Nodes({"CPU": 1})
    job._starter._drive = SimpleNamespace(request=lambda kind, **fields: told.append((kind, fields["worker"])))
    job._starter.workers[3] = Worker(3, "host", 0)
    job._starter._obey({"type": "signal", "worker": 3, "signal": 15})
    assert told == [("ended", 3), ("gone", 3)] and not job._starter.workers


@pytest.mark.parametrize("name", ["num_workers", "num_hosts", "min_workers"])
def test_numbers_of_workers_are_checked(name):
    for value in ("2", 2.0):
        with pytest.raises(TypeError, match=f"{name}={value!r}: a whole number is needed"):
            RayExecutor(**{name: value})
    with pytest.raises(ValueError, match=f"{name}=0: at least 1 is needed"):
        RayExecutor(**{name: 0})


def test_a_host_has_at_least_one_worker():
    with pytest.raises(ValueError, match="num_workers_per_host=0: at least 1 is needed"):
        RayExecutor(num_hosts=1, num_workers_per_host=0)


def test_names_and_signatures_are_horovods():
    """In a process of its own, because Ray gives methods another argument once their class has been an actor's."""
    sys.path.insert(0, str(ROOT / "scripts"))
    import compare_api

    table = Path(__file__).parent / "api_ray.txt"
    command = [sys.executable, str(ROOT / "scripts" / "compare_api.py"), str(table)]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    assert result.returncode == 0, result.stdout
    # print has ended the text with a further newline
    assert compare_api.section(table, result.stdout[:-1])[2] in compare_api.PAGE.read_text(encoding="utf-8"), (
        "docs/api.md is out of date; scripts/compare_api.py --write makes it anew"
    )
