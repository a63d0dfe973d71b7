"""Public functions for Ray tell their arguments and results, and their examples run."""

import os
import sys
from pathlib import Path

import pytest
import ray
from functions import place

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))

import docstrings

import horovod.ray

MODULES = (
    "horovod.ray",
    "horovod.ray.elastic",
    "horovod.ray.elastic_v2",
    "horovod.ray.runner",
    "horovod.ray.train",
)
MEMBERS = docstrings.of(MODULES)


@pytest.mark.smoke
@pytest.mark.parametrize("name", sorted(MEMBERS))
def test_arguments_and_results(name):
    assert docstrings.lacks(name, MEMBERS[name]) == []


@pytest.mark.parametrize("name", sorted({id(member): name for name, member in MEMBERS.items()}.values()))
def test_examples(name, tmp_path, cluster):
    names = {
        "ray": ray,
        "os": os,
        "train": place,
        "config": 0,
        **{n: getattr(horovod.ray, n) for n in horovod.ray.__all__},
    }
    names |= {name.rpartition(".")[2]: MEMBERS[name]}
    assert docstrings.fails(name, MEMBERS[name], names, tmp_path) == ""
