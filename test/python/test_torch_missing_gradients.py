"""DistributedOptimizer where gradients are missing: what one plain process leaves alone stays alone on every rank."""

import pytest
import torch
from definitions import hvd_size, several

import horovod.torch as hvd

STEPS, FROM = 5, 2  # "late" loses its gradient from this step on

ALL_BUT_THE_LAST = hvd.ProcessSet(list(range(max(1, hvd_size() - 1))))


@pytest.fixture(scope="module", autouse=True)
def job():
    torch.set_num_threads(1)
    if hvd_size() == 1:  # the set of all ranks is there already
        hvd.init()
    else:
        hvd.init(process_sets=[ALL_BUT_THE_LAST])
    yield
    hvd.shutdown()


LATE = {
    "frozen": "frozen, and its gradient set to None",
    "frozen only": "frozen; its last gradient stays, unless zero_grad drops it",
    "unused": "used on no rank",
    "used on one rank": "the average must arrive on all",
    "used in turn": "by another rank in each step",
    "dropped": "its gradient is set to None between backward and step",
}

OPTIONS = {
    "plain": {},
    "one group": {"groups": 1},
    "lists": {"groups": [[0, 1], [2]]},
    "predivide": {"gradient_predivide_factor": 2.0},
    "fp16": {"compression": hvd.Compression.fp16},
    "sum": {"op": hvd.Sum},
    "passes": {"backward_passes_per_step": 2},
    "Adasum": {"op": hvd.Adasum},
    "process set": {"process_set": ALL_BUT_THE_LAST if hvd_size() > 1 else hvd.global_process_set},
}

OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.5, weight_decay=0.125),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.25, weight_decay=0.125),
}


def uses_late(how, step, rank, size):
    if step < FROM or how == "dropped":
        return True
    return {"used on one rank": rank == 0, "used in turn": rank == step % size}.get(how, False)


def train(optimizer, parameters, how, ranks, size, *, scale, passes, set_to_none, factor):
    """Train on the batches of ``ranks``, of which there are ``size``: all in one process, or this rank's own."""
    late = parameters[1]
    for step in range(STEPS):
        if step == FROM and how.startswith("frozen"):
            late.requires_grad_(False)
            if how == "frozen":
                late.grad = None
        for _ in range(passes):
            losses = []
            for rank in ranks:
                used = parameters if uses_late(how, step, rank, size) else [parameters[0], *parameters[2:]]
                losses += [(factor(rank) * p).sum() * scale for p in used]
            sum(losses).backward()
        if step >= FROM and how == "dropped":
            late.grad = None
        optimizer.step()
        optimizer.zero_grad(set_to_none=set_to_none)


def three():
    return [torch.nn.Parameter(torch.full((3,), 1.0 + i, dtype=torch.float64)) for i in range(3)]


def cases():
    for options in OPTIONS:
        for how in LATE:
            # Adasum's steps on unequal gradients are not those of one process, and it makes them during backward.
            if options != "Adasum" or how in ("frozen", "frozen only", "unused"):
                yield "SGD", options, how
    for how in LATE:
        yield "Adam", "plain", how


@pytest.mark.parametrize("set_to_none", [True, False], ids=["to none", "to zero"])
@pytest.mark.parametrize(("made", "options", "how"), cases())
def test_equals_one_process(made, options, how, set_to_none):
    given, parameters = dict(OPTIONS[options]), three()
    process_set = given.get("process_set", hvd.global_process_set)
    size = process_set.size() if process_set.included() else 1
    if "lists" in options:
        given["groups"] = [[parameters[i] for i in group] for group in given["groups"]]
    passes = given.get("backward_passes_per_step", 1)

    def factor(rank):
        return 1.0 if options == "Adasum" else rank + 1.0

    optimizer = hvd.DistributedOptimizer(OPTIMIZERS[made](parameters), **given)
    if not process_set.included():
        return
    common = {"passes": passes, "set_to_none": set_to_none, "factor": factor}
    train(optimizer, parameters, how, [hvd.rank()], size, scale=1.0, **common)
    reference = three()
    scale = 1.0 if options == "sum" else 1 / size
    train(OPTIMIZERS[made](reference), reference, how, range(size), size, scale=scale, **common)
    for p, q in zip(parameters, reference):
        torch.testing.assert_close(p, q, rtol=0, atol=1e-2 if options == "fp16" else 1e-9)
        assert (p.grad is None) == (q.grad is None)


