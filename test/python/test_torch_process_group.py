"""What PyTorch reads from a process group, beside its collectives: it has it, refuses it by name, or needs it not."""

import datetime
import time

import pytest
import torch
import torch.distributed as dist
from definitions import several

import horovod.torch as hvd
from horovod.torch.distributed import HorovodInternalError

c10d = dist.distributed_c10d
VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(scope="module", autouse=True)
def groups():
    torch.set_num_threads(1)
    dist.init_process_group("gorovod", timeout=datetime.timedelta(seconds=60))
    yield
    dist.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def gloo(groups):
    return dist.new_group(backend="gloo")


def devices():
    return [CPU, CUDA] if torch.cuda.is_available() else [CPU]


def world():
    return c10d._get_default_group()


def size():
    return dist.get_world_size()


def rank():
    return dist.get_rank()


def total(value=0.0):
    """The sum over the ranks of ``rank + value``."""
    return size() * (size() - 1) / 2 + size() * value


def seconds(number):
    return datetime.timedelta(seconds=number)


# ---- All names. Those with a value are asked here; what operations do is in test_torch_distributed.py.

ANSWERS = {
    "rank": lambda group: group.rank() == rank(),
    "size": lambda group: group.size() == size(),
    "_device_types": lambda group: group._device_types == devices(),
    "_get_backend": lambda group: group._get_backend(CPU) is group and group._get_backend(CUDA) is group,
    "get_backend": lambda group: group.get_backend(CPU) is group,
    "_get_backend_name": lambda group: group._get_backend_name() == "gorovod",
    "name": lambda group: group.name() == "gorovod",
    "group_name": lambda group: group.group_name == c10d._get_process_group_name(group),
    "group_desc": lambda group: VERSION < (2, 4) or group.group_desc == "default_pg",
    "bound_device_id": lambda group: group.bound_device_id is None,
    "boxed": lambda group: group.unbox(group.boxed()) is group,
    "unbox": lambda group: group.unbox(group.boxed()) is group,
    "_id": lambda group: isinstance(group._id(), int),
    "get_group_store": lambda group: isinstance(group.get_group_store(), dist.Store),
    "options": lambda group: group.options._timeout == seconds(60),
    "set_timeout": lambda group: (group.set_timeout(seconds(60)), group.options._timeout == seconds(60))[1],
    "supports_coalescing": lambda group: group.supports_coalescing is False,
    "supports_splitting": lambda group: group.supports_splitting is False,
    "supports_shrinking": lambda group: group.supports_shrinking is False,
    "supports_reconfigure": lambda group: group.supports_reconfigure is False,
    "supports_window": lambda group: group.supports_window is False,
    "supports_abort_hooks": lambda group: group.supports_abort_hooks is False,
    "supports_completion_hooks": lambda group: group.supports_completion_hooks is False,
    "supports_tensor_alloc": lambda group: group.supports_tensor_alloc(CPU) is False,
    "_supports_time_estimate": lambda group: group._supports_time_estimate is False,
    "use_pg_for_symm_mem_rendezvous": lambda group: group.use_pg_for_symm_mem_rendezvous is False,
    "_has_hooks": lambda group: group._has_hooks() is False,
    "eager_connect_single_device": lambda group: group.eager_connect_single_device(CPU) is None,
    "_set_sequence_number_for_group": lambda group: group._set_sequence_number_for_group() is None,
}  # fmt: skip
REFUSED = {
    "split_group": ([0],), "split": (None, [0], None), "merge_remote_group": (None, 2, seconds(1)), "merge": (),
    "shrink": ([1],), "reconfigure": (None,), "get_reconfigure_handle": (), "suspend": (), "resume": (),
    "new_window": (None,), "register_pre_hook": (1, print), "unregister_pre_hook": (1,),
    "register_post_hook": (1, print), "unregister_post_hook": (1,), "register_abort_hook": (1, print),
    "unregister_abort_hook": (1,), "get_error": (), "_register_on_completion_hook": (print,),
    "_wait_for_pending_works": (), "_enable_collectives_timing": (), "_start_time_estimate": (),
    "_end_time_estimate": (), "allocate_tensor": (3,), "memory_stats": (), "mem_allocator": (),
    "setUsePgForSymmMemRendezvous": (True,), "allreduce_sparse": ([],),
}  # fmt: skip
OPERATIONS = {
    "allreduce", "allreduce_coalesced", "reduce", "reduce_scatter", "_reduce_scatter_base", "reduce_scatter_single",
    "reduce_scatter_tensor_coalesced", "reduce_scatter_single_coalesced", "broadcast", "allgather", "_allgather_base",
    "allgather_coalesced", "allgather_into_tensor_coalesced", "all_gather_single", "all_gather_single_coalesced",
    "gather", "gather_single", "gather_into_tensor", "scatter", "alltoall", "alltoall_base", "all_to_all_single",
    "send", "recv", "recv_anysource", "barrier",
}  # fmt: skip
BELOW = {  # tests of this file
    "_start_coalescing", "_end_coalescing", "monitored_barrier", "_add_ephemeral_timeout", "abort",
    "_get_sequence_number_for_group",
}  # fmt: skip
NOT_NEEDED = {
    "for the backends of a group that has several": {
        "BackendType", "CUSTOM", "GLOO", "MPI", "NCCL", "UCC", "UNDEFINED", "XCCL", "_backend_id", "_register_backend",
        "_set_default_backend", "Options",
    },
    "called while torch.distributed makes or destroys a group": {
        "_set_group_name", "_set_group_desc", "_set_group_uid", "shutdown",
    },
    "Python's": {"__module__", "_pybind11_conduit_v1_"},
}  # fmt: skip


