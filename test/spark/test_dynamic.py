"""horovod.spark where Spark asks for executors as it needs them (dynamic allocation)."""

import functions
import pytest
from conftest import start_session

import horovod.spark


@pytest.fixture(scope="module")
def spark():
    """Up to two executors with a slot each; at first there is none."""
    session = start_session(
        "local-cluster[2,1,1024]",
        dynamicAllocation_enabled="true",
        dynamicAllocation_minExecutors=0,
        dynamicAllocation_maxExecutors=2,
    )
    yield session
    session.stop()


def test_run_says_that_it_cannot(spark):
    with pytest.raises(RuntimeError, match="Spark has none while spark.dynamicAllocation.enabled is true.*run_elastic"):
        horovod.spark.run(functions.place, num_proc=2)


def test_run_elastic_gets_its_executors(spark):
    assert horovod.spark.run_elastic(functions.place, num_proc=2) == [(rank, 2, 0, 1, rank, 2) for rank in range(2)]
