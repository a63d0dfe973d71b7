"""Groups of torch.distributed over gorovod go on after the clean end of ranks that are not in them.

Run by one plain Python: each test starts a job of its own.
"""

import os
import subprocess
import sys

import pytest
from test_faults import LAUNCHER, LONGEST_JOB_S, ROOT

pytestmark = pytest.mark.skipif("HOROVOD_RANK" in os.environ, reason="starts jobs of its own")

IMPORTS = """
import datetime, os, signal, sys, time
import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
import horovod.torch as hvd
import horovod.torch.distributed
from horovod.torch import HorovodInternalError
"""
PRELUDE = f"""{IMPORTS}
dist.init_process_group("gorovod", timeout=datetime.timedelta(seconds=60))
rank, size = dist.get_rank(), dist.get_world_size()
pids = [torch.zeros(1, dtype=torch.int64) for _ in range(size)]
dist.all_gather(pids, torch.tensor([os.getpid()]))

MUCH = 16 << 20  # more than sockets keep

def total(group=None):
    x = torch.full((4,), float(1 + rank))
    dist.all_reduce(x, group=group)
    return x[0].item()

def failure(call, kind=HorovodInternalError):
    try:
        call()
    except kind as e:
        return str(e)
    raise AssertionError("it did not fail")

def expect_named(leaver, *calls):
    for call in calls:
        text = failure(call)
        assert "Horovod has been shut down" in text and f"The first to leave: rank {{leaver}} " in text, text

def await_end(other):
    while True:
        try:
            with open(f"/proc/{{pids[other].item()}}/stat") as f:
                if f.read().rpartition(")")[2].split()[0] in "XZ":
                    break
        except FileNotFoundError:
            break
        time.sleep(0.02)
    # PyTorch 1.13 lets all ranks meet in the store after each new_group.
    c10d._store_based_barrier = lambda *arguments, **options: None

def say(text):
    print(f"{{rank}}: {{text}}", flush=True)
"""


def job(tmp_path, program, prelude=PRELUDE, options=(), **variables):
    """Run a program as three ranks. Return the exit code and the output."""
    path = tmp_path / "program.py"
    path.write_text(prelude + program)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1", **variables}
    done = subprocess.run(
        [LAUNCHER, "-np", "3", *options, sys.executable, str(path)], env=environment, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=2 * LONGEST_JOB_S,
    )  # fmt: skip
    return done.returncode, done.stdout


def root_cause(output):
    return next(line for line in output.splitlines() if "root cause: " in line)


LEAVE = """
pair = dist.new_group([0, 1])
others = [dist.new_group([0, 2]), dist.new_group([1, 2])]
assert total() == 6
if rank == 2:
    sys.exit(0)
await_end(2)
assert [total(pair) for _ in range(3)] == [3.0] * 3
"""


@pytest.mark.parametrize("transport", ["shared memory", "tcp", "localhost:2,127.0.0.1:1", "localhost:1,127.0.0.1:2"])
def test_groups_of_the_rest_go_on(tmp_path, transport):
    """Collectives, messages, barriers, new groups, and the end of groups: as over Gloo."""
    code, output = job(
        tmp_path,
        LEAVE
        + """
for _ in range(2):
    new = dist.new_group([0, 1])
    assert total(new) == 3
    dist.destroy_process_group(new)
alone = [dist.new_group([r]) for r in (0, 1)]
assert total(alone[rank]) == 1 + rank
dist.barrier(group=pair)
for group in (None, pair):
    x = torch.full((3,), float(rank))
    y = torch.zeros(3)
    sends = dist.isend(x, 1 - rank, group=group)
    dist.recv(y, 1 - rank, group=group)
    sends.wait()
    assert y[0] == 1 - rank
gathered = [None, None]
dist.all_gather_object(gathered, {"rank": rank}, group=pair)
assert gathered == [{"rank": 0}, {"rank": 1}]

expect_named(2, total, dist.barrier, lambda: total(others[rank]))
expect_named(2, lambda: dist.send(torch.ones(MUCH), 2), lambda: dist.recv(torch.ones(2), 2))
if rank == 0:
    text = failure(lambda: dist.new_group([0, 2]), ValueError)
else:
    text = failure(lambda: dist.new_group([1, 2]), ValueError)
assert "rank 2 has left" in text, text

assert total(pair) == 3
dist.destroy_process_group(pair)
dist.destroy_process_group()
say("done")
""",
        options=["-H", transport] if ":" in transport else [],
        **({"GOROVOD_TRANSPORT": "tcp"} if transport == "tcp" else {}),
    )
    assert code == 0, output
    assert "0: done" in output and "1: done" in output, output