def test_all_names_are_known():
    """A new PyTorch may read further names: see what they are for, and add them here."""
    asked = {name for name in dir(dist.ProcessGroup) if not hasattr(object, name)}
    backend = getattr(torch._C._distributed_c10d, "Backend", None)
    asked |= {name for name in dir(backend) if backend is not None and not hasattr(object, name)}
    known = {*ANSWERS, *REFUSED, *OPERATIONS, *BELOW}.union(*NOT_NEEDED.values())
    assert asked - known == set()
    assert {*ANSWERS, *REFUSED, *OPERATIONS, *BELOW} - set(dir(type(world()))) - missing_in_this_pytorch() == set()


def missing_in_this_pytorch():
    of_pytorch = {"bound_device_id", "boxed", "unbox", "_id", "name"}
    return {name for name in of_pytorch if not hasattr(dist.ProcessGroup, name)}


@pytest.mark.parametrize("name", ANSWERS)
def test_answers(name):
    if VERSION < (2, 4) or name in missing_in_this_pytorch():
        pytest.skip("PyTorch has asked this since 2.4 or later")
    assert ANSWERS[name](world())


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    with pytest.raises(NotImplementedError, match=rf"^{name}: process groups of gorovod do not have it; \w"):
        getattr(world(), name)(*REFUSED[name])


# ---- What PyTorch's functions make of the answers.

since_2_6 = pytest.mark.skipif(VERSION < (2, 6), reason="tested with PyTorch 2.6 and later")


@since_2_6
def test_devices():
    assert c10d._device_capability() == [device.type for device in devices()]
    assert c10d._get_pg_default_device() == CPU
    assert c10d._get_object_coll_device() == "cpu"
    if hasattr(c10d, "get_backend_impl"):
        assert c10d.get_backend_impl() is world()


@since_2_6
def test_no_flight_recorder_in_cpp():
    """PyTorch 2.15 attaches one to each new group that has devices, and its C++ fails for a group without backends."""
    group = dist.new_group()
    assert not getattr(c10d._world, "pg_flight_recorder_hooks", None)
    assert group._device_types == devices()
    x = torch.ones(2)
    dist.all_reduce(x, group=group)
    assert x.tolist() == [size()] * 2


def test_a_check_of_pytorchs_that_has_no_effect(monkeypatch):
    monkeypatch.setenv("TORCH_DIST_NAN_CHECK", "1")
    with pytest.warns(UserWarning, match="set GOROVOD_NAN_CHECK=warn"):
        dist.new_group()


