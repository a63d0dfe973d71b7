"""Whether torch.compile traces the caller, and how to keep code from being traced."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Iterator
from types import CodeType
from typing import Any, Callable, Optional, TypeVar

import torch

from horovod.common import _patches

F = TypeVar("F", bound=Callable[..., Any])


_never: Callable[[], bool] = bool  # bool() is False, and takes no frame of the interpreter

# Whether this call is being traced into a graph; PyTorch has it since 2.1.
is_compiling: Callable[[], bool] = getattr(getattr(torch, "compiler", None), "is_compiling", _never)
# Whether torch.compile traces the bytecode of this call. A sixth of the time of is_compiling, which is true elsewhere,
# too: in torch.export, whose tensors are never plain.
traces_bytecode: Callable[[], bool] = getattr(getattr(torch, "compiler", None), "is_dynamo_compiling", is_compiling)


def untraced(function: F) -> F:
    """``function`` in the form in which torch.compile must call it: untraced, with its callees, between two graphs.

    Python code with effects beyond its tensors must not be traced: the effects would happen once, or not at all. The
    first call imports the compiler, so call this only if :func:`traces_bytecode`.
    """
    return function if is_compiling is _never else torch._disable_dynamo(function)


def between_graphs(function: F) -> F:
    """``function``, but :func:`untraced` when it is called while torch.compile traces."""
    if is_compiling is _never:
        return function
    outside: Any = untraced(function)

    @functools.wraps(function)
    def entry(*args: Any, **kwargs: Any) -> Any:
        return outside(*args, **kwargs) if traces_bytecode() else function(*args, **kwargs)

    return entry  # type: ignore[return-value]


def _code_skipper() -> Optional[Callable[[CodeType], Any]]:
    """PyTorch's own way to exempt a function, if this version has one of the two known ones."""
    try:
        from torch._C._dynamo import eval_frame
    except ImportError:
        return None
    if hasattr(eval_frame, "set_code_exec_strategy"):
        skip = eval_frame._FrameAction.SKIP
        strategy = eval_frame._FrameExecStrategy(skip, skip)  # the function, and its callees
        return lambda code: eval_frame.set_code_exec_strategy(code, strategy)
    return getattr(eval_frame, "skip_code", None)


def never_trace(module: str) -> None:
    """Keep the compiler from tracing this module's functions when they are called between graphs.

    The compiler also watches calls outside graphs: it would trace the callee by itself, and the callee's callees. This
    has no effect on a PyTorch that cannot exempt functions; that traces, and finds little to use.
    """
    skip_code = _code_skipper() if _patches.wanted("torch-compile-skip") else None
    if skip_code is None:
        return
    for member in vars(sys.modules[module]).values():
        if getattr(member, "__module__", None) != module:
            continue
        for attribute in vars(member).values() if inspect.isclass(member) else (member,):
            for code in _codes(attribute):
                skip_code(code)


def _codes(attribute: Any) -> Iterator[CodeType]:
    """The code of a function, property, cached property or method, and that of the functions inside it."""
    functions: tuple[Any, ...]
    if isinstance(attribute, property):
        functions = (attribute.fget, attribute.fset)
    elif isinstance(attribute, functools.cached_property):
        functions = (attribute.func,)
    else:
        functions = (attribute,)
    for function in functions:
        function = getattr(function, "__func__", function)  # of a static or class method
        code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
        inside = [code] if code is not None else []
        while inside:
            code = inside.pop()
            yield code
            inside += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
