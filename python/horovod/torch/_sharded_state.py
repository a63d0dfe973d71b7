"""What a sharded optimizer keeps: this rank's shares, and the state that belongs to them.

``state`` is by parameter, as in the optimizer's own class. Its tensors are this rank's shares, of one dimension; what
has another shape, such as a number of steps, is the same on all ranks. Float32 masters of 16-bit parameters are apart,
because an optimizer takes a parameter with any state for one that has been stepped; in checkpoints they are with it.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from typing import Any, Iterator, Optional

import torch

from horovod.common.process_sets import ProcessSet
from horovod.torch import _share_saves as saves
from horovod.torch._compiling import between_graphs, never_trace
from horovod.torch._gradient_optimizer import GradientOptimizer
from horovod.torch._hooked_optimizer import HookedOptimizer
from horovod.torch._parameter_share import ParameterShare
from horovod.torch._result import Result
from horovod.torch._shares import gather_async
from horovod.torch.functions import allgather_object, broadcast_object
from horovod.torch.mpi_ops import broadcast_, rank, size


class ShardedState(GradientOptimizer):
    """Keeps, saves and loads the shares. A derived class reduces gradients and makes steps."""

    def _reduce_by(self, op: int, gradient_predivide_factor: float, sparse_as_dense: bool) -> None:
        super()._reduce_by(op, gradient_predivide_factor, sparse_as_dense)
        self._reduces = bool(self.process_set.included())  # also on one rank: its steps are those of many
        self._shares: dict[torch.Tensor, ParameterShare] = {}
        self._dealt = self._place()
        self._loaded: Optional[saves.Whole] = None  # a whole state, from its load to the first step

    def _place(self) -> tuple[int, int]:
        """This rank's number among those that have shares, and how many these are."""
        if not self._reduces:
            return 0, 1
        ranks = self.process_set.ranks if self.process_set.process_set_id else None
        return (rank(), size()) if ranks is None else (ranks.index(rank()), len(ranks))

    def _base(self) -> Any:
        """The optimizer's own class."""
        mro = type(self).__mro__
        return mro[mro.index(HookedOptimizer) + 1]

    def _share(self, p: torch.Tensor) -> ParameterShare:
        share = self._shares.get(p)
        if share is None:
            share = self._shares[p] = ParameterShare(p, self.process_set)
        return share

    def _parameters(self) -> list[torch.Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    def _cut(self, p: torch.Tensor, state: dict[str, Any]) -> dict[str, Any]:
        """This rank's share of the state of a whole parameter, in memory of its own."""
        of = self._share(p).of
        return {
            key: of(value).to(saves.dtype_of(key, p, value), copy=True) if saves.is_whole(key, value, p) else value
            for key, value in state.items()
        }

    def _check_dealt(self) -> None:
        """Raise RuntimeError if the shares were made for other ranks: after a shutdown and another init."""
        if self._dealt != self._place():
            share, ranks = self._dealt
            raise RuntimeError(
                f"this sharded DistributedOptimizer has share {share} of {ranks}, and the job now needs share "
                f"{self._place()[0]} of {self._place()[1]}: load a state_dict() that was saved before"
            )

    def _deal_anew(self) -> None:
        """Drop all shares, and everything that belongs to them."""
        self._shares.clear()
        this: Any = self
        this.state.clear()
        self._dealt, self._loaded = self._place(), None

    @contextlib.contextmanager
    def _on_shares(self, inner: dict[torch.Tensor, torch.Tensor]) -> Iterator[None]:
        """Inside this context the optimizer has the parameters ``inner``, by those whose shares they are."""
        this: Any = self
        state: dict[Any, Any] = this.state
        lists = [group["params"] for group in self.param_groups]
        own: dict[Any, Any] = defaultdict(dict)
        own.update((key, value) for key, value in state.items() if not isinstance(key, torch.Tensor))
        own.update((share, state[p]) for p, share in inner.items() if p in state)
        try:
            for group, params in zip(self.param_groups, lists):
                group["params"] = [inner[p] for p in params if p in inner]
            this.state = own
            yield
        finally:
            this.state = state
            for group, params in zip(self.param_groups, lists):
                group["params"] = params
            state.update((key, value) for key, value in own.items() if not isinstance(key, torch.Tensor))
            for p, share in inner.items():
                if share in own:
                    state[p] = own[share]
                else:
                    state.pop(p, None)

    # ---- saving

    @contextlib.contextmanager
    def _with_state(self, state: dict[Any, Any]) -> Iterator[None]:
        this: Any = self
        own, this.state = this.state, state
        try:
            yield
        finally:
            this.state = own

    def _with_masters(self) -> dict[torch.Tensor, dict[str, Any]]:
        """The state of each parameter that has any, with its masters."""
        states = {}
        for p in self._parameters():
            state = dict(self.state[p]) if p in self.state else {}
            master = self._share(p).master
            if master is not None:
                state[saves.MASTER] = master
            if state:
                states[p] = state
        return states

    def _check_alike(self, states: dict[torch.Tensor, dict[str, Any]]) -> None:
        """Raise ValueError, on all ranks, unless all have state of the same parameters."""
        mine = [sorted(map(str, states[p])) if p in states else [] for p in self._parameters()]
        everybodys = allgather_object(mine, f"state_dict.{self._parameter_names_first()}", self.process_set)
        for number, other in enumerate(everybodys):
            if other != everybodys[0]:
                raise ValueError(
                    f"ranks have state of different parameters: rank {number} of {len(everybodys)} has other state "
                    "than rank 0, so their shares are not those of one step"
                )

    def _parameter_names_first(self) -> str:
        return self._travel_name(self._parameters()[0])

    @between_graphs
    def state_dict(self) -> dict[str, Any]:
        """Gather the whole state, in the form of the optimizer's own class. All ranks call this. Blocks.

        A 16-bit parameter also has ``master``, its float32 values, which other optimizers ignore.

        Raises:
            ValueError: ranks have state of different parameters.
            HorovodInternalError: the gathering failed.
        """
        if not self._reduces:
            return super().state_dict()
        self._check_dealt()
        states = self._with_masters()
        self._check_alike(states)
        whole = {p: {k: self._start_gathering(p, k, v) for k, v in state.items()} for p, state in states.items()}
        for p, state in whole.items():
            for key, value in state.items():
                if isinstance(value, Result):
                    state[key] = saves.shaped(value(), p)
        with self._with_state(whole):
            return super().state_dict()

    def _start_gathering(self, p: torch.Tensor, key: str, value: Any) -> Any:
        share = self._share(p)
        if not saves.is_share(value, share.elements):
            return value.clone() if isinstance(value, torch.Tensor) else value
        whole = torch.empty(p.numel(), dtype=value.dtype, device=value.device)
        whole[share.begin : share.end] = value
        return Result(gather_async(whole, f"{self._travel_name(p)}.{key}", self.process_set))

    def sharded_state_dict(self) -> dict[str, Any]:
        """This rank's shares alone, without any communication: to be saved by each rank in a file of its own.

        ``load_state_dict`` takes it on the same rank of as many ranks, or a list of all ranks' on any number of them.
        """
        with self._with_state(self._with_masters()):
            saved = super().state_dict()
        return {**saved, saves.SHARES: saves.described(self._dealt, self._parameters())}

    # ---- loading

    @between_graphs
    def load_state_dict(self, state_dict: Any) -> None:
        """Load the whole state, as the optimizer's own class does, or shares; this keeps what belongs to this rank.

        It calls no collective. If only one rank loads a whole state, call ``hvd.broadcast_optimizer_state`` before the
        first step; until then this rank also keeps what it was given.

        Args:
            state_dict: a whole state, also of an optimizer that is not sharded; or a result of
                :meth:`sharded_state_dict`; or a list of such results, of all ranks of the job that has saved them.

        Raises:
            ValueError: it is of other parameters; or of another rank, or of another number of ranks.
        """
        if not self._reduces:
            super().load_state_dict(state_dict)
            return
        place, parameters = self._place(), self._parameters()
        names = [self._parameter_names.get(p, f"parameter {i}") for i, p in enumerate(parameters)]
        whole = None
        if isinstance(state_dict, (list, tuple)):
            given = saves.merged(state_dict, place, parameters, names)
        elif saves.SHARES in state_dict:
            given = saves.of_this_rank(state_dict, place, parameters, names)
        else:
            given, whole = saves.cut(state_dict, place, parameters, names), saves.Whole(state_dict, parameters)
        masters = saves.without_masters(given, parameters)
        kept, kept_shares, dealt = dict(self.state), dict(self._shares), self._dealt
        self._deal_anew()
        try:
            with self._on_shares({p: self._share(p).prepare() for p in parameters}):
                super().load_state_dict(given)
        except BaseException:
            self._deal_anew()
            self.state.update(kept)
            self._shares.update(kept_shares)
            self._dealt = dealt
            raise
        for p in parameters:
            share = self._share(p)
            share.master = None
            if p in masters and share.is_narrow:
                share.master = masters[p].to(p.device, torch.float32)
        self._loaded = whole

    def _broadcast_state(self, root_rank: int, process_set: ProcessSet) -> None:
        """What ``broadcast_optimizer_state`` does: all ranks get the root's groups, and their shares of its state.

        If the root has loaded a whole state and not stepped since, they get their shares of that. If it has stepped,
        every rank keeps its shares, which no other rank has.
        """
        name = "broadcast_optimizer_state"
        mine: Any = None
        if rank() == root_rank:
            options = [{k: v for k, v in group.items() if k != "params"} for group in self.param_groups]
            lengths = [len(group["params"]) for group in self.param_groups]
            whole = None if self._loaded is None else self._loaded.described()
            mine = lengths, options, whole, bool(self._with_masters())
        lengths, options, whole, has_state = broadcast_object(mine, root_rank, name, process_set)
        if lengths != [len(group["params"]) for group in self.param_groups]:
            raise ValueError(
                f"the optimizer has {[len(group['params']) for group in self.param_groups]} parameters in its groups, "
                f"that of rank {root_rank} has {lengths}"
            )
        for group, theirs in zip(self.param_groups, options):
            group.update(theirs)
        if whole is None and has_state:
            self._check_dealt()
            self._check_alike(self._with_masters())
            return
        loaded = self._loaded
        self._deal_anew()
        if whole is None:
            return
        for i, (p, state) in enumerate(zip(self._parameters(), whole)):
            mine = {}
            for key, value in state.items():
                if not isinstance(value, saves.Shape):
                    mine[key] = value
                    continue
                tensor = value.empty(p) if loaded is None else loaded.tensor(i, key)
                broadcast_(tensor, root_rank, f"optimizer_state.{i}.{key}", process_set)
                part = self._share(p).of(tensor) if saves.is_whole(key, tensor, p) else tensor
                mine[key] = part.to(p.device, saves.dtype_of(key, p, part)).clone()
            master = mine.pop(saves.MASTER, None)
            if master is not None and self._share(p).is_narrow:
                self._share(p).master = master
            if mine:
                self.state[p] = mine

    # ---- what shares cannot

    def _settings(self) -> dict[str, Any]:
        raise TypeError(
            "a sharded DistributedOptimizer cannot be copied or pickled, because the other ranks have parts of it: "
            "save its state_dict(), which all ranks call, or each rank's sharded_state_dict()"
        )

    def __copy__(self) -> HookedOptimizer:
        self._settings()
        raise AssertionError


never_trace(__name__)