@since_2_6
@several()
def test_functions_that_need_what_is_refused():
    """PyTorch itself tells that the backend does not have it."""
    with pytest.raises(RuntimeError, match="split"):
        c10d.split_group(world(), [[0]])
    if hasattr(c10d, "shrink_group"):
        with pytest.raises(TypeError, match="does not support shrinking"):
            c10d.shrink_group([size() - 1])
    if hasattr(c10d, "_time_estimator"):
        with pytest.raises(NotImplementedError, match="not supported"), c10d._time_estimator():
            pass


# ---- Coalescing.


def delayed():
    """Let the last rank come late, so that operations last."""
    if rank() == size() - 1:
        time.sleep(0.2)


@since_2_6
@pytest.mark.parametrize("device", [None, CPU])
@pytest.mark.parametrize("wait", [False, True])
def test_coalescing(device, wait):
    """What PyTorch starts in a coalescing manager has ended when the manager, or its Work, has."""
    x, y, z = torch.full((3,), float(rank())), torch.full((2,), rank() + 1.0), torch.zeros(2 * size())
    delayed()
    with c10d._coalescing_manager(world(), device, async_ops=not wait) as manager:
        dist.all_reduce(x)
        dist.all_reduce(y)
    if not wait:
        manager.wait()
    assert x.tolist() == [total()] * 3 and y.tolist() == [total(1)] * 2
    delayed()
    with c10d._coalescing_manager(world(), device, async_ops=not wait) as manager:
        dist.all_gather_into_tensor(z, y + rank())
    if not wait:
        manager.wait()
    assert z.tolist() == [total(1) + r for r in range(size()) for _ in range(2)]


@since_2_6
@several()
def test_coalescing_of_messages_and_other_operations():
    group, after, before = world(), (rank() + 1) % size(), (rank() - 1) % size()
    x, got, y = torch.full((3,), float(rank())), torch.zeros(3), torch.full((2,), float(rank()))
    group._start_coalescing(CPU)
    works = [dist.isend(x, after), dist.irecv(got, before), dist.broadcast(y, 1, async_op=True)]
    work = group._end_coalescing(CPU)
    assert work.get_future().wait() is not None
    assert work.wait() and work.is_completed() and all(w.is_completed() for w in works)
    assert got.tolist() == [before] * 3 and y.tolist() == [1.0] * 2
    group._start_coalescing(CPU)
    assert group._end_coalescing(CPU).wait()
    group._start_coalescing(CPU)
    dist.all_reduce(torch.ones(3), async_op=True)
    dist.all_reduce(torch.ones(2 + rank()), async_op=True)
    with pytest.raises(HorovodInternalError, match="Mismatched ALLREDUCE tensor shapes"):
        group._end_coalescing(CPU).wait()


# ---- Barriers, time-outs, counts.


def late(call, ranks, limit):
    """Call it on each rank, on these ``ranks`` after the limit of the others, and return the errors of all ranks."""
    if rank() in ranks:
        time.sleep(limit * 1.5)
    with pytest.raises(HorovodInternalError) as error:
        call()
    texts = [None] * size()
    dist.all_gather_object(texts, str(error.value))
    return texts


@several()
@pytest.mark.parametrize("everyone", [False, True])
def test_monitored_barrier(everyone):
    group = world()
    group.monitored_barrier(seconds(30), everyone)
    ranks = list(range(1, size()))
    named = ranks if everyone else ranks[:1]
    words = f"rank {named[0]} has" if len(named) == 1 else f"ranks {', '.join(map(str, named))} have"
    for text in late(lambda: group.monitored_barrier(seconds(0.5), wait_all_ranks=everyone), ranks, 0.5):
        assert text.endswith(f"{words} not come within 0.5 s"), text
    group.monitored_barrier(seconds(30))  # late arrivals are not those of this one
    if VERSION >= (2, 15):
        dist.monitored_barrier(timeout=seconds(30))
    part = dist.new_group([0, size() - 1])
    if rank() in (0, size() - 1):
        part.monitored_barrier()


