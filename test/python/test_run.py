"""``horovod.run`` returns each rank's value, raises the errors of ranks, and leaves nothing behind.

Run by one plain Python: each test starts jobs of its own.
"""

import json
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
import types
from pathlib import Path

import cloudpickle
import pytest

import horovod
from horovod.runner import _handover, _jobs
from horovod.runner.common.util import hosts
from horovod.runner.elastic import discovery

pytestmark = pytest.mark.skipif("HOROVOD_RANK" in os.environ, reason="starts jobs of its own")

# Runs on this host what ssh would run on another.
FAKE_SSH = """#!/bin/sh
while [ $# -gt 2 ]; do shift; done
cd /
exec sh -c "$2"
"""


@pytest.fixture
def other_hosts(tmp_path, monkeypatch):
    ssh = tmp_path / "ssh"
    ssh.write_text(FAKE_SSH)
    ssh.chmod(0o700)
    monkeypatch.setenv("GOROVOD_SSH", str(ssh))


def test_values_come_by_rank(capfd):
    factor = 10  # a closure goes along

    def times(x, y=0):
        print("called")
        return int(os.environ["HOROVOD_RANK"]) * factor + x + y

    assert horovod.run(times, args=(1,), kwargs={"y": 2}, num_proc=3) == [3, 13, 23]
    assert sorted(capfd.readouterr().out.splitlines()) == [f"[{rank}]<stdout>:called" for rank in range(3)]
    assert horovod.run(times, (5,), np=1) == [5]


def test_values_come_from_other_hosts(other_hosts):
    def where():
        return os.environ["HOROVOD_HOSTNAME"], os.getcwd(), "x" * 3_000_000

    values = horovod.run(where, num_proc=3, hosts="far.invalid:2,localhost:1")
    assert values == [(host, os.getcwd(), "x" * 3_000_000) for host in ("far.invalid", "far.invalid", "localhost")]


def test_a_rank_that_raises():
    def fails():
        if os.environ["HOROVOD_RANK"] == "1":
            raise KeyError("a reason")

    with pytest.raises(
        RuntimeError, match="one or more processes exited with non-zero status(.|\n)*KeyError: 'a reason'"
    ):
        horovod.run(fails, num_proc=2)


def test_a_traceback_is_shown_once(capfd):
    """The error has it. The launcher and the ranks print only which exception it was."""

    def fails():
        import torch

        import horovod.torch as hvd

        hvd.init()
        if hvd.rank() == 1:
            raise KeyError("a reason")
        hvd.allreduce(torch.ones(1), name="x")

    with pytest.raises(RuntimeError) as error:
        horovod.run(fails, num_proc=2)
    text = str(error.value)
    assert re.search(r"root cause: rank 1 on host localhost \(pid \d+\) raised KeyError: 'a reason'", text), text
    assert text.count("Traceback") == 1, text
    assert "run_task.py" not in text, text
    assert "Traceback" not in capfd.readouterr().err
    with pytest.raises(RuntimeError, match="raised:\nTraceback"):  # printed as well: other workers may have gone on
        horovod.run(fails, num_proc=2, min_num_proc=2, reset_limit=0)
    assert capfd.readouterr().err.count("Traceback") == 1


def test_last_lines_of_stderr_are_told():
    """They are told for a process that raised no exception."""

    def ends():
        print("a reason", file=sys.stderr, flush=True)
        os._exit(9)

    with pytest.raises(RuntimeError, match="code is 9: root cause: .*\nThe last lines of its stderr:\n  a reason$"):
        horovod.run(ends)


def test_the_first_failure_is_told(tmp_path):
    """The oldest error is told, of any rank. A HorovodInternalError counts last: it follows from another failure."""
    raised = [(2, "KeyError: 2"), (1, "ValueError: 1"), (0, "HorovodInternalError: 0")]
    for at, (rank, text) in enumerate(raised):
        file = tmp_path / str(rank)
        file.write_bytes(pickle.dumps(("error", text)))
        os.utime(file, (at, at) if rank else (-1, -1))
    settings = types.SimpleNamespace(elastic=False, num_proc=3)
    with pytest.raises(RuntimeError, match="Rank 2 raised:\nKeyError"):
        _jobs._collect(1, tmp_path, settings, "")
    (tmp_path / "2").unlink()
    (tmp_path / "1").rename(tmp_path / "worker.1")
    with pytest.raises(RuntimeError, match="code is 1: why\nWorker 1 raised:\nValueError"):
        _jobs._collect(1, tmp_path, settings, "why")
    (tmp_path / "worker.1").unlink()
    with pytest.raises(RuntimeError, match="Rank 0 raised:\nHorovodInternalError"):
        _jobs._collect(1, tmp_path, settings, "")


