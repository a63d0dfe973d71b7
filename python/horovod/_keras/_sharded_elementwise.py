"""Which of Keras' optimizers are element-wise: they update each element by its own gradient and state alone.

Only such an optimizer can be sharded: its step on a part of a variable, without its shape, is the same part of its step
on the whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

# Of Keras. A class that is derived from one of them may do anything, so it is not known.
_KNOWN = "SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "RMSprop", "Adamax", "Nadam", "Ftrl", "Lion"
_REFUSED = {
    "Adafactor": "its state is of rows and columns",
    "Lamb": "it scales a step by the norms of whole variables",
    "LossScaleOptimizer": "it wraps one; give it the sharded one: LossScaleOptimizer(hvd.DistributedOptimizer(...))",
    "Muon": "it updates whole matrices",
}
_OF_KERAS = "keras", "tf_keras"

_ELEMENTS, _CUT, _STEPS = 24, 7, 3  # of the probe's variable, of its first share, and how often it steps


def check_elementwise(optimizer: Any, kind: Any, elementwise: bool) -> None:
    """Raise ValueError unless ``optimizer``, whose plain class is ``kind``, can be sharded.

    With ``elementwise``, the caller's word for an optimizer that is not known, this steps a small made-up variable as a
    whole and in two parts, and compares them.
    """
    for base in kind.__mro__:
        if _is_of_keras(base) and base.__name__ in _REFUSED:
            raise ValueError(
                f"sharded=True is for element-wise optimizers, which {kind.__name__} is not: {_REFUSED[base.__name__]}"
            )
    if not hasattr(kind, "add_variable_from_reference"):
        raise ValueError(
            f"sharded=True takes no legacy optimizers of Keras 2, as this {kind.__name__} is: use keras.optimizers, "
            "not keras.optimizers.legacy"
        )
    if _is_of_keras(kind) and kind.__name__ in _KNOWN:
        return
    if not elementwise:
        raise ValueError(
            f"sharded=True is for element-wise optimizers, and {kind.__name__} is not known to be one. If it updates "
            "each element by its own gradient and state alone, pass elementwise=True, too"
        )
    with tf.init_scope():
        _probe(optimizer, kind)


def _is_of_keras(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in _OF_KERAS


def _probe(optimizer: Any, kind: Any) -> None:
    """Raise ValueError if a variable in two shares is stepped to other values than the whole."""
    random = np.random.RandomState(1)
    start = random.randn(_ELEMENTS).astype(np.float32)
    # Gradients that differ much, so that a norm over a part is not that over the whole.
    gradient = (random.randn(_ELEMENTS) * np.logspace(-2, 2, _ELEMENTS)).astype(np.float32)
    whole = _stepped(optimizer, kind, start.reshape(4, -1), gradient)
    parts = [slice(0, _CUT), slice(_CUT, _ELEMENTS)]
    shares = [_stepped(optimizer, kind, start[part], gradient[part]) for part in parts]
    if not np.allclose(whole, np.concatenate(shares), rtol=1e-6, atol=0.0, equal_nan=True):
        raise ValueError(
            f"{kind.__name__} is not element-wise: the probe's variable, stepped in two parts, differs from "
            "the whole. Leave out sharded=True"
        )


def _stepped(optimizer: Any, kind: Any, start: Any, gradient: Any) -> Any:
    variable = tf.Variable(start)
    try:
        alone = kind.from_config(optimizer.get_config())
        alone.clipnorm = alone.global_clipnorm = None  # a sharded optimizer computes norms over all shares
        for _ in range(_STEPS):
            alone.apply_gradients([(tf.constant(gradient.reshape(start.shape)), variable)])
    except Exception as e:
        raise ValueError(f"{kind.__name__} failed in the probe that checks whether it is element-wise: {e}") from e
    return variable.numpy().reshape(-1)
