"""Loading models together with the optimizers that they were trained with."""

from __future__ import annotations

from typing import Any, Optional, Sequence

from horovod._keras import _frameworks
from horovod._keras._options import Options
from horovod._keras.optimizer import distribute_in_place
from horovod.common._reduce_ops import Average
from horovod.common.process_sets import global_process_set


def load_model(
    keras: Any,
    filepath: Any,
    custom_optimizers: Optional[Sequence[type]],
    custom_objects: Optional[dict[str, Any]],
    compression: Any,
    legacy_opts: bool,
) -> Any:
    """The model that was saved to ``filepath``; its optimizer is distributed and goes on where it was."""
    if legacy_opts and _frameworks.major(keras) > 2:
        raise ValueError("legacy_opts: there are no legacy optimizers in Keras 3")
    known = {kind.__name__: kind for kind in custom_optimizers or ()}
    known.update(custom_objects or {})
    model = keras.models.load_model(filepath, custom_objects=known)
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        return model
    if legacy_opts and not isinstance(optimizer, keras.optimizers.legacy.Optimizer):
        optimizer = model.optimizer = keras.__internal__.optimizers.convert_to_legacy_optimizer(optimizer)
    options = Options(
        device_dense="",
        device_sparse="",
        compression=compression,
        sparse_as_dense=False,
        gradient_predivide_factor=1.0,
        op=Average,
        backward_passes_per_step=1,
        average_aggregated_gradients=False,
        groups=None,
        process_set=global_process_set,
        scale_local_gradients=True,
    )
    distribute_in_place(keras, optimizer, options)
    if _frameworks.major(keras) > 2 and _frameworks.backend(keras) == "tensorflow":
        model.jit_compile = False  # Keras chose it before the optimizer became a distributed one
    return model
