"""The trial of ``gorovod doctor --gpu``: collectives of one rank on this machine's GPU.

The process is a job of its own, so no GPU has a peer. The trial shows whether NCCL can be called, whether results have
the right bits and are ready in time, and what a call costs. It shows nothing about several GPUs.

The same trial runs with host memory (``device`` cpu), for the tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any, Callable, Iterator

import torch

import horovod.torch as hvd

_DTYPES = ("uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64")
_EIGHT_BITS = ("float8_e4m3fn", "float8_e5m2")
# Bytes of an allreduce, and how often it is timed.
_SIZES = ((4, 500), (1 << 20, 200), (1 << 26, 20))
# Cycles of a kernel that keeps the GPU busy, for about a tenth of a second.
_LONG = 200_000_000
# Limit in seconds for timing PyTorch's own backend.
_LIMIT = 60


def lines(device: torch.device) -> Iterator[str]:
    """Run the trial, and yield each finding as a line. A wrong one begins with WRONG."""
    modes = ("nccl", "staged") if device.type == "cuda" else ("auto",)
    costs: dict[str, list[float]] = {}
    for mode in modes:
        os.environ["GOROVOD_GPU"] = mode
        hvd.init()
        try:
            yield from (f"{mode}: {finding}" for finding in _findings(device))
            costs[f"gorovod, {mode}"] = _costs(device, hvd.allreduce_)
        except Exception as e:
            yield f"WRONG: {mode}: {type(e).__name__}: {e}"
        finally:
            hvd.shutdown()
    try:
        costs[f"PyTorch, {_peer(device)}"] = _costs_of_peer(device)
    except Exception as e:
        yield f"PyTorch's own backend was not timed: {type(e).__name__}: {e}"
    for i, (size, _) in enumerate(_SIZES):
        figures = "; ".join(f"{who}: {cost[i] * 1e6:.1f} µs" for who, cost in costs.items())
        yield f"an allreduce of {size} bytes takes: {figures}"


def _findings(device: torch.device) -> Iterator[str]:
    yield from _bits(device)
    if device.type == "cuda":
        yield from _order(device)
        yield from _graph(device)


def _bits(device: torch.device) -> Iterator[str]:
    """With one rank, each result is the input, bit for bit."""
    wrong = []
    for name in _DTYPES:
        mine = (torch.arange(100_003, device="cpu") % 251 - 100).to(getattr(torch, name)).to(device)
        results = {
            "allreduce": hvd.allreduce(mine, op=hvd.Sum), "average": hvd.allreduce(mine),
            "max": hvd.allreduce(mine, op=hvd.Max), "product": hvd.allreduce(mine, op=hvd.Product),
            "group": hvd.grouped_allreduce([mine, mine], op=hvd.Sum)[1], "broadcast": hvd.broadcast(mine, 0),
            "allgather": hvd.allgather(mine), "alltoall": hvd.alltoall(mine),
            "reducescatter": hvd.reducescatter(mine, op=hvd.Sum),
        }  # fmt: skip
        wrong += [f"{what} of {name}" for what, result in results.items() if not torch.equal(result, mine)]
    eights = [name for name in _EIGHT_BITS if hasattr(torch, name)]
    for name in eights:
        mine = (torch.arange(100_003, device="cpu") % 13 - 6.0).to(getattr(torch, name)).to(device)
        results = {
            "broadcast": hvd.broadcast(mine, 0), "allgather": hvd.allgather(mine), "alltoall": hvd.alltoall(mine),
        }  # fmt: skip
        try:
            results["allreduce"] = hvd.allreduce(mine, op=hvd.Sum)
        except (ValueError, hvd.HorovodInternalError) as e:
            yield f"{name} cannot be added: {e}"
        bits = mine.view(torch.uint8)
        wrong += [f"{what} of {name}" for what, r in results.items() if not torch.equal(r.view(torch.uint8), bits)]
    if wrong:
        yield f"WRONG: other bits than the input's: {', '.join(wrong)}"
    else:
        yield f"right bits: 9 operations on {', '.join(_DTYPES)}; fp8: {', '.join(eights) or 'none'}"


def _order(device: torch.device) -> Iterator[str]:
    """A long kernel before an allreduce delays the allreduce, and not the caller."""
    late = 0
    for _ in range(5):
        mine = torch.zeros(1_000_000, device=device)
        torch.cuda._sleep(_LONG)
        mine += 1.0
        start = time.perf_counter()
        handle = hvd.allreduce_async(mine, op=hvd.Sum)
        submitted = time.perf_counter() - start
        late += not bool((hvd.synchronize(handle) == 1.0).all())
    if late:
        yield f"WRONG: {late} of 5 results were used before they were there, after a long kernel"
    else:
        yield f"right order after a long kernel; the last submission took {submitted * 1e6:.0f} µs"


def _graph(device: torch.device) -> Iterator[str]:
    """A collective cannot be captured."""
    static = torch.ones(4, device=device)
    hvd.allreduce(static)
    refused = ""
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            try:
                hvd.allreduce(static)
            except ValueError as e:
                refused = str(e)
    except RuntimeError as e:  # then the capture has failed, too
        refused = refused and f"{refused} (then PyTorch: {e})"
    torch.cuda.synchronize(device)
    if "CUDA graph" in refused:
        yield "a collective in a CUDA graph is refused"
    else:
        yield "WRONG: a collective in a CUDA graph is not refused"


def _peer(device: torch.device) -> str:
    return "NCCL" if device.type == "cuda" else "gloo"


def _costs_of_peer(device: torch.device) -> list[float]:
    """The output of ``_time_peer``, in a process that cannot keep this one waiting."""
    done = subprocess.run(
        [sys.executable, "-m", __spec__.name, str(device)], stdout=subprocess.PIPE, timeout=_LIMIT, check=True
    )
    costs: list[float] = json.loads(done.stdout)
    return costs


def _time_peer(device: torch.device) -> None:
    """Print the costs of PyTorch's own backend as JSON, and end the process."""
    import torch.distributed as dist

    with tempfile.TemporaryDirectory() as folder:
        store = dist.FileStore(os.path.join(folder, "store"), 1)
        dist.init_process_group(_peer(device).lower(), store=store, rank=0, world_size=1)
        print(json.dumps(_costs(device, dist.all_reduce)), flush=True)
    os._exit(0)  # destroying a group of gloo may hang (seen with PyTorch 2.6)


def _costs(device: torch.device, allreduce: Callable[[torch.Tensor], Any]) -> list[float]:
    """Seconds from the call until the result is there, for each size."""
    return [_cost(device, allreduce, *size) for size in _SIZES]


def _cost(device: torch.device, allreduce: Callable[[torch.Tensor], Any], size: int, times: int) -> float:
    mine = torch.ones(size // 4, device=device)
    for n in (3, times):
        start = time.perf_counter()
        for _ in range(n):
            allreduce(mine)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
    return (time.perf_counter() - start) / times


def main() -> None:
    """Print the trial of device 0."""
    print("Trial of device 0 with one rank:", flush=True)
    for line in lines(torch.device("cuda", 0)):
        print(f"  {line}", flush=True)


if __name__ == "__main__":
    _time_peer(torch.device(sys.argv[1]))
