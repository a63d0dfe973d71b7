"""Functions of ``horovod.common.util`` that have a meaning for one prebuilt library."""

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
_FRAMEWORKS = ("tensorflow", "torch", "keras", "jax")  # which there are front ends for


def get_ext_suffix() -> str:
    """Suffix of the shared library's file name."""
    return Path(_lib.FILE_NAME).suffix


def get_extension_full_path(pkg_path: str, *args: str) -> str:
    """Path of the library, whatever extension the arguments name. Raises ImportError if it is missing."""
    return str(_lib.path())


def check_extension(ext_name: str, ext_env_var: str, pkg_path: str, *args: str) -> None:
    """Check that the library is there that serves every front end. The arguments are Horovod's, and have no meaning.

    Args:
        ext_name, ext_env_var, pkg_path, args: which extension to look for, in Horovod.

    Raises:
        ImportError: the library is missing; the text says what to do.

    Example:
        >>> hvd.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", "mpi_lib_v2")
    """
    _lib.path()


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether the front end for ``ext_base_name`` (torch, …), its framework and the library are here."""
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
    """Whether the framework ``ext_base_name`` sees a GPU. Imports the framework."""
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
    """Whether the library can use MPI; None if it cannot be loaded. The same holds for the functions below."""
    return _ask("horovod_mpi_built")


def gloo_built(verbose: bool = False) -> Optional[bool]:
    """Whether the library has Horovod's MPI-free mode, which stands for gorovod's own transports."""
    return _ask("horovod_gloo_built")


def nccl_built(verbose: bool = False) -> Optional[int]:
    """Version code of NCCL, 0 if the library cannot use it."""
    return _ask("horovod_nccl_built")


def ddl_built(verbose: bool = False) -> Optional[bool]:
    """Whether the library can use IBM DDL."""
    return _ask("horovod_ddl_built")


def ccl_built(verbose: bool = False) -> Optional[bool]:
    """Whether the library can use Intel oneCCL."""
    return _ask("horovod_ccl_built")


@contextlib.contextmanager
def env(**kwargs: Optional[str]) -> Iterator[None]:
    """Set environment variables inside the context, and restore them after it. None means unset."""
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
    """Return the function that turns the arguments ``op`` and ``average`` (deprecated) into one reduce operation.

    It raises ValueError if both are given, warns if ``average`` is, and returns Average if none is.
    """

    def resolve(op: Optional[int], average: Optional[bool]) -> int:
        if average is None:
            return reduce_ops.Average if op is None else op
        if op is not None:
            raise ValueError("The op parameter supersedes average. Please provide only one of them.")
        warnings.warn(
            "Parameter `average` has been replaced with `op` and will be removed in v1.0",
            DeprecationWarning,
            stacklevel=3,
        )
        return reduce_ops.Average if average else reduce_ops.Sum

    return resolve


def num_rank_is_power_2(num_rank: int) -> bool:
    """Whether ``num_rank`` is a power of two."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def split_list(l: Sequence[Any], n: int) -> list[Sequence[Any]]:
    """Cut ``l`` into ``n`` contiguous parts; the first ``len(l) % n`` are one longer."""
    length, longer = divmod(len(l), n)
    parts, start = [], 0
    for i in range(n):
        end = start + length + (1 if i < longer else 0)
        parts.append(l[start:end])
        start = end
    return parts


def check_installed_version(name: str, version: str, exception: Optional[BaseException] = None) -> None:
    """Return: any version of the framework ``name`` is the right one.

    Horovod raises HorovodVersionMismatchError from ``exception`` here, or warns without one, if ``version`` is not
    the version that it was built against. gorovod is built against none, so there is nothing that could differ, and
    ``exception`` has another cause.
    """


def is_iterable(x: object) -> bool:
    """Whether one can iterate over ``x``."""
    try:
        iter(x)  # type: ignore[call-overload]
    except TypeError:
        return False
    return True


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Compare versions of the form ``x.y.z``; a suffix such as ``+cpu`` is ignored. Raises ValueError for others."""

    def numbers(version: str) -> tuple[int, ...]:
        parts = version.partition("+")[0].split(".")
        if len(parts) < 3:
            raise ValueError(f"version {version!r} is not of the form x.y.z")
        return tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in parts[:3])

    return numbers(ver) >= numbers(target)
