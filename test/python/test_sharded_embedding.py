"""Embeddings whose rows are divided among the ranks, against torch's own on one rank."""

import copy
import pickle
import signal

import pytest
import torch

import horovod.torch as hvd
from horovod.common import _tables

KEYS, DIM = 40, 3


@pytest.fixture(autouse=True, scope="module")
def _world(request):
    """The job, in which process sets may be added."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1")
        yield request.getfixturevalue("job")


def batch(rank, step, shape=(4, 5)):
    """The keys and factors of a rank in a step: the same wherever they are made."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return (
        torch.randint(KEYS, shape, generator=generator),
        torch.randn(*shape, DIM, generator=generator),
    )


def all_rows(layer, keys=KEYS):
    """The rows of all keys, which this neither makes nor trains."""
    layer.eval()
    rows = layer(torch.arange(keys))
    layer.train()
    assert not rows.requires_grad
    return rows


@pytest.mark.parametrize("shape", [(4, 5), (7,), (2, 1, 3), (0,)], ids=str)
def test_rows_have_the_keys_shape(shape):
    layer = hvd.ShardedEmbedding(DIM, seed=3)
    keys, _ = batch(hvd.rank(), 0, shape)
    rows = layer(keys.int())
    assert rows.shape == (*shape, DIM) and rows.dtype == torch.float32 and rows.requires_grad
    assert torch.equal(rows, all_rows(layer)[keys])
    rows.sum().backward()


def reference(optimizer, initial):
    embedding = torch.nn.Embedding(KEYS, DIM, sparse=optimizer == "adam", _weight=initial.clone())
    made = {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
        "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
        "adam": lambda p: torch.optim.SparseAdam(list(p), lr=0.1),
    }[optimizer](embedding.parameters())
    return embedding, made


@pytest.mark.parametrize("op", ["Sum", "Average"])
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
def test_training_is_torchs(optimizer, op):
    layer = hvd.ShardedEmbedding(DIM, KEYS, optimizer=optimizer, lr=0.1, op=getattr(hvd, op))
    embedding, steps = reference(optimizer, all_rows(layer))
    assert layer.local_rows() == 0
    for step in range(5):
        keys, factors = batch(hvd.rank(), step)
        (layer(keys) * factors).sum().backward()
        steps.zero_grad()
        loss = sum((embedding(k) * f).sum() for k, f in (batch(r, step) for r in range(hvd.size())))
        (loss / (hvd.size() if op == "Average" else 1)).backward()
        steps.step()
        assert torch.allclose(all_rows(layer), embedding.weight, atol=1e-5)
    rows = hvd.allreduce(torch.tensor(layer.local_rows()), op=hvd.Sum, name="rows")
    assert rows == len({int(k) for r in range(hvd.size()) for s in range(5) for k in batch(r, s)[0].view(-1)})


def test_same_numbers_in_each_run():
    rows = []
    for name in ["run", "run.2", "run"]:
        table = f"{name}.{len(rows) // 2}"  # run.0, run.2.0, run.1: no name twice
        layer = hvd.ShardedEmbedding(2, seed=5, name=table)
        rows.append(layer(torch.tensor([-7, 1 << 60])))
        other = hvd.allgather(rows[-1].detach()[None], name=f"{table}.all")
        assert torch.equal(other, rows[-1].detach().expand(hvd.size(), 2, 2))
    assert not torch.equal(rows[0], rows[1]) and not torch.equal(rows[0], rows[2])


def test_new_rows():
    keys = torch.arange(20_000) * 7919 - (1 << 40)
    known = [("normal", None, 0.5), ("normal", 2.0, 2.0), ("uniform", 3.0, 3**0.5), ("zeros", 1.0, 0)]
    for init, scale, deviation in known:
        rows = hvd.ShardedEmbedding(4, init=init, scale=scale)(keys).detach()
        assert abs(float(rows.mean())) < 0.05 and abs(float(rows.std()) - deviation) < 0.05


def test_padding():
    layer = hvd.ShardedEmbedding(DIM, KEYS, padding_idx=3, optimizer="sgd", lr=1.0)
    keys = torch.tensor([[3, 4], [4, 3]])
    rows = layer(keys)
    assert torch.equal(rows[0, 0], torch.zeros(DIM)) and torch.equal(rows[0, 1], rows[1, 0])
    before = rows[0, 1].detach().clone()
    rows.sum().backward()
    rows = layer(keys)
    assert torch.equal(rows[1, 1], torch.zeros(DIM))
    assert torch.allclose(rows[0, 1], before - 2 * hvd.size())


