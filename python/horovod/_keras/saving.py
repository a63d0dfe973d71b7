"""Loading models together with the optimizers that they were trained with."""

from __future__ import annotations

from typing import Any, Optional, Sequence

from horovod._keras import _frameworks
from horovod._keras.optimizer import distribute
from horovod.common._options import Options


def load_model(
    keras: Any,
    filepath: Any,
    custom_optimizers: Optional[Sequence[type]],
    custom_objects: Optional[dict[str, Any]],
    compression: Any,
    legacy_opts: bool,
) -> Any:
    """Load a model that Keras has saved, with or without Horovod. Its optimizer becomes a distributed one.

    The optimizer keeps its state. Load the model on all ranks, or on one, with a BroadcastGlobalVariablesCallback that
    sends it to the others.

    Args:
        filepath: the path of the model.
        custom_optimizers: classes of optimizers that Keras does not know.
        custom_objects: other objects, by name.
        compression: as for ``DistributedOptimizer``.
        legacy_opts: load the optimizer as one of Keras 2's legacy optimizers.

    Returns:
        The model.

    Raises:
        ValueError: ``legacy_opts`` with Keras 3, which has no legacy optimizers.

    Example:
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.compile(keras.optimizers.SGD(0.25), loss="mse")
        >>> _ = model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0)
        >>> model.save("model.keras")
        >>> float(hvd.load_model("model.keras").optimizer.learning_rate)
        0.25
    """
    if legacy_opts and _frameworks.major(keras) > 2:
        raise ValueError("legacy_opts: there are no legacy optimizers in Keras 3")
    known = {kind.__name__: kind for kind in custom_optimizers or ()}
    known.update(custom_objects or {})
    model = keras.models.load_model(filepath, custom_objects=known)
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        return model
    if legacy_opts and not isinstance(optimizer, keras.optimizers.legacy.Optimizer):
        optimizer = keras.__internal__.optimizers.convert_to_legacy_optimizer(optimizer)
    model.optimizer = distribute(keras, optimizer, None, Options(compression=compression))
    if _frameworks.major(keras) > 2 and _frameworks.backend(keras) == "tensorflow":
        model.jit_compile = False  # Keras chose it before the optimizer became a distributed one
    return model