def test_a_frozen_parameter_keeps_its_exact_value():
    weight, other = (torch.nn.Parameter(torch.ones(1)) for _ in range(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight, other], lr=0.25, momentum=0.5))
    for step in range(4):
        if step == 1:
            weight.requires_grad_(False)
        optimizer.zero_grad(set_to_none=True)
        (weight + other).sum().backward()
        optimizer.step()
    assert weight.item() == 0.75 and weight.grad is None
    assert other.item() == 1 - 0.25 * (1 + 1.5 + 1.75 + 1.875)


def test_a_step_without_any_gradient_changes_nothing():
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=0.5, momentum=0.5, weight_decay=0.5))
    weight.sum().backward()
    optimizer.step()
    after = weight.tolist()
    optimizer.zero_grad(set_to_none=True)
    optimizer.step()
    optimizer.synchronize()
    with optimizer.skip_synchronize():
        optimizer.step()
    assert weight.tolist() == after and weight.grad is None


def test_a_closure():
    """Each call of the closure finds out anew which gradients exist."""
    late, other = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([late, other], lr=0.5, momentum=0.5))

    def closure(used):
        optimizer.zero_grad(set_to_none=True)
        loss = sum(p.sum() for p in used)
        loss.backward()
        return loss

    optimizer.step(lambda: closure([late, other]))
    optimizer.step(lambda: closure([other]))
    assert late.tolist() == [0.5] * 2
    assert other.tolist() == [1 - 0.5 - 0.75] * 2


@pytest.mark.parametrize("layer", [torch.nn.Embedding, torch.nn.EmbeddingBag])
@pytest.mark.parametrize("made", [torch.optim.SparseAdam, torch.optim.SGD])
@pytest.mark.parametrize("options", [{}, {"sparse_as_dense": True}, {"groups": 1}], ids=str)
def test_sparse_gradients_of_some_ranks(options, made, layer):
    """Used by all ranks, then by rank 0, then by none."""

    def run(distribute, ranks):
        torch.manual_seed(1)
        words, out = layer(6, 2, sparse=True), torch.nn.Parameter(torch.ones(2))
        optimizers = [made(words.parameters(), lr=0.5), torch.optim.SGD([out], lr=0.5)]
        if distribute:
            named = [("words", words.weight)]
            optimizers[0] = hvd.DistributedOptimizer(optimizers[0], named, **options)
            optimizers[1] = hvd.DistributedOptimizer(optimizers[1], [("out", out)])
        for step in range(6):
            losses = [out.sum() / len(ranks)]
            for rank in ranks:
                if step < 2 or (step < 4 and rank == 0):
                    losses.append(words(torch.tensor([[1, 2 + rank % 4]])).sum() * (rank + 1.0) / len(ranks))
            sum(losses).backward()
            for optimizer in optimizers:
                optimizer.step()
            for optimizer in optimizers:
                optimizer.zero_grad(set_to_none=True)
        return words.weight

    mine = run(True, [hvd.rank()])
    torch.testing.assert_close(mine, run(False, range(hvd.size())))


@several()
def test_a_gradient_of_zeros_is_one():
    """Zeros that a rank has computed move the parameter by its momentum, on the ranks that have computed none, too."""
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=0.5, momentum=0.5))
    for step in range(2):
        if step == 0 or hvd.rank() == hvd.size() - 1:
            (weight * (1.0 - step) * (-1 if hvd.rank() else 1) ** step).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    assert weight.tolist() == [1 - 0.5 - 0.25] * 2


@several()
@pytest.mark.skipif(hvd_size() > 2, reason="one pair shows it")
def test_a_joined_rank_has_no_gradients():
    weight, unused = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight, unused], lr=0.5, weight_decay=0.5))
    if hvd.rank() == 0:
        weight.sum().backward()
        optimizer.step()
        assert weight.tolist() == [1 - 0.5 * (0.5 + 0.5)] * 2
        assert unused.tolist() == [1.0] * 2
    hvd.join()


@several()
def test_ranks_that_have_frozen_different_parameters_fail_at_once():
    # The first parameter by name is among those that differ.
    layers = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 2), "b": torch.nn.Linear(2, 2)})
    layers["a"].requires_grad_(hvd.rank() == 0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(layers.parameters(), lr=0.5), layers.named_parameters())
    layers["b"](layers["a"](torch.ones(1, 2))).sum().backward()
    try:
        also = "not" if hvd.rank() else "also"
        named = rf"only some ranks train these parameters: a\.bias \(1 of the ranks, {also} this one\), a\.weight \("
        with pytest.raises(hvd.HorovodInternalError, match=named):
            for _ in range(2):
                optimizer.step()
    finally:
        hvd.shutdown()
        hvd.init()
