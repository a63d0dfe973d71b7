"""The sharded optimizer: DistributedOptimizer with sharded=True.

A step has these phases, each with names of its own in timelines and errors:

1. During backward each gradient is reduced by a reducescatter, in place: this rank's share of it gets the result.
2. The inner step, which is that of the optimizer's own class, updates this rank's share of each parameter. Its state is
   of shares, too.
3. The shares of each parameter are gathered in place, while the inner step goes on with others.

Every parameter is divided among all ranks by elements, see :mod:`horovod.torch._shares`.
"""

from __future__ import annotations

import functools
import sys
import weakref
from functools import partial
from typing import Any, Callable, Iterable, Iterator, Optional, Sequence, Union

import torch

from horovod.common._reduce_ops import Average, Sum
from horovod.common.process_sets import ProcessSet
from horovod.torch._compiling import between_graphs, never_trace, untraced
from horovod.torch._elementwise import check_elementwise, is_known
from horovod.torch._gradient_optimizer import SCATTERED, Reduction, in_turn, under_way
from horovod.torch._hooked_optimizer import Submitted
from horovod.torch._parameter_share import flat_like
from horovod.torch._result import Result
from horovod.torch._sharded_state import ShardedState
from horovod.torch._share_gradients import patch_scalers, scale, total_norm, unscale
from horovod.torch._share_memory import enough_memory, note
from horovod.torch._share_presence import SharePresence
from horovod.torch._shares import gather_async, grouped_scatter_async, scatter_async
from horovod.torch.compression import Compression, Compressor
from horovod.torch.mpi_ops import size, sparse_allreduce_async

_CHUNK = 1 << 20  # elements of this rank's shares that one call of the inner step updates


