"""Embeddings whose rows are divided among the ranks, and trained where they are."""

from __future__ import annotations

import weakref
from typing import Any, Callable, Optional

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional

from horovod.common import _tables
from horovod.common._reduce_ops import Average, Sum
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._compiling import between_graphs, never_trace
from horovod.torch._loss_scaling import Scaling
from horovod.torch._submission import process_set_id
from horovod.torch._table_saves import _Saved

_INTEGERS = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}

# The number of the backward pass that calls; -1 outside of one. PyTorch has it since 2.0.
_backward_pass: Optional[Callable[[], int]] = getattr(torch._C, "_current_graph_task_id", None)

# An input for autograd, which would not record a function of integers.
_anchor = torch.zeros((), requires_grad=True, device="cpu")


class _Training:
    """How a module's table is trained: the gradients of one backward pass become one push.

    If the table was looked up several times in a forward pass, the gradients of the lookups are added in the order in
    which backward brings them. The push begins as soon as all have come, and has ended when backward returns. With a
    GradScaler it begins once backward has brought all gradients, and only if those of all ranks are finite.
    """

    # The tables whose ranks are asking one another whether their gradients are finite. The ranks may end backward of
    # several tables in different orders, so each lets the pushes of all begin before it waits for one.
    asking: list[_Training] = []

    def __init__(self, table: _tables.Table, op: int, process_set: ProcessSet, scaling: Scaling) -> None:
        self.table, self.scaling = table, scaling
        self.world = table.world
        self.average, self.process_set = op == Average, process_set
        self.expected = 0  # lookups whose gradients are to come
        self.came: list[tuple[_Use, torch.Tensor]] = []
        self.pull: Optional[_tables.Pending] = None  # in progress
        self.pushes: list[_tables.Pending] = []  # in progress
        self.scaled: list[tuple[_tables.Lookup, torch.Tensor, int]] = []  # to push unless a rank's overflow

    def wait_for_pull(self) -> None:
        """Before a push, so that each run has one order."""
        pull, self.pull = self.pull, None
        if pull is not None:
            pull.wait()

    def add(self, use: _Use, gradients: torch.Tensor) -> None:
        """Take the gradients of one lookup, during backward."""
        use.settle()
        self.scaling.check()
        torch.autograd.Variable._execution_engine.queue_callback(self.finish)
        self.came.append((use, gradients))
        if self.expected <= 0:
            self.push()

    def push(self) -> None:
        came, self.came = self.came, []
        if not came:
            return
        lookup, gradients = came[0][0].lookup, came[0][1]
        if len(came) > 1:
            keys = torch.cat([use.distinct() for use, _ in came])
            lookup, index = look_up(self.table, keys, None)
            gradients = torch.zeros(lookup.distinct, self.table.dim, dtype=torch.float32, device="cpu")
            gradients.index_add_(0, index, torch.cat([g[: use.lookup.distinct] for use, g in came]))
        if self.average:
            gradients = gradients * (1.0 / (self.process_set.size() or 1))
        if self.scaling.active:
            gradients, question = self.scaling.unscale(gradients, len(self.scaled))
            self.scaled.append((lookup, gradients, question))
            if self not in self.asking:
                self.asking.append(self)
        else:
            self.begin_push(lookup, gradients)

    def begin_push(self, lookup: _tables.Lookup, gradients: torch.Tensor) -> None:
        gradients = gradients.contiguous()
        self.wait_for_pull()
        self.wait_for_pushes()
        self.pushes.append(lookup.push(gradients.data_ptr(), gradients))

    def wait_for_pushes(self) -> None:
        """Before the next pull, so that each run has one order."""
        pushes, self.pushes = self.pushes, []
        for push in pushes:
            push.wait()

    def finish(self) -> None:
        """End the pushes, at the end of backward."""
        self.push()
        while self.asking:
            self.asking.pop(0).push_finite()
        self.wait_for_pushes()
        self.scaling.passed()

    def push_finite(self) -> None:
        """Begin the pushes of gradients that are finite on all ranks."""
        scaled, self.scaled = self.scaled, []
        for lookup, gradients, question in scaled:
            if not self.scaling.overflowed(question):
                self.begin_push(lookup, gradients)

    def begin_pull(self) -> None:
        """Make ready for a pull. Gradients of a backward pass that has failed are forgotten."""
        if self.world != self.table.world:  # what was in progress belongs to a world that has ended
            self.world, self.pull, self.pushes, self.came, self.scaled = self.table.world, None, [], [], []
        if (self.came or self.scaled) and _backward_pass is not None and _backward_pass() < 0:
            self.came, self.scaled = [], []
        self.wait_for_pushes()


