"""RayExecutor with a fixed number of workers."""

import pytest

from horovod.ray import RayExecutor

pytestmark = pytest.mark.usefixtures("cluster")

SHAPES = [{"num_workers": 4}, {"num_hosts": 1, "num_workers_per_host": 4}]


@pytest.fixture(scope="module", params=SHAPES, ids=["workers", "hosts"])
def executor(request):
    started = RayExecutor(RayExecutor.create_settings(), **request.param)
    started.start()
    yield started
    started.shutdown()


def places(add=0):
    import numpy as np
    import torch

    import horovod.torch as hvd

    hvd.init()
    total = hvd.allreduce(torch.ones(3), op=hvd.Sum, name="total")
    return (
        hvd.rank() + add,
        hvd.size(),
        hvd.local_rank(),
        hvd.local_size(),
        hvd.cross_size(),
        np.asarray(total).tolist(),
    )


def test_run_returns_results_by_rank(executor):
    assert executor.run(places) == [(r, 4, r, 4, 1, [4.0] * 3) for r in range(4)]
    assert executor.run(places, args=[10])[3][0] == 13
    assert executor.run(places, kwargs={"add": 20})[1][0] == 21
