"""The changes that gorovod makes to Python and to frameworks outside their public interfaces. All of them are made
here.

``docs/patches.md`` shows this table to users. ``GOROVOD_WITHOUT_PATCHES`` names the patches that a user does not want.
"""

from __future__ import annotations

import functools
import os
from typing import Any, MutableMapping, NamedTuple

VARIABLE = "GOROVOD_WITHOUT_PATCHES"


class Patch(NamedTuple):
    """A change: what is changed and when, why, and what a program must do without it."""

    changes: str
    why: str
    without: str


PATCHES = {
    "excepthook": Patch(
        "`sys.excepthook`, in `hvd.init()`",
        "the other ranks learn which exception has ended this one, and a rank that only follows prints one line",
        "the other ranks report that the process has ended, with its exit code",
    ),
    "torch-env-rendezvous": Patch(
        '`torch.distributed.rendezvous._rendezvous_handlers["env"]`, in `import horovod.torch.distributed`',
        '`init_process_group("gorovod")` works under `horovodrun`, which sets no `MASTER_ADDR`',
        'pass `init_method="horovod://"`',
    ),
    "torch-futures": Patch(
        "`then`, `add_done_callback` and `set_result` of `torch._C.Future`, `torch._C._collect_all`, and `dist` in "
        "PyTorch's module `quantization_hooks`, in `import horovod.torch.distributed`",
        "operations that callbacks of futures start are matched by the operation on whose future they hang, and the "
        "quantization hooks get futures of the form that they expect; for futures that come from no operation of this "
        "backend nothing changes",
        "start no operations in callbacks",
    ),
    "torch-compile-skip": Patch(
        "TorchDynamo's mark on code (`skip_code`, `set_code_exec_strategy`) for the functions of `horovod.torch`, "
        "in `import horovod.torch`",
        "otherwise `torch.compile` traces functions of gorovod that are called between two graphs",
        "the first calls in a compiled program take longer",
    ),
    "torch-grad-scaler": Patch(
        "`scale` of `torch.amp.GradScaler`, for the first `hvd.ShardedEmbedding`",
        "a table without `scaler=` refuses gradients of scaled losses, which look like any others",
        "pass `scaler=`, otherwise the rows are trained with the scaled gradients",
    ),
    "torch-grad-scaler-shares": Patch(
        "`_unscale_grads_` of `torch.amp.GradScaler`, for the first `hvd.DistributedOptimizer` with `sharded=True`",
        "a rank has only its share of each gradient, so the ranks find out together whether all are finite; for other "
        "optimizers nothing changes",
        "leave out `sharded=True`: a scaler looks at gradients that are not reduced, and each rank decides alone",
    ),
    "tensorflow-any-order": Patch(
        "`MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS` of `tensorflow.python.framework.auto_control_deps`, in "
        "`import horovod.tensorflow`",
        "otherwise `tf.function` runs collectives one after the other, and ranks with another order wait for ever",
        "give the collectives of a `tf.function` the same order on all ranks",
    ),
    "keras-loss-scale": Patch(
        "`apply`, `stateless_apply`, `check_finite`, `save_own_variables` and `load_own_variables` of Keras 3's "
        "`LossScaleOptimizer`, for the first distributed optimizer",
        "otherwise a rank whose float16 gradients overflow skips the reduction, and the others wait for it; and a "
        "sharded optimizer inside it would be saved as this rank's share",
        "put the scaling inside: `hvd.DistributedOptimizer(LossScaleOptimizer(optimizer))`",
    ),
    "keras-no-xla": Patch(
        "`model_supports_jit` of `keras.src.trainers.trainer`, for the first distributed optimizer on TensorFlow",
        "otherwise Keras 3 compiles the training step by XLA, which has no collectives",
        "pass `jit_compile=False` to `compile`",
    ),
    "keras-saved-name": Patch(
        "`REGISTERED_OBJS_TO_NAMES`, `_GLOBAL_CUSTOM_NAMES` of Keras, for each class of optimizers that is made a "
        "distributed one",
        "a model that was trained with gorovod can be loaded without it",
        "give `custom_objects` to `load_model`",
    ),
}


@functools.lru_cache(maxsize=None)
def _unwanted(text: str) -> frozenset[str]:
    names = frozenset(name.strip() for name in text.split(",") if name.strip())
    unknown = names - PATCHES.keys() - {"all"}
    if unknown:
        raise ValueError(f"{VARIABLE} has {', '.join(sorted(unknown))}; the patches are {', '.join(PATCHES)}, or all")
    return frozenset(PATCHES) if "all" in names else names


def wanted(patch: str) -> bool:
    """Whether to make the change ``patch``, one of PATCHES. Raises ValueError if the variable names an unknown one."""
    assert patch in PATCHES, patch
    return patch not in _unwanted(os.environ.get(VARIABLE, ""))


def replace(patch: str, owner: Any, attribute: str, value: Any) -> None:
    """Set an attribute of a foreign module or class, if ``patch`` is wanted."""
    if wanted(patch):
        setattr(owner, attribute, value)


def put(patch: str, table: MutableMapping[Any, Any], key: Any, value: Any) -> None:
    """Set an entry of a foreign table, if ``patch`` is wanted."""
    if wanted(patch):
        table[key] = value
