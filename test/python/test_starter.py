"""The starter's conversation with the real ``gorovod drive``, for a platform of plain processes, or of none at all.

Run by one plain Python: each test starts drivers of its own.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from horovod import _program
from horovod.runner import _starter

pytestmark = pytest.mark.skipif("HOROVOD_RANK" in os.environ, reason="starts jobs of its own")

KEY = "0123456789abcdef" * 4
PYTHON = Path(__file__).resolve().parents[2] / "python"
TICK_S = 0.1


class Record(logging.Handler):
    """A logger's handler that keeps the requests."""

    def __init__(self, done):
        super().__init__()
        self.done = done

    def emit(self, record):
        self.done.append(record.getMessage())


class Fake(_starter.Platform):
    """Hosts without processes: a test says how each worker goes on.

    ``done`` is what has happened, in order: the requests, and the calls of this platform's methods.
    """

    def __init__(self):
        self.done, self.said, self.threads = [], [], set()
        logger = logging.Logger("test", logging.DEBUG)
        logger.addHandler(Record(self.done))
        self.starter = _starter.Starter(self, _starter.Worker, logger)
        self.on_start = lambda worker: self.starter.started(worker, 100 + worker.number)
        self.on_end = lambda worker, signum: self.starter.left(worker, signum=signum)
        self.on_look = lambda: None

    def start_worker(self, worker, environment):
        self.done.append(f"start {worker.number} on {worker.host}, slot {worker.slot}")
        self.threads.add(threading.get_ident())
        self.environment = environment
        self.on_start(worker)

    def end_worker(self, worker, signum):
        self.done.append(f"end {worker.number} by {signum}")
        self.on_end(worker, signum)

    def freed(self, worker):
        self.done.append(f"freed {worker.number}")

    def say(self, text):
        self.said.append(text)

    def take(self, kind, *what):
        self.done.append(kind)
        self.threads.add(threading.get_ident())
        what[0](*what[1:])

    def look(self):
        self.on_look()


@contextlib.contextmanager
def opened(platform, variables=None, **config):
    platform.starter.open(KEY, "127.0.0.1", {"np": 2, "timeout": 30, **config}, variables or {})
    try:
        yield platform.starter
    finally:
        platform.starter.close()


def outcome_of(platform, hosts=None, variables=None, **config):
    with opened(platform, variables, **config) as starter:
        starter.offer({"a": 2} if hosts is None else hosts)
        return starter.attend(TICK_S)


def test_a_job_from_its_start_to_its_end():
    fake = Fake()

    def start(worker):
        fake.starter.started(worker, 100 + worker.number)
        fake.starter.post("ends", fake.starter.left, worker)

    fake.on_start = start
    outcome = outcome_of(fake, {"a": 1, "b": 1, "drained": 0})
    assert fake.done == [
        "to the driver: config",
        "to the driver: hosts",
        "start 0 on a, slot 0",
        "to the driver: started",
        "start 1 on b, slot 0",
        "to the driver: started",
        *("ends", "to the driver: ended", "freed 0", "to the driver: gone"),
        *("ends", "to the driver: ended", "freed 1", "to the driver: gone"),
    ]
    assert outcome == _starter.Outcome()
    assert outcome.finished and not outcome.never_formed
    assert outcome.by_rank({1: "y", 0: "x"}) == {0: "x", 1: "y"}  # no worker has called hvd.init()
    assert not fake.starter.workers
    assert fake.environment["GOROVOD_ELASTIC_WORKER"] == "1"
    assert KEY not in fake.environment.values()


def test_all_happens_on_one_thread_in_order():
    fake, started = Fake(), []

    def start(worker):
        fake.starter.started(worker, 1)
        started.append(worker)
        if len(started) == 2:
            threading.Thread(target=post).start()

    def post():
        for n in range(50):
            fake.starter.post(f"message {n}", lambda: None)
        for worker in started:
            fake.starter.post("ends", fake.starter.left, worker)

    fake.on_start = start
    assert outcome_of(fake).finished
    assert [d for d in fake.done if d.startswith("message")] == [f"message {n}" for n in range(50)]
    assert fake.threads == {threading.get_ident()}


