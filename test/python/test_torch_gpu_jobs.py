"""What NCCL does on real GPUs, also when a rank dies or leaves meanwhile. Each test starts a job of its own.

NCCL needs several ranks for that, so several GPUs, or an NCCL that lets ranks share one (2.30 or newer, with
NCCL_MULTI_RANK_GPU_ENABLE=1). ``make test-gpu`` runs them where one of these is there.
"""

import os
import re
import subprocess
import sys

import pytest
import torch
from test_faults import LAUNCHER, ROOT

import horovod.torch as hvd

RANKS = 3
SHARING_NCCL = 23000
DIES_AT = 10  # gpu_jobs.py's
TOLD_WITHIN_S = 1
LIMIT_S = 120


def enough():
    if not torch.cuda.is_available():
        return False
    shares = hvd.nccl_built() >= SHARING_NCCL and os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") == "1"
    return shares or torch.cuda.device_count() >= RANKS


pytestmark = [
    pytest.mark.skipif("HOROVOD_RANK" in os.environ, reason="starts jobs of its own"),
    pytest.mark.skipif(not enough(), reason="NCCL can have no three ranks here: there are too few GPUs"),
]


def job(program, case, *options, ranks=RANKS, **settings):
    done = subprocess.run(
        [LAUNCHER, "-np", str(ranks), *options, sys.executable, ROOT / "test" / "python" / program, case],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "GOROVOD_GPU": "nccl", **settings},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S,
    )  # fmt: skip
    print(done.stdout)
    return done.returncode, done.stdout


def times(what, output):
    return [float(t) for t in re.findall(rf"{what} (\d+\.\d+)", output)]


CASES = {
    "reductions": 2, "factors": 3, "moves": 3, "staged_in_the_engine": 2, "streams": 2, "memory": 2, "outputs": 3,
    "sets": 3, "joins": 2, "distributed": 3, "future": 2, "refusals": 2,
}  # fmt: skip


@pytest.mark.parametrize("settings", [{}, {"HOROVOD_ENABLE_ASYNC_COMPLETION": "1"}], ids=["", "asynchronous"])
@pytest.mark.parametrize("case", CASES)
def test_cases_of_the_stand_in(case, settings):
    code, output = job("nccl_cases.py", case, ranks=CASES[case], **settings)
    assert code == 0 and output.count("ended well") == CASES[case], output


def test_a_death_ends_the_others_collectives():
    code, output = job("gpu_jobs.py", "killed")
    assert code != 0
    died, told = times("DYING", output), times("SURVIVED", output)
    assert len(died) == 1 and len(told) == RANKS - 1, output
    assert output.count(f"rank {RANKS - 1} on host") >= len(told), output
    assert output.count("GPU OF USE") == RANKS - 1, output
    print(f"FIGURE: {RANKS} ranks: the last survivor was told {max(told) - died[0]:.3f} s after the death")
    assert max(told) - died[0] < TOLD_WITHIN_S, output


def test_work_in_flight_at_the_end_does_no_harm():
    _, output = job("gpu_jobs.py", "leaves_work")
    assert output.count("LEAVES") == RANKS, output
    assert not re.search("Segmentation fault|core dumped|signal 11|signal 6", output), output


def test_survivors_train_on():
    code, output = job("gpu_jobs.py", "elastic", "--min-np", str(RANKS - 1), "-H", f"localhost:{RANKS}")
    assert code == 0, output
    died = times("DYING", output)
    steps = re.findall(r"STEP (\d+) of \d+ ranks (\d+\.\d+)", output)
    after = [float(t) for step, t in steps if int(step) > DIES_AT]
    assert len(died) == 1 and after, output
    print(f"FIGURE: {min(after) - died[0]:.3f} s from a death to the next step")