def test_several_lookups_are_one_push():
    """As with torch's Embedding: an optimizer step for all uses of a row."""
    pushes = []

    def rate(n):
        pushes.append(n)
        return 0.1

    layer = hvd.ShardedEmbedding(DIM, KEYS, optimizer="adagrad", lr=rate, padding_idx=0)
    embedding, steps = reference("adagrad", all_rows(layer))
    for step in range(3):
        keys, factors = batch(hvd.rank(), step)
        lookups = [layer(keys), layer(keys[:2]), layer(keys.flip(0))]
        sum((rows * f).sum() for rows, f in zip(lookups, [factors, factors[:2], 2 * factors])).backward()
        steps.zero_grad()
        loss = 0
        for k, f in (batch(r, step) for r in range(hvd.size())):
            for keys, factors in [(k, f), (k[:2], f[:2]), (k.flip(0), 2 * f)]:
                loss = loss + (embedding(keys) * factors)[keys != 0].sum()
        loss.backward()
        steps.step()
        assert torch.allclose(all_rows(layer)[1:], embedding.weight[1:], atol=1e-5)
    assert pushes == [0, 0, 1, 2]  # the first one is the module's


def test_lookups_that_go_nowhere():
    layer = hvd.ShardedEmbedding(DIM, KEYS, optimizer="sgd", lr=1.0, init="zeros")
    dropped, kept = layer(torch.tensor([1])), layer(torch.tensor([2]))
    other = layer(torch.tensor([3]))
    kept.sum().backward()
    assert all_rows(layer)[2, 0] == -hvd.size()
    del dropped
    other.sum().backward(retain_graph=True)
    other.sum().backward()
    assert all_rows(layer)[:4, 0].tolist() == [0, 0, -hvd.size(), -2 * hvd.size()]


def test_no_gradients_no_rows():
    layer = hvd.ShardedEmbedding(DIM)
    with torch.no_grad():
        looked = layer(torch.tensor([5]))
    assert not looked.requires_grad and layer.local_rows() == 0
    assert torch.equal(layer(torch.tensor([5])), looked)


def test_a_schedule():
    layer = hvd.ShardedEmbedding(1, optimizer="sgd", lr=lambda n: 2.0**-n, init="zeros")
    for _ in range(3):
        layer(torch.tensor([9])).sum().backward()
    assert all_rows(layer, 10)[9] == -hvd.size() * 1.75
    layer.lr = 4.0
    layer(torch.tensor([9])).sum().backward()
    assert layer.lr == 4.0 and all_rows(layer, 10)[9] == -hvd.size() * 5.75


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 3])
def test_bags_are_torchs(mode, padding):
    layer = hvd.ShardedEmbeddingBag(DIM, KEYS, mode=mode, optimizer="sgd", lr=0.5, padding_idx=padding)
    layer.eval()
    initial = layer(torch.arange(KEYS)[:, None])
    layer.train()
    if padding is not None:
        assert torch.equal(initial[padding], torch.zeros(DIM))
    embedding = torch.nn.EmbeddingBag(KEYS, DIM, mode=mode, padding_idx=padding, _weight=initial.clone())
    steps = torch.optim.SGD(embedding.parameters(), lr=0.5)
    offsets = torch.tensor([0, 3, 3, 10])
    for step in range(3):
        keys, _ = batch(hvd.rank(), step, (16,))
        bags = layer(keys, offsets)
        (bags * torch.arange(12.0).view(4, DIM)).sum().backward()
        steps.zero_grad()
        total = 0
        for r in range(hvd.size()):
            theirs = embedding(batch(r, step, (16,))[0], offsets)
            if r == hvd.rank():
                assert torch.allclose(theirs, bags, atol=1e-5)
            total = total + (theirs * torch.arange(12.0).view(4, DIM)).sum()
        total.backward()
        steps.step()
    keys, _ = batch(0, 9)
    assert torch.allclose(layer(keys), embedding(keys), atol=1e-5)


