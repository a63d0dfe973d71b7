"""Every rank works with DataLoader workers alive, for longer than its test."""

import torch
from torch.utils.data import DataLoader, TensorDataset

import horovod.torch as hvd

hvd.init()
data = TensorDataset(torch.arange(64.0))
loader = DataLoader(data, batch_size=8, num_workers=2, multiprocessing_context="fork", persistent_workers=True)
for epoch in range(100_000):
    for (part,) in loader:
        hvd.allreduce(part, name="step")
    if epoch == 2:
        print("RUNNING", flush=True)
