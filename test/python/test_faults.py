"""What a job leaves behind when a rank fails: an error that names the cause on every survivor, and nothing else.

Run by one plain Python: each test starts a job of its own. ``HOROVODRUN`` may name another launcher than that of the
build folder.
"""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FAULTS = Path(__file__).resolve().parent / "faults"
LAUNCHER = os.environ.get("HOROVODRUN", str(ROOT / "build" / "horovodrun"))

pytestmark = pytest.mark.skipif("HOROVOD_RANK" in os.environ, reason="starts jobs of its own")

TOLD_WITHIN_S = 5
GONE_WITHIN_S = 15
LONGEST_JOB_S = 60

MARK = "GOROVOD_TEST_JOB"


def processes_with(mark):
    """Every process whose environment has the mark: the job's ranks, supervisors and workers."""
    wanted = f"{MARK}={mark}".encode()
    found = {}
    for proc in Path("/proc").iterdir():
        if proc.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in (proc / "environ").read_bytes().split(b"\0"):
                    found[int(proc.name)] = (proc / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


def left_in_shared_memory():
    """The names of files that processes of torch or gorovod have left in /dev/shm.

    A file of torch's is named torch_PID_NUMBER_NUMBER. It is not counted if the process lives: other jobs may run.
    Names with letters after the PID belong to a test of the launcher, which imitates torch and may run beside this one.
    """
    owners = {p.name: re.fullmatch(r"torch_(\d+)_\d+_\d+", p.name) for p in Path("/dev/shm").iterdir()}
    left = {name for name, owner in owners.items() if owner and not Path("/proc", owner[1]).exists()}
    # Segments have no names. The ranks of schedulers' jobs meet in the directory gorovod-UID.
    return left | {name for name in owners if "gorovod" in name and name != f"gorovod-{os.geteuid()}"}


class Job:
    """A job under the launcher. Its output is collected, and it must leave nothing behind."""

    def __init__(self, ranks, script, wrapper=(), **environment):
        self.mark = uuid.uuid4().hex
        self.before = left_in_shared_memory()
        self.lines = []
        self.process = subprocess.Popen(
            [LAUNCHER, "-np", str(ranks), *wrapper, sys.executable, str(FAULTS / script)],
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT / "python"),
                "OMP_NUM_THREADS": "1",
                MARK: self.mark,
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        self.timer = threading.Timer(LONGEST_JOB_S, self.end)
        self.timer.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def end(self):
        """Kill the launcher and every process with the mark."""
        for pid in [self.process.pid, *processes_with(self.mark)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def wait_for(self, text):
        deadline = time.monotonic() + LONGEST_JOB_S
        while not any(text in line for line in self.lines):
            assert time.monotonic() < deadline and self.process.poll() is None, self.output()
            time.sleep(0.02)

    def finish(self):
        """Wait for the launcher's end, check that nothing is left, and return the exit code."""
        code = self.process.wait()
        self.timer.cancel()
        deadline = time.monotonic() + GONE_WITHIN_S
        left = processes_with(self.mark)
        files = left_in_shared_memory() - self.before
        while (left or files) and time.monotonic() < deadline:
            time.sleep(0.05)
            left = processes_with(self.mark)
            files = left_in_shared_memory() - self.before  # files of other jobs go, too, soon after their owners
        self.end()
        self.reader.join(GONE_WITHIN_S)
        assert left == {}, self.output()
        assert files == set()
        return code

    def output(self):
        return "\n".join(self.lines)

    def events(self, kind):
        """``{rank: (time, text)}`` of the lines that scripts print."""
        pattern = re.compile(rf"\[(\d+)\]<std\w+>: ?{kind} ([\d.]+) ?(.*)")
        matches = [m for m in map(pattern.match, self.lines) if m]
        return {int(m[1]): (float(m[2]), m[3]) for m in matches}

    def survivors(self, expected):
        """The messages of the survivors, which must be ``expected`` and told in time."""
        died = min(at for at, _ in self.events("DYING").values())
        survived = self.events("SURVIVED")
        assert set(survived) == set(expected), self.output()
        for at, _ in survived.values():
            assert at - died < TOLD_WITHIN_S, self.output()
        return [text for _, text in survived.values()]


@pytest.mark.parametrize(("ranks", "victim", "step"), [(2, 1, 0), (2, 0, 3), (3, 1, 20), (4, 0, 5)])
def test_killed(ranks, victim, step):
    job = Job(ranks, "killed.py", VICTIM=str(victim), STEP=str(step))
    code = job.finish()
    for text in job.survivors(set(range(ranks)) - {victim}):
        assert f"rank {victim}" in text
        assert socket.gethostname() in text or "localhost" in text, text
        assert f"signal {signal.SIGKILL.value}" in text
    assert code == 128 + signal.SIGKILL


def test_killed_under_a_shell():
    """The launcher's child is a shell, whose child is the rank."""
    job = Job(2, "killed.py", wrapper=["bash", "-c", '"$@"; exit $?', "bash"], VICTIM="1", STEP="3")
    assert job.finish() != 0
    for text in job.survivors({0}):
        assert "rank 1" in text


@pytest.mark.parametrize(("phase", "transport"), [("pull", "auto"), ("push", "tcp"), ("amid", "auto"), ("amid", "tcp")])
def test_killed_at_a_sparse_table(phase, transport):
    """Ranks that wait for rows, or for their gradients' end, are told who died."""
    job = Job(3, "sparse_table.py", PHASE=phase, GOROVOD_TRANSPORT=transport)
    code = job.finish()
    for text in job.survivors({0, 2}):
        assert "rank 1" in text and f"signal {signal.SIGKILL.value}" in text, text
        assert phase == "amid" or f'{phase.upper()} "{phase}.users"' in text, text
    assert code == 128 + signal.SIGKILL


def test_killed_amid_a_save(tmp_path):
    """The save before is whole, or the one that was about to be."""
    job = Job(3, "sparse_table.py", PHASE="save", DIRECTORY=str(tmp_path / "users"))
    code = job.finish()
    for text in job.survivors({0, 2}):
        assert "rank 1" in text and f"signal {signal.SIGKILL.value}" in text, text
    assert code == 128 + signal.SIGKILL
    job = Job(2, "sparse_table.py", PHASE="load", DIRECTORY=str(tmp_path / "users"))
    assert job.finish() == 0, job.output()
    loaded = job.events("LOADED")
    assert set(loaded) == {0, 1} and {pushes for _, pushes in loaded.values()} in ({"0"}, {"3"}), job.output()


@pytest.mark.parametrize(
    ("phase", "waited"),
    [("backward", "REDUCESCATTER"), ("scatter", "REDUCESCATTER"), ("update", "ALLGATHER"), ("gather", "ALLGATHER")],
)
def test_killed_in_a_step_of_a_sharded_optimizer(phase, waited):
    """Ranks that wait for shares are told who died, and in which phase they were."""
    job = Job(3, "sharded.py", PHASE=phase)
    code = job.finish()
    for text in job.survivors({0, 2}):
        assert "rank 1" in text and f"signal {signal.SIGKILL.value}" in text, text
        assert f'{waited} "{waited.lower()}.' in text or "present_gradients" in text, text
    assert code == 128 + signal.SIGKILL


def test_too_little_memory_for_a_share():
    job = Job(3, "sharded.py", PHASE="memory")
    assert job.finish() != 0
    for text in job.survivors({0, 2}):
        assert "rank 1" in text and "shut down" in text, text
    assert re.search(r"MemoryError: rank 1 of 3 has too little memory to step its share of \d+ elements", job.output())


def test_ranks_that_disagree_about_sharded():
    """Those that shard name the others at once, and these learn it from them."""
    job = Job(3, "sharded.py", PHASE="disagree")
    assert job.finish() != 0
    texts = [text for _, text in job.events("DISAGREES").values()]
    assert texts, job.output()
    for text in texts:
        assert "the ranks disagree about sharded=True" in text and "5 rows have passed it" in text, text
        assert re.search(r"rank 1\D", text), text
    assert "deadlock" not in job.output()


@pytest.mark.parametrize("victim", [0, 1])
def test_exception(victim):
    job = Job(2, "raises.py", VICTIM=str(victim), STEP="3")
    assert job.finish() != 0
    for text in job.survivors({0, 1} - {victim}):
        assert "shut down" in text
        assert f"rank {victim}" in text
    assert "ArithmeticError: the loss is not a number" in job.output()


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_a_rank_leaves_while_others_work_in_sets(transport):
    """Every survivor names rank 1 as the cause, and no rank that failed because of it."""
    job = Job(4, "leaves.py", GOROVOD_TRANSPORT=transport)
    assert job.finish() == 1
    texts = {text.replace(' (tensor "mine")', "") for text in job.survivors({0, 2, 3})}
    assert len(texts) == 1 and "The first to leave: rank 1 " in texts.pop(), job.output()
    cause = r'root cause: .*rank 1 on host .* had operations to do .*seen by rank [023] .*: ALLREDUCE "allreduce\.mine"'
    assert re.search(cause, job.output()), job.output()
    assert "Traceback" not in job.output()  # what the others raise is a consequence


def test_exit_before_init():
    job = Job(3, "exits_before_init.py", VICTIM="1")
    assert job.finish() == 7
    for text in job.survivors({0, 2}):
        assert "Horovod initialization failed" in text
        assert "rank 1" in text
        assert "code 7" in text


def test_rank_that_never_calls_init():
    job = Job(3, "never_inits.py", VICTIM="2", HOROVOD_GLOO_TIMEOUT_SECONDS="2")
    assert job.finish() != 0
    texts = job.survivors({0, 1})
    for text in texts:
        assert "Horovod initialization failed" in text
    assert any("rank 2" in text for text in texts), texts


def test_interrupted_init():
    job = Job(2, "interrupted_init.py")
    assert job.finish() != 0
    assert job.survivors({0}) == ["interrupted"]


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_signal_to_the_launcher(signal_number):
    job = Job(2, "sleeps.py")
    job.wait_for("RUNNING")
    job.process.send_signal(signal_number)
    assert job.finish() != 0


@pytest.mark.parametrize("who", ["supervisor", "rank"])
def test_anyone_killed_from_outside(who):
    """The death of a supervisor ends its rank, and the death of a rank ends its DataLoader workers."""
    job = Job(2, "sleeps.py")
    job.wait_for("RUNNING")
    parents = {}
    for pid in processes_with(job.mark):
        with contextlib.suppress(OSError):
            parents[pid] = int((Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    children = sorted(pid for pid, parent in parents.items() if parent == job.process.pid)
    grandchildren = sorted(pid for pid, parent in parents.items() if parent in children)
    os.kill(children[0] if who == "supervisor" else grandchildren[0], signal.SIGKILL)
    assert job.finish() != 0


# ---- stalls


def stderr_of(job, rank):
    """What a rank wrote to stderr, as one text."""
    return "\n".join(re.findall(rf"^\[{rank}\]<stderr>: ?(.*)$", job.output(), re.MULTILINE))


def test_stalls_are_reported_on_every_rank_that_waits():
    """Each report names the missing ranks, and what those wait for instead."""
    job = Job(3, "stalls.py", ODD="2", RESCUE="3.5", HOROVOD_STALL_CHECK_TIME_SECONDS="1")
    assert job.finish() == 0, job.output()
    assert set(job.events("RESCUED")) == {0, 1, 2}
    for rank, mine, others in [(0, "stuck", "other"), (1, "stuck", "other"), (2, "other", "stuck")]:
        text = stderr_of(job, rank)
        assert "submitted to be reduced, gathered or broadcast by only a subset of the ranks" in text, job.output()
        assert "more than 1 s" in text
        missing = text.partition("Missing ranks:")[2].splitlines()[1:]
        for line in missing[: 1 if rank != 2 else 2]:
            assert re.match(r"rank \d on (host )?\S+.*: \[?.*" + mine + r".*" + others, line), text
            assert int(line.split()[1]) in ({2} if rank != 2 else {0, 1})
        assert "Will shutdown." not in text


def test_the_first_word_on_a_wait_comes_soon():
    """One line, on one rank, as information, with the place where the late rank is; long before the check time."""
    job = Job(3, "stalls.py", ODD="1", RESCUE="13")
    assert job.finish() == 0, job.output()
    notice = (
        r"I\] \[rank 0\]: \S+stuck \(ALLREDUCE\) has waited for 1\d seconds on ranks 0, 2: rank 1 on .* "
        r"has not submitted it, and waits instead for \S+other \(ALLREDUCE\) for 1\d seconds, "
        r"in <module> \(faults/stalls\.py:17\)"
    )
    said = [line for line in job.lines if "has waited for" in line]
    assert len(said) == 1 and re.search(notice, said[0]), job.output()
    assert "Missing ranks" not in job.output()


def test_different_names_end_the_job_soon():
    """The main threads of the ranks wait for one another. By default the stall check would come after 60 s."""
    begin = time.monotonic()
    job = Job(3, "deadlock.py", CASE="joined")
    assert job.finish() != 0
    assert "deadlock: " in job.output() and time.monotonic() - begin < 45, job.output()


def test_a_thread_that_submits_has_the_check_time():
    """What another thread submits after more than 10 s ends no job, if that thread has submitted before."""
    job = Job(2, "deadlock.py", CASE="helped", RESCUE="17")
    assert job.finish() == 0, job.output()
    assert set(job.events("RESCUED")) == {0, 1}
    assert "deadlock:" not in job.output()


def test_one_stall_report_an_interval():
    job = Job(2, "stalls.py", ODD="1", RESCUE="4.5", HOROVOD_STALL_CHECK_TIME_SECONDS="2")
    assert job.finish() == 0, job.output()
    for rank in (0, 1):
        assert 1 <= stderr_of(job, rank).count("Missing ranks:") <= 2, job.output()


def test_stall_check_can_be_disabled():
    job = Job(
        2, "stalls.py", ODD="1", RESCUE="3", HOROVOD_STALL_CHECK_TIME_SECONDS="1", HOROVOD_STALL_CHECK_DISABLE="1"
    )
    assert job.finish() == 0, job.output()
    assert "Missing ranks" not in job.output()


def test_stall_shutdown_ends_the_job():
    job = Job(
        3,
        "stalls.py",
        ODD="1",
        HOROVOD_STALL_CHECK_TIME_SECONDS="1",
        HOROVOD_STALL_SHUTDOWN_TIME_SECONDS="2",
        GOROVOD_DEADLOCK_ABORT="0",
    )
    assert job.finish() != 0
    survived = job.events("SURVIVED")
    assert set(survived) == {0, 1, 2}, job.output()
    for _, text in survived.values():
        assert "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS" in text, job.output()
        assert "stuck" in text or "other" in text
    assert "Will shutdown." in job.output()


@pytest.mark.parametrize(
    ("case", "size", "named"),
    [
        ("joined", 3, [r"rank 1 on .* waits for \S+of\.1 .*rank 2 has not", r"rank 2 .*of\.2.*rank 1 has not"]),
        (
            "sets",
            2,
            [r"rank 0 on .* waits for \S+ \(ADD_PROCESS_SET\).*rank 1 has not", r"rank 1 .*grad.*rank 0 has not"],
        ),
    ],
)
def test_ranks_that_wait_for_one_another_end_the_job(case, size, named):
    """The error says which rank lacks what. HOROVOD_STALL_SHUTDOWN_TIME_SECONDS need not be set."""
    job = Job(size, "deadlock.py", CASE=case, HOROVOD_STALL_CHECK_TIME_SECONDS="1", HOROVOD_DYNAMIC_PROCESS_SETS="1")
    assert job.finish() != 0
    survived = job.events("SURVIVED")
    assert set(survived) == set(range(size)), job.output()
    for _, text in survived.values():
        assert "deadlock: " in text, text
        for pattern in named:
            assert re.search(pattern, text), text
    assert "Will shutdown." in job.output()


def test_ranks_with_different_parameters_fail_at_once():
    """Rank 0's optimizer lacks a parameter: its first step ends the job, before it could wait in another step."""
    job = Job(3, "deadlock.py", CASE="train")
    assert job.finish() != 0
    survived = job.events("SURVIVED")
    assert set(survived) == {0, 1, 2}, job.output()
    mismatch = r"Mismatched ALLREDUCE tensor shapes.*\[4, 100\].*\[4, 101\]|tensor shapes.*\[4, 101\].*\[4, 100\]"
    assert any(re.search(mismatch, text) and "present_gradients." in text for _, text in survived.values()), survived
    assert "deadlock: " not in job.output()


# Case "rescued" does not run with "1": until the rescue, its ranks look as if they waited for ever.
@pytest.mark.parametrize(
    ("case", "deadlocks"),
    [("rescued", "0"), ("elsewhere", "0"), pytest.param("elsewhere", "1", marks=pytest.mark.long)],
)
def test_what_another_thread_may_end_is_only_reported(case, deadlocks):
    """A stall is taken for a deadlock only if the main threads wait, and GOROVOD_DEADLOCK_ABORT is not 0."""
    job = Job(
        2, "deadlock.py", CASE=case, RESCUE="5.5",
        HOROVOD_STALL_CHECK_TIME_SECONDS="1", GOROVOD_DEADLOCK_ABORT=deadlocks,
    )  # fmt: skip
    assert job.finish() == 0, job.output()
    assert set(job.events("RESCUED")) == {0, 1}
    assert "Missing ranks" in job.output()
    assert "deadlock:" not in job.output()


@pytest.mark.parametrize("when", ["before", "after", "hangs before", "hangs after"])
def test_a_broken_fixture_ends_the_tests(when):
    """The other ranks do not wait for long."""
    start = time.monotonic()
    job = Job(2, "broken_fixture.py", VICTIM="0", WHEN=when)
    assert job.finish() != 0
    assert time.monotonic() - start < LONGEST_JOB_S / 2, job.output()
    assert ("Timeout" if "hangs" in when else "the fixture is broken") in job.output()
