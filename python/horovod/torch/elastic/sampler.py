"""A sampler that can continue in the middle of an epoch, with another number of ranks."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any, Iterator, Sized

import torch.utils.data

from horovod.torch.mpi_ops import rank, size


class ElasticSampler(torch.utils.data.Sampler):
    """Deals the remaining indices of an epoch of ``dataset`` out to the ranks.

    Record each batch with :meth:`record_batch`, and call :meth:`set_epoch` at the *end* of each epoch. If the indices
    cannot be divided equally, the first ones are dealt out again. In a ``TorchState`` the sampler is part of the state.

    Args:
        dataset: the data set whose indices are dealt out; it has a length.
        shuffle: give each epoch an order of its own, the same on all ranks.
        seed: decides the order.

    Raises:
        ValueError: Horovod is not initialised.

    Example:
        >>> sampler = hvd.elastic.ElasticSampler(range(5), shuffle=False)
        >>> sampler.record_batch(0, batch_size=2)
        >>> sampler.reset()
        >>> list(sampler)
        [2, 3, 4]
    """

    epoch: int
    processed_num: int  # finished indices of this epoch, over all ranks
    num_replicas: int
    rank: int
    remaining_indices: list[int]  # of this epoch, at the last reset
    num_samples: int  # for each rank
    total_size: int

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_num = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch, with all indices.

        Args:
            epoch: its number, which changes the order if the sampler shuffles.
        """
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Note that every rank has processed a batch.

        Args:
            batch_idx: the batch's number; it has no effect.
            batch_size: how many indices it had on each rank.
        """
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self) -> dict[str, Any]:
        """Say how far the sampler is.

        Returns:
            The epoch, and how many of its indices are finished on all ranks together; for :meth:`load_state_dict`.
        """
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from the place of another sampler.

        Args:
            state_dict: the result of its :meth:`state_dict`.
        """
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Deal the rest of the epoch out anew, to the present ranks.

        Raises:
            ValueError: Horovod is not initialised.
        """
        self.num_replicas = size()
        self.rank = rank()
        indices = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(indices)
        self.remaining_indices = indices[self.processed_num :]
        self.num_samples = math.ceil(len(self.remaining_indices) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        around = itertools.cycle(self.remaining_indices)
        return itertools.islice(around, self.rank, self.total_size, self.num_replicas)

    def __len__(self) -> int:
        return self.num_samples
