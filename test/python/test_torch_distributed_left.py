"""Messages of torch.distributed over gorovod with a rank that shuts down, exits or dies.

Run by one plain Python: each test starts a job of its own.
"""

import json
import os
import subprocess
import sys

import pytest
from test_faults import LAUNCHER, LONGEST_JOB_S, ROOT

pytestmark = pytest.mark.skipif("HOROVOD_RANK" in os.environ, reason="starts jobs of its own")

# The rank with the number of a call makes that call. Rank 0 ends before or after the calls begin.
CALLS = {
    1: "irecv",
    2: "recv",
    3: "recv from any",
    4: "recv what was sent",
    5: "recv more than was sent",
    6: "send",
    7: "recv from any what was sent",
}
MUCH = 16 << 20  # floats: more than sockets and the receiver keep

PROGRAM = f"""
import datetime, json, os, signal, sys, time
import torch
import torch.distributed as dist
import horovod.torch as hvd
import horovod.torch.distributed

folder, how, order = sys.argv[1:]
dist.init_process_group("gorovod", timeout=datetime.timedelta(seconds=60))
rank = dist.get_rank()
groups = {{other: dist.new_group([0, other]) for other in range(1, {len(CALLS) + 1})}}

def value(x):
    return float(x[0])

def end(call):
    try:
        return {{"value": call()}}
    except Exception as e:
        return {{"error": f"{{type(e).__name__}}: {{e}}"}}

def irecv():
    x = torch.zeros(4)
    dist.irecv(x, 0).wait()
    return value(x)

def recv(source=0, group=None):
    x = torch.zeros(4)
    dist.recv(x, source, group=group)
    return value(x)

def twice():
    recv()
    return recv()

# recv from any: the other ranks, which are not in the group, are there.
CALLS = {{1: irecv, 2: recv, 3: lambda: recv(None, groups[3]), 4: recv, 5: twice,
         6: lambda: dist.send(torch.ones({MUCH}), 0), 7: lambda: recv(None, groups[7])}}

def leave():
    # The process is there until the calls have ended.
    for _ in range(300):
        if all(os.path.exists(os.path.join(folder, f"{{r}}.json")) for r in CALLS):
            break
        time.sleep(0.1)
    os._exit(0)

if rank == 0:
    for to in 4, 5:
        dist.send(torch.full((4,), 3.0), to)
    dist.send(torch.full((4,), 3.0), 7, group=groups[7])
dist.barrier()
if rank == 0:
    if order == "before":
        time.sleep(1)
    if how == "shutdown":
        hvd.shutdown()
        leave()
    if how == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(0)
if order == "after":
    time.sleep(3)
told = end(CALLS[rank])
with open(os.path.join(folder, f"{{rank}}.part"), "w") as f:
    json.dump(told, f)
os.rename(f.name, os.path.join(folder, f"{{rank}}.json"))
leave()
"""


@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("how", ["shutdown", "exit", "die"])
def test_messages_with_a_rank_that_ends(tmp_path, how, order):
    """Calls get what was sent before rank 0 ends, and otherwise raise an error that names it, soon."""
    if (how, order) == ("die", "after"):
        pytest.skip("the launcher ends the others before they call")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [LAUNCHER, "-np", str(1 + len(CALLS)), sys.executable, str(program), str(tmp_path), how, order],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=2 * LONGEST_JOB_S,
    )  # fmt: skip
    assert (done.returncode == 0) == (how != "die"), done.stdout
    for rank, call in CALLS.items():
        told = json.loads((tmp_path / f"{rank}.json").read_text())
        if call.endswith("what was sent") and "more" not in call:
            assert told == {"value": 3.0}, call
            continue
        cause = "was killed by signal" if how == "die" else "Horovod has been shut down"
        assert told.get("error", "").startswith("HorovodInternalError: "), (call, told)
        assert cause in told["error"] and "rank 0 " in told["error"], (call, told)
