"""The argument ``groups`` of the distributed optimizers and tapes of TensorFlow and Keras."""

from __future__ import annotations

import warnings
from typing import Any, Sequence, Union

Groups = Union[None, int, Sequence[Sequence[Any]]]


def resolve_groups(num_groups: int, groups: Groups) -> Groups:
    """``groups``, or ``num_groups`` (deprecated) in its place. Raises ValueError for anything else."""
    if num_groups != 0:
        warnings.warn(
            "Parameter `num_groups` has been replaced by `groups` and will be removed in v0.23.0.",
            DeprecationWarning,
            stacklevel=3,
        )
        if groups is None:
            groups = num_groups
    if groups is not None and not (isinstance(groups, list) or (isinstance(groups, int) and groups > 0)):
        raise ValueError("groups should be a non-negative integer or a list of list of tf.Variable.")
    if isinstance(groups, list) and not all(isinstance(group, (list, tuple)) for group in groups):
        raise ValueError("groups must consist of lists of variables.")
    return groups
