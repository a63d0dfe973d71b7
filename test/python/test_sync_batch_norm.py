"""SyncBatchNorm against a single process's BatchNorm on the whole batch."""

import copy

import pytest
import torch
from definitions import hvd_size, several, works

import horovod.torch as hvd

pytestmark = pytest.mark.usefixtures("job")

CHANNELS = 3
PLAIN = {2: torch.nn.BatchNorm1d, 3: torch.nn.BatchNorm1d, 4: torch.nn.BatchNorm2d, 5: torch.nn.BatchNorm3d}
REST = {2: (), 3: (5,), 4: (4, 3), 5: (2, 3, 2)}


def rows_of_ranks(kind):
    n = hvd.size()
    return {
        "equal": [4] * n,
        "unequal": [1 + 2 * r for r in range(n)],
        "none on the first": [0] + [3] * (n - 1) if n > 1 else [3],
        "one each": [1] * n,
    }[kind]


class Both:
    """The layer, and the plain one on the whole batch, side by side."""

    def __init__(self, rows, ndim=4, dtype=torch.float64, **options):
        self.starts = [sum(rows[:r]) for r in range(len(rows) + 1)]
        self.shape = (sum(rows), CHANNELS, *REST[ndim])
        self.dtype = dtype
        self.layer = hvd.SyncBatchNorm(CHANNELS, **options).to(dtype)
        self.plain = PLAIN[ndim](CHANNELS, **options).to(dtype)
        if self.layer.affine:
            with torch.no_grad():
                for layer in (self.layer, self.plain):
                    layer.weight.copy_(torch.tensor([0.5, -2.0, 1.0]))
                    layer.bias.copy_(torch.tensor([3.0, 0.0, -1.0]))

    def mine(self, tensor):
        return tensor[self.starts[hvd.rank()] : self.starts[hvd.rank() + 1]]

    def step(self, seed, tolerance=None):
        """Forward and backward once; everything is compared."""
        close = {"rtol": tolerance, "atol": tolerance} if tolerance else {}
        generator = torch.Generator().manual_seed(seed)
        whole = torch.randn(self.shape, generator=generator, dtype=torch.float64) * 3 + 7
        # The ranks' means differ, so that the variance between them counts.
        whole += torch.arange(len(whole)).view(-1, *[1] * (len(self.shape) - 1))
        gradient = torch.randn(self.shape, generator=generator, dtype=torch.float64).to(self.dtype)
        whole = whole.to(self.dtype)
        mine = self.mine(whole).clone().requires_grad_()
        whole.requires_grad_()
        output, expected = self.layer(mine), self.plain(whole)
        assert output.dtype == self.dtype and output.shape == mine.shape
        torch.testing.assert_close(output, self.mine(expected), **close)
        output.backward(self.mine(gradient))
        expected.backward(gradient)
        torch.testing.assert_close(mine.grad, self.mine(whole.grad), **close)
        for p, q in zip(self.layer.parameters(), self.plain.parameters()):
            torch.testing.assert_close(hvd.allreduce(p.grad, op=hvd.Sum), q.grad, **close)
        self.layer.zero_grad()
        self.plain.zero_grad()
        for key, value in self.plain.state_dict().items():
            torch.testing.assert_close(self.layer.state_dict()[key], value, **close)
        for buffer in self.layer.buffers():
            everyone = hvd.allgather(buffer.reshape(1, -1))
            assert torch.equal(everyone, everyone[:1].expand_as(everyone))


@pytest.mark.parametrize("rows", ["equal", "unequal", "none on the first", "one each"])
@pytest.mark.parametrize("ndim", REST)
def test_equals_one_process(rows, ndim):
    rows = rows_of_ranks(rows)
    if sum(rows) == 1 and ndim == 2:
        pytest.skip("one value has no variance")
    both = Both(rows, ndim)
    for step in range(3):
        both.step(step)


