"""Checks that JAX is installed. Otherwise importing this module raises ImportError, which names this Python."""

from horovod.common import _missing

_missing.need("horovod.jax", "jax", "jax")
