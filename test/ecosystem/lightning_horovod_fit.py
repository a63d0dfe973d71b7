"""lightning-horovod's strategy over gorovod: two ranks train, and end with the same weights and a lower loss.

The strategy reads ``trainer.accumulation_scheduler``, which no Lightning 2 has, not even the version that it requires.
So this program gives the trainer one.
"""

import torch
from lightning_horovod.strategy import HorovodStrategy
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import GradientAccumulationScheduler
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import horovod.torch as hvd

EPOCHS, RATE = 5, 0.01


class Linear(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.rates = []

    def loss(self, batch):
        inputs, wanted = batch
        return torch.nn.functional.mse_loss(self.layer(inputs), wanted)

    def training_step(self, batch, _):
        self.rates.append(self.trainer.optimizers[0].param_groups[0]["lr"])
        return self.loss(batch)

    def validation_step(self, batch, _):
        self.log("validation", self.loss(batch), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=RATE)


def main():
    inputs = torch.randn(64, 4, generator=torch.Generator().manual_seed(1))
    samples = TensorDataset(inputs, inputs @ torch.tensor([[1.0], [-2.0], [0.5], [3.0]]))
    strategy = HorovodStrategy(parallel_devices=[torch.device("cpu")] * 2)
    trainer = Trainer(
        accelerator="cpu", strategy=strategy, max_epochs=EPOCHS, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.accumulation_scheduler = GradientAccumulationScheduler({0: 1})
    torch.manual_seed(trainer.global_rank)  # ranks begin with different weights; the strategy makes them equal
    model = Linear()
    before = trainer.validate(model, DataLoader(samples, 8), verbose=False)[0]["validation"]
    share = DistributedSampler(samples, **strategy.distributed_sampler_kwargs)  # Lightning 2 does so for its own only
    trainer.fit(model, DataLoader(samples, 8, sampler=share), DataLoader(samples, 8))
    after = trainer.callback_metrics["validation"].item()
    assert (trainer.world_size, trainer.global_rank) == (hvd.size(), hvd.rank()) == (2, hvd.rank())
    assert after < before / 2, (before, after)
    assert set(model.rates) == {RATE * 2}, set(model.rates)  # the strategy multiplies it by the number of ranks
    assert trainer.global_step == EPOCHS * 64 // (8 * 2), trainer.global_step
    hvd.init()
    weights = hvd.allgather(model.layer.weight.detach())
    torch.testing.assert_close(weights[0], weights[1], rtol=0, atol=0)
    if hvd.rank() == 0:
        print(f"passed: validation loss {before:.3f} to {after:.3f}", flush=True)


if __name__ == "__main__":
    main()
