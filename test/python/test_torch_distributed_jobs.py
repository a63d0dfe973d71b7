"""torch.distributed over gorovod as users start it: horovodrun, torchrun, and ranks that die under them.

Run by one plain Python: each test starts a job of its own.
"""

import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from test_faults import FAULTS, LAUNCHER, LONGEST_JOB_S, ROOT, TOLD_WITHIN_S, Job

pytestmark = pytest.mark.skipif("HOROVOD_RANK" in os.environ, reason="starts jobs of its own")

EXAMPLE = ROOT / "examples" / "pytorch_ddp.py"
# Debian's PyTorch 2 uses libuv for its stores, but was built without it. USE_LIBUV=0 turns that off for ranks.
ENVIRONMENT = {
    **os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1", "USE_LIBUV": "0",
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
}  # fmt: skip
# torchrun ignores USE_LIBUV, so it gets a store without network.
TORCHRUN_2 = ["--rdzv-backend", "c10d", "--rdzv-conf", "store_type=file", "--local-addr", "127.0.0.1"]


def run(*command):
    done = subprocess.run(
        [str(part) for part in command], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=2 * LONGEST_JOB_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def run_over_gloo(saved, *command):
    """Run a job that writes the file ``saved`` as its last act, and end it if it does not exit after that.

    PyTorch's own gloo may hang at exit: a thread that drops the last tensor waits for the interpreter, which waits for
    the thread (seen with 1.13).
    """
    job = subprocess.Popen(
        [str(part) for part in command], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )  # fmt: skip
    deadline = time.monotonic() + 2 * LONGEST_JOB_S
    while job.poll() is None and not saved.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    try:
        text, _ = job.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        job.terminate()
        text, _ = job.communicate(timeout=30)
    assert saved.exists(), text


def torchrun(ranks, *command):
    """Run torchrun as a module of this Python. Debian's 1.13 needs the redirection, as its Python is too new for it."""
    flags = ["-r", "1", "-t", "1"] if torch.__version__.startswith("1.") else TORCHRUN_2
    return run(sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", ranks, *flags, *command)


def weights(path):
    return torch.cat([w.flatten() for w in torch.load(path).values()])


def test_weights_are_those_over_gloo(tmp_path):
    """The same training over each backend. Two ranks' gradients have one sum, so the bits are the same."""
    arguments = ["--epochs", "3", "--save"]
    under = {
        "ours": (LAUNCHER, "-np", 2, sys.executable, EXAMPLE, *arguments, tmp_path / "ours"),
        "gloo": (LAUNCHER, "-np", 2, sys.executable, EXAMPLE, "--backend", "gloo", *arguments, tmp_path / "gloo"),
        "hook": (LAUNCHER, "-np", 2, sys.executable, EXAMPLE, "--hook", "fp16", *arguments, tmp_path / "hook"),
    }
    run(*under["ours"])
    run_over_gloo(tmp_path / "gloo", *under["gloo"])
    run(*under["hook"])
    assert torch.equal(weights(tmp_path / "ours"), weights(tmp_path / "gloo"))
    torch.testing.assert_close(weights(tmp_path / "hook"), weights(tmp_path / "gloo"), rtol=0.1, atol=0.05)


def test_torchrun(tmp_path):
    text = torchrun(2, EXAMPLE, "--epochs", "3", "--save", tmp_path / "ours")
    assert "test accuracy" in text
    run(LAUNCHER, "-np", 2, sys.executable, EXAMPLE, "--epochs", "3", "--save", tmp_path / "theirs")
    assert torch.equal(weights(tmp_path / "ours"), weights(tmp_path / "theirs"))


@pytest.mark.parametrize(("ranks", "victim", "what"), [(2, 1, "ddp"), (3, 0, "allreduce"), (3, 2, "callbacks")])
def test_killed_under_horovodrun(ranks, victim, what):
    job = Job(ranks, "killed_in_ddp.py", VICTIM=str(victim), STEP="3", WHAT=what)
    assert job.finish() != 0
    for text in job.survivors(set(range(ranks)) - {victim}):
        assert f"rank {victim}" in text
        assert "signal 9" in text
        assert text.startswith("internal" if what == "allreduce" else ("internal", "runtime"))


def test_callbacks_in_another_order_than_their_operations_are_an_error():
    """Operations that are NAMES apart have the same names for those of their callbacks."""
    job = Job(2, "callbacks_backwards.py")
    assert job.finish() != 0
    assert "callbacks of operations that are 120 or more apart must be added in the order" in job.output()
    assert "[1]<stdout>:NOBODY NOTICED" not in job.output()


@pytest.mark.parametrize(("victim", "what"), [(v, what) for what in ("ddp", "allreduce", "callbacks") for v in (1, 0)])
def test_killed_without_a_launcher(victim, what):
    """As under torchrun, whose ranks know RANK, WORLD_SIZE and the master only. Rank 0 has the rendezvous."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = [
        subprocess.Popen(
            [sys.executable, str(FAULTS / "killed_in_ddp.py")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True,
            env={
                **ENVIRONMENT, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port), "VICTIM": str(victim), "STEP": "3", "WHAT": what,
            },
        )
        for rank in range(2)
    ]  # fmt: skip
    texts = [rank.communicate(timeout=LONGEST_JOB_S)[0] for rank in ranks]
    died = re.search(r"DYING ([\d.]+)", texts[victim])
    survived = re.search(r"SURVIVED ([\d.]+) (.*)", texts[1 - victim])
    assert died and survived, texts
    assert float(survived[1]) - float(died[1]) < TOLD_WITHIN_S
    assert f"rank {victim}" in survived[2], survived[2]


def test_exit_with_operations_under_way(tmp_path):
    """Nothing hangs or crashes in a process that ends without waiting for what it has started."""
    script = tmp_path / "leaves.py"
    script.write_text(
        "import torch, torch.distributed as dist, horovod.torch.distributed\n"
        "dist.init_process_group('gorovod')\n"
        "dist.barrier()  # rank 0 has the store that others want until here\n"
        "try:\n"
        "    futures = [dist.all_reduce(torch.ones(100), async_op=True).get_future() for _ in range(20)]\n"
        "    if dist.get_rank() == 0: work = dist.all_reduce(torch.ones(3), async_op=True).get_future()\n"
        "except RuntimeError as e:\n"
        "    assert 'has shut down' in str(e), e  # the other one has left already\n"
    )
    for _ in range(5):
        start = time.monotonic()
        run(LAUNCHER, "-np", 2, sys.executable, script)
        assert time.monotonic() - start < LONGEST_JOB_S


def test_other_ranks_than_horovods(tmp_path):
    script = Path(tmp_path) / "differs.py"
    script.write_text(
        "import torch.distributed as dist, horovod.torch as hvd, horovod.torch.distributed\n"
        "hvd.init()\n"
        "store = dist.HashStore()\n"
        "try:\n"
        "    dist.init_process_group('gorovod', store=store, rank=0, world_size=1)\n"
        "except RuntimeError as e:\n"
        "    print('REFUSED', e)\n"
    )
    text = run(LAUNCHER, "-np", 2, sys.executable, script)
    assert text.count("REFUSED torch.distributed calls this process rank 0 of 1, but Horovod runs as") == 2, text


MEET = """
import datetime, sys
import torch.distributed as dist
import horovod.torch as hvd
from horovod.torch.distributed import _join

*before, last = sys.argv[2:]  # each a store and the rank and size there
for meeting in [*before, last]:
    path, rank, size = meeting.split(":")
    hvd.shutdown()
    _join.start(dist.FileStore(path, -1), int(rank), int(size), datetime.timedelta(seconds=60))
print(hvd.allgather_object(sys.argv[1]))
"""


def test_ranks_that_have_met_others_before(tmp_path):
    """A new process joins one that has been in other jobs, so they have started jobs different numbers of times."""

    def start(name, *meetings):
        command = [sys.executable, "-c", MEET, name, *(f"{tmp_path}/{meeting}" for meeting in meetings)]
        return subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    jobs = [start("old", "first:0:1", "second:0:1", "third:0:2"), start("new", "third:1:2")]
    for job in jobs:
        text, _ = job.communicate(timeout=2 * LONGEST_JOB_S)
        assert job.returncode == 0 and "['old', 'new']" in text, text


def test_records_of_both_ways(tmp_path):
    """The timeline and the flight records show the same operations, through the extension and without it."""
    phases, records = [], []
    for pure in ("0", "1"):
        folder = tmp_path / pure
        folder.mkdir()
        timeline = folder / "timeline.json"
        environment = {
            **ENVIRONMENT, "GOROVOD_PURE_PYTHON": pure, "HOROVOD_TIMELINE": str(timeline),
            "GOROVOD_DUMP_DIR": str(folder),
        }  # fmt: skip
        job = subprocess.run(
            [str(part) for part in (LAUNCHER, "-np", "2", sys.executable, FAULTS / "records.py")], env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=2 * LONGEST_JOB_S,
        )  # fmt: skip
        assert job.returncode == 3, job.stdout
        text = timeline.read_text().rstrip().rstrip(",")
        events = json.loads(text if text.endswith("]") else text + "]")
        names = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M" and "name" in e.get("args", {})}
        phases.append([(names.get(e["pid"]), e["name"]) for e in events if e["ph"] == "B" and own(names.get(e["pid"]))])
        (dump,) = folder.glob("flight-*rank0*.json")
        flown = json.loads(dump.read_text())["records"]
        records.append([(r["name"], r["op"], r["dtype"], r.get("shape")) for r in flown if own(r["name"])])
    assert records[0] == records[1] and len(records[0]) >= 12
    assert sorted(phases[0]) == sorted(phases[1]) and len(phases[0]) >= 24


def own(name):
    return name is not None and re.match(r"torch\.\d+\.\d+$", name)
