"""A worker that Ray kills because its node is short of memory."""

import functions
import psutil
import pytest
import ray

from horovod.ray import RayExecutor

ROOM = 2500  # megabytes more than are taken now


@pytest.fixture
def tight(monkeypatch):
    """A cluster that ends workers once ``ROOM`` megabytes more of the machine's memory are taken than now."""
    memory = psutil.virtual_memory()
    share = (memory.total - memory.available + ROOM * 2**20) / memory.total
    if share > 0.9 or memory.available < 4 * ROOM * 2**20:
        pytest.skip(f"{memory.available >> 20} MB of memory are free here")
    monkeypatch.setenv("RAY_memory_usage_threshold", f"{share:.3f}")
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "100")
    yield ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    ray.shutdown()


FIGURES = r"[\d.]+ of [\d.]+ GB were used, and Ray allows [\d.]+% \(RAY_memory_usage_threshold\)"


def test_a_worker_that_takes_too_much_memory_is_named(tight):
    executor = RayExecutor(num_workers=2)
    executor.start()
    says = f"(?s)rank [01] .*has died in hog.\nRay says: it has killed the process, .*: {FIGURES}(\n|$)"
    with pytest.raises(ray.exceptions.RayActorError, match=says):
        executor.run(functions.hog, args=[3 * ROOM])
    executor.shutdown()
    elastic = RayExecutor(min_workers=2, max_workers=2)
    elastic.start()
    with pytest.raises(RuntimeError, match=f"was killed by Ray because its node was short of memory: {FIGURES}"):
        elastic.run(functions.hog, args=[3 * ROOM])