def test_weights_of_samples():
    layer = hvd.ShardedEmbeddingBag(DIM, KEYS, optimizer="sgd", lr=1.0, include_last_offset=True)
    keys, weights = torch.tensor([1, 2, 1]), torch.tensor([0.5, 2.0, 3.0], requires_grad=True)
    out = layer(keys, torch.tensor([0, 2, 3]), per_sample_weights=weights)
    layer.eval()
    rows = layer(keys, torch.arange(4))
    layer.train()
    assert torch.allclose(out, torch.stack([0.5 * rows[0] + 2 * rows[1], 3 * rows[2]]))
    out.sum().backward()
    assert torch.allclose(weights.grad, rows.sum(1))
    layer.eval()
    assert torch.allclose(
        layer(keys[:2], torch.arange(3)), rows[:2] - hvd.size() * torch.tensor([[3.5], [2.0]]), atol=1e-5
    )


def test_inside_a_distributed_optimizer():
    torch.manual_seed(0)
    layer, head = hvd.ShardedEmbedding(8, optimizer="adam", lr=0.05), torch.nn.Linear(8, 1)
    model = torch.nn.Sequential(layer, head)
    assert [name for name, _ in model.named_parameters()] == ["1.weight", "1.bias"]
    optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=0.05), model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    losses = []
    for _ in range(60):
        keys = torch.arange(hvd.rank(), 64, hvd.size()) * (1 << 33)
        want = (keys >> 33).remainder(2).float()
        optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(keys)[:, 0], want)
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    assert losses[-1] < 0.05 < 0.3 < losses[0]
    everybodys = hvd.allgather(head.weight.detach())
    assert torch.equal(everybodys, head.weight.detach().expand(hvd.size(), 8))
    assert hvd.allreduce(torch.tensor(layer.local_rows()), op=hvd.Sum, name="rows") == 64


def test_prefetch():
    layer = hvd.ShardedEmbedding(DIM, optimizer="sgd", lr=1.0, init="zeros")
    for step in range(3):
        keys = torch.tensor([step, hvd.rank()])
        rows = layer(keys)
        rows.sum().backward()
        layer.prefetch(keys + 1)
        with pytest.raises(ValueError, match="prefetch was called already"):
            layer.prefetch(keys)
        with pytest.raises(ValueError, match="other keys than prefetch"):
            layer(keys)
        assert torch.equal(layer(keys + 1).detach(), all_rows(layer, 10)[keys + 1])


