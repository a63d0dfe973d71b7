"""Public functions for Spark tell their arguments and results, and their examples run."""

import sys
from pathlib import Path

import pytest
from functions import train

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))

import docstrings

from horovod.spark.common import backend

MODULES = ("horovod.spark", "horovod.spark.databricks", "horovod.spark.task", "horovod.spark.common.backend")
MEMBERS = docstrings.of(MODULES)


@pytest.mark.smoke
@pytest.mark.parametrize("name", sorted(MEMBERS))
def test_arguments_and_results(name):
    assert docstrings.lacks(name, MEMBERS[name]) == []


@pytest.mark.parametrize("name", sorted(MEMBERS))
def test_examples(name, tmp_path, spark):
    names = {"train": train, "SparkBackend": backend.SparkBackend, name.rpartition(".")[2]: MEMBERS[name]}
    assert docstrings.fails(name, MEMBERS[name], names, tmp_path) == ""
