"""Whether JAX traces the caller into a compiled program. Then operations on constants belong to that program, too."""

from __future__ import annotations

import jax
import jax.numpy as jnp

try:
    from jax._src.core import trace_state_clean as _nothing_traces
except ImportError:  # a later JAX may have another name for it

    def _nothing_traces() -> bool:
        return False


def in_program() -> bool:
    """Whether the results of operations belong to a program that JAX is tracing, whatever their arguments are."""
    return not _nothing_traces() and isinstance(jnp.zeros(()), jax.core.Tracer)