def test_uneven_data():
    """Ranks that have joined serve their rows."""
    layer = hvd.ShardedEmbedding(1, optimizer="sgd", lr=1.0, init="zeros")
    for _ in range(hvd.rank() + 1):
        layer(torch.arange(KEYS)).sum().backward()
    hvd.join()
    assert torch.equal(all_rows(layer), torch.full((KEYS, 1), -float(hvd.size() * (hvd.size() + 1) // 2)))


def test_which_keys_have_rows():
    """Keys get rows at their second pull, by whichever ranks, and lose them when two pushes do not use them."""
    layer = hvd.ShardedEmbedding(2, optimizer="sgd", lr=1.0, admit_after=2, evict_idle=1)
    keys = torch.tensor([5, 10**12 + hvd.rank()])

    def rows():
        return int(hvd.allreduce(torch.tensor(layer.local_rows()), op=hvd.Sum, name="rows"))

    assert not layer(keys).any() and rows() == 0
    made = layer(keys)
    assert made.all() and rows() == 1 + hvd.size()
    made.sum().backward()
    assert torch.equal(layer(keys)[0], made[0].detach() - hvd.size())
    for step in range(3):  # the first one's gradients are dropped
        pulled = layer(torch.tensor([7]))
        assert bool(pulled.any()) == (step > 0)
        pulled.sum().backward()
    assert rows() == 1
    assert not layer.eval()(keys).any()
    with pytest.raises(ValueError, match="max_rows must be from 0 to"):
        hvd.ShardedEmbedding(2, max_rows=-1)
    with pytest.raises(TypeError, match="admit_after must be an int"):
        hvd.ShardedEmbedding(2, admit_after=1.5)


def test_max_rows():
    """The table keeps about as many rows, the last ones."""
    layer = hvd.ShardedEmbedding(1, optimizer="sgd", max_rows=65536, init="zeros")
    for step in range(4):
        keys = torch.arange(40_000) + (step * hvd.size() + hvd.rank()) * 40_000
        layer(keys).sum().backward()
    total = hvd.allreduce(torch.tensor(layer.local_rows()), op=hvd.Sum, name="rows")
    assert 50_000 < total < 65536 * 9 // 8


def test_metrics_of_tables():
    layer = hvd.ShardedEmbedding(2, name="measured")
    for _ in range(3):
        layer(torch.tensor([1, 1, 1, hvd.rank()])).sum().backward()
    (table,) = [table for table in hvd.metrics()["tables"] if table["name"] == "measured"]
    assert table["rows"] == layer.local_rows() and table["pulls"] == table["pushes"] == 3
    assert table["keys"] == (3 if hvd.rank() == 1 else 6) and table["hottest"] == 1 and table["process_set"] == 0
    assert table["pull_seconds"] > 0 < table["push_seconds"] and (table["bytes"] > 0) == (table["rows"] > 0)


@pytest.mark.skipif("hvd.size() == 1")
def test_in_a_process_set():
    """The members alone have the rows, and the others none."""
    last = hvd.size() - 1
    members = hvd.add_process_set([last])
    if hvd.rank() == last:
        layer = hvd.ShardedEmbedding(DIM, optimizer="sgd", lr=1.0, init="zeros", process_set=members)
        for _ in range(2):
            layer(torch.arange(KEYS)).sum().backward()
        assert torch.equal(all_rows(layer), torch.full((KEYS, DIM), -2.0)) and layer.local_rows() == KEYS
    else:
        with pytest.raises(ValueError, match="process set"):
            hvd.ShardedEmbedding(DIM, process_set=members)
    hvd.barrier()
    hvd.remove_process_set(members)


def test_beside_compressed_gradients():
    """Compression is for the other parameters: rows and their gradients travel as they are."""
    layer, head = hvd.ShardedEmbedding(2, optimizer="sgd", lr=1.0, init="zeros"), torch.nn.Linear(2, 1)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(head.parameters(), lr=0.0), head.named_parameters(), compression=hvd.Compression.fp16
    )
    torch.nn.init.constant_(head.weight, 1 / 3)
    keys = torch.arange(3)
    head(layer(keys)).sum().backward()
    optimizer.step()
    assert torch.equal(all_rows(layer, 3), -sum([head.weight.detach()] * hvd.size()).expand(3, 2))


@pytest.mark.skipif("not torch.cuda.is_available()")
def test_keys_on_a_gpu():
    """Rows come to where the keys are, by way of host memory."""
    layer = hvd.ShardedEmbedding(DIM, optimizer="sgd", lr=1.0, init="zeros")
    rows = layer(torch.arange(KEYS, device="cuda"))
    rows.sum().backward()
    assert rows.is_cuda and torch.equal(all_rows(layer), torch.full((KEYS, DIM), -float(hvd.size())))


def test_two_layers_at_a_time():
    users = hvd.ShardedEmbedding(2, lr=1.0, optimizer="sgd")
    films = hvd.ShardedEmbeddingBag(2, KEYS, optimizer="ftrl", lr=0.1)
    before = all_rows(users)
    for _ in range(3):
        keys, _ = batch(hvd.rank(), 0)
        (users(keys[0]).sum() + films(keys).sum()).backward()
    expected = torch.zeros(KEYS)
    for r in range(hvd.size()):
        expected.index_add_(0, batch(r, 0)[0][0], torch.full((5,), -3.0))
    assert torch.allclose(all_rows(users), before + expected[:, None], atol=1e-5)


def test_copies_share_the_table_and_pickles_do_not_exist():
    layer = hvd.ShardedEmbedding(2)
    other = copy.deepcopy(layer)
    layer(torch.tensor([4])).sum().backward()
    assert torch.equal(all_rows(other), all_rows(layer))
    with pytest.raises(TypeError, match="sparse table .* cannot be pickled"):
        pickle.dumps(layer)
    assert "any, 2, name='embedding." in repr(layer)


@pytest.mark.skipif("not hasattr(torch, 'compile')")
def test_torch_compile():
    layer, head = hvd.ShardedEmbedding(4, optimizer="sgd", lr=0.5), torch.nn.Linear(4, 1)
    model = torch.compile(torch.nn.Sequential(layer, head), backend="eager")
    before = all_rows(layer)
    model(torch.arange(5)).sum().backward()
    weight = hvd.allreduce(head.weight.detach(), op=hvd.Sum, name="weight")
    assert torch.allclose(all_rows(layer)[:5], before[:5] - 0.5 * weight, atol=1e-6)


def grad_scaler(**options):
    try:
        return torch.amp.GradScaler("cpu", **options)
    except AttributeError:
        pytest.skip("this PyTorch has no torch.amp.GradScaler, which came with 2.3")


@pytest.mark.parametrize("op", ["Sum", "Average"])
def test_scaled_losses(op):
    """The rows are trained as without a scaler, and if one rank overflows, no rank trains any."""
    scaler = grad_scaler(init_scale=1024.0)
    average, head = getattr(hvd, op), torch.nn.Linear(DIM, 1)
    layer = hvd.ShardedEmbedding(DIM, optimizer="adam", lr=0.1, op=average, seed=1, name=f"scaled.{op}", scaler=scaler)
    films = hvd.ShardedEmbedding(DIM, optimizer="sgd", lr=0.1, init="zeros", scaler=scaler)
    plain = hvd.ShardedEmbedding(DIM, optimizer="adam", lr=0.1, op=average, init="zeros", scaler=False)
    start = all_rows(layer)
    plain_before, films_before = all_rows(plain), all_rows(films)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(head.parameters(), lr=0.1), head.named_parameters())
    for step in range(5):
        keys, factors = batch(hvd.rank(), step)
        before = all_rows(layer)
        overflows = step == 2 and hvd.rank() == hvd.size() - 1
        bad = float("inf") if overflows else 1.0
        optimizer.zero_grad()
        loss = (layer(keys) * factors * bad).sum() + (layer(keys[0]) * factors[0]).sum() + head(films(keys)).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == (1024 if step < 2 else 512)
        assert torch.equal(all_rows(layer), before) == (step == 2)
        if step != 2:  # without the scaler, which has scaled a loss
            ((plain(keys) * factors).sum() + (plain(keys[0]) * factors[0]).sum()).backward()
    assert torch.allclose(all_rows(layer) - start, all_rows(plain) - plain_before, atol=1e-5)
    assert not torch.equal(all_rows(films), films_before)


def test_an_overflow_of_rows_alone_shrinks_the_scale():
    """Also if several backward passes overflow before update()."""
    scaler = grad_scaler(init_scale=64.0)
    layer = hvd.ShardedEmbedding(2, optimizer="sgd", lr=1.0, init="zeros", scaler=scaler)
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    for scale in (32, 16):
        for _ in range(2):
            bad = float("nan") if hvd.rank() == 0 else 1.0
            scaler.scale((layer(torch.tensor([3])) * bad).sum() + weight.sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == scale
    assert not all_rows(layer).any()


def test_scaled_losses_without_a_scaler_are_refused():
    scaler = grad_scaler()
    layer, other = hvd.ShardedEmbedding(2, init="zeros"), hvd.ShardedEmbedding(2, scaler=False)
    keys = torch.tensor([1, 2])
    for _ in range(2):
        with pytest.raises(ValueError, match=r"table 'embedding\..*': a GradScaler has scaled a loss .* Pass scaler="):
            scaler.scale(layer(keys).sum()).backward()
        assert not all_rows(layer).any()
        layer(keys).sum().backward()  # which is not scaled
        assert all_rows(layer)[1].all()
        layer = hvd.ShardedEmbedding(2, init="zeros")
    before = all_rows(other)
    scaler.scale(torch.zeros(1))
    other(keys).sum().backward()
    assert not torch.equal(all_rows(other), before)


def test_a_disabled_scaler_changes_nothing():
    scaler = torch.cuda.amp.GradScaler(enabled=False)
    for given in (None, scaler):
        layer = hvd.ShardedEmbedding(2, optimizer="sgd", lr=1.0, init="zeros", scaler=given)
        scaler.scale(layer(torch.tensor([3])).sum()).backward()
        assert torch.equal(all_rows(copy.deepcopy(layer))[3], torch.full((2,), -float(hvd.size())))


def test_a_signal_interrupts_a_rank_that_waits_for_the_others():
    def interrupt(*_):
        raise KeyboardInterrupt

    if hvd.size() == 1:
        pytest.skip("one rank waits for none")
    if hvd.rank() == 0:
        before = signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        try:
            with pytest.raises(KeyboardInterrupt):
                hvd.ShardedEmbedding(2, name="interrupted")
        finally:
            signal.signal(signal.SIGALRM, before)
    hvd.barrier()
    if hvd.rank() != 0:  # rank 0's part of this is still in progress
        _tables.meet("interrupted", 0)
    hvd.ShardedEmbedding(2)


def test_bad_arguments():
    for error, says, arguments in [
        (ValueError, "dim is 0; 1 to 65536 are possible", {"dim": 0}),
        (TypeError, "dim must be an int, not 2.0", {"dim": 2.0}),
        (ValueError, "num_embeddings must be above 0, or None", {"num_embeddings": 0}),
        (ValueError, 'optimizer is "adamw"; possible are sgd, adagrad, rowwise_adagrad,', {"optimizer": "adamw"}),
        (ValueError, 'init is "ones"; "normal", "uniform" and "zeros" are', {"init": "ones"}),
        (ValueError, "lr must be a number from 0 on, not -1.0", {"lr": -1}),
        (TypeError, "lr must be a number, not 'fast'", {"lr": "fast"}),
        (ValueError, "beta1 is 1; it must be a number from 0 on, below 1", {"optimizer": "adam", "beta1": 1.0}),
        (ValueError, "scale must be a number from 0 on, not nan", {"scale": float("nan")}),
        (TypeError, r"unknown options \['weight_decay'\]", {"weight_decay": 0.1}),
        (ValueError, "op must be hvd.Sum or hvd.Average", {"op": hvd.Max}),
        (TypeError, "scaler must be a torch.amp.GradScaler, False or None, not True", {"scaler": True}),
        (TypeError, "process_set must be a ProcessSet", {"process_set": 0}),
    ]:
        with pytest.raises(error, match=says):
            hvd.ShardedEmbedding(**{"dim": 2, **arguments})
    with pytest.raises(ValueError, match='mode must be "sum", "mean" or "max"'):
        hvd.ShardedEmbeddingBag(2, mode="median")
    hvd.ShardedEmbedding(2, name="twice")
    with pytest.raises(ValueError, match='table "twice": the process set has a table of this name already'):
        hvd.ShardedEmbedding(2, name="twice")


def test_bad_keys():
    layer = hvd.ShardedEmbedding(2, KEYS)
    with pytest.raises(TypeError, match="input must have integers, not torch.float32"):
        layer(torch.tensor([1.0]))
    with pytest.raises(TypeError, match=r"input must be a torch.Tensor, not list"):
        layer([1])
    last = hvd.size() - 1
    keys = torch.tensor([0, KEYS if hvd.rank() == last else 1])
    with pytest.raises(ValueError if hvd.rank() == last else hvd.HorovodInternalError) as raised:
        layer(keys)
    assert f'"pull.{layer._table.name}": key {KEYS} at position 1 is not one of 0 to {KEYS - 1}' in str(raised.value)
    assert hvd.rank() == last or f"rank {last}" in str(raised.value)
    assert layer(torch.tensor([0])).shape == (1, 2)  # it goes on


@pytest.mark.skipif("hvd.size() == 1")
def test_ranks_that_differ():
    here = hvd.rank() == 1
    for what, arguments in [
        ("dim", {"dim": 2 + here}),
        ("optimizer", {"optimizer": "adam" if here else "sgd", "lr": 0.1}),
        ("lr", {"lr": 0.25 if here else 0.5}),
    ]:
        says = f'table "differ.{what}": Mismatched {what}: rank 0 has .*, rank 1 has'
        with pytest.raises(hvd.HorovodInternalError, match=says):
            hvd.ShardedEmbedding(**{"dim": 2, "name": f"differ.{what}", **arguments})
    layer = hvd.ShardedEmbedding(1, optimizer="sgd", lr=1.0)
    layer.lr = 1.0 + hvd.rank()
    with pytest.raises(hvd.HorovodInternalError, match="Mismatched learning rates: rank 0 has 1, rank 1 has 2"):
        layer(torch.tensor([1])).sum().backward()
    layer.lr = 1.0
    layer(torch.tensor([1])).sum().backward()


def test_another_default_type():
    torch.set_default_dtype(torch.float64)
    try:
        layer = hvd.ShardedEmbedding(4, name="default type")
        rows = layer(torch.tensor([1, 2, 2]))
        (rows.sum() + layer(torch.tensor([2, 3])).sum()).backward()
        assert rows.dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)
