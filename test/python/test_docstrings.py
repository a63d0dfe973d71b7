"""Public functions for PyTorch tell their arguments and results, and their examples run."""

import os

import docstrings
import pytest

import horovod.torch

pytestmark = pytest.mark.skipif("HOROVOD_RANK" in os.environ, reason="one process")

MODULES = (
    "horovod.torch",
    "horovod.torch.elastic",
    "horovod.torch.elastic.state",
    "horovod.torch.distributed",
    "horovod.torch.distributed.hooks",
    "horovod.runner",
    "horovod.runner.launch",
    "horovod.runner.mpi_run",
    "horovod.runner.run_task",
    "horovod.runner.common.util.codec",
    "horovod.runner.common.util.env",
    "horovod.runner.common.util.host_hash",
    "horovod.runner.common.util.hosts",
    "horovod.runner.common.util.secret",
    "horovod.runner.common.util.settings",
    "horovod.runner.common.util.timeout",
    "horovod.runner.util.threads",
    "horovod.common.basics",
    "horovod.common.elastic",
    "horovod.common.exceptions",
    "horovod.common.process_sets",
    "horovod.common.util",
)
# torch.distributed makes them, and documents their methods.
MADE_BY_PYTORCH = ("horovod.torch.distributed.ProcessGroup", "horovod.torch.distributed.Work")
MEMBERS = {
    **docstrings.of(MODULES),
    **{
        f"horovod.torch.Compression.{name}": getattr(horovod.torch.Compression, name)
        for name in ("none", "fp16", "bf16", "int8", "fp8")
    },
    "horovod.torch.compression.Compressor": horovod.torch.compression.Compressor,
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
        if a < 0:
            raise ValueError(a)
        return a + b

    assert docstrings.lacks("f", function) == [
        "f: Args has no b",
        "f: Args has c, which there is not",
        "f: no Returns",
        "f: Raises has no ValueError",
        "f: no Example",
    ]
    function.__doc__ = "Example:\n    >>> 1 + 1\n    3\n"
    assert "Expected:\n    3\nGot:\n    2" in docstrings.fails("f", function, {}, ".")
