"""Settings and names, which need no session."""

import os
import shutil
from pathlib import Path

import pytest
from names import check_names

from horovod.spark import _environment, _place, conf, run, run_elastic


def test_names_and_signatures_are_horovods():
    pytest.importorskip("tensorflow")
    check_names(Path(__file__).parent / "api_spark.txt")


def test_no_session_and_no_java(monkeypatch, tmp_path):
    with pytest.raises(RuntimeError, match="Could not find an active SparkContext.*getOrCreate.*") as e:
        run(print, num_proc=2)
    assert ("Java" in str(e.value)) == (shutil.which("java") is None and "JAVA_HOME" not in os.environ)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="needs Java 17 or later: there is no java in PATH, and JAVA_HOME is not"):
        run(print, num_proc=2)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"JAVA_HOME=.* has no bin/java"):
        run_elastic(print, num_proc=2)


def test_ranks_are_numbered_host_by_host():
    hosts = ["b", "a", "b", "a", "c"]
    assert _place.ranks(hosts) == [0, 2, 1, 3, 4]
    places = [_place.variables(hosts, partition) for partition in _place.ranks(hosts)]
    assert [p["HOROVOD_RANK"] for p in places] == ["0", "1", "2", "3", "4"]
    assert [p["HOROVOD_LOCAL_RANK"] for p in places] == ["0", "1", "0", "1", "0"]
    assert [p["HOROVOD_CROSS_RANK"] for p in places] == ["0", "0", "1", "1", "2"]
    assert [p["HOROVOD_CROSS_SIZE"] for p in places] == ["3", "2", "3", "2", "3"]


def test_containers_of_yarn_are_hosts(monkeypatch):
    names = []
    for container in ("", "container_1", "container_2", "container_1"):
        monkeypatch.setenv("CONTAINER_ID", container)
        names.append(_place.host())
    assert names[1] == names[3] and len(set(names)) == 3


def test_gpus_of_a_host_in_the_order_of_local_ranks():
    assert _environment.visible([["2"], ["0"]], 0) == ({"CUDA_VISIBLE_DEVICES": "2,0"}, ["0"])
    assert _environment.visible([["4", "5"], ["0", "1"]], 1) == ({"CUDA_VISIBLE_DEVICES": "4,0,5,1"}, ["1", "3"])
    assert _environment.visible([[], []], 1) == ({}, [])


def test_arrows_allocator_of_a_process(monkeypatch):
    monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL", raising=False)
    assert _environment.of_process({})["ARROW_DEFAULT_MEMORY_POOL"] == "jemalloc"
    assert _environment.of_process({"ARROW_DEFAULT_MEMORY_POOL": "system"})["ARROW_DEFAULT_MEMORY_POOL"] == "system"
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", "mimalloc")
    assert _environment.of_process({})["ARROW_DEFAULT_MEMORY_POOL"] == "mimalloc"


def test_conf_has_pairs_of_known_keys():
    pairs = {name: value for name, value in vars(conf).items() if isinstance(value, tuple)}
    assert len(pairs) == 17
    for name, (key, value) in pairs.items():
        assert name.startswith("SPARK_CONF_") and key in conf.SPARK_CONF_DEFAULT_VALUES and isinstance(value, str)
