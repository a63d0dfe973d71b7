"""Checks whether ranks have the same variables."""

from __future__ import annotations

from typing import Any, Iterable, Mapping, Union

import numpy as np
import tensorflow as tf

from horovod.common import _arguments, _consistency
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.functions import allgather_object


def check_consistency(
    model: Union[Any, Mapping[str, Any], Iterable[Any]], process_set: ProcessSet = global_process_set
) -> None:
    """Compare variables of all ranks of ``process_set``, bit for bit. All of them call this, in eager mode. Blocks.

    Each rank makes a digest of each variable, at the speed of memory, and only digests travel.

    Args:
        model: an object with ``trainable_variables``, such as a model of Keras or a ``tf.Module``; or a list of
            variables or tensors, the same on all ranks in the same order; or a dict of them.
        process_set: the ranks that take part.

    Raises:
        ConsistencyError: a variable differs. The message names it, and the ranks whose values differ from the
            majority's.
        TypeError: ``model`` is anything else.
        RuntimeError: called in a graph.

    Example:
        >>> hvd.check_consistency([tf.Variable([1.0])])
    """
    if not tf.executing_eagerly():
        raise RuntimeError("hvd.check_consistency() is for eager mode: call it outside of tf.function and graphs")
    _arguments.process_set_id(process_set)  # raises the right error
    prints = _consistency.fingerprints_of_variables(model, np.asarray)
    _consistency.check(
        prints,
        _consistency.ranks_of(process_set),
        lambda obj, name: allgather_object(obj, name=name, process_set=process_set),
    )