@several()
def test_time_outs():
    x = torch.ones(2)
    group = dist.new_group(timeout=seconds(0.3))
    group._add_ephemeral_timeout(seconds(30))
    delayed()
    delayed()
    dist.all_reduce(x, group=group)  # takes longer than 0.3 s on other ranks
    assert x.tolist() == [size()] * 2
    if rank() == 0:
        with pytest.raises(HorovodInternalError, match="has not ended within 0.3 s"):
            dist.all_reduce(x, group=group)
        dist.barrier()
    else:
        dist.barrier()
        dist.all_reduce(x, group=group)
    dist.barrier()


def test_sequence_numbers():
    group = dist.new_group()
    before = group._get_sequence_number_for_group()
    for _ in range(3):
        dist.all_reduce(torch.ones(1), group=group)
    assert group._get_sequence_number_for_group() == before + 3


# ---- Arguments without options objects.


def ones(*shape):
    return torch.ones(*(shape or (2,)))


def test_plain_arguments():
    group, root, n, SUM = world(), size() - 1, size(), dist.ReduceOp.SUM
    x = torch.full((2,), float(rank()))
    group.broadcast(x, root).wait()
    assert x.tolist() == [root] * 2
    x = torch.full((2,), float(rank()))
    group.broadcast(x, root, seconds(50)).wait()
    assert x.tolist() == [root] * 2
    for arguments in ((), (SUM,), (SUM, seconds(50))):
        x = ones()
        group.allreduce([x], *arguments).wait()
        assert x.tolist() == [n] * 2
    x = torch.full((2,), float(rank() + 1))
    group.allreduce(x, dist.ReduceOp.MAX).wait()
    assert x.tolist() == [n] * 2
    x = torch.full((2,), float(rank() + 1))
    group.allreduce(x, op=dist.ReduceOp.MIN, timeout=seconds(50)).wait()
    assert x.tolist() == [1] * 2
    x = torch.full((2,), float(rank() + 1))
    group.reduce(x, root, dist.ReduceOp.MAX).wait()
    assert x.tolist() == [n if rank() == root else rank() + 1] * 2
    parts = [torch.zeros(1) for _ in range(n)]
    group.allgather(parts, torch.full((1,), float(rank()))).wait()
    assert [p.item() for p in parts] == list(range(n))
    parts = [torch.zeros(1) for _ in range(n)] if rank() == root else []
    group.gather(parts, torch.full((1,), float(rank())), root).wait()
    assert [p.item() for p in parts] == (list(range(n)) if rank() == root else [])
    x = torch.zeros(1)
    group.scatter(x, [torch.full((1,), float(r)) for r in range(n)] if rank() == root else [], root).wait()
    assert x.item() == rank()
    group.reduce_scatter(x, [torch.full((1,), float(r)) for r in range(n)], dist.ReduceOp.SUM).wait()
    assert x.item() == rank() * n
    x = torch.zeros(n)
    group.alltoall_base(x, torch.full((n,), float(rank())), [], [], seconds(50)).wait()
    assert x.tolist() == list(range(n))
    group.barrier(timeout=seconds(50)).wait()
    with pytest.raises(ValueError, match=f"root rank {n} is none of the group's {n}"):
        group.broadcast(x, n)


# ---- The profiler.


def events(group):
    """The backend's events of some operations, and how often each was."""
    x, parts = torch.ones(4), [torch.ones(4) for _ in range(size())]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        dist.all_reduce(x, group=group)
        dist.all_reduce(x, group=group, async_op=True).wait()
        dist.broadcast(x, 0, group=group)
        dist.all_gather(parts, x, group=group)
        dist.reduce(x, 0, group=group)
        dist.gather(x, parts if rank() == 0 else None, 0, group=group)
        dist.scatter(x, parts if rank() == 0 else None, 0, group=group)
        dist.all_to_all_single(torch.empty(size()), torch.ones(size()), group=group)
        dist.barrier(group)
        if size() > 1 and rank() < 2:
            (dist.send if rank() == 0 else dist.recv)(x, 1 - rank(), group=group)
    name = dist.get_backend(group)
    return {e.key.partition(":")[2]: e.count for e in profile.key_averages() if e.key.startswith(f"{name}:")}


