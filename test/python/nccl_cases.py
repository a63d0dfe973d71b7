"""A rank's program for test_torch_nccl.py: what horovod.torch does with tensors on the stand-in for GPUs.

    nccl_cases.py CASE [BREAK]

With BREAK the front end leaves out a step, and the stand-in must notice. Without STANDIN_DEVICES in the environment the
tensors are on real GPUs, which ranks share if there are fewer GPUs than ranks (test_torch_gpu_jobs.py).
"""

import contextlib
import ctypes
import gc
import os
import signal
import sys
import threading
import time

import torch
from standin_gpu import StandInGpu

import horovod.torch as hvd
from horovod.common import _lib
from horovod.common.elastic import ObjectState
from horovod.torch import _device_memory, _shares, _staging, _submission
from horovod.torch._result import Result

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


@contextlib.contextmanager
def raises(error, *texts):
    try:
        yield
    except error as e:
        for text in texts:
            assert text in str(e), (text, str(e))
    else:
        raise AssertionError(f"no {error.__name__} about {texts}")


def of_all(shape, dtype):
    """Each rank's input: small numbers, whose sums are exact."""
    n = torch.Size(shape).numel()
    return [((torch.arange(n) + 3 * rank) % 5).to(dtype).reshape(shape) for rank in range(hvd.size())]


def same(gpu, tensor, expected):
    values = gpu.get(tensor)
    assert values.dtype == expected.dtype and values.shape == expected.shape, (values, expected)
    assert values.tolist() == expected.tolist(), (values, expected)


