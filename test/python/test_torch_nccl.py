"""Tensors of a GPU that NCCL carries, on the stand-in for CUDA's driver and NCCL (test/gpu).

Run by one plain Python: each test starts a job of its own, whose ranks run nccl_cases.py. The stand-in ends a rank with
a report if two accesses to memory are not ordered, so a wait that the front end forgets is found, whatever the timing.
"""

import os
import shutil
import subprocess
import sys

import pytest
import standin_gpu
from test_faults import LAUNCHER, LONGEST_JOB_S, ROOT

CC = os.environ.get("CC", "cc").split()[0]
pytestmark = [
    pytest.mark.skipif("HOROVOD_RANK" in os.environ, reason="starts jobs of its own"),
    pytest.mark.skipif(not standin_gpu.SOURCES.is_dir(), reason="this is no checkout: it lacks test/gpu"),
    pytest.mark.skipif(shutil.which(CC) is None, reason=f"there is no C compiler ({CC}) to build the stand-in"),
]
PROGRAM = ROOT / "test" / "python" / "nccl_cases.py"
ASYNC = {"HOROVOD_ENABLE_ASYNC_COMPLETION": "1"}


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    folder = tmp_path_factory.mktemp("standin")
    standin_gpu.build(folder)
    return folder


def job(libraries, folder, ranks, *arguments, gpu="nccl", devices=8, **more):
    """Run a case, and return its exit code, its output, and what the stand-in has reported."""
    said = folder / "report"
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1", "LD_LIBRARY_PATH": str(libraries),
        "STANDIN_MEETING": str(folder), "STANDIN_REPORT": str(said), "STANDIN_DEVICES": str(devices),
        "GOROVOD_GPU": gpu, **more,
    }  # fmt: skip
    done = subprocess.run(
        [LAUNCHER, "-np", str(ranks), sys.executable, PROGRAM, *arguments], env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=2 * LONGEST_JOB_S,
    )  # fmt: skip
    return done.returncode, done.stdout, said.read_text() if said.exists() else ""


def ends_well(ranks, done):
    code, output, said = done
    assert code == 0 and said == "" and output.count("ended well") == ranks, output + said
    return output


RANKS = {
    "reductions": 2, "factors": 3, "moves": 3, "shares": 3,
    "staged_in_the_engine": 2, "streams": 2, "memory": 2, "outputs": 2, "sets": 3, "joins": 2,
    "distributed": 3, "future": 2, "refusals": 2, "other_device": 2, "reduce_elsewhere": 2,
    "joins_all": 2, "empty": 2, "unawaited": 2, "completed": 2, "captures": 2, "sparse_tables": 2,
}  # fmt: skip


@pytest.mark.parametrize("case", RANKS)
def test_by_nccl(libraries, tmp_path, case):
    ends_well(RANKS[case], job(libraries, tmp_path, RANKS[case], case, **ASYNC))


@pytest.mark.long
@pytest.mark.parametrize("case", RANKS)
def test_by_nccl_to_the_end(libraries, tmp_path, case):
    """Operations end when the result is there."""
    ends_well(RANKS[case], job(libraries, tmp_path, RANKS[case], case))


@pytest.mark.parametrize("case", ["reductions", "moves", "other_device"])
def test_auto(libraries, tmp_path, case):
    output = ends_well(2, job(libraries, tmp_path, 2, case, gpu="auto"))
    assert ("copied through host memory" in output) == (case == "other_device"), output


@pytest.mark.parametrize("case", ["reductions", "memory", "distributed", "unawaited", "completed", "captures"])
def test_staged(libraries, tmp_path, case):
    output = ends_well(2, job(libraries, tmp_path, 2, case, gpu="staged"))
    assert "copied through host memory" not in output


def test_the_timeline_has_horovods_names(libraries, tmp_path):
    for gpu, names in (
        ("auto", ["INIT_NCCL", "NCCL_ALLGATHER", "NCCL_BCAST", "NCCL_ALLTOALL", "NCCL_REDUCESCATTER"]),
        ("nccl", ["INIT_NCCL", "NCCL_ALLREDUCE", "MEMCPY_IN_HOST_BUFFER", "GLOO_ALLREDUCE", "MEMCPY_OUT_HOST_BUFFER"]),
    ):
        case, file = "moves" if gpu == "auto" else "staged_in_the_engine", tmp_path / f"{gpu}.json"
        ends_well(2, job(libraries, tmp_path, 2, case, gpu=gpu, HOROVOD_TIMELINE=str(file)))
        text = file.read_text()
        assert [name for name in names if f'"{name}"' not in text] == []


@pytest.mark.parametrize("environment", [ASYNC, {}], ids=["async", "to the end"])
def test_pytorch_keeps_the_memory(libraries, tmp_path, environment):
    ends_well(2, job(libraries, tmp_path, 2, "cache", STANDIN_MEMORY=str(60 << 20), **environment))


def test_off(libraries, tmp_path):
    ends_well(2, job(libraries, tmp_path, 2, "off", gpu="off"))


def test_two_ranks_share_a_gpu(libraries, tmp_path):
    output = ends_well(2, job(libraries, tmp_path, 2, "reductions", gpu="auto", devices=1))
    assert output.count("copied through host memory") == 1, output
    code, output, _ = job(libraries, tmp_path, 2, "reductions", devices=1)
    assert code != 0 and "GOROVOD_GPU=nccl asks for" in output


def test_without_nccl(libraries, tmp_path):
    alone = tmp_path / "driver"
    alone.mkdir()
    shutil.copy(libraries / "libcuda.so.1", alone)
    output = ends_well(2, job(alone, tmp_path, 2, "reductions", gpu="auto"))
    assert output.count("NCCL's library libnccl.so.2 cannot be loaded") == 2, output  # each rank says it once


@pytest.mark.parametrize(
    "case, left_out",
    [("streams", "no_wait"), ("outputs", "no_wait"), ("memory", "no_record_stream"), ("reductions", "other_stream"),
     ("outputs", "other_stream"), ("outputs", "freed_early"), ("memory", "nothing_kept")],
)  # fmt: skip
def test_what_is_left_out_is_found(libraries, tmp_path, case, left_out):
    code, output, said = job(libraries, tmp_path, 2, case, left_out, **ASYNC)
    assert code != 0 and ("race:" in said or "AssertionError" in output), output  # or the result is wrong


def test_a_commit_waits_for_the_gpu(libraries, tmp_path):
    code, output, said = job(libraries, tmp_path, 2, "commits", **ASYNC)
    assert code != 0 and said == "" and "survived" in output, output + said


def test_a_commit_keeps_what_was_done_before_a_failure(libraries, tmp_path):
    code, output, said = job(libraries, tmp_path, 2, "commits_from_the_cpu", **ASYNC)
    assert code != 0 and said == "" and "survived" in output, output + said


def test_a_commit_can_be_interrupted(libraries, tmp_path):
    _, output, said = job(libraries, tmp_path, 1, "interrupted", **ASYNC)
    assert said == "" and "interrupted" in output, output + said


def test_nccl_has_done_it(libraries, tmp_path):
    """A wrong result of NCCL's is seen."""
    code, output, _ = job(libraries, tmp_path, 2, "reductions", STANDIN_FAULTS="ncclAllReduce:3:wrong")
    assert code != 0 and "AssertionError" in output, output
