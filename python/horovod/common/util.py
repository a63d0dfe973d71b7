"""Functions of ``horovod.common.util`` that make sense for one prebuilt library."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import warnings
from pathlib import Path
from typing import Any, Callable, Iterator, Optional, Sequence

from horovod.common import _lib

EXTENSIONS = ["tensorflow", "torch", "mxnet"]
_FRAMEWORKS = ("tensorflow", "torch", "keras", "jax")  # frameworks that have a front end


def get_ext_suffix() -> str:
    """Suffix of the shared library's file name.

    Returns:
        The suffix, with its dot.

    Example:
        >>> from horovod.common.util import get_ext_suffix
        >>> get_ext_suffix()
        '.so'
    """
    return Path(_lib.FILE_NAME).suffix


def get_extension_full_path(pkg_path: str, *args: str) -> str:
    """Path of the one shared library, which serves every front end.

    Args:
        pkg_path, args: which extension to look for, in Horovod. They have no effect here.

    Returns:
        The path.

    Raises:
        ImportError: the library is missing; the text says what to do.

    Example:
        >>> import os
        >>> from horovod.common.util import get_extension_full_path
        >>> os.path.basename(get_extension_full_path("horovod/torch", "mpi_lib_v2"))
        'libgorovod.so'
    """
    return str(_lib.path())


def check_extension(ext_name: str, ext_env_var: str, pkg_path: str, *args: str) -> None:
    """Check that the one shared library, which serves every front end, is there.

    Args:
        ext_name, ext_env_var, pkg_path, args: which extension to look for, in Horovod. They have no effect here.

    Raises:
        ImportError: the library is missing; the text says what to do.

    Example:
        >>> hvd.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", "mpi_lib_v2")
    """
    _lib.path()


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Tell whether a framework, its front end and the shared library are here.

    Args:
        ext_base_name: the framework: ``"torch"``, ``"tensorflow"``, ``"keras"`` or ``"jax"``.
        verbose: print what is missing.

    Returns:
        Whether all three are here.

    Example:
        >>> from horovod.common.util import extension_available
        >>> extension_available("mxnet")
        False
    """
    try:
        found = (
            ext_base_name in _FRAMEWORKS
            and importlib.util.find_spec(ext_base_name) is not None
            and importlib.util.find_spec(f"horovod.{ext_base_name}") is not None
        )
        _lib.load()
    except ImportError as e:
        if verbose:
            print(f"Extension {ext_base_name} cannot be loaded: {e}")
        return False
    if verbose and not found:
        print(
            f"Extension {ext_base_name} cannot be loaded: module {ext_base_name} or horovod.{ext_base_name} is missing"
        )
    return found


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Tell whether PyTorch sees a GPU. Imports PyTorch.

    Args:
        ext_base_name: ``"torch"``; for any other name the result is False.
        verbose: print what is missing.

    Returns:
        Whether there is a GPU.

    Example:
        >>> from horovod.common.util import gpu_available
        >>> gpu_available("mxnet")
        False
    """
    if ext_base_name != "torch" or not extension_available(ext_base_name, verbose):
        return False
    import torch

    return torch.cuda.is_available()


def _cache(f: Callable[..., Any]) -> Callable[..., Any]:
    """``f``, called once for the same arguments, which must be hashable."""
    return functools.lru_cache(maxsize=None)(f)


def _ask(function: str) -> Optional[Any]:
    try:
        return getattr(_lib.load(), function)()
    except ImportError:
        return None


def mpi_built(verbose: bool = False) -> Optional[bool]:
    """Tell whether the library can use MPI.

    Args:
        verbose: no effect; it is Horovod's.

    Returns:
        Whether it can; None if the library cannot be loaded.

    Example:
        >>> from horovod.common.util import mpi_built
        >>> mpi_built() in (True, False)
        True
    """
    return _ask("horovod_mpi_built")


def gloo_built(verbose: bool = False) -> Optional[bool]:
    """Tell whether the library has Horovod's MPI-free mode, which here means gorovod's own transports.

    Args:
        verbose: no effect; it is Horovod's.

    Returns:
        Whether it has; None if the library cannot be loaded.

    Example:
        >>> from horovod.common.util import gloo_built
        >>> bool(gloo_built())
        True
    """
    return _ask("horovod_gloo_built")


def nccl_built(verbose: bool = False) -> Optional[int]:
    """Version code of NCCL.

    Args:
        verbose: no effect; it is Horovod's.

    Returns:
        The code, 0 if the library cannot use NCCL; None if the library cannot be loaded.

    Example:
        >>> from horovod.common.util import nccl_built
        >>> nccl_built()
        0
    """
    return _ask("horovod_nccl_built")


def ddl_built(verbose: bool = False) -> Optional[bool]:
    """Tell whether the library can use IBM DDL.

    Args:
        verbose: no effect; it is Horovod's.

    Returns:
        Whether it can; None if the library cannot be loaded.

    Example:
        >>> from horovod.common.util import ddl_built
        >>> bool(ddl_built())
        False
    """
    return _ask("horovod_ddl_built")


def ccl_built(verbose: bool = False) -> Optional[bool]:
    """Tell whether the library can use Intel oneCCL.

    Args:
        verbose: no effect; it is Horovod's.

    Returns:
        Whether it can; None if the library cannot be loaded.

    Example:
        >>> from horovod.common.util import ccl_built
        >>> bool(ccl_built())
        False
    """
    return _ask("horovod_ccl_built")


@contextlib.contextmanager
def env(**kwargs: Optional[str]) -> Iterator[None]:
    """Set environment variables inside a ``with`` block, and restore them after it.

    Args:
        kwargs: the variables, by name. None unsets one.

    Returns:
        The context manager.

    Example:
        >>> import os
        >>> from horovod.common.util import env
        >>> with env(HOROVOD_LOG_LEVEL="debug"):
        ...     os.environ["HOROVOD_LOG_LEVEL"]
        'debug'
    """
    before = {name: os.environ.get(name) for name in kwargs}

    def assign(values: dict[str, Optional[str]]) -> None:
        for name, value in values.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    assign(kwargs)
    try:
        yield
    finally:
        assign(before)


def get_average_backwards_compatibility_fun(reduce_ops: Any) -> Callable[[Optional[int], Optional[bool]], int]:
    """Make the function that turns the arguments ``op`` and ``average`` (deprecated) into one reduce operation.

    Args:
        reduce_ops: an object whose attributes ``Average`` and ``Sum`` are the operations.

    Returns:
        The function, of ``op`` and ``average``. It raises ValueError if both are given, TypeError if ``average`` is
        neither true nor false, warns if ``average`` is given, and returns Average if neither is given.

    Example:
        >>> from horovod.common.basics import HorovodBasics
        >>> from horovod.common.util import get_average_backwards_compatibility_fun
        >>> ops = HorovodBasics()
        >>> get_average_backwards_compatibility_fun(ops)(None, None) == ops.Average
        True
    """

    def resolve(op: Optional[int], average: Optional[bool]) -> int:
        if average is None:
            return reduce_ops.Average if op is None else op
        if op is not None:
            raise ValueError("The op parameter supersedes average. Please provide only one of them.")
        if not hasattr(average, "__bool__"):
            raise TypeError(f"average must be True or False, not {average!r}; op=hvd.Sum and the like replace it")
        warnings.warn(
            "Parameter `average` has been replaced with `op` and will be removed in v1.0",
            DeprecationWarning,
            stacklevel=3,
        )
        return reduce_ops.Average if average else reduce_ops.Sum

    return resolve


def num_rank_is_power_2(num_rank: int) -> bool:
    """Tell whether a number is a power of two.

    Args:
        num_rank: the number.

    Returns:
        Whether it is.

    Example:
        >>> from horovod.common.util import num_rank_is_power_2
        >>> [n for n in range(9) if num_rank_is_power_2(n)]
        [1, 2, 4, 8]
    """
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def split_list(l: Sequence[Any], n: int) -> list[Sequence[Any]]:
    """Cut a list into contiguous parts, whose lengths differ by at most one.

    Args:
        l: the list.
        n: the number of parts. The first ``len(l) % n`` parts are the longer ones.

    Returns:
        The parts.

    Example:
        >>> from horovod.common.util import split_list
        >>> split_list([1, 2, 3, 4, 5], 2)
        [[1, 2, 3], [4, 5]]
    """
    length, longer = divmod(len(l), n)
    parts, start = [], 0
    for i in range(n):
        end = start + length + (1 if i < longer else 0)
        parts.append(l[start:end])
        start = end
    return parts


def check_installed_version(name: str, version: str, exception: Optional[BaseException] = None) -> None:
    """Do nothing: every version of a framework fits gorovod, which is built for none.

    Horovod warns here, or raises HorovodVersionMismatchError, if the framework is not the one that it was built for.

    Args:
        name: the framework.
        version: its version.
        exception: the error in which the program noticed it.

    Example:
        >>> from horovod.common.util import check_installed_version
        >>> check_installed_version("torch", "2.0")
    """


def is_iterable(x: object) -> bool:
    """Tell whether one can iterate over a value.

    Args:
        x: the value.

    Returns:
        Whether one can.

    Example:
        >>> from horovod.common.util import is_iterable
        >>> is_iterable([1]), is_iterable(1)
        (True, False)
    """
    try:
        iter(x)  # type: ignore[call-overload]
    except TypeError:
        return False
    return True


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Compare two versions of the form ``x.y.z``. A suffix such as ``+cpu`` does not count.

    Args:
        ver: one version.
        target: the other one.

    Returns:
        Whether ``ver`` is at least ``target``.

    Raises:
        ValueError: a version has fewer than three numbers.

    Example:
        >>> from horovod.common.util import is_version_greater_equal_than
        >>> is_version_greater_equal_than("2.10.0+cpu", "2.9.1")
        True
    """

    def numbers(version: str) -> tuple[int, ...]:
        parts = version.partition("+")[0].split(".")
        if len(parts) < 3:
            raise ValueError(f"version {version!r} is not of the form x.y.z")
        return tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in parts[:3])

    return numbers(ver) >= numbers(target)
