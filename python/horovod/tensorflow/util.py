"""Small functions that programs import from Horovod: TensorFlow's mode, and variables as keys of a dict."""

from __future__ import annotations

from typing import Any, Callable

import tensorflow as tf

from horovod.common.util import _cache as _cached


def _executing_eagerly() -> bool:
    """Whether operations run at once: not in a graph, and not while a function is traced."""
    return tf.executing_eagerly()


def _make_subgraph(f: Callable[..., Any]) -> Callable[..., Any]:
    """``f`` as one function of TensorFlow."""
    return tf.function(f)


def _cache(f: Callable[..., Any]) -> Callable[..., Any]:
    """``f``, called once for the same arguments, which must be hashable, and once for each graph around a call."""

    @_cached
    def in_graph(_: Any, *args: Any, **kwargs: Any) -> Any:
        return f(*args, **kwargs)

    def cached(*args: Any, **kwargs: Any) -> Any:
        return in_graph(None if tf.executing_eagerly() else tf.compat.v1.get_default_graph(), *args, **kwargs)

    return cached


def vars_to_refs(vars: Any) -> Any:
    """Make variables hashable, for keys of a dict.

    Args:
        vars: a variable, or a list of variables or such lists.

    Returns:
        The variable's reference, or a tuple of references.

    Example:
        >>> from horovod.tensorflow.util import refs_to_vars, vars_to_refs
        >>> v = tf.Variable(1.0)
        >>> refs_to_vars(vars_to_refs([v]))[0] is v
        True
    """
    return tuple(vars_to_refs(v) for v in vars) if isinstance(vars, (list, tuple)) else vars.ref()


def refs_to_vars(refs: Any) -> Any:
    """Undo :func:`vars_to_refs`.

    Args:
        refs: the result of :func:`vars_to_refs`.

    Returns:
        The variable, or a list of variables.

    Example:
        >>> from horovod.tensorflow.util import refs_to_vars, vars_to_refs
        >>> v = tf.Variable(1.0)
        >>> refs_to_vars(vars_to_refs(v)) is v
        True
    """
    return [refs_to_vars(r) for r in refs] if isinstance(refs, (list, tuple)) else refs.deref()
