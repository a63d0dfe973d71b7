"""accelerate over gorovod: it works on the process group that was made before it, and makes none."""

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

import horovod.torch.distributed  # noqa: F401 - registers the backend

dist.init_process_group("gorovod")
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
assert accelerator.num_processes == dist.get_world_size() == 2
assert dist.get_backend() == "gorovod", dist.get_backend()

torch.manual_seed(accelerator.process_index)  # ranks begin with different weights; prepare() makes them equal
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs = torch.randn(64, 4, generator=torch.Generator().manual_seed(1))
samples = TensorDataset(inputs, inputs @ torch.tensor([[1.0], [-2.0], [0.5], [3.0]]))
model, optimizer, batches = accelerator.prepare(model, optimizer, DataLoader(samples, 8, shuffle=True))
assert isinstance(model, torch.nn.parallel.DistributedDataParallel), type(model)

losses = []
for _ in range(10):
    for batch, wanted in batches:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.mse_loss(model(batch), wanted)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    losses.append(accelerator.reduce(loss.detach(), "mean").item())
assert losses[-1] < losses[0] / 10, losses

weights = accelerator.unwrap_model(model).weight.detach()
each = accelerator.gather(weights)
torch.testing.assert_close(each[0], each[1], rtol=0, atol=0)
assert accelerator.gather_for_metrics(list(range(accelerator.process_index + 1)), use_gather_object=True) == [0, 0, 1]
padded = accelerator.pad_across_processes(torch.ones(accelerator.process_index + 1), pad_index=0)
assert padded.shape == (2,)
accelerator.wait_for_everyone()
if accelerator.is_main_process:
    print(f"passed: loss {losses[0]:.3f} to {losses[-1]:.5f}", flush=True)
accelerator.end_training()