def test_the_same_hosts_are_told_once():
    fake = Fake()
    hosts = {"a": 1}
    with opened(fake, np=1) as starter:
        starter.offer(hosts)
        starter.offer({"a": 1})
        hosts["b"] = 1
        starter.offer(hosts)
        fake.on_start = lambda worker: starter.post("ends", starter.left, worker)
        assert starter.attend(TICK_S).finished
    assert fake.done.count("to the driver: hosts") == 2


def test_a_worker_that_cannot_start_is_told_with_its_reason():
    fake = Fake()

    def start(worker):
        raise _starter.NotStarted("the node is full")

    fake.on_start = start
    outcome = outcome_of(fake, {"a": 1}, np=1)
    assert fake.done[-4:] == ["start 0 on a, slot 0", "to the driver: ended", "freed 0", "to the driver: gone"]
    assert not outcome.finished and not outcome.never_formed
    assert "could not start: the node is full" in outcome.failure.text


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"code": 3, "stderr": "OSError: no such file"}, "exited with code 3"),
        ({"signum": 11}, "was killed by signal 11 (SIGSEGV)"),
        ({"reason": "was preempted"}, "was preempted"),
    ],
)
def test_a_failure_is_told_with_all_its_fields(how, text):
    fake = Fake()

    def start(worker):
        fake.starter.started(worker, 107)
        fake.starter.post("fails", lambda: fake.starter.left(worker, **how))

    fake.on_start = start
    outcome = outcome_of(fake, {"a": 1}, np=1)
    text = f"worker 0 on host a (pid 107) {text}"
    stderr = how.get("stderr", "")
    assert outcome.failure == _starter.Failure(worker=0, rank=0, text=text, host="a", pid=107, stderr=stderr)
    assert fake.said[0] == text
    assert not outcome.finished and not outcome.never_formed
    assert pickle.loads(pickle.dumps(outcome)) == outcome


def test_a_worker_of_a_host_that_goes_is_ended_and_then_killed():
    fake = Fake()

    def start(worker):
        fake.starter.started(worker, 107)
        if worker.host == "a":
            fake.starter.offer({"b": 1})
        else:
            fake.starter.post("ends", fake.starter.left, worker)

    fake.on_start = start
    fake.on_end = lambda worker, signum: fake.starter.left(worker, signum=9) if signum == 9 else None
    assert outcome_of(fake, {"a": 1}, np=1, grace=0.2).finished
    assert [d for d in fake.done if d.startswith("end ")] == ["end 0 by 15", "end 0 by 9"]


def test_a_job_that_finds_no_hosts_in_time_was_never_formed():
    outcome = outcome_of(Fake(), {"a": 1}, timeout=0.3, terms={"timeout": "patience"})
    assert outcome.never_formed and not outcome.finished
    assert "patience" in outcome.text


def test_an_order_for_a_worker_that_has_left_is_nothing():
    fake = Fake()
    fake.starter._obey({"type": "signal", "worker": 7, "signal": 15})
    assert fake.done == []


def test_the_platform_looks_once_a_tick_and_its_exception_ends_the_wait():
    fake, looks = Fake(), []

    def look():
        looks.append(1)
        if len(looks) == 3:
            raise TimeoutError("too late")

    fake.on_look = look
    with opened(fake) as starter, pytest.raises(TimeoutError, match="too late"):
        starter.attend(TICK_S)  # without hosts the driver says nothing


def test_messages_after_the_end_are_the_platforms_alone():
    fake = Fake()
    fake.on_look = lambda: fake.starter.workers and 1 / 0
    with opened(fake, np=2) as starter:
        starter.offer({"a": 2})
        with pytest.raises(ZeroDivisionError):
            starter.attend(TICK_S)
        starter.post("late", 4)  # behind the event that starts worker 1
        found = []
        while ("late", 4) not in found:
            found.append(starter.posted(TICK_S))
        assert starter.posted(0.01) is None
    assert found[-1] == ("late", 4) and set(found[:-1]) <= {None}
    assert len([d for d in fake.done if d.startswith("start")]) == 1


