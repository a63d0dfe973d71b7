"""RayExecutor with a fixed number of workers."""

import os
import threading

import functions
import numpy
import pytest
import ray

from horovod.common.exceptions import HorovodInternalError
from horovod.ray import RayExecutor
from horovod.ray.runner import MiniSettings
from horovod.runner.elastic.discovery import HostDiscovery

pytestmark = pytest.mark.usefixtures("cluster")

SHAPES = [{"num_workers": 4}, {"num_hosts": 1, "num_workers_per_host": 4}]


@pytest.fixture(scope="module", params=SHAPES, ids=["workers", "hosts"])
def executor(cluster, request):
    started = RayExecutor(RayExecutor.create_settings(), **request.param)
    started.start(functions.Counter, [10], {"step": 2}, {"COLOUR": "green"})
    yield started
    started.shutdown()


@pytest.mark.smoke
def test_run_returns_results_by_rank(executor):
    assert executor.run(functions.place) == [(r, 4, r, 4, 0, 1) for r in range(4)]
    assert executor.run(functions.place, args=[10])[3][0] == 13
    assert executor.run(functions.place, kwargs={"add": 20})[1][0] == 21


def test_run_remote_does_not_wait(executor):
    refs = executor.run_remote(functions.place, args=[1])
    assert [result[0] for result in ray.get(refs)] == [1, 2, 3, 4]


def test_the_executable_lives_as_long_as_the_workers(executor):
    assert executor.execute(lambda counter: counter.count()) == [12, 13, 14, 15]
    assert executor.execute(lambda counter: counter.count()) == [14, 16, 18, 20]
    assert executor.execute_single(lambda counter: counter.value) == 14


@pytest.mark.smoke
def test_callbacks_get_what_rank_0_logs(executor):
    got, also = [], []
    assert executor.run(functions.log_steps, args=[3], callbacks=[got.append, also.append]) == [0, 1, 2, 3]
    assert got == also == [{"rank": 0, "step": step} for step in range(3)]
    executor.run(functions.log_steps, args=[2])
    assert len(got) == 3
    executor.execute(lambda _: functions.log_steps(1), callbacks=[got.append])
    assert got[3:] == [{"rank": 0, "step": 0}]


def test_callbacks_get_nothing_of_an_earlier_call(executor):
    def refuse(message):
        raise ValueError(f"no room for {message}")

    with pytest.raises(ValueError, match="no room"):
        executor.run(functions.log_steps, args=[5], callbacks=[refuse])
    got = []
    executor.run(functions.log_steps, args=[1], callbacks=[got.append])
    assert got == [{"rank": 0, "step": 0}]


def test_callbacks_run_while_the_workers_do(executor):
    def until_seen(steps, folder):
        import time

        functions.log_steps(steps)
        end = time.monotonic() + 60
        while not os.path.exists(folder + "/seen"):
            assert time.monotonic() < end
            time.sleep(0.01)

    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        executor.run(until_seen, args=[1, folder], callbacks=[lambda _: open(folder + "/seen", "w").close()])


def test_variables(executor):
    workers = executor.adapter.workers
    variables = ray.get([w.env_vars.remote() for w in workers])
    nodes = ray.get([w.node_id.remote() for w in workers])
    for rank, (found, node) in enumerate(zip(variables, nodes)):
        assert found["HOROVOD_HOSTNAME"] == node == ray.nodes()[0]["NodeID"]
        names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
        assert [int(found[f"HOROVOD_{name}"]) for name in names] == [rank, 4, rank, 4, 0, 1]
        assert found["HOROVOD_CONTROLLER"] == found["HOROVOD_CPU_OPERATIONS"] == "gloo"
        assert found["COLOUR"] == "green"


def test_the_secret_is_seen_nowhere(executor, cluster):
    workers = executor.adapter.workers
    (key,) = set(ray.get([w.secret_key.remote() for w in workers]))
    assert len(bytes.fromhex(key)) == 32
    assert not any(key in str(found) for found in ray.get([w.env_vars.remote() for w in workers]))
    assert key not in str(os.environ)
    executor.run(functions.place)
    looked = 0
    for folder, _, files in os.walk(cluster.address_info["session_dir"]):
        for name in files:
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                looked += 1
                with open(path, "rb") as file:
                    assert key.encode() not in file.read(), path
    assert looked > 10
    for facts in ray.get([w.facts.remote() for w in workers]):
        assert key not in str(facts)
        for name in ("environ", "cmdline"):
            with open(f"/proc/{facts.pid}/{name}", "rb") as file:
                assert key.encode() not in file.read()


@pytest.mark.smoke
def test_an_exception_is_that_ranks_and_releases_the_others(executor):
    with pytest.raises(KeyError, match="batch 7") as caught:
        executor.run(functions.fail, args=["raise", 2])
    assert "repr=rank 2" in str(caught.value)
    # The workers live on, and so does the job.
    assert [result[0] for result in executor.run(functions.place)] == [0, 1, 2, 3]
    refs = executor.run_remote(functions.fail, args=["raise", 2])
    for rank, ref in enumerate(refs):
        with pytest.raises(KeyError if rank == 2 else HorovodInternalError, match="batch 7"):
            ray.get(ref, timeout=30)


@pytest.mark.smoke
@pytest.mark.parametrize("how", ["run", "run_remote", "execute_single"])
def test_the_job_goes_on_after_a_failure_that_other_ranks_do_not_see(executor, how):
    assert executor.run(functions.place)[0][0] == 0
    with pytest.raises(KeyError, match="the end"):
        if how == "execute_single":
            executor.execute_single(lambda counter: functions.fails_at_the_end(0))
        else:
            refs = getattr(executor, how)(functions.fails_at_the_end, args=[0])
            ray.get(refs[0])
    for _ in range(2):
        assert [result[0] for result in executor.run(functions.place)] == [0, 1, 2, 3]