@case
def reductions(gpu):
    ops = {
        hvd.Sum: lambda a: a.sum(0), hvd.Min: lambda a: a.min(0)[0], hvd.Max: lambda a: a.max(0)[0],
        hvd.Product: lambda a: a.prod(0),
    }  # fmt: skip
    for dtype in (torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
                  torch.float64):  # fmt: skip
        inputs = of_all((2, 3), dtype)
        stacked = torch.stack([t.double() for t in inputs])
        for op, expected in ops.items():
            mine = gpu.put(inputs[hvd.rank()])
            result = hvd.allreduce(mine, op=op)
            same(gpu, result, expected(stacked).to(dtype))
            same(gpu, mine, inputs[hvd.rank()])
            assert hvd.allreduce_(mine, op=op) is mine
            same(gpu, mine, expected(stacked).to(dtype))
    inputs = of_all((4,), torch.float32)
    total = sum(inputs)
    same(gpu, hvd.allreduce(gpu.put(inputs[hvd.rank()])), total / hvd.size())
    scaled = hvd.allreduce(gpu.put(inputs[hvd.rank()]), op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
    same(gpu, scaled, total * 2)
    grouped = hvd.grouped_allreduce([gpu.put(t + hvd.rank()) for t in inputs], op=hvd.Sum)
    for t, result in zip(inputs, grouped):
        same(gpu, result, t * hvd.size() + sum(range(hvd.size())))


@case
def factors(gpu):
    """NCCL rounds factors to the type of the elements. Only averages may be scaled in that way."""
    for dtype, digits in ((torch.float16, 11), (torch.bfloat16, 8)):
        inputs = [(torch.arange(1.0, 200.0) * (1 + 0.37 * rank)).to(dtype) for rank in range(hvd.size())]
        mine = inputs[hvd.rank()]
        average = gpu.get(hvd.allreduce(gpu.put(mine))).double()
        exact = sum(t.double() for t in inputs) / hvd.size()
        assert ((average - exact).abs() <= exact * 2.0**-digits * 2).all(), (average / exact).tolist()
        for scales in ({"postscale_factor": 0.1}, {"prescale_factor": 0.3}):
            same(gpu, hvd.allreduce(gpu.put(mine), op=hvd.Sum, **scales), hvd.allreduce(mine, op=hvd.Sum, **scales))
    large = torch.full((3,), 60000.0 if hvd.rank() else -60000.0, dtype=torch.float16)
    kept = hvd.allreduce(gpu.put(large), op=hvd.Sum, prescale_factor=2.0**-10, postscale_factor=2.0**10)
    same(gpu, kept, torch.full((3,), 60000.0, dtype=torch.float16))


@case
def sparse_tables(gpu):
    """Rows travel through host memory, beside tensors of GPUs that NCCL carries."""
    layer = hvd.ShardedEmbedding(2, optimizer="sgd", lr=1.0, init="zeros")
    inputs = of_all((5,), torch.float32)
    total = sum(inputs)
    for step in range(3):
        handle = hvd.allreduce_async(gpu.put(inputs[hvd.rank()]), op=hvd.Sum, name="dense")
        layer(torch.tensor([7, hvd.rank()])).sum().backward()
        same(gpu, hvd.synchronize(handle), total)
        layer.eval()
        assert layer(torch.tensor([7]))[0].tolist() == [-float((step + 1) * hvd.size())] * 2
        layer.train()


@case
def moves(gpu):
    rank, n = hvd.rank(), hvd.size()
    mine = gpu.put(torch.full((rank + 1, 2), float(rank)))
    gathered = hvd.allgather(mine)
    same(gpu, gathered, torch.cat([torch.full((r + 1, 2), float(r)) for r in range(n)]))
    for dtype in (torch.bool, torch.bfloat16, torch.int16):
        rows = hvd.allgather(gpu.put(torch.tensor([rank % 2], dtype=dtype)))
        same(gpu, rows, torch.tensor([r % 2 for r in range(n)], dtype=dtype))
    root = gpu.put(torch.arange(5) + 10 * rank)
    same(gpu, hvd.broadcast(root, n - 1), torch.arange(5) + 10 * (n - 1))
    hvd.broadcast_(root, 0)
    same(gpu, root, torch.arange(5))
    sent = gpu.put(torch.arange(float(n * (n + 1) // 2)) + 100 * rank)
    received, splits = hvd.alltoall(sent, torch.arange(1, n + 1, dtype=torch.int32))
    first = rank * (rank + 1) // 2
    assert splits.tolist() == [rank + 1] * n
    same(gpu, received, torch.cat([torch.arange(rank + 1.0) + first + 100 * r for r in range(n)]))
    scattered = hvd.reducescatter(gpu.put(torch.arange(2.0 * n) + rank), op=hvd.Sum)
    same(gpu, scattered, (torch.arange(2.0 * n) * n + sum(range(n)))[2 * rank : 2 * rank + 2])
    del gathered, rows, received
    gc.collect()


@case
def shares(gpu):
    """What a sharded optimizer does to a gradient and a parameter, in place, also with shares that differ in length."""
    n = hvd.size()
    for length in (7, 300):
        every = of_all((length,), torch.float32)
        total = torch.stack(every).sum(0)
        gradient = gpu.put(every[hvd.rank()])
        share = hvd.synchronize(_shares.scatter_async(gradient, "gradient", hvd.Sum))
        begin, end = _shares.bounds(length)
        same(gpu, share, total[begin:end])
        gradients = [gpu.put(every[hvd.rank()]), gpu.put(every[hvd.rank()] * 2)]
        both = hvd.synchronize(_shares.grouped_scatter_async(gradients, "both", hvd.Sum))
        same(gpu, both[1], 2 * total[begin:end])
        whole = gpu.put(torch.full((length,), float(hvd.rank())))
        hvd.synchronize(_shares.gather_async(whole, "parameter"))
        lengths = [length // n + (r < length % n) for r in range(n)]
        same(gpu, whole, torch.cat([torch.full((k,), float(r)) for r, k in enumerate(lengths)]))


@case
def staged_in_the_engine(gpu):
    """Operations that NCCL cannot do go through host memory."""
    same(gpu, hvd.allreduce(gpu.put(torch.ones(2)), op=hvd.Sum), torch.full((2,), float(hvd.size())))
    total = torch.stack([t.int() for t in of_all((6,), torch.int16)]).sum(0).to(torch.int16)
    same(gpu, hvd.allreduce(gpu.put(of_all((6,), torch.int16)[hvd.rank()]), op=hvd.Sum), total)
    same(gpu, hvd.allreduce(gpu.put(torch.ones(4)), op=hvd.Adasum), torch.ones(4))


@case
def streams(gpu):
    making, asking = gpu.Stream(None), gpu.Stream(None)
    for i in range(5):
        with gpu.stream(making):
            mine = gpu.put(torch.full((1000,), float(hvd.rank() + i)))
            handle = hvd.allreduce_async_(mine, op=hvd.Sum, name=f"in place {i}")
        with gpu.stream(asking):
            assert hvd.synchronize(handle) is mine
            same(gpu, mine, torch.full((1000,), float(sum(range(hvd.size())) + i * hvd.size())))


@case
def reduce_elsewhere(gpu):
    """A rank that does not get the result overwrites its tensor after the call, on another stream."""
    asking = gpu.Stream(None)
    for _ in range(5):
        mine = gpu.put(torch.full((3000,), hvd.rank() + 1.0))
        handle = hvd.reduce_async_(mine, 0, op=hvd.Sum)
        with gpu.stream(asking):
            assert hvd.synchronize(handle) is mine
            if hvd.rank() == 0:
                same(gpu, mine, torch.full((3000,), sum(range(hvd.size() + 1)) * 1.0))
            else:
                gpu.overwrite(mine)


@case
def memory(gpu):
    """Inputs are dropped before their operations end: the allocator must not give out their memory before then."""
    asking = gpu.Stream(None)
    expected = [torch.full((300,), float(i * hvd.size())) for i in range(20)]
    handles = [hvd.allreduce_async(gpu.put(t / hvd.size()), op=hvd.Sum, name=f"m{i}") for i, t in enumerate(expected)]
    for handle, wanted in zip(handles, expected):
        with gpu.stream(asking):
            result = hvd.synchronize(handle)
        gc.collect()
        garbage = gpu.put(torch.zeros(300), late=False)
        gpu.overwrite(garbage)
        with gpu.stream(asking):
            same(gpu, result, wanted)


@case
def cache(gpu):
    """An output needs memory that PyTorch's allocator has cached and does not use."""
    kept = [gpu.put(torch.zeros(1 << 20, dtype=torch.uint8), late=False) for _ in range(50)]
    mine = gpu.put(torch.full((1 << 20,), float(hvd.rank())), late=False)
    del kept
    gc.collect()
    for _ in range(3):
        gathered = hvd.allgather(mine)
        same(gpu, gathered, torch.arange(float(hvd.size())).repeat_interleave(1 << 20))
        del gathered
        gc.collect()


@case
def outputs(gpu):
    """The engine reuses the memory of its outputs, so that it allocates and frees little.

    Results are read late, and on another stream than the one that submits. Only the engine keeps an operation from
    writing to memory that is still being copied.
    """
    asking, calls, before = gpu.Stream(None), [], None
    for i in range(20):
        inputs = [torch.full((500 + r, 2), float(i + r)) for r in range(hvd.size())]
        handles = [hvd.allgather_async(gpu.put(inputs[hvd.rank()]), name=f"gathered {k}") for k in range(3)]
        with gpu.stream(asking):
            for result, expected in before or ():
                same(gpu, result, expected)
            results = [hvd.synchronize(handle) for handle in handles]
        before = [(result, torch.cat(inputs)) for result in results]
        gc.collect()
        calls.append(gpu.calls("cuMemAlloc_v2") + gpu.calls("cuMemFree_v2"))
    assert calls[-1] - calls[2] < 24, calls  # 51 outputs; some are made while others are still being copied


@case
def sets(gpu):
    """Each process set has its own communicator."""
    os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
    hvd.shutdown()
    hvd.init()
    both = [hvd.add_process_set([0, 1]), hvd.add_process_set([1, 2])]
    for _ in range(2):
        for i, some in enumerate(both):
            if some.included():
                result = hvd.allreduce(gpu.put(torch.tensor([2.0 ** hvd.rank()])), op=hvd.Sum, process_set=some)
                same(gpu, result, torch.tensor([3.0 * 2**i]))
    same(gpu, hvd.allreduce(gpu.put(torch.ones(1)), op=hvd.Sum), torch.tensor([float(hvd.size())]))


@case
def joins(gpu):
    for step in range(1 + hvd.rank()):
        others = hvd.size() - step
        result = hvd.allreduce(gpu.put(torch.ones(3)), op=hvd.Sum, name=f"step {step}")
        same(gpu, result, torch.full((3,), float(others)))
    assert hvd.join() == hvd.size() - 1


@case
def joins_all(gpu):
    """A rank that has joined gives an empty part to operations that Horovod refuses then."""
    os.environ["GOROVOD_JOIN_ALL_OPS"] = "1"
    hvd.shutdown()
    hvd.init()
    if hvd.rank() == 0:
        mine = torch.arange(6.0).reshape(3, 2)
        same(gpu, hvd.reducescatter(gpu.put(mine), op=hvd.Sum), mine[:2])
        same(gpu, hvd.allgather(gpu.put(mine)), mine)
        same(gpu, hvd.broadcast(gpu.put(mine), 0), mine)
        same(gpu, hvd.alltoall(gpu.put(mine), torch.tensor([3, 0], dtype=torch.int32))[0], mine)
    assert hvd.join() == 0


@case
def empty(gpu):
    """What a rank gets in a step may be nothing. That costs no memory of the device."""

    def step(i):
        rows, splits = torch.ones(4, 2), [0, 4] if i % 2 else [4, 0]
        received, _ = hvd.alltoall(gpu.put(rows), torch.tensor(splits, dtype=torch.int32))
        same(gpu, received, torch.ones(8 if hvd.rank() == i % 2 else 0, 2))
        same(gpu, hvd.allgather(gpu.put(rows[:0])), rows[:0])

    step(0)
    step(1)
    calls = gpu.calls("cuMemAlloc_v2"), gpu.calls("cuMemFree_v2")
    for i in range(10):
        step(i)
    gc.collect()
    allocated, freed = gpu.calls("cuMemAlloc_v2") - calls[0], gpu.calls("cuMemFree_v2") - calls[1]
    assert allocated < 5 and freed == 0, (allocated, freed)


@case
def commits(gpu):
    """Rank 0 dies after the operation has ended on rank 1, whose GPU still waits for rank 0's.

    The commit must not keep what comes of that.
    """
    mine = gpu.put(torch.ones(3))
    state = ObjectState(hvd.broadcast_object, hvd.rank, sum=None)
    hvd.allreduce_(mine, name="first")
    state.commit()
    if hvd.rank() == 0:
        gpu.driver.standinFaults(b"ncclAllReduce:1:die")
    state.sum = hvd.allreduce_(mine, name="second")
    with raises(hvd.HorovodInternalError, "rank 0"):
        state.commit()
    state.restore()
    assert state.sum is None, "an unfinished sum was committed"
    print("survived", flush=True)


@case
def commits_from_the_cpu(gpu):
    """Rank 1 dies after an operation of tensors on the CPU. Rank 0 has its result, and commits it."""
    state = ObjectState(hvd.broadcast_object, hvd.rank, sum=None)
    state.sum = hvd.allreduce(torch.ones(3), name="first").tolist()
    if hvd.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with raises(hvd.HorovodInternalError, "rank 1"):
        hvd.allreduce(torch.ones(3), name="second")
    with raises(hvd.HorovodInternalError, "rank 1"):
        state.commit()  # it asks rank 0 for news of the hosts after it has saved
    state.restore()
    assert state.sum == [1, 1, 1], state.sum
    print("survived", flush=True)


@case
def interrupted(gpu):
    """Ctrl-C ends a commit that waits for a GPU which hangs."""
    mine = gpu.put(torch.ones(3))
    state = ObjectState(hvd.broadcast_object, hvd.rank, sum=None)
    hvd.allreduce_(mine, name="first")
    state.commit()
    gpu.driver.standinFaults(b"ncclAllReduce:1:stuck")
    state.sum = hvd.allreduce_(mine, name="second")
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        state.commit()
    except KeyboardInterrupt:
        assert _lib.load().gorovod_settle(0) == _lib.IN_PROGRESS, "the GPU has ended"
        print("interrupted", flush=True)
    state.restore()
    assert state.sum is None, "an unfinished sum was committed"
    os._exit(0)  # the GPU never ends


@contextlib.contextmanager
def process_group():
    import torch.distributed as dist

    import horovod.torch.distributed  # noqa: F401

    dist.init_process_group("gorovod", init_method="horovod://")
    yield dist
    dist.destroy_process_group()


@case
def distributed(gpu):
    rank, n = hvd.rank(), hvd.size()
    with process_group() as dist:
        for async_op in (False, True):
            mine = gpu.put(torch.arange(4.0) + rank)
            work = dist.all_reduce(mine, async_op=async_op)
            if async_op:
                work.wait()
            same(gpu, mine, torch.arange(4.0) * n + sum(range(n)))
        twice = gpu.put(torch.ones(300))
        works = [dist.all_reduce(twice, async_op=True) for _ in range(2)]
        for work in works:
            work.wait()
        same(gpu, twice, torch.full((300,), float(n * n)))
        outputs = [gpu.put(torch.zeros(3)) for _ in range(n)]
        dist.all_gather(outputs, gpu.put(torch.full((3,), float(rank))))
        for r, output in enumerate(outputs):
            same(gpu, output, torch.full((3,), float(r)))
        whole = gpu.put(torch.zeros(2 * n))
        dist.distributed_c10d._get_default_group()._allgather_base(whole, gpu.put(torch.full((2,), float(rank)))).wait()
        same(gpu, whole, torch.arange(float(n)).repeat_interleave(2))
        share = gpu.put(torch.zeros(2))
        dist.reduce_scatter(share, [gpu.put(torch.full((2,), float(r))) for r in range(n)])
        same(gpu, share, torch.full((2,), float(rank * n)))
        swapped = gpu.put(torch.zeros(n))
        dist.all_to_all_single(swapped, gpu.put(torch.arange(float(n)) + 10 * rank))
        same(gpu, swapped, torch.arange(float(n)) * 10 + rank)
        root = gpu.put(torch.full((5,), float(rank)))
        dist.broadcast(root, n - 1)
        same(gpu, root, torch.full((5,), n - 1.0))
        mine = gpu.put(torch.ones(2))
        dist.reduce(mine, 0)
        same(gpu, mine, torch.full((2,), 1.0 if rank else float(n)))
        outputs = [gpu.put(torch.zeros(1)) for _ in range(n)] if rank == 1 else None
        dist.gather(gpu.put(torch.tensor([float(rank)])), outputs, dst=1)
        for r, output in enumerate(outputs or []):
            same(gpu, output, torch.tensor([float(r)]))
        inputs = [gpu.put(torch.tensor([float(r)])) for r in range(n)] if rank == 1 else None
        received = gpu.put(torch.zeros(1))
        dist.scatter(received, inputs, src=1)
        same(gpu, received, torch.tensor([float(rank)]))
        dist.barrier()


@case
def future(gpu):
    """The result is used on another stream than the one that submitted, as in the callback of a communication hook."""
    with process_group() as dist:
        other = gpu.Stream(None)
        mine = gpu.put(torch.full((3000,), 1.0))
        work = dist.all_reduce(mine, async_op=True)
        with gpu.stream(other):
            work.wait()
            same(gpu, mine, torch.full((3000,), float(hvd.size())))


@contextlib.contextmanager
def gathering(gpu, dist):
    """An all_gather to a list that nobody has waited for, and the outputs."""
    outputs = [gpu.put(torch.zeros(3000)) for _ in range(hvd.size())]
    work = dist.all_gather(outputs, gpu.put(torch.full((3000,), hvd.rank() + 1.0)), async_op=True)
    yield work, outputs
    work.wait()
    assert not dist.distributed_c10d._get_default_group()._late


@case
def unawaited(gpu):
    """Collectives of torch.distributed use results of others for which nobody has waited."""
    n, mine = hvd.size(), hvd.rank() + 1.0
    with process_group() as dist:
        for asks in (False, True):
            with gathering(gpu, dist) as (work, outputs):
                while asks and not work._has_ended():
                    pass
                again = dist.all_reduce(outputs[1], async_op=True)
                again.wait()
                same(gpu, outputs[1], torch.full((3000,), 2.0 * n))
            same(gpu, outputs[0], torch.full((3000,), 1.0))
            with gathering(gpu, dist) as (work, outputs):
                while asks and not work._has_ended():
                    pass
                share = gpu.put(torch.zeros(3000))
                dist.reduce_scatter(share, outputs, async_op=True).wait()
                same(gpu, share, torch.full((3000,), n * mine))
            received = [gpu.put(torch.zeros(1500)) for _ in range(n)]
            work = dist.all_to_all(received, [gpu.put(torch.full((1500,), mine)) for _ in range(n)], async_op=True)
            while asks and not work._has_ended():
                pass
            dist.all_reduce(received[0])
            same(gpu, received[0], torch.full((1500,), 1.0 * n))
            same(gpu, received[1], torch.full((1500,), 2.0))
            work.wait()
            first = gpu.put(torch.full((3000,), mine))
            work = dist.all_reduce(first, async_op=True)
            while asks and not work._has_ended():
                pass
            share = gpu.put(torch.zeros(3000))
            dist.reduce_scatter(share, [first] * n, async_op=True).wait()
            same(gpu, share, torch.full((3000,), n * sum(range(n + 1)) * 1.0))
            work.wait()


@case
def completed(gpu):
    """Results are used after is_completed() said so; nobody has called wait()."""
    with process_group() as dist:
        for _ in range(3):
            with gathering(gpu, dist) as (work, outputs):
                while not work.is_completed():
                    pass
                for r, output in enumerate(outputs):
                    same(gpu, output, torch.full((3000,), r + 1.0))
            mine = gpu.put(torch.full((3000,), hvd.rank() + 1.0))
            work = dist.all_reduce(mine, async_op=True)
            while not work.is_completed():
                pass
            same(gpu, mine, torch.full((3000,), sum(range(hvd.size() + 1)) * 1.0))


@contextlib.contextmanager
def capture(gpu, stream=None):
    stream = gpu.current if stream is None else stream
    gpu.call("cuStreamBeginCapture_v2", stream.cuda_stream, 0)
    gpu.captures += 1
    yield
    gpu.captures -= 1
    gpu.call("cuStreamEndCapture", stream.cuda_stream, ctypes.byref(ctypes.c_void_p()))


@case
def captures(gpu):
    """An operation that began before a capture cannot end in it. Nothing disturbs the capture."""
    outputs = [gpu.put(torch.zeros(30)) for _ in range(hvd.size())]
    alone, group = gpu.put(torch.ones(3000)), [gpu.put(torch.ones(30)) for _ in range(2)]
    handles = [hvd.allreduce_async_(alone, op=hvd.Sum), hvd.grouped_allreduce_async_(group, op=hvd.Sum)]
    with gpu.stream(gpu.Stream(None)):
        with capture(gpu):
            time.sleep(0.02)  # the engine asks for events meanwhile
            for handle in handles:
                with raises(ValueError, "captured into a CUDA graph"):
                    hvd.synchronize(handle)
        for handle in handles:
            assert hvd.synchronize(handle) is not None
        for tensor in (alone, *group):
            same(gpu, tensor, torch.full(tensor.shape, float(hvd.size())))
    result = Result(hvd.allreduce_async_(alone, op=hvd.Sum))
    with capture(gpu), raises(ValueError, "captured into a CUDA graph"):
        result()
    assert result() is alone and result() is alone
    with process_group() as dist:
        for concluded in (False, True):
            gathered = [gpu.put(torch.zeros(30)) for _ in outputs] if hvd.rank() == 0 else None
            works = [
                dist.all_reduce(alone, async_op=True), dist.all_gather(outputs, group[0], async_op=True),
                dist.gather(group[0], gathered, 0, async_op=True),
            ]  # fmt: skip
            while concluded and not all(work._has_ended() for work in works):
                pass
            with capture(gpu):
                for work in works:
                    assert work.is_completed() or not concluded
                    if work._outputs or work._reached:
                        with raises(Exception, "captured into a CUDA graph"):
                            work.wait()
                for call in (
                    lambda: dist.reduce_scatter(outputs[0], [group[0]] * hvd.size()),
                    lambda: dist.all_reduce(alone), lambda: dist.all_gather(group, group[0]),
                    lambda: dist.send(alone, 0), lambda: dist.recv(alone, 0),
                ):  # fmt: skip
                    with raises(Exception, "captured into a CUDA graph"):
                        call()
            for work in works:
                work.wait()
            same(gpu, alone, torch.full((3000,), float(hvd.size()) ** (3 + concluded)))
            for output in outputs + (gathered or []):
                same(gpu, output, torch.full((30,), float(hvd.size())))
        of_another_thread = gpu.Stream(None)
        works = [dist.all_reduce(gpu.put(torch.ones(300)), async_op=True)]
        while not works[0]._has_ended():
            pass
        with capture(gpu, of_another_thread):
            works.append(dist.all_reduce(gpu.put(torch.ones(300)), async_op=True))
            for work in works:
                work.wait()
    weight = gpu.put(torch.ones(300)).requires_grad_()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=0.1), op=hvd.Sum)
    with torch.no_grad():
        weight.grad = gpu.put(torch.ones(300))
    optimizer._submit(weight)
    with capture(gpu), raises(ValueError, "captured into a CUDA graph"):
        optimizer.synchronize()
    optimizer.synchronize()
    same(gpu, weight.grad, torch.full((300,), float(hvd.size())))


@case
def refusals(gpu):
    mine = torch.ones(2) if hvd.rank() else gpu.put(torch.ones(2))
    with raises(hvd.HorovodInternalError, "CPU/GPU device selection", "rank 0: GPU", "rank 1: CPU"):
        hvd.allreduce(mine, name="mixed")
    captured = gpu.put(torch.ones(1))
    with capture(gpu), raises(ValueError, "captured into a CUDA graph"):
        hvd.allreduce_(captured, name="captured")
    with raises(ValueError, "on the same device: cpu, cuda"):
        hvd.grouped_allreduce([gpu.put(torch.ones(1)), torch.ones(1)], name="group")
    same(gpu, hvd.allreduce(gpu.put(torch.ones(1)), op=hvd.Sum, name="after"), torch.tensor([float(hvd.size())]))


@case
def other_device(gpu):
    """A tensor on another device than the first one: copied, or refused by GOROVOD_GPU=nccl."""
    same(gpu, hvd.allreduce(gpu.put(torch.ones(2))), torch.ones(2))
    gpu.device += 1
    if os.environ["GOROVOD_GPU"] == "nccl":
        with raises(ValueError, "torch.cuda.set_device(hvd.local_rank())"):
            hvd.allreduce(gpu.put(torch.ones(2)))
    else:
        same(gpu, hvd.allreduce(gpu.put(torch.ones(2))), torch.ones(2))


@case
def off(gpu):
    with raises(ValueError, "GOROVOD_GPU=off"):
        hvd.allreduce(gpu.put(torch.ones(2)))


# Each leaves out one step that the front end must take.


def no_wait(gpu):
    _lib.load().gorovod_await_on_stream = lambda handle, stream: _lib.OK


def no_record_stream(gpu):
    torch.Tensor.record_stream = lambda tensor, stream: None


def other_stream(gpu):
    other = gpu.Stream(None)

    def tell(self, operation, tensor):
        operation.on_device(self.source.get_device(), other.cuda_stream)

    _device_memory.OnDevice.tell = tell


def freed_early(gpu):
    """The memory of an output is given back after the work of the stream that submitted, not of the one that copies."""
    library = _lib.load()
    free = library.gorovod_free_on_stream
    library.gorovod_free_on_stream = lambda device, at, size, stream: free(device, at, size, gpu.caller.cuda_stream)


def nothing_kept(gpu):
    submit = _submission.Operation.submit

    def forgetful(operation):
        submit(operation)
        _, output, on_device, *_ = operation.keeps
        operation.keeps = (output, output, on_device._replace(source=output), None, 0)

    _submission.Operation.submit = forgetful


BREAKS = {f.__name__: f for f in (no_wait, no_record_stream, other_stream, freed_early, nothing_kept)}


class RealGpu:
    """The part of StandInGpu that the cases use, on a real GPU, with a stream that can be captured."""

    KERNEL_CYCLES = 4_000_000  # about 2 ms
    captures = 0

    def __init__(self):
        torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.stream = torch.cuda.stream

    def __enter__(self):
        torch.cuda.set_stream(torch.cuda.Stream())
        return self

    def __exit__(self, *_):
        torch.cuda.synchronize()

    @property
    def current(self):
        return torch.cuda.current_stream()

    def Stream(self, device):
        return torch.cuda.Stream(device)

    def call(self, function, *arguments):
        status = getattr(self.driver, function)(*(ctypes.c_size_t(a) if type(a) is int else a for a in arguments))
        assert status == 0, (function, status)

    def calls(self, function):
        return 0  # nobody counts them

    def put(self, values, *, late=True):
        source = values.contiguous().cuda()
        if not late:
            return source
        tensor = torch.empty_like(source)
        torch.cuda._sleep(self.KERNEL_CYCLES)
        return tensor.copy_(source)

    def get(self, tensor):
        assert tensor.is_cuda, "the tensor is not on the device"
        return tensor.clone().cpu()

    def overwrite(self, tensor):
        tensor.view(torch.uint8).fill_(77)


def stand_in():
    gpu = StandInGpu(hvd.local_rank() % int(os.environ["STANDIN_DEVICES"]))
    query = ctypes.cast(gpu.driver.cuEventQuery, ctypes.c_void_p).value
    _staging._cuda = _device_memory._cuda = gpu
    _staging._event_query = lambda: (query, 600)
    _device_memory._as_bytes = gpu.adopt
    torch.Tensor.record_stream = lambda tensor, stream: gpu.record_stream(tensor, stream)
    return gpu


def main(name, *breaks):
    torch.set_num_threads(1)
    hvd.init()
    gpu = stand_in() if "STANDIN_DEVICES" in os.environ else RealGpu()
    for left_out in breaks:
        BREAKS[left_out](gpu)
    with gpu:
        CASES[name](gpu)
    hvd.shutdown()
    print("ended well", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