@pytest.mark.parametrize(
    "options",
    [
        {"affine": False},
        {"track_running_stats": False},
        {"momentum": None},
        {"momentum": 0.5, "eps": 1e-2},
        {"eps": 1e-12},
    ],
    ids=str,
)
def test_options(options):
    both = Both(rows_of_ranks("unequal"), **options)
    for step in range(3):
        both.step(step)
    both.layer.eval()
    both.plain.eval()
    both.step(9)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 0.15), (torch.float16, 0.02)], ids=str
)
def test_narrow_types(dtype, tolerance):
    """Compared with float64, because not every PyTorch has a BatchNorm in float16."""
    both = Both(rows_of_ranks("unequal"), dtype=dtype)
    if hvd.size() == 1 and dtype is not torch.float32:
        pytest.skip("with one rank it is PyTorch's own")
    both.plain = both.plain.double()
    whole = torch.randn(both.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    mine = both.mine(whole).clone().requires_grad_()
    reference = whole.double().requires_grad_()
    output, expected = both.layer(mine), both.plain(reference)
    assert output.dtype is dtype
    close = {"rtol": tolerance, "atol": tolerance, "check_dtype": False}
    torch.testing.assert_close(output, both.mine(expected), **close)
    weights = torch.linspace(0, 1, whole.numel()).view(both.shape)
    (output.float() * both.mine(weights)).sum().backward()
    (expected * weights).sum().backward()
    assert mine.grad.dtype is dtype and both.layer.weight.grad.dtype is dtype
    torch.testing.assert_close(mine.grad, both.mine(reference.grad), **close)


def test_precision_far_from_zero():
    """The variance stays precise where the mean is large against the deviation."""
    generator = torch.Generator().manual_seed(5)
    whole = torch.randn(8 * hvd.size(), CHANNELS, generator=generator, dtype=torch.float64) + 1e6
    mine = whole[8 * hvd.rank() : 8 * (hvd.rank() + 1)]
    output = hvd.SyncBatchNorm(CHANNELS).double()(mine)
    expected = torch.nn.BatchNorm1d(CHANNELS).double()(whole)[8 * hvd.rank() : 8 * (hvd.rank() + 1)]
    torch.testing.assert_close(output, expected)


def test_evaluation_needs_no_other_rank():
    layer = hvd.SyncBatchNorm(CHANNELS).eval()
    if hvd.rank() == 0:
        x = torch.randn(4, CHANNELS)
        torch.testing.assert_close(layer(x), x / (1 + layer.eps) ** 0.5)
    works()


def test_training_equals_one_process():
    """Two such layers in a network, under DistributedOptimizer, with an input that needs no gradient."""
    torch.manual_seed(1)
    net = torch.nn.Sequential(
        hvd.SyncBatchNorm(6), torch.nn.Linear(6, 5), hvd.SyncBatchNorm(5), torch.nn.Tanh(), torch.nn.Linear(5, 1)
    ).double()
    reference = copy.deepcopy(net)
    reference[0], reference[2] = torch.nn.BatchNorm1d(6).double(), torch.nn.BatchNorm1d(5).double()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters())
    plain = torch.optim.SGD(reference.parameters(), lr=0.1)
    for step in range(5):
        x = torch.randn(4 * hvd.size(), 6, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
        for opt, model, part in (
            (optimizer, net, x[4 * hvd.rank() : 4 * (hvd.rank() + 1)]),
            (plain, reference, x),
        ):
            opt.zero_grad()
            model(part).square().mean().backward()
            opt.step()
    for (name, value), expected in zip(net.state_dict().items(), reference.state_dict().values()):
        torch.testing.assert_close(value, expected, msg=lambda text, name=name: f"{name}: {text}")


def test_memory_format_and_no_grad():
    layer = hvd.SyncBatchNorm(CHANNELS)
    x = torch.randn(2, CHANNELS, 4, 4).contiguous(memory_format=torch.channels_last).requires_grad_()
    assert layer(x).is_contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        assert not layer(x).requires_grad
    assert int(layer.num_batches_tracked) == 2


def test_errors():
    layer = hvd.SyncBatchNorm(CHANNELS)
    with pytest.raises(ValueError, match="at least 2D input"):
        layer(torch.ones(CHANNELS))
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        layer(torch.ones(1 if hvd.rank() == 0 else 0, CHANNELS))
    works()


@several()
def test_wrong_number_of_channels():
    with pytest.raises(ValueError, match="expected 3 channels"):
        hvd.SyncBatchNorm(CHANNELS)(torch.ones(2, CHANNELS + 1))
    works()


@pytest.mark.skipif(hvd_size() != 2, reason="two ranks")
def test_names_are_horovods(monkeypatch):
    from horovod.torch import sync_batch_norm

    names = []
    for function in ("allgather_async", "allreduce_async"):
        original = getattr(sync_batch_norm, function)

        def spy(*args, original=original, **kwargs):
            names.append(kwargs.get("name") or args[1])
            return original(*args, **kwargs)

        monkeypatch.setattr(sync_batch_norm, function, spy)
    hvd.SyncBatchNorm(CHANNELS)(torch.randn(2, CHANNELS, requires_grad=True)).sum().backward()
    assert names == [f"sync_batch_norm.{name}" for name in ("count", "mean", "invstd", "sum_dy", "sum_dy_xmu")]
