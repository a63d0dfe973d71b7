"""torchmetrics over gorovod: metrics of ranks' unequal shares are those of all data in one process."""

import torch
import torch.distributed as dist
from torchmetrics import CatMetric, MeanSquaredError
from torchmetrics.classification import MulticlassAccuracy, MulticlassConfusionMatrix

import horovod.torch.distributed  # noqa: F401 - registers the backend

dist.init_process_group("gorovod")
rank, size = dist.get_rank(), dist.get_world_size()
generator = torch.Generator().manual_seed(1)
scores, labels = torch.randn(90, 5, generator=generator), torch.randint(5, (90,), generator=generator)
mine = slice(0, 30) if rank == 0 else slice(30, 90)

for make, values in (
    (lambda: MulticlassAccuracy(5), (scores, labels)),
    (lambda: MulticlassConfusionMatrix(5), (scores, labels)),
    (MeanSquaredError, (scores[:, 0], scores[:, 1])),
    (CatMetric, (scores[:, 0],)),  # ranks gather tensors of different lengths
):
    metric, alone = make(), make()
    metric.update(*(value[mine] for value in values))
    alone.update(*values)
    alone.distributed_available_fn = lambda: False
    torch.testing.assert_close(metric.compute(), alone.compute())
if rank == 0:
    print(f"passed: 4 metrics on {size} ranks", flush=True)
dist.destroy_process_group()
