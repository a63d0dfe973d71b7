"""Checks that a label fits its output, for losses of Keras that would accept one that does not."""

from __future__ import annotations

import math
from typing import Any, Mapping, Sequence

import tensorflow as tf

_ELEMENTWISE = frozenset(
    "mean_squared_error mean_absolute_error mean_absolute_percentage_error mean_squared_logarithmic_error huber "
    "log_cosh hinge squared_hinge poisson kl_divergence cosine_similarity".split()
)
"""Losses that stretch a single number over the others, and so learn what nobody asked for."""


def check(losses: Any, names: Sequence[str], labels: Sequence[Any], outputs: Sequence[Any]) -> None:
    """Raise ValueError if a loss would broadcast a label over an output of another size.

    Args:
        losses: the losses for ``model.compile``.
        names: of the outputs; none if the model has no such names.
        labels: the labels' shapes, with the rows of a batch first.
        outputs: the outputs' shapes, likewise.
    """
    for loss, label, output in zip(_by_output(losses, names, len(outputs)), labels, outputs):
        if _name(loss) not in _ELEMENTWISE or None in (*label[1:], *output[1:]):
            continue
        if math.prod(label[1:]) != math.prod(output[1:]):
            raise ValueError(
                f"a label has the shape {tuple(label)}, which does not fit the model's output of the shape "
                f"{tuple(output)}: change the model, or give label_shapes"
            )


def _by_output(losses: Any, names: Sequence[str], count: int) -> list[Any]:
    if isinstance(losses, Mapping):
        return [losses.get(name) for name in names]
    return list(losses) if isinstance(losses, (list, tuple)) else [losses] * count


def _name(loss: Any) -> str:
    """The name of one of Keras's functions, in any form in which it can be given; otherwise nothing."""
    if isinstance(loss, str):
        loss = tf.keras.losses.get(loss)
    function = getattr(loss, "fn", loss)
    ours = str(getattr(function, "__module__", "")).split(".")[0] in ("keras", "tf_keras")
    return str(getattr(function, "__name__", "")) if ours else ""
