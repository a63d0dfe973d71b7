"""Public functions for PyTorch tell their arguments and results, and their examples run."""

import os

import docstrings
import pytest

pytestmark = pytest.mark.skipif("HOROVOD_RANK" in os.environ, reason="one process")

MODULES = ("horovod.torch", "horovod.torch.elastic", "horovod.torch.distributed", "horovod.runner")
# torch.distributed makes them, and documents their methods.
MADE_BY_PYTORCH = ("horovod.torch.distributed.ProcessGroup", "horovod.torch.distributed.Work")
MEMBERS = {
    f"{module}.{name}": member
    for module in MODULES
    for name, member in docstrings.public(module).items()
}


@pytest.mark.parametrize("name", sorted(MEMBERS.keys() - set(MADE_BY_PYTORCH)))
def test_arguments_and_results(name):
    assert docstrings.lacks(name, MEMBERS[name]) == []


@pytest.mark.parametrize("name", MEMBERS)
def test_examples(name, tmp_path):
    import torch
    import torch.distributed

    import horovod.torch as hvd
    from horovod.torch import distributed as gorovod

    hvd.init()
    names = {"hvd": hvd, "torch": torch, "dist": torch.distributed, "gorovod": gorovod}
    assert docstrings.fails(name, MEMBERS[name], names, tmp_path) == ""


def test_what_is_missing_is_seen():
    def function(a: int, b: int) -> int:
        """Add.

        Args:
            a: one number.
            c: another.
        """
        return a + b

    assert docstrings.lacks("f", function) == [
        "f: Args has no b",
        "f: Args has c, which there is not",
        "f: no Returns",
        "f: no Example",
    ]
    function.__doc__ = "Example:\n    >>> 1 + 1\n    3\n"
    assert "Expected:\n    3\nGot:\n    2" in docstrings.fails("f", function, {}, ".")