class _Use:
    """One lookup in a graph that may go backward."""

    def __init__(self, training: _Training, lookup: _tables.Lookup, keys: torch.Tensor, index: torch.Tensor) -> None:
        self.lookup, self._keys, self._index = lookup, keys, index
        training.expected += 1
        self.settle = weakref.finalize(self, _settle, training)  # also if the graph is dropped
        self.settle.atexit = False

    def distinct(self) -> torch.Tensor:
        """The distinct keys, in the order of their rows."""
        # The last place is the padding's.
        places = torch.empty(self.lookup.distinct + 1, dtype=torch.int64, device="cpu")
        places[self._index] = self._keys
        return places[:-1]


def _settle(training: _Training) -> None:
    training.expected -= 1


class _Rows(torch.autograd.Function):
    """Rows of a table, whose gradients are pushed."""

    @staticmethod
    def forward(ctx: Any, _: torch.Tensor, rows: torch.Tensor, training: _Training, use: _Use) -> torch.Tensor:
        ctx.training, ctx.use = training, use
        return rows.view_as(rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradients: torch.Tensor) -> tuple[None, None, None, None]:
        ctx.training.add(ctx.use, gradients)
        return None, None, None, None


def look_up(table: _tables.Table, keys: torch.Tensor, padding: Optional[int]) -> tuple[_tables.Lookup, torch.Tensor]:
    """The lookup of keys, one-dimensional int64 in host memory, and the place of each one's row."""
    index = torch.empty_like(keys)
    return table.lookup(keys.data_ptr(), keys.numel(), index.data_ptr(), padding), index


class _Pulled:
    """Rows that have been asked for."""

    def __init__(self, keys: torch.Tensor, table: _tables.Table, padding: Optional[int], trains: bool) -> None:
        self.keys, self.trains = keys, trains
        self.lookup, self.index = look_up(table, keys, padding)
        self.world = table.world
        self.rows = torch.empty(
            self.lookup.distinct + (padding is not None), table.dim, dtype=torch.float32, device="cpu"
        )
        if padding is not None:
            self.rows[-1].zero_()
        self.pending = self.lookup.pull(self.rows.data_ptr(), not trains, self.rows)