def test_what_the_driver_refuses_is_the_error():
    fake = Fake()
    with opened(fake, np=0) as starter:
        with pytest.raises(RuntimeError) as error:
            starter.attend(TICK_S)
        assert starter.close() == ""
        starter.offer({"a": 1})  # is lost
    assert "the driver of the elastic job has ended: " in str(error.value)
    assert "line 1 of the input: config: np 0: a number from 1" in str(error.value)


def test_the_drivers_death_is_the_error():
    fake = Fake()
    fake.on_start = lambda worker: os.kill(fake.starter._drive._process.pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="the driver of the elastic job has ended: it was killed by signal 9$"):
        outcome_of(fake)


def test_a_driver_that_dies_within_a_line_is_the_error(monkeypatch, tmp_path):
    program, fake, looks = tmp_path / "gorovod", Fake(), []
    program.write_text('#!/bin/sh\nprintf \'{"type":"say","text":"whole"}\\n{"type":"sa\'\nexit 7\n')
    program.chmod(0o700)
    monkeypatch.setattr(_program, "path", lambda: program)

    def look():
        looks.append(1)
        assert len(looks) < 100, "the wait goes on"

    fake.on_look = look
    with pytest.raises(RuntimeError, match="the driver of the elastic job has ended: exit code 7$"):
        outcome_of(fake)
    assert fake.said == ["whole"]


def test_a_missing_program_is_the_error(monkeypatch):
    monkeypatch.setattr(_program, "path", lambda: sys.exit("gorovod: the program is missing"))
    starter = Fake().starter
    with pytest.raises(RuntimeError, match="the program is missing"):
        starter.open(KEY, "127.0.0.1", {"np": 1}, {})
    assert starter.close() == ""


def test_variables_of_the_workers_show_the_job(tmp_path):
    fake, page = Fake(), tmp_path / "summary"
    fake.on_start = lambda worker: fake.starter.post("ends", fake.starter.left, worker)
    outcome = outcome_of(fake, {"a": 1}, {"GOROVOD_METRICS": 0, "UNKNOWN": page}, np=1)
    assert outcome.finished
    assert any("metrics" in text for text in fake.said), fake.said


class Processes(Fake):
    """Workers that are ranks, in processes of this host. ``results`` has what each prints."""

    PROGRAM = textwrap.dedent("""
        import os
        from horovod.common import _job
        _job.init()
        print("rank", _job.rank(), "of", _job.size())
        _job.shutdown()
    """)

    def __init__(self):
        super().__init__()
        self.results, self.processes = {}, {}
        self.on_end = lambda worker, signum: self.processes[worker.number].send_signal(signum)

    def start_worker(self, worker, environment):
        path = os.pathsep.join(filter(None, (str(PYTHON), os.environ.get("PYTHONPATH", ""))))
        process = subprocess.Popen(
            [sys.executable, "-c", self.PROGRAM],
            env={**os.environ, **environment, "HOROVOD_SECRET_KEY": KEY, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            text=True,
        )
        self.processes[worker.number] = process
        self.starter.started(worker, process.pid)
        threading.Thread(
            target=lambda: self.starter.post("ended", self.ended, worker, process.communicate()[0])
        ).start()

    def ended(self, worker, printed):
        process = self.processes[worker.number]
        self.results[worker.number] = printed.strip()
        code = process.returncode
        self.starter.left(worker, code=max(code, 0), signum=max(-code, 0))


def test_results_are_by_the_ranks_of_the_last_world():
    platform = Processes()
    outcome = outcome_of(platform, {"a": 2, "b": 1}, np=3, timeout=60)
    assert outcome.finished, (outcome, platform.said)
    assert sorted(outcome.ranks) == sorted(outcome.ranks.values()) == [0, 1, 2]
    assert outcome.by_rank(platform.results) == {rank: f"rank {rank} of 3" for rank in range(3)}


def test_by_rank_orders_by_rank_and_leaves_out_who_has_no_value():
    outcome = _starter.Outcome(ranks={4: 2, 7: 0, 5: 1})
    assert list(outcome.by_rank({4: "c", 7: "a"}).items()) == [(0, "a"), (2, "c")]