def test_nothing_is_started_for_what_cannot_be_called(monkeypatch):
    monkeypatch.setattr(_jobs, "_launch", lambda *_: pytest.fail("something was started"))
    with pytest.raises(TypeError, match="'x' is not callable"):
        horovod.run("x")


def test_a_rank_that_has_no_result():
    with pytest.raises(RuntimeError, match="^rank 0 has ended with code 0, but without a result"):
        horovod.run(lambda: os._exit(0))
    with pytest.raises(RuntimeError, match="^ranks 0, 1 have ended with code 0, but without a result"):
        horovod.run(lambda: os._exit(0), num_proc=2)
    with pytest.raises(RuntimeError, match=r"code is 9: root cause: rank 0 on host localhost .* exited with code 9"):
        horovod.run(lambda: os._exit(9))
    with pytest.raises(RuntimeError, match="code is 2: root cause: rank 0 on host localhost"):  # it is no refusal
        horovod.run(lambda: os._exit(2))


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"num_proc": 3, "hosts": "localhost:2"}, "-np 3, but the hosts have only 2 slots"),
        ({"num_proc": 3, "hosts": "localhost:2", "min_num_proc": 1}, "-np 3, but the hosts have only 2 slots"),
        ({"hosts": "localhost"}, "Invalid host input"),
        ({"hosts": ""}, "--hosts: its value is empty"),
        ({"hostfile": "/no/such/file"}, "--hostfile: open /no/such/file: no such file"),
        ({"hostfile": "/dev/zero"}, "--hostfile: /dev/zero: it has more than 4 MiB"),
        ({"num_proc": 2, "min_num_proc": 3}, "--min-np 3 is above -np 2"),
        ({"max_num_proc": 3}, "--max-np is for elastic jobs"),
        ({"min_num_proc": 1, "cooldown_range": (0, 5)}, "two numbers of seconds are needed, from 1 to 3600"),
        ({"min_num_proc": 1, "cooldown_range": (5,)}, "two numbers of seconds are needed"),
        ({"ssh_port": 99999}, "--ssh-port 99999: a number from 1 to 65535"),
        ({"ssh_identity_file": "/no/such/key"}, "--ssh-identity-file: "),
        ({"start_timeout": "soon"}, "soon"),
        ({"use_mpi": True, "min_num_proc": 1}, "--mpi: MPI cannot carry an elastic job"),
        ({"mpi_args": "-v"}, "--mpi-args is for jobs that mpirun starts"),
    ],
    ids=lambda value: None if isinstance(value, str) else "-".join(value),
)
def test_what_is_refused_is_told(arguments, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        horovod.run(lambda: os._exit(7), **arguments)


def test_what_cannot_be_started_is_told(tmp_path, monkeypatch):
    with pytest.raises(RuntimeError, match="code is 127: /no/such/python: no such file"):
        horovod.run(int, executable="/no/such/python")
    with pytest.raises(RuntimeError, match="--output-filename: mkdir /dev/full: not a directory"):
        horovod.run(int, output_filename="/dev/full")
    monkeypatch.setenv("GOROVOD_SSH", "/no/such/ssh")
    with pytest.raises(RuntimeError, match="could not connect to some hosts via ssh(.|\n)*cannot start /no/such/ssh"):
        horovod.run(int, hosts="far.invalid:1")


def test_elastic_jobs(other_hosts):
    """Workers get the function and return values as ranks do: on this host, on others, and when they fail."""

    def where():
        return int(os.environ["GOROVOD_ELASTIC_WORKER"]), os.environ["HOROVOD_HOSTNAME"]

    found = horovod.run(where, num_proc=3, min_num_proc=2, hosts="far.invalid:2,localhost:1")
    assert found == [(0, "far.invalid"), (1, "far.invalid")]  # of the first min_num_proc ranks
    found = horovod.run(where, num_proc=2, host_discovery_script="echo localhost:2")
    assert found == [(0, "localhost"), (1, "localhost")]

    def fails():
        raise KeyError("a reason")

    with pytest.raises(RuntimeError, match="(?s)code is 1: .*raised:\n.*KeyError: 'a reason'"):
        horovod.run(fails, num_proc=1, min_num_proc=1, reset_limit=0)


def test_elastic_results_come_by_the_last_rank(tmp_path):
    """One worker dies. The worker that replaces it has a new number, and the survivor a new rank."""

    def train(marker):
        import torch

        import horovod.torch as hvd

        hvd.init()

        @hvd.elastic.run
        def steps(state):
            while state.step < 5:
                if hvd.rank() == 0 and state.step == 2 and not marker.exists():
                    marker.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                hvd.allreduce(torch.ones(1), name="step")
                state.step += 1
                state.commit()
            return hvd.rank(), os.environ["GOROVOD_ELASTIC_WORKER"]

        return steps(hvd.elastic.TorchState(step=0))

    found = horovod.run(train, (tmp_path / "died",), num_proc=2, min_num_proc=2, max_num_proc=2, hosts="localhost:4")
    assert [rank for rank, _ in found] == [0, 1]
    assert [worker for _, worker in found] == ["1", "2"]  # the survivor is first


def test_arguments_that_exclude_one_another():
    with pytest.raises(ValueError, match="hosts and hostfile"):
        horovod.run(int, hosts="localhost:1", hostfile="f")
    with pytest.raises(ValueError, match="use_gloo and use_mpi"):
        horovod.run(int, use_gloo=True, use_mpi=True)
    with pytest.raises(ValueError, match="at least 1"):
        horovod.run(int, num_proc=0)
    with pytest.warns(DeprecationWarning, match="network_interface"):
        assert horovod.run(int, network_interface="lo") == [0]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_the_end_of_the_caller_is_that_of_its_ranks(tmp_path, how):
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""
        import horovod, os, time

        def rank():
            open(f"pid{os.environ['HOROVOD_RANK']}", "w").write(str(os.getpid()))
            time.sleep(1000)

        horovod.run(rank, num_proc=2)
        """)
    )
    # A shell that runs the tests in the background may ignore SIGINT, and children inherit that.
    caller = subprocess.Popen(
        [sys.executable, program],
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    pids = []
    try:
        deadline = time.monotonic() + 30
        while len(pids) < 2 and time.monotonic() < deadline:
            texts = [file.read_text() for file in tmp_path.glob("pid*")]
            pids = [int(text) for text in texts if text]
            time.sleep(0.02)
        assert len(pids) == 2
    finally:
        caller.send_signal(how)
        caller.wait(30)
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_hosts():
    a, b = hosts.parse_hosts("a:2,b:1")
    slots = hosts.get_host_assignments([a, b], 3)
    assert [slot.to_response_string() for slot in slots] == ["0,3,0,2,0,2", "1,3,1,2,0,1", "2,3,0,1,1,2"]
    assert len(hosts.get_host_assignments([a, b], 1, 2)) == 2
    with pytest.raises(ValueError, match="more processes"):
        hosts.get_host_assignments([a, b], 4)
    with pytest.raises(ValueError, match="Invalid host input"):
        hosts.parse_hosts("a")


def test_hostfiles(tmp_path):
    file = tmp_path / "hosts"
    file.write_text("a slots=2\n# none\n\nb  slots=1 # one\n")
    assert hosts.parse_host_files(str(file)) == "a:2,b:1"


FOUND = {
    "echo a:2; echo b; echo '[::1]:3'": {"a": 2, "b": 4, "::1": 3},
    "echo a:2; echo; echo ' a:3 '; echo b:0": {"a": 3},
    "true": {},
    "cat": {},  # its input is empty, not the terminal
    "sleep 1000 & echo $! >pid; echo a": {"a": 4},  # nobody waits for what the script leaves behind
}


@pytest.mark.parametrize("script", FOUND)
def test_a_discovery_script(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        assert discovery.HostDiscoveryScript(script, 4).find_available_hosts_and_slots() == FOUND[script]
    finally:
        if "sleep" in script:
            os.kill(int(Path("pid").read_text()), signal.SIGKILL)
    assert discovery.HostDiscoveryScript("echo a").find_available_hosts_and_slots() == {"a": 1}


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo oh no >&2; echo a; exit 3", "exit 3: exit status 3:\noh no"),
        ("echo a:2; echo no host", "no host printed 'no host': a line must look like host or host:slots"),
        ("sleep 1000", "sleep 1000: it has not ended within 0.5 seconds"),
        ("yes | head -c 2000000", "it has printed more than 1024 KiB"),
    ],
)
def test_a_discovery_script_that_fails(script, message, monkeypatch):
    if "sleep" in script:
        monkeypatch.setattr(discovery, "_LIMIT", 0.5)
    with pytest.raises(RuntimeError, match=re.escape(message)):
        discovery.HostDiscoveryScript(script, 1).find_available_hosts_and_slots()


def test_a_discovery_script_needs_a_command_and_slots():
    for wrong in (None, ["./hosts.sh"]):
        with pytest.raises(TypeError, match="a command for the shell is needed"):
            discovery.HostDiscoveryScript(wrong, 1)
    for wrong in (0, "2", True):
        with pytest.raises(ValueError, match="a number of at least 1 is needed"):
            discovery.HostDiscoveryScript("true", wrong)


# ---- processes that mpirun starts


def by_mpirun():
    """Whether there is an mpirun, and the library of the same MPI."""
    from horovod.common import util
    from horovod.runner import mpi_run

    return mpi_run.mpi_available() and bool(util.mpi_built())


@pytest.mark.skipif("not by_mpirun()")
def test_values_come_from_processes_of_mpirun():
    def total(x):
        import horovod.torch as hvd

        hvd.init()
        return hvd.rank(), hvd.mpi_enabled(), hvd.allgather_object(hvd.rank() + x), "y" * 3_000_000

    values = horovod.run(total, (10,), num_proc=2, use_mpi=True)
    assert values == [(rank, True, [10, 11], "y" * 3_000_000) for rank in range(2)]

    def fails():
        if int(os.environ["OMPI_COMM_WORLD_RANK" if "OMPI_COMM_WORLD_RANK" in os.environ else "PMI_RANK"]) == 1:
            raise KeyError("a reason")

    with pytest.raises(RuntimeError, match="Rank 1 raised:(.|\n)*KeyError: 'a reason'"):
        horovod.run(fails, num_proc=2, use_mpi=True)


def task_of(function):
    return pickle.dumps((sys.path, cloudpickle.dumps((function, (), {}))))


def asks(handover, rank, **changes):
    """A process that asks for the function, as mpirun starts it."""
    env = {
        **os.environ,
        **handover.environ(),
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": "2",
        **changes,
    }
    return subprocess.Popen([sys.executable, "-m", "horovod.runner.run_task"], env=env, stderr=subprocess.PIPE)


def test_functions_are_handed_over(tmp_path):
    handover = _handover.Handover(task_of(lambda: os.environ["OMPI_COMM_WORLD_RANK"]), tmp_path, ["localhost"])
    stranger = socket.create_connection(("127.0.0.1", json.loads(handover.environ()[_handover.VARIABLE])["port"]))
    processes = [asks(handover, rank) for rank in range(2)]
    for process in processes:
        assert process.wait(60) == 0, process.stderr.read()
    stranger.close()
    handover.close()
    values = [pickle.loads((tmp_path / str(rank)).read_bytes()) for rank in range(2)]
    assert [(kind, cloudpickle.loads(value)) for kind, value in values] == [("value", "0"), ("value", "1")]


def test_who_does_not_know_the_secret_gets_nothing(tmp_path):
    handover = _handover.Handover(task_of(lambda: 1), tmp_path, ["localhost"])
    said = json.loads(handover.environ()[_handover.VARIABLE])
    process = asks(handover, 0, **{_handover.VARIABLE: json.dumps({**said, "key": "00" * 32})})
    _, error = process.communicate(timeout=60)
    assert process.returncode != 0 and b"AuthenticationError" in error
    handover.close()
    assert not list(tmp_path.iterdir())
    process = asks(handover, 0)
    _, error = process.communicate(timeout=60)
    assert process.returncode != 0 and b"the program that called horovod.run cannot be reached" in error


CALLER = """
import os, subprocess, sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
import test_run
from horovod.runner import _handover
there = Path({there!r})
task = test_run.task_of(lambda: there.touch() or time.sleep(600))
handover = _handover.Handover(task, there.parent, ["localhost"])
print(test_run.asks(handover, 0).pid, flush=True)
time.sleep(600)
"""


def test_processes_end_with_their_caller(tmp_path):
    there = tmp_path / "there"
    program = CALLER.format(tests=str(Path(__file__).parent), there=str(there))
    caller = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    pid = int(caller.stdout.readline())
    wait_until(there.exists)
    caller.kill()
    caller.wait()
    wait_until(lambda: not alive(pid))


def alive(pid):
    """Whether the process exists and is no zombie: that of an orphan may stay."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def wait_until(condition, longest_s=60):
    end = time.monotonic() + longest_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
