"""Compares training over this engine with DistributedDataParallel over Gloo, with a table.

    horovodrun -np 2 python bench/torch_training.py

The tasks are those of examples/pytorch_digits.py and examples/pytorch_transformer.py. Every process trains a model
by each contender, from the same weights and on the same batches. The contenders take turns, epoch by epoch, and in each
round another one begins. So other load on the machine affects all alike. The time of an epoch is that of the slowest
rank; a ratio is the median of the rounds' ratios. A first round is not counted.

DistributedOptimizer takes part twice: no difference smaller than the one between the two means anything. "alone" trains
without communication: the additional time of the others is communication that computation does not hide. The last
column says how far the trained weights of the contenders that communicate are from those over Gloo.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import paired
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
HOROVOD, ALONE = "horovod", "alone"  # stand in place of a group


class Digits:
    """Steps of the digits example: ``steps`` in an epoch, by default 25."""

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
    """Steps of the transformer example: ``steps`` in an epoch, by default 10."""

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
    """A model in training. ``group`` says who reduces its gradients.

    It is a process group for DDP, HOROVOD for DistributedOptimizer, or ALONE for no communication.
    """

    def __init__(self, task, group):
        torch.manual_seed(SEED)
        self.task = task
        self.model = task.model()
        if group not in (HOROVOD, ALONE):
            self.model = DistributedDataParallel(self.model, process_group=group)
        self.optimizer = task.optimizer(self.model.parameters())
        if group == HOROVOD:
            self.optimizer = hvd.DistributedOptimizer(self.optimizer, named_parameters=self.model.named_parameters())

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
    groups = {"hvd": HOROVOD, "again": HOROVOD, "ddp": dist.group.WORLD, "gloo": gloo, "alone": ALONE}
    contenders = {name: Contender(task_of(steps), group) for name, group in groups.items()}
    times = {name: [] for name in contenders}
    names = list(contenders)
    for i in range(rounds + 1):
        for name in paired.order(names, i):
            seconds = contenders[name].epoch()
            if i > 0:
                times[name].append(seconds)
    if hvd.rank() > 0:
        return

    def ratio(above, below):
        return statistics.median(a / b for a, b in zip(above, below))

    faster = min(times["ddp"], times["gloo"], key=statistics.median)
    weights = {name: contender.weights() for name, contender in contenders.items() if name != "alone"}
    apart = max((each - weights["gloo"]).abs().max().item() for each in weights.values())
    cells = [task_of.name, str(hvd.size()), str(contenders["hvd"].task.steps)]
    cells += [f"{1000 * statistics.median(times[name]):.0f} ms" for name in names]
    cells += [f"{ratio(faster, times[name]):.2f}" for name in ("hvd", "again")]
    cells += [f"{ratio(times['hvd'], times['alone']):.2f}"]
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
        columns = ["task", "ranks", "steps", "DistributedOptimizer", "again", "DDP", "DDP over gloo", "alone"]
        columns += ["faster DDP ÷ DistributedOptimizer", "÷ again", "DistributedOptimizer ÷ alone", "weights"]
        print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for task_of in (Digits, Transformer):
        if args.task in (None, task_of.name):
            compare(task_of, args.steps, args.rounds, gloo)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
