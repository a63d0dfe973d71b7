"""Workers that find no room, that see GPUs, and that die."""

import gc
import threading

import functions
import pytest
import ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from horovod.ray import RayExecutor

pytestmark = pytest.mark.usefixtures("cluster")


def wait_until_free(cpus=4):
    """Wait until no job takes resources of the cluster any more."""
    for _ in range(100):
        if ray.available_resources().get("CPU") == cpus:
            break
        threading.Event().wait(0.1)
    assert ray.available_resources().get("CPU") == cpus
    assert {group["state"] for group in ray.util.placement_group_table().values()} <= {"REMOVED"}


@pytest.fixture
def pair():
    """Two workers, for tests that kill them."""
    started = RayExecutor(RayExecutor.create_settings(), num_workers=2)
    started.start()
    yield started
    started.shutdown()
    wait_until_free()


@pytest.mark.parametrize(
    ("how", "says"),
    [
        pytest.param("kill", "Another rank says: rank 1 .* (has died|was killed by signal 9)", marks=pytest.mark.smoke),
        ("sys.exit", "exit code 3"),
        ("crash", "Fatal Python error: Segmentation fault"),
    ],
)
def test_a_dead_worker_is_named(pair, how, says):
    pid = ray.get(pair.adapter.workers[1].facts.remote()).pid
    with pytest.raises(ray.exceptions.RayActorError, match=rf"(?s)rank 1 \(pid {pid} on .*{says}") as caught:
        pair.run(functions.fail, args=[how])
    assert caught.value.rank == 1
    with pytest.raises(RuntimeError, match=r"rank 1 .*died before: call shutdown\(\), then start\(\)"):
        pair.run(functions.place)
    pair.shutdown()
    pair.start()
    assert [result[0] for result in pair.run(functions.place)] == [0, 1]


def test_an_idle_worker_that_dies_is_named(pair):
    pair.run(functions.place)
    ray.kill(pair.adapter.workers[0])
    with pytest.raises(ray.exceptions.RayActorError, match="rank 0"):
        pair.run(functions.place)


def test_gpus_of_a_host_are_seen_by_all_its_workers():
    executor = RayExecutor(num_workers=2, use_gpu=True, gpus_per_worker=2)
    executor.start()
    own = ray.get([w.get_gpu_ids.remote() for w in executor.adapter.workers])
    seen = executor.run(functions.sees)
    executor.shutdown()
    assert all(len(ids) == 2 for ids in own)
    expected = ",".join(str(gpu) for ids in own for gpu in ids)
    assert [found["CUDA_VISIBLE_DEVICES"] for found in seen] == [expected] * 2
    wait_until_free()


def test_workers_that_take_no_cpu():
    executor = RayExecutor(num_workers=2, cpus_per_worker=0)
    executor.start()
    assert [result[0] for result in executor.run(functions.place)] == [0, 1]
    executor.shutdown()
    wait_until_free()


def test_two_executors_of_one_shape_at_once():
    first, second = RayExecutor(num_workers=2), RayExecutor(num_workers=2)
    try:
        first.start()
        second.start()
        running = first.run_remote(functions.place)
        assert [result[:2] for result in second.run(functions.place)] == [(0, 2), (1, 2)]
        assert [result[:2] for result in ray.get(running)] == [(0, 2), (1, 2)]
        with pytest.raises(TimeoutError) as caught:
            RayExecutor(RayExecutor.create_settings(placement_group_timeout_s=1), num_workers=2).start()
        assert "CPU_group" not in str(caught.value)  # what Ray calls the bundles of the others
    finally:
        first.shutdown()
        second.shutdown()
    wait_until_free()


@pytest.mark.smoke
@pytest.mark.parametrize("shape", [{"num_workers": 5}, {"num_hosts": 2}, {"num_workers": 1, "cpus_per_worker": 9}])
def test_no_room(shape, caplog):
    executor = RayExecutor(RayExecutor.create_settings(placement_group_timeout_s=1), **shape)
    with pytest.raises(TimeoutError, match="Placement group creation timed out. Make sure your cluster") as caught:
        executor.start()
    assert "{CPU: 4, GPU: 4}" in str(caught.value)  # what there is
    assert f"CPU: {shape.get('cpus_per_worker', 1)}" in str(caught.value)  # what was asked for
    with pytest.raises(RuntimeError, match="call start"):
        executor.run(functions.place)
    wait_until_free()


def test_the_driver_says_what_it_waits_for(caplog, monkeypatch):
    from horovod.ray import _waiting

    monkeypatch.setattr(_waiting, "FIRST_WORD_S", 0.5)
    with pytest.raises(TimeoutError):
        RayExecutor(RayExecutor.create_settings(placement_group_timeout_s=1), num_workers=5).start()
    assert "waiting for room for 5 × {CPU: 1} (PACK). The cluster has 1 node" in caplog.text
    wait_until_free()


def test_a_dropped_executor_ends_its_workers_once_they_are_done(tmp_path):
    executor = RayExecutor(num_workers=2)
    executor.start()
    executor.run(functions.place)
    refs = executor.run_remote(functions.slowly, args=[{0: 1, 1: 1}])
    del executor
    gc.collect()
    assert ray.get(refs) == [None, None]
    wait_until_free()


def test_in_a_placement_group():
    @ray.remote(num_cpus=1)
    def driver(workers, use_current=True, timeout_s=100):
        settings = RayExecutor.create_settings(placement_group_timeout_s=timeout_s)
        executor = RayExecutor(settings, num_workers=workers, use_current_placement_group=use_current)
        executor.start()
        results = executor.run(functions.place)
        made = executor.adapter.strategy._created_placement_group is not None
        executor.shutdown()
        return [result[0] for result in results], made

    group = ray.util.placement_group([{"CPU": 1}] * 3)
    ray.get(group.ready())
    inside = PlacementGroupSchedulingStrategy(group, placement_group_capture_child_tasks=True)
    assert ray.get(driver.options(scheduling_strategy=inside).remote(2)) == ([0, 1], False)
    assert ray.get(driver.options(scheduling_strategy=inside).remote(1, False)) == ([0], True)
    with pytest.raises(TimeoutError, match="(?s)Placement group creation timed out.*room for 3 of 4 workers"):
        ray.get(driver.options(scheduling_strategy=inside).remote(4))

    @ray.remote(num_cpus=1)
    class Other:
        def there(self):
            return True

    other = Other.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group)).remote()
    assert ray.get(other.there.remote())
    with pytest.raises(TimeoutError, match="(?s)Placement group creation timed out.*[123] of 3 workers to start"):
        ray.get(driver.options(num_cpus=0, scheduling_strategy=inside).remote(3, timeout_s=5))
    ray.kill(other)
    ray.util.remove_placement_group(group)
    wait_until_free()