@pytest.mark.smoke
def test_what_cannot_be_pickled_is_named(executor):
    lock = threading.Lock()

    def train():
        with lock:
            pass

    with pytest.raises(TypeError, match=r"train cannot be sent.*: 'lock', to which .*train refers, is <unlocked"):
        executor.run(train)
    with pytest.raises(TypeError, match="place cannot be sent to the workers: item 0 of a list is <unlocked _thread"):
        executor.run(functions.place, args=[[lock]])
    assert executor.run(functions.place)[0][0] == 0


def test_results_that_cannot_be_pickled_are_named(executor):
    says = r"what rank 2 \(pid .*\) has returned cannot be sent to the driver: the item 'lock' of a dict is <unlocked"
    with pytest.raises(TypeError, match=says):
        executor.run(functions.returns_lock, args=[2])
    with pytest.raises(TypeError, match=says):
        ray.get(executor.run_remote(functions.returns_lock, args=[2])[2])


def test_exceptions_that_cannot_be_pickled_are_told(executor):
    with pytest.raises(RuntimeError, match=r"rank 1 \(pid .*\) has raised Odd: no room at noon. This Runti"):
        executor.run(functions.raises_odd, args=[1])
    with pytest.raises(RuntimeError, match="has raised ValueError: no room. .* the attribute 'lock' of a"):
        executor.run(functions.raises_odd, args=[1, True])


def test_large_results_and_references_arrive(executor):
    results = executor.run(functions.returns_much)
    for rank, result in enumerate(results):
        assert type(result) is dict and result["list"] == [rank] and ray.get(result["reference"]) == rank
        assert (result["array"] == numpy.arange(1_000_000) + rank).all()
    assert not results[0]["array"].flags.writeable  # it is where Ray keeps it, and not a copy


def test_explicit_none_is_accepted():
    settings = MiniSettings()
    RayExecutor(settings, num_workers=4, num_hosts=None, num_workers_per_host=None)
    assert settings.elastic is False


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"num_workers": 1, "num_hosts": 1}, AssertionError, "not both"),
        ({"num_workers": 1, "num_hosts": 1}, ValueError, "not both"),
        ({}, ValueError, "give num_workers"),
        ({"num_workers": 0}, ValueError, "num_workers=0"),
        ({"num_workers": 1, "max_workers": 2}, ValueError, "min_workers"),
        ({"num_workers": 1, "min_workers": 1}, ValueError, "min_workers"),
        ({"num_workers": 1, "gpus_per_worker": 1}, ValueError, "use_gpu"),
        ({"num_workers": 1, "use_gpu": True, "gpus_per_worker": 0}, ValueError, "gpus_per_worker must be >= 1: Got 0."),
        ({"num_workers": 1, "use_gpu": True, "gpus_per_worker": "1"}, TypeError, "gpus_per_worker='1': a whole number"),
        ({"num_workers": 1, "cpus_per_slot": 2}, TypeError, "cpus_per_worker"),
        ({"num_workers": 1, "cpus_per_worker": "2"}, TypeError, "cpus_per_worker='2': a number"),
        ({"num_workers": 1, "cpus_per_worker": float("nan")}, ValueError, "cpus_per_worker=nan: a number from 0 on"),
        ({"min_workers": 1, "cpus_per_worker": -1}, ValueError, "cpus_per_worker=-1: a number from 0 on"),
        ({"min_workers": 1, "elastic_timeout": None}, TypeError, "elastic_timeout=None: a number"),
        ({"min_workers": 1, "elastic_timeout": 0}, ValueError, "elastic_timeout=0: a number from 0.001 to 1e.06"),
        ({"min_workers": 1, "reset_limit": -1}, ValueError, "reset_limit=-1: at least 0"),
        ({"min_workers": 1, "cooldown_range": 5}, TypeError, "cooldown_range=5: two numbers"),
    ],
)
def test_bad_arguments(arguments, error, says):
    with pytest.raises(error, match=says):
        RayExecutor(MiniSettings(), **arguments)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "create_settings.. makes"),
        (MiniSettings(timeout_s="x"), "settings.timeout_s='x'"),
        (MiniSettings(placement_group_timeout_s=None), "settings.placement_group_timeout_s=None"),
        (MiniSettings(nics=5), "settings.nics=5: a list"),
    ],
)
def test_bad_settings(given, says):
    with pytest.raises(TypeError, match=says):
        RayExecutor(given, num_workers=1)


@pytest.mark.parametrize(
    ("found", "says"),
    [(None, "returned None: a dict"), ({5: 1}, "returned {5: 1}: a dict"), ({"a": "2"}, "host a='2': a whole number")],
)
def test_bad_hosts_of_a_discovery(found, says):
    class Discovery(HostDiscovery):
        def find_available_hosts_and_slots(self):
            return found

    settings = MiniSettings()
    settings.discovery = Discovery()
    executor = RayExecutor(settings, min_workers=1, override_discovery=False)
    executor.start()
    with pytest.raises(TypeError, match=says):
        executor.run(functions.place)


def test_one_interface_may_be_given_by_its_name():
    assert RayExecutor(MiniSettings(nics="lo"), num_workers=1).settings.nics == ["lo"]


@pytest.mark.parametrize(("given", "says"), [(print, "a list is needed"), ([5], "5, which cannot be called")])
def test_bad_callbacks(executor, given, says):
    with pytest.raises(TypeError, match=says):
        executor.run(functions.place, callbacks=given)
