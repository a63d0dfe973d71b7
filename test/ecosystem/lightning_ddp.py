"""Lightning trains over gorovod's process groups. Each rank ends with the weights of one process on all the data."""

import torch
import torch.distributed as dist
from pytorch_lightning import LightningModule, Trainer, seed_everything
from pytorch_lightning.strategies import DDPStrategy
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import horovod.torch.distributed  # noqa: F401 - registers the backend

SAMPLES, BATCH, EPOCHS, RATE = 64, 8, 3, 0.1


class Linear(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def loss(self, batch):
        inputs, wanted = batch
        return torch.nn.functional.mse_loss(self.layer(inputs), wanted)

    def training_step(self, batch, _):
        return self.loss(batch)

    def validation_step(self, batch, _):
        self.log("validation", self.loss(batch), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=RATE)


def data():
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(SAMPLES, 4, generator=generator)
    return inputs, inputs @ torch.tensor([[1.0], [-2.0], [0.5], [3.0]])


def alone(model, ranks):
    """Train in this process as the ranks do together: rank r has the samples r, r + ranks, and so on."""
    inputs, wanted = data()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for _ in range(EPOCHS):
        for i in range(0, SAMPLES, BATCH * ranks):
            optimizer.zero_grad()
            model.loss((inputs[i : i + BATCH * ranks], wanted[i : i + BATCH * ranks])).backward()
            optimizer.step()
    return model.layer.weight.detach()


def main():
    seed_everything(7)
    model, lonely = Linear(), Linear()
    lonely.load_state_dict(model.state_dict())
    samples = TensorDataset(*data())
    trainer = Trainer(
        accelerator="cpu", devices=2, strategy=DDPStrategy(process_group_backend="gorovod"), max_epochs=EPOCHS,
        use_distributed_sampler=False, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    share = DistributedSampler(samples, 2, trainer.global_rank, shuffle=False)
    trainer.fit(model, DataLoader(samples, BATCH, sampler=share), DataLoader(samples, BATCH, sampler=share))
    assert dist.get_backend() == "gorovod", dist.get_backend()
    assert dist.get_world_size() == 2
    torch.testing.assert_close(model.layer.weight.detach(), alone(lonely, 2))
    validation = trainer.callback_metrics["validation"]
    if trainer.is_global_zero:
        print(f"passed: {trainer.global_step} steps, validation loss {validation:.4f}", flush=True)


if __name__ == "__main__":
    main()
