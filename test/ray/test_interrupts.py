"""Ctrl-C, and callbacks that raise, while ``run`` waits: what becomes of the workers, and of the next call."""

import os
import signal
import threading
import time

import functions
import pytest
import ray

from horovod.ray import RayExecutor, _results, _waiting

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.fixture(scope="module")
def executor(cluster):
    started = RayExecutor(num_workers=2)
    started.start()
    yield started
    started.shutdown()


@pytest.fixture
def said(caplog):
    """What the driver has said."""
    return lambda: [record.message for record in caplog.records if record.name == "horovod.ray"]


def until_begun(folder, name="begun"):
    end = time.monotonic() + 60
    while not all((folder / f"{name}.{rank}").exists() for rank in range(2)):
        assert time.monotonic() < end
        time.sleep(0.05)


def ctrl_c_once_begun(folder):
    """Send this process what a terminal sends, once all ranks have begun."""

    def send():
        until_begun(folder)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=send).start()


@pytest.mark.smoke
def test_ctrl_c_ends_the_workers_call(executor, tmp_path, said):
    pids = [facts.pid for facts in ray.get([w.facts.remote() for w in executor.adapter.workers])]
    ctrl_c_once_begun(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        executor.run(functions.until_interrupted, args=[str(tmp_path)])
    until_begun(tmp_path, "interrupted")
    assert [result[0] for result in executor.run(functions.place)] == [0, 1]
    assert pids == [facts.pid for facts in ray.get([w.facts.remote() for w in executor.adapter.workers])]
    assert not said()


def test_a_callback_that_raises_ends_the_workers_call(executor, tmp_path):
    def refuse(message):
        until_begun(tmp_path)
        raise ValueError(f"no room for {message}")

    with pytest.raises(ValueError, match="no room"):
        executor.run(functions.until_interrupted, args=[str(tmp_path)], callbacks=[refuse])
    until_begun(tmp_path, "interrupted")
    assert [result[0] for result in executor.run(functions.place)] == [0, 1]


def test_a_call_that_goes_on_is_told_and_so_is_the_wait_for_it(executor, tmp_path, said, monkeypatch):
    monkeypatch.setattr(_results, "_INTERRUPTED_S", 0.2)
    monkeypatch.setattr(_waiting, "FIRST_WORD_S", 0.2)
    ctrl_c_once_begun(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        executor.run(functions.until_interrupted, args=[str(tmp_path), 3])
    assert [result[0] for result in executor.run(functions.place)] == [0, 1]
    goes_on, *waits = said()
    assert "until_interrupted goes on in rank 0 (pid" in goes_on and "call shutdown()" in goes_on
    assert "waiting for the end of earlier calls: rank 0 (pid" in waits[0] and "with until_interrupted" in waits[0]


def test_calls_that_have_not_begun_never_do(executor, tmp_path, said, monkeypatch):
    monkeypatch.setattr(_waiting, "FIRST_WORD_S", 0.2)
    earlier = executor.run_remote(functions.slowly, args=[{0: 4, 1: 4}])
    threading.Timer(2, os.kill, [os.getpid(), signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        executor.run(functions.begun, args=[str(tmp_path)])
    assert ray.get(earlier) == [None, None]  # it was not interrupted
    assert "with slowly" in said()[0]
    assert [result[0] for result in executor.run(functions.place)] == [0, 1]
    assert not list(tmp_path.iterdir())
