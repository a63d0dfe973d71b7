"""bench/paired.py: the order of turns, and what it says of times that are known."""

import importlib.util
import os
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif("HOROVOD_RANK" in os.environ, reason="one process")


@pytest.fixture
def paired():
    spec = importlib.util.spec_from_file_location("paired", Path(__file__).parent.parent / "bench" / "paired.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_way_begins_as_often(paired):
    assert [paired.order(["a", "b", "c"], round_) for round_ in range(4)] == [
        ["a", "b", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
        ["a", "b", "c"],
    ]


def test_ratios_are_those_of_one_round(paired):
    """The machine becomes ten times slower on the way, and one way is always twice as slow as the other."""
    base = [1 + i for i in range(10)]
    assert paired.ratio([2 * x for x in base], base) == (2, 2, 2)


def test_the_interval_has_the_median_and_not_the_outliers(paired):
    middle, low, high = paired.ratio([0.1, *range(90, 111), 1000], [100] * 23)
    assert middle == 1 and 0.92 < low < 1 < high < 1.08


def test_the_warm_up_does_not_count(paired, capsys):
    turns = []

    def way(name):
        turns.append(name)
        return len(turns)

    seconds = paired.measure({"a": lambda: way("a"), "b": lambda: way("b")}, 2)
    assert turns == ["a", "b", "b", "a", "a", "b"] and seconds == {"a": [4, 5], "b": [3, 6]}
    assert capsys.readouterr().out.count("not counted") == 2
    paired.table("two by", seconds, "a")
    assert "| b | 4.50 | 3.00 | 6.00 | 0.97 | 0.75 to 1.20 |" in capsys.readouterr().out