@since_2_6
def test_profiler_shows_what_it_shows_of_gloo(gloo):
    ours = events(world())
    assert ours.pop("wait") > 0
    assert ours == events(gloo)


@since_2_6
def test_operations_that_outlast_a_profile():
    """Gloo's events end with the operations, in memory that a profile may have freed."""
    for _ in range(20):
        x = torch.ones(2)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            work = dist.all_reduce(x, async_op=True)
            future = work.get_future()
        assert [e.count for e in profile.key_averages() if e.key == "gorovod:all_reduce"] == [1]
        future.wait()
        assert x.tolist() == [size()] * 2


# ---- Whole checkpoints, loaded from rank 0 and saved in the background.


def net(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))


def trained(seed, wrap=lambda model: model):
    model = net(seed)
    wrapped = wrap(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    wrapped(torch.randn(6, 4, generator=torch.Generator().manual_seed(5))).sum().backward()
    optimizer.step()
    return model, optimizer


def sharded(model):
    from torch.distributed.fsdp import fully_shard

    return fully_shard(model, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (size(),)))


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


@since_2_6
@pytest.mark.parametrize("wrap", ["plain", "DDP", "FSDP2"])
def test_a_whole_checkpoint_from_rank_0(wrap):
    from torch.distributed.checkpoint import state_dict as states

    if wrap == "FSDP2" and not hasattr(torch.cpu.Stream, "record_event"):
        pytest.skip("fully_shard of this PyTorch is for accelerators only")
    ddp = torch.nn.parallel.DistributedDataParallel
    wrapping = {"plain": lambda model: model, "DDP": ddp, "FSDP2": sharded}[wrap]
    source, source_optimizer = trained(1)
    full = states.StateDictOptions(full_state_dict=True)
    model_state = states.get_model_state_dict(source, options=full)
    optimizer_state = states.get_optimizer_state_dict(source, source_optimizer, options=full)
    model, optimizer = trained(2 + rank(), wrapping)
    from_rank_0 = states.StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    states.set_model_state_dict(model, model_state if rank() == 0 else {}, options=from_rank_0)
    states.set_optimizer_state_dict(model, optimizer, optimizer_state if rank() == 0 else {}, options=from_rank_0)
    for (name, got), value in zip(model.state_dict().items(), source.state_dict().values()):
        assert torch.equal(whole(got), value), name
    for p, q in zip(model.parameters(), source.parameters()):
        for key, value in source_optimizer.state[q].items():
            assert torch.equal(whole(optimizer.state[p][key]), value), key


@since_2_6
def test_checkpoints_are_saved_in_the_background(tmp_path):
    from torch.distributed import checkpoint

    paths = [str(tmp_path)]
    dist.broadcast_object_list(paths)
    state = {"model": net(1).state_dict()}
    saved = checkpoint.async_save(state, checkpoint_id=paths[0], process_group=dist.new_group())
    (saved if hasattr(saved, "result") else saved.upload_completion).result()
    loaded = {"model": net(2).state_dict()}
    checkpoint.load(loaded, checkpoint_id=paths[0])
    for name, value in state["model"].items():
        assert torch.equal(loaded["model"][name], value), name
    dist.barrier()


# ---- The end.


@several()
def test_abort():
    """It ends what is in progress, on all ranks; then the program can begin anew."""
    store = world().get_group_store()  # on rank 0, where it lives until the end of this test
    if rank() == 0:
        work = dist.all_reduce(torch.ones(2), async_op=True)
        world().abort()
        store.set("aborted", "yes")
        with pytest.raises(HorovodInternalError, match="shut down"):
            work.wait()
    else:
        store.get("aborted")
        with pytest.raises(HorovodInternalError, match="shut down"):
            dist.all_reduce(torch.ones(2))
    dist.destroy_process_group()
    hvd.shutdown()
    dist.init_process_group("gorovod", timeout=seconds(60))
    x = torch.ones(2)
    dist.all_reduce(x)
    assert x.tolist() == [size()] * 2
