"""Compares training over this engine with DistributedDataParallel over Gloo, with a table.

    horovodrun -np 2 python bench/torch_training.py

The tasks are those of examples/pytorch_digits.py and examples/pytorch_transformer.py. Every process trains a model
by each contender: they start from the same weights and see the same batches. They take turns, epoch by epoch, and in
each round another one begins, so that what else the machine does meets all alike. The time of an epoch is that of the
slowest rank; a ratio is the median of the rounds' ratios. A first round is not counted. The last column says how far
the trained weights are from those over Gloo.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
import pytorch_digits
import pytorch_transformer

import horovod.torch as hvd
import horovod.torch.distributed  # noqa: F401  registers the backend

SEED = 42


class Digits:
    """Steps of the digits example, 25 an epoch."""

    name = "digits"

    def __init__(self, steps):
        self.data = pytorch_digits.load_digits()[0].tensors
        self.steps = steps or 25
        self.generator = torch.Generator().manual_seed(SEED)

    def model(self):
        return pytorch_digits.Net()

    def optimizer(self, parameters):
        return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)

    def loss(self, model):
        chosen = torch.randint(len(self.data[1]), (60,), generator=self.generator)[hvd.rank() :: hvd.size()]
        images, labels = (tensor[chosen] for tensor in self.data)
        return F.cross_entropy(model(images), labels)


class Transformer:
    """Steps of the transformer example; ten are called an epoch."""

    name = "transformer"
    length = 64

    def __init__(self, steps):
        text, _ = pytorch_transformer.load_text()
        self.batches = pytorch_transformer.Batches(text, 24, self.length, SEED, hvd.rank(), hvd.size())
        self.steps = steps or 10

    def model(self):
        return pytorch_transformer.Transformer(self.length)

    def optimizer(self, parameters):
        return torch.optim.AdamW(parameters, lr=0.001)

    def loss(self, model):
        return pytorch_transformer.loss_of(model, self.batches.next())


class Contender:
    """A model in training. ``group`` is DDP's; without one it is DistributedOptimizer that reduces."""

    def __init__(self, task, group):
        torch.manual_seed(SEED)
        self.task = task
        self.model = task.model()
        if group is None:
            optimizer = task.optimizer(self.model.parameters())
            self.optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=self.model.named_parameters())
        else:
            self.model = DistributedDataParallel(self.model, process_group=group)
            self.optimizer = task.optimizer(self.model.parameters())

    def epoch(self):
        """Trains, and returns the seconds of the slowest rank."""
        hvd.barrier()
        start = time.perf_counter()
        for _ in range(self.task.steps):
            self.optimizer.zero_grad()
            self.task.loss(self.model).backward()
            self.optimizer.step()
        seconds = torch.tensor(time.perf_counter() - start, dtype=torch.float64)
        return hvd.allreduce(seconds, op=hvd.Max, name="seconds").item()

    def weights(self):
        return torch.cat([p.detach().flatten() for p in self.model.parameters()])


def compare(task_of, steps, rounds, gloo):
    """Prints the task's row."""
    groups = {"hvd": None, "ddp": dist.group.WORLD, "gloo": gloo}
    contenders = {name: Contender(task_of(steps), group) for name, group in groups.items()}
    times = {name: [] for name in contenders}
    names = list(contenders)
    for i in range(rounds + 1):
        for name in names[i % 3 :] + names[: i % 3]:
            seconds = contenders[name].epoch()
            if i > 0:
                times[name].append(seconds)
    if hvd.rank() > 0:
        return
    medians = [statistics.median(times[name]) for name in names]
    ratios = [statistics.median(g / t for g, t in zip(times["gloo"], times[name])) for name in ("hvd", "ddp")]
    weights = {name: contender.weights() for name, contender in contenders.items()}
    apart = max((weights[name] - weights["gloo"]).abs().max().item() for name in ("hvd", "ddp"))
    cells = [task_of.name, str(hvd.size()), str(contenders["hvd"].task.steps)]
    cells += [f"{1000 * seconds:.0f} ms" for seconds in medians] + [f"{ratio:.2f}" for ratio in ratios]
    print(f"| {' | '.join(cells)} | {apart:.2g} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, help="epochs of each contender (%(default)s)")
    parser.add_argument("--steps", type=int, help="in an epoch (digits: 25, transformer: 10)")
    parser.add_argument("--task", choices=["digits", "transformer"], help="only this one")
    args = parser.parse_args()
    if args.rounds < 1 or args.steps is not None and args.steps < 1:
        parser.error("--rounds and --steps must be at least 1")
    dist.init_process_group("gorovod")  # and with it hvd
    torch.set_num_threads(1)
    gloo = dist.new_group(backend="gloo")
    if hvd.rank() == 0:
        print(
            "| task | ranks | steps | DistributedOptimizer | DDP | DDP over gloo | gloo ÷ 1st | ÷ 2nd | weights |"
        )
        print("|---|---|---|---|---|---|---|---|---|")
    for task_of in (Digits, Transformer):
        if args.task in (None, task_of.name):
            compare(task_of, args.steps, args.rounds, gloo)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