class ShardedOptimizer(ShardedState):
    """Reduces this rank's share of each gradient, and keeps the state of these shares alone.

    From :meth:`synchronize` or :meth:`step` to ``zero_grad`` only this rank's share of each ``grad`` has a meaning.
    """

    _count = SharePresence

    def _distribute(
        self,
        named_parameters: Optional[Iterable[tuple[str, torch.Tensor]]],
        compression: type[Compressor],
        backward_passes_per_step: int,
        op: int,
        gradient_predivide_factor: float,
        groups: Union[None, int, list[list[torch.Tensor]]],
        sparse_as_dense: bool,
        process_set: ProcessSet,
    ) -> None:
        super()._distribute(
            named_parameters,
            compression,
            backward_passes_per_step,
            op,
            gradient_predivide_factor,
            groups,
            sparse_as_dense,
            process_set,
        )
        patch_scalers()
        # The program's hooks of a step see whole parameters, so they belong to this step, not to the inner one.
        for patch in ("_patch_step_function", "_hook_for_profile"):  # since PyTorch 2.0, and before
            if hasattr(self, patch):
                getattr(self, patch)()
                break
        if self._reduces:
            for p in self._parameters():
                self._share(p)  # raises the right error
            for p in [p for p in self.state if isinstance(p, torch.Tensor)]:
                self.state[p] = self._cut(p, self.state[p])

    def _reduce_by(self, op: int, gradient_predivide_factor: float, sparse_as_dense: bool) -> None:
        super()._reduce_by(op, gradient_predivide_factor, sparse_as_dense)
        self._by_probe = not is_known(self._base())
        self._scattered: dict[torch.Tensor, torch.Tensor] = {}  # the reduced shares of gradients
        self._seen: dict[torch.Tensor, tuple[Any, int]] = {}  # reduced gradients, by weak references, and versions
        self._agreed = False  # whether the ranks are known to divide the same parameters

    # ---- gradients

    def _rest(self) -> tuple[list[torch.Tensor], Optional[Exception]]:
        rest, failure = super()._rest()
        if failure is None and not self._agreed and self._presence is not None:
            try:
                assert isinstance(self._presence, SharePresence)
                self._presence.agree()
                self._agreed = True
            except Exception as e:
                failure = e
        return rest, failure

    def _submit(self, p: torch.Tensor) -> None:
        """Submit the gradient of ``p``, and of its group."""
        members, wholes, sparse_dims = [], [], []
        for q in self._group_of.get(p, [p]):
            if not self._is_reduced(q):
                continue
            gradient = self._no_gradient(q) if q.grad is None else q.grad.detach()
            if gradient.is_sparse and not self.sparse_as_dense:
                wait = sparse_allreduce_async(gradient, self._travel_name(q), self.op, self.process_set)
                self._submitted[q] = Submitted(wait, stays_sparse=True)
                continue
            whole = flat_like(gradient.to_dense() if gradient.is_sparse else gradient, q)
            if whole.numel() > 0:
                in_turn(whole, SCATTERED)
            members.append(q)
            wholes.append(whole)
            sparse_dims.append(gradient.sparse_dim() if gradient.is_sparse else 0)
        if not members:
            return
        # On one rank nothing is reduced without sharded=True.
        factors = (1.0, 1.0) if size() == 1 else (self._prescale, self._postscale)
        reduction = (self.op, self.process_set, *factors)
        name = self._travel_name(p if p not in self._group_of else self._group_of[p][0])
        waits: list[Callable[[], torch.Tensor]]
        if p not in self._group_of:
            result = Reduction(scatter_async(wholes[0], name, *reduction), SCATTERED)
            waits = [result]
        else:
            names = [self._parameter_names[q] for q in members]
            result = Reduction(grouped_scatter_async(wholes, name, *reduction, names=names), SCATTERED)
            waits = [partial(_of_group, result, i) for i in range(len(wholes))]
        under_way.update((whole.data_ptr(), result) for whole in wholes)
        for q, wait, dims in zip(members, waits, sparse_dims):
            self._submitted[q] = Submitted(wait, None, dims)

    def _finish(self, p: torch.Tensor, submitted: Submitted) -> None:
        assert submitted.wait is not None
        reduced = submitted.wait()
        if p.grad is None and self._presence is not None and not self._presence.is_held(p):
            return  # no rank has a gradient any more: the step leaves the parameter alone
        if submitted.stays_sparse:
            reduced = self._share(p).of_sparse(reduced)
        elif submitted.sparse_dims:
            reduced = reduced.to_sparse()
        self._scattered[p] = reduced

    @between_graphs
    def synchronize(self) -> None:
        """Reduce this rank's share of every gradient. Blocks.

        The other elements of each ``grad`` have no meaning then, so clip by :meth:`clip_grad_norm`. A second call has
        no effect until gradients are computed anew.

        Raises:
            ValueError: a gradient belongs to another optimizer, too.
            HorovodInternalError: as in the optimizer that is not sharded; or the ranks disagree about ``sharded``.
        """
        if self._synchronized:
            return
        self._check_dealt()
        self._scattered.clear()
        super().synchronize()
        self._see()

    def _see(self) -> None:
        """Remember which gradients are reduced, for the two checks that follow."""
        self._seen = {p: (weakref.ref(p.grad), p.grad._version) for p in self._scattered if p.grad is not None}

    def _check_untouched(self) -> None:
        """Raise ValueError if the program has changed gradients since :meth:`synchronize`.

        It does not know the other ranks' shares: a norm, for example, would be another one on each rank.
        """
        for p, (gradient, version) in self._seen.items():
            if p.grad is None or p.grad is not gradient() or p.grad._version != version:
                raise ValueError(
                    f"the gradient of {self._parameter_names[p]} was changed after synchronize(). With sharded=True a "
                    "rank has only its share of each gradient then: clip by optimizer.clip_grad_norm(max_norm)"
                )

    @between_graphs
    def _gradient_is_ready(self, p: torch.Tensor) -> None:
        gradient, version = self._seen.pop(p, (None, 0))
        if gradient is not None and p.grad is gradient() and p.grad._version == version + 1:
            raise AssertionError(
                f"the gradient of {self._parameter_names[p]} was added to one that was reduced before, of which this "
                "rank has only its share, because of sharded=True. Call zero_grad() before"
            )
        if self._synchronized:
            self._forget()
        super()._gradient_is_ready(p)

    def _deal_anew(self) -> None:
        super()._deal_anew()
        self._agreed = False

    def _forget(self) -> None:
        """Drop the reduced gradients."""
        self._synchronized = False
        self._scattered.clear()

    def load_state_dict(self, state_dict: Any) -> None:
        super().load_state_dict(state_dict)
        self._seen.clear()
        self._forget()

    load_state_dict.__doc__ = ShardedState.load_state_dict.__doc__

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """As in the optimizer's own class. Raises AssertionError while gradients are being reduced."""
        super().zero_grad(*args, **kwargs)
        self._seen.clear()
        self._forget()

    @between_graphs
    def clip_grad_norm(self, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False) -> torch.Tensor:
        """Scale the gradients so that their norm, of all parameters together, is at most ``max_norm``. Blocks.

        It takes the place of ``torch.nn.utils.clip_grad_norm_``, between backward and :meth:`step`. All ranks call it.
        The norm is added up in float64, so it may differ from PyTorch's by the rounding of that: relatively some 1e-6.

        Args:
            max_norm: the largest norm that stays.
            norm_type: above 0; ``inf`` for the largest element.
            error_if_nonfinite: raise RuntimeError if the norm is no finite number; nothing is scaled then.

        Returns:
            The norm before, the same on all ranks.

        Raises:
            ValueError: ``norm_type`` is not above 0.
            RuntimeError: see ``error_if_nonfinite``.
            HorovodInternalError: as :meth:`synchronize`.
        """
        if not norm_type > 0:
            raise ValueError(f"norm_type must be above 0, not {norm_type!r}")
        if not self._reduces:
            return torch.nn.utils.clip_grad_norm_(self._parameters(), max_norm, norm_type, error_if_nonfinite)
        self.synchronize()
        self._check_untouched()
        self._scattered.update((p, g.coalesce()) for p, g in self._scattered.items() if g.is_sparse)
        gradients = list(self._scattered.values())
        name = f"clip_grad_norm.{self._first_name()}"
        total = total_norm(gradients, float(norm_type), name, self.process_set)
        if error_if_nonfinite and not bool(torch.isfinite(total)):
            raise RuntimeError(f"the total norm of order {norm_type} of the gradients is {float(total)}, not finite")
        if all(g.dtype != torch.float64 for g in gradients):
            total = total.float()
        scale(gradients, (max_norm / (total + 1e-6)).clamp(max=1.0))
        self._see()
        return total

    def _unscale_shares(self, inv_scale: torch.Tensor) -> torch.Tensor:
        """Undo a GradScaler's scaling. Returns 1.0 if a gradient on some rank is not finite, otherwise 0.0."""
        self.synchronize()
        self._check_untouched()
        for p, gradient in self._scattered.items():
            if gradient.is_sparse:
                self._scattered[p] = gradient.coalesce()
            elif self._share(p).is_narrow:
                self._scattered[p] = gradient.float()  # as its masters are
        name = f"found_inf.{self._first_name()}"
        found = unscale(list(self._scattered.values()), inv_scale, name, self.process_set)
        self._see()
        return found

    # ---- the step

    @between_graphs
    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Update this rank's share of each parameter, and gather the shares. Blocks.

        Then all ranks have equal parameters. With a closure, which is called once, its gradients are used.

        Raises:
            ValueError: a closure for an optimizer that is not known, which may call it more than once; or the program
                has changed gradients after :meth:`synchronize`.
            AssertionError: in :meth:`skip_synchronize` without :meth:`synchronize` before.
            HorovodInternalError: a reduction failed; the parameters are as before. Or a gathering failed.
        """
        if not self._reduces:
            return self._own_step(closure)
        loss = None
        if closure is not None:
            if self._by_probe:
                raise ValueError(
                    f"sharded=True: {type(self).__name__} may call a closure more than once, so it cannot have one"
                )
            if self._submitted:
                self.synchronize()
            with torch.enable_grad():
                loss = closure()
        if not self._should_synchronize and not self._synchronized:
            raise AssertionError("sharded=True: call synchronize() before a step inside skip_synchronize()")
        self.synchronize()
        self._check_untouched()
        self._loaded = None
        try:
            self._update()
        finally:
            self._forget()
        note(self)
        self._stepped()
        return loss

    def _own_step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """The step of the optimizer's own class, without the program's hooks, which run around :meth:`step`."""
        own = self._base().step
        if getattr(own, "hooked", False):
            own = own.__wrapped__
        if "torch._dynamo" in sys.modules:  # the compiler would trace it, with shares as its parameters
            own = _untraced(own)
        return own(self, closure) if closure is not None else own(self)

    def _update(self) -> None:
        """Step on the shares, and gather each one's parameter as soon as it is updated."""
        gathered: list[tuple[torch.Tensor, Result]] = []
        failure: Optional[Exception] = None
        with torch.no_grad():
            for chunk in self._chunks_of_shares():
                try:
                    with enough_memory(sum(self._share(p).elements for p in chunk)):
                        self._update_shares(chunk)
                    for p in chunk:
                        gathered.append((p, self._gather(p)))
                except Exception as e:
                    failure = e
                    break
        for _, result in gathered:
            try:
                result()
            except Exception as e:
                failure = failure or e
        if failure is not None:
            try:
                raise failure
            finally:
                failure = None  # its stack has this frame: together they would keep the optimizer alive

    def _gather(self, p: torch.Tensor) -> Result:
        return Result(gather_async(self._share(p).whole(), self._travel_name(p), self.process_set))

    def _chunks_of_shares(self) -> Iterator[list[torch.Tensor]]:
        """The parameters to update, in the order of their gradients: so many at a time that gathering can begin soon.

        An optimizer that is not known may count its steps, so it gets all at once.
        """
        chunk: list[torch.Tensor] = []
        elements = 0
        for p in self._scattered:
            chunk.append(p)
            elements += self._share(p).elements
            if elements >= _CHUNK and not self._by_probe:
                yield chunk
                chunk, elements = [], 0
        if chunk or self._by_probe:
            yield chunk

    def _update_shares(self, parameters: Sequence[torch.Tensor]) -> None:
        """Make the inner step for this rank's shares of these parameters."""
        gradients = {p: self._scattered[p] for p in parameters}
        shares = {p: self._share(p) for p in parameters}
        with self._on_shares({p: share.prepare(gradients[p].is_sparse) for p, share in shares.items()}):
            for p, share in shares.items():
                share.give(gradients[p])
            self._own_step()
        for share in shares.values():
            share.take()


_untraced = functools.lru_cache(maxsize=None)(untraced)


def check_sharded(optimizer: torch.optim.Optimizer, compression: Any, op: int, elementwise: bool) -> None:
    """Raise ValueError unless ``optimizer`` can be sharded with these arguments of DistributedOptimizer."""
    if op not in (Average, Sum):
        raise ValueError("sharded=True needs op=hvd.Average or hvd.Sum")
    if compression is not Compression.none:
        raise ValueError(
            f"sharded=True sends gradients as they are, so compression must be Compression.none, not {compression!r}"
        )
    check_elementwise(optimizer, elementwise)


def _of_group(results: Result, i: int) -> torch.Tensor:
    return results()[i]


never_trace(__name__)