class _Sharded(_Saved):
    """What the two modules share."""

    def __init__(
        self,
        dim: int,
        num_embeddings: Optional[int],
        optimizer: str,
        lr: Optional[_tables.Rate],
        seed: int,
        init: str,
        scale: Optional[float],
        padding_idx: Optional[int],
        op: int,
        name: Optional[str],
        process_set: ProcessSet,
        scaler: Any,
        options: dict[str, Optional[float]],
    ) -> None:
        super().__init__()
        if op not in (Sum, Average):
            raise ValueError(f"op must be hvd.Sum or hvd.Average, not {op!r}")
        known = {**_tables.NUMBERS, **_tables.LIMITS}
        unknown = set(options) - set(known)
        if unknown:
            raise TypeError(f"unknown options {sorted(unknown)}; possible are {sorted(known)}")
        number = process_set_id(process_set)
        name = _tables.unnamed(number) if name is None else name
        scaling = Scaling(scaler, name, process_set)
        self.dim, self.num_embeddings, self.padding_idx = dim, num_embeddings, padding_idx
        self._table = _tables.Table(
            name, dim, num_embeddings, optimizer, lr, seed, init, number, scale=scale, **options
        )
        self._training = _Training(self._table, op, process_set, scaling)
        self._ahead = None

    @property
    def lr(self) -> _tables.Rate:
        """The learning rate of later pushes: a number, or a function of the number of pushes so far. Set it alike on
        all ranks.
        """
        return self._table.lr

    @lr.setter
    def lr(self, lr: _tables.Rate) -> None:
        self._table.lr = lr

    @between_graphs
    def prefetch(self, input: torch.Tensor) -> None:
        """Begin to pull the rows for the next call of forward, while this rank does other work. All ranks call it.

        Call it after ``backward``, for example before ``optimizer.step()``: rows that are asked for before a push are
        without it. The next call of forward must get equal keys.

        Args:
            input: the keys that the next call of forward gets.

        Raises:
            ValueError: rows have been prefetched, and forward has not been called.

        Example:
            >>> layer = hvd.ShardedEmbedding(4)
            >>> layer.prefetch(torch.tensor([7, -1]))
            >>> layer(torch.tensor([7, -1])).shape
            torch.Size([2, 4])
        """
        if self._prefetched() is not None:
            raise ValueError("prefetch was called already; call forward with its keys first")
        self._ahead = self._ask(self._keys(input))
        self._training.pull = self._ahead.pending

    def _keys(self, input: torch.Tensor) -> torch.Tensor:
        if not isinstance(input, torch.Tensor):
            raise TypeError(f"input must be a torch.Tensor, not {type(input).__name__}")
        if input.dtype not in _INTEGERS:
            raise TypeError(f"input must have integers, not {input.dtype}")
        return input.detach().reshape(-1).to("cpu", torch.int64).contiguous()

    def _ask(self, keys: torch.Tensor) -> _Pulled:
        self._check_rows()
        self._training.begin_pull()
        return _Pulled(keys, self._table, self.padding_idx, self.training and torch.is_grad_enabled())

    def _pull(self, input: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
        """The rows of the distinct keys, the place of each key's row, in the shape of ``input``, and the padding's."""
        keys = self._keys(input)
        pulled, self._ahead = self._prefetched(), None
        if pulled is None:
            pulled = self._ask(keys)
        elif not torch.equal(pulled.keys, keys):
            self._ahead = pulled
            raise ValueError("forward was called with other keys than prefetch")
        self._training.pull = None
        pulled.pending.wait()
        rows = pulled.rows
        if pulled.trains and torch.is_grad_enabled():
            use = _Use(self._training, pulled.lookup, keys, pulled.index)
            rows = _Rows.apply(_anchor, rows, self._training, use)
        return rows.to(input.device), pulled.index.view(input.shape).to(input.device), pulled.lookup.distinct

    def local_rows(self) -> int:
        """How many rows of the table this rank has.

        Returns:
            The number of rows.

        Example:
            >>> layer = hvd.ShardedEmbedding(4)
            >>> _ = layer(torch.tensor([7, 7, -1]))
            >>> layer.local_rows()
            2
        """
        return self._table.rows()

    def extra_repr(self) -> str:
        """The module's arguments, for PyTorch's text of it.

        Returns:
            The arguments.

        Example:
            >>> hvd.ShardedEmbedding(4, 100)
            ShardedEmbedding(100, 4, name='embedding...', optimizer='adagrad')
        """
        keys = "any" if self.num_embeddings is None else self.num_embeddings
        return f"{keys}, {self.dim}, name={self._table.name!r}, optimizer={self._table.optimizer!r}"


class ShardedEmbedding(_Sharded):
    """As ``torch.nn.Embedding``, but the rows are divided among the ranks, and exist once they are asked for.

    So there may be more rows than a machine can hold, and keys of any value. The rows are no parameters: the rank that
    has a row trains it during ``backward``, by an optimizer of the module's own, and a ``DistributedOptimizer`` of the
    other parameters has nothing to reduce for them.

    All ranks of ``process_set`` make the module with equal arguments, and call forward and backward equally often. The
    rows that a rank has never asked for come into being at their first use in training, with numbers that depend on
    ``seed``, ``name`` and the key alone. In ``eval()``, and without gradients, a new key reads as such a row, which is
    not made. With as many ranks, each run has the same bits.

    :meth:`save` and :meth:`load` keep the rows in a directory. ``state_dict`` has none of them: it has their number of
    pushes, warns if these are not saved, and a table whose rows are missing after ``load_state_dict`` says so.

    Args:
        dim: the numbers of a row.
        num_embeddings: keys are those from 0 to ``num_embeddings - 1``. None: every int64.
        optimizer: "adagrad", "rowwise_adagrad" (4 bytes of state for a row), "adam", "ftrl" or "sgd".
        lr: the learning rate, or a function of the number of pushes so far; 0.01, for Adam 0.001. See the attribute
            ``lr``.
        seed: of the new rows.
        init: of the new rows: "normal", "uniform" or "zeros".
        scale: the standard deviation of "normal", or the bound of "uniform"; 1/sqrt(dim).
        padding_idx: a key that reads as zeros, and has no gradient.
        op: ``hvd.Sum`` adds the gradients of the ranks; ``hvd.Average`` divides by their number.
        name: the table's, one of its own in the process set. Without it, the modules are numbered as they are made.
        process_set: the ranks that have the rows.
        scaler: the ``torch.amp.GradScaler`` of the losses that train the rows, which unscales their gradients, too. If
            those of a rank overflow, no rank uses its own, and the scale shrinks at ``scaler.update()``. Without it,
            backward refuses gradients once a GradScaler has scaled a loss. False: other losses may be scaled.
        options: the optimizer's numbers: ``eps``, ``initial_accumulator``, ``beta1``, ``beta2``, ``beta``, ``l1``,
            ``l2``. Which keys have rows: with ``admit_after=n`` a key gets its row at its n-th pull; ``evict_idle=n``
            drops rows that were not used for n pushes, except those with ``evict_keep`` pulls; ``max_rows=n`` drops the
            rows that were not used for longest.

    Raises:
        ValueError, TypeError: arguments are bad.
        HorovodInternalError: another rank has other arguments: the text names them.
        NotImplementedError: the job is elastic, and ``process_set`` is not that of all ranks.

    Example:
        >>> layer = hvd.ShardedEmbedding(2, optimizer="sgd", lr=1.0, init="zeros")
        >>> layer(torch.tensor([[10**12, -5], [7, 7]])).sum().backward()
        >>> layer(torch.tensor([7])).tolist()
        [[-2.0, -2.0]]
    """

    def __init__(
        self,
        dim: int,
        num_embeddings: Optional[int] = None,
        optimizer: str = "adagrad",
        lr: Optional[_tables.Rate] = None,
        seed: int = 0,
        init: str = "normal",
        scale: Optional[float] = None,
        padding_idx: Optional[int] = None,
        op: int = Sum,
        name: Optional[str] = None,
        process_set: ProcessSet = global_process_set,
        scaler: Any = None,
        **options: Optional[float],
    ) -> None:
        super().__init__(
            dim, num_embeddings, optimizer, lr, seed, init, scale, padding_idx, op, name, process_set, scaler, options
        )

    @between_graphs
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """The rows of keys. All ranks call this, each with keys of its own. Blocks.

        Args:
            input: integers of any shape, in host memory or on a GPU.

        Returns:
            A float32 tensor of the shape of ``input`` and ``dim``, where ``input`` is.

        Raises:
            ValueError: a key is out of range, or prefetch was called with other keys.
            HorovodInternalError: another rank has a key that is out of range, or a rank is gone.
        """
        rows, index, padding = self._pull(input)
        return functional.embedding(index, rows, padding if self.padding_idx is not None else None)


class ShardedEmbeddingBag(_Sharded):
    """As ``torch.nn.EmbeddingBag``, over the rows of a :class:`ShardedEmbedding`.

    Args:
        dim: the numbers of a row.
        num_embeddings: as for :class:`ShardedEmbedding`.
        mode: "sum", "mean" or "max" of the rows of a bag.
        optimizer: as for :class:`ShardedEmbedding`.
        lr: as for :class:`ShardedEmbedding`.
        seed: as for :class:`ShardedEmbedding`.
        init: as for :class:`ShardedEmbedding`.
        scale: as for :class:`ShardedEmbedding`.
        include_last_offset: the last of ``offsets`` is the number of keys.
        padding_idx: a key that belongs to no bag.
        op: as for :class:`ShardedEmbedding`.
        name: as for :class:`ShardedEmbedding`.
        process_set: as for :class:`ShardedEmbedding`.
        scaler: as for :class:`ShardedEmbedding`.
        options: as for :class:`ShardedEmbedding`.

    Raises:
        ValueError, TypeError: arguments are bad.
        HorovodInternalError: another rank has other arguments: the text names them.
        NotImplementedError: the job is elastic, and ``process_set`` is not that of all ranks.

    Example:
        >>> layer = hvd.ShardedEmbeddingBag(3, mode="mean", init="zeros")
        >>> layer(torch.tensor([5, 10**12, 5]), offsets=torch.tensor([0, 2])).shape
        torch.Size([2, 3])
    """

    def __init__(
        self,
        dim: int,
        num_embeddings: Optional[int] = None,
        mode: str = "sum",
        optimizer: str = "adagrad",
        lr: Optional[_tables.Rate] = None,
        seed: int = 0,
        init: str = "normal",
        scale: Optional[float] = None,
        include_last_offset: bool = False,
        padding_idx: Optional[int] = None,
        op: int = Sum,
        name: Optional[str] = None,
        process_set: ProcessSet = global_process_set,
        scaler: Any = None,
        **options: Optional[float],
    ) -> None:
        if mode not in ("sum", "mean", "max"):
            raise ValueError(f'mode must be "sum", "mean" or "max", not {mode!r}')
        super().__init__(
            dim, num_embeddings, optimizer, lr, seed, init, scale, padding_idx, op, name, process_set, scaler, options
        )
        self.mode, self.include_last_offset = mode, include_last_offset

    @between_graphs
    def forward(
        self,
        input: torch.Tensor,
        offsets: Optional[torch.Tensor] = None,
        per_sample_weights: Optional[torch.Tensor] = None,
    ) -> torch.Tensor:
        """The combined rows of bags of keys. All ranks call this, each with bags of its own. Blocks.

        Args:
            input: integers: one bag in each row, or all bags one after the other, with ``offsets``.
            offsets: where each bag begins in ``input``.
            per_sample_weights: factors for the rows, in the shape of ``input``, with the mode "sum".

        Returns:
            A float32 tensor with a row for each bag, where ``input`` is.

        Raises:
            ValueError: as :meth:`ShardedEmbedding.forward`, or ``offsets`` do not fit ``input``.
            HorovodInternalError: as :meth:`ShardedEmbedding.forward`.
        """
        rows, index, padding = self._pull(input)
        return functional.embedding_bag(
            index,
            rows,
            offsets,
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=padding if self.padding_idx is not None else None,
        )


never_trace(__name__)