def test_a_rank_that_ends_at_once(tmp_path):
    """The others may not have come to init_process_group yet. It waits for them there."""
    code, output = job(
        tmp_path,
        """
hvd.init(process_sets="dynamic")
both = hvd.add_process_set([0, 1])
if hvd.rank() == 1:
    early = hvd.allreduce_async(torch.ones(2), op=hvd.Sum, process_set=both)  # so that the engine looks for news
    from horovod.torch.distributed import _join
    join = _join.join
    _join.join = lambda *arguments: (time.sleep(0.5), join(*arguments))
dist.init_process_group("gorovod")
if hvd.rank() == 0:
    early = hvd.allreduce_async(torch.ones(2), op=hvd.Sum, process_set=both)
if hvd.rank() < 2:
    assert hvd.synchronize(early)[0] == 2
    c10d._store_based_barrier = lambda *arguments, **options: None
    pair = dist.new_group([0, 1])
    for _ in range(100):
        x = torch.ones(4)
        dist.all_reduce(x, group=pair)
        assert x[0] == 2
    print("done", flush=True)
""",
        prelude=IMPORTS,
    )
    assert code == 0, output
    assert output.count("done") == 2, output


def test_operations_in_flight(tmp_path):
    """An operation that waits for the rank that ends fails; those of another thread go on meanwhile."""
    code, output = job(
        tmp_path,
        """
pair = dist.new_group([0, 1])
total()
if rank == 2:
    time.sleep(0.5)
    sys.exit(0)
x = torch.ones(4)
of_all = dist.all_reduce(x, async_op=True)
results = []
ended = torch.zeros(1)
while ended.item() < 2:  # both ranks stop in the same round
    results.append(total(pair))
    ended.fill_(of_all.is_completed())
    dist.all_reduce(ended, group=pair)
assert set(results) == {3.0}
expect_named(2, of_all.wait)
assert total(pair) == 3
say("done")
""",
    )
    assert code == 0, output
    assert "0: done" in output and "1: done" in output, output


def test_the_first_rank_leaves(tmp_path):
    """Rank 0 orders new groups. Without it there are none, but old ones go on."""
    code, output = job(
        tmp_path,
        """
pair, rest = dist.new_group([1, 2]), dist.new_group([0, 1])
total()
if rank == 0:
    sys.exit(0)
await_end(0)
assert total(pair) == 5
dist.barrier(group=pair)
expect_named(0, total)
if rank == 1:
    text = failure(lambda: horovod.torch.distributed._sets.acquire([1], 1, datetime.timedelta(seconds=60)))
    assert "make all groups before it ends" in text and "The first to leave: rank 0 " in text, text
assert total(pair) == 5
say("done")
""",
    )
    assert code == 0, output
    assert "1: done" in output and "2: done" in output, output


def test_each_error_names_the_rank_that_it_is_about(tmp_path):
    """Two ranks leave, one after the other."""
    code, output = job(
        tmp_path,
        LEAVE
        + """
dist.barrier(group=pair)
if rank == 1:
    sys.exit(0)
await_end(1)
expect_named(1, lambda: total(pair), lambda: dist.barrier(group=pair))
expect_named(1, lambda: dist.send(torch.ones(MUCH), 1), lambda: dist.recv(torch.ones(2), 1))
expect_named(2, total, lambda: total(others[0]), lambda: dist.recv(torch.ones(2), 2))
alone = dist.new_group([0])
assert total(alone) == 1
say("done")
""",
    )
    assert code == 0, output
    assert "0: done" in output, output


WAYS = {
    "exit 3": ("sys.exit(3)", "rank 1 on host ", "exited with code 3"),
    "kill": ("os.kill(os.getpid(), signal.SIGKILL)", "rank 1 on host ", "was killed by signal 9"),
    "exception": ("raise ValueError('bad batch')", "rank 1 on host ", "raised ValueError: bad batch"),
    "exit without leaving": ("os._exit(0)", "rank 1 on host ", "exited with code 0"),
}


@pytest.mark.parametrize(
    "way, then",
    [(way, "operation") for way in WAYS]
    + [(way, then) for way in ("exit 3", "kill") for then in ("other operation", "message", "nothing")],
)
def test_a_failure_after_a_clean_end_ends_the_job(tmp_path, way, then):
    """The root cause is the rank that has failed, whatever the last rank does meanwhile."""
    action, who, how = WAYS[way]
    code, output = job(
        tmp_path,
        LEAVE
        + f"""
for group in (others[rank], None):
    expect_named(2, lambda: total(group))  # the program goes on
alone = [dist.new_group([r]) for r in (0, 1)]
dist.barrier(group=pair)
if rank == 1:
    {action}
then = {then!r}
if then == "operation":
    total(pair)
while then == "other operation":
    total(alone[0])
if then == "message":
    dist.recv(torch.ones(2), 1)
if then == "nothing":
    time.sleep(600)
""",
    )
    assert code != 0, output
    cause = root_cause(output)
    assert who in cause and how in cause and "rank 2" not in cause.partition(" [")[0], output


def test_an_error_that_the_program_does_not_catch(tmp_path):
    """The root cause is the rank that has left too early."""
    code, output = job(tmp_path, LEAVE + "total()")
    assert code == 1, output
    assert "root cause: rank 2 on host " in root_cause(output), output
    assert "has shut down while other ranks had operations to do" in root_cause(output), output


def test_an_error_of_ones_own_after_one_that_the_program_has_caught(tmp_path):
    code, output = job(
        tmp_path,
        LEAVE
        + """
expect_named(2, total)
if rank == 1:
    raise ValueError("bad batch")
total(pair)
""",
    )
    assert code == 1, output
    assert "root cause: rank 1 on host " in root_cause(output), output
    assert "raised ValueError: bad batch" in output, output
