"""Trains on handwritten digits with PyTorch's DistributedDataParallel, over gorovod.

    horovodrun -np 4 python examples/pytorch_ddp.py
    torchrun --nproc_per_node 4 examples/pytorch_ddp.py

Nothing but the import and the backend's name tells that it is gorovod:
``--backend gloo`` trains over Gloo instead, under torchrun or horovodrun.
"""

import argparse
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from pytorch_digits import Net, load_digits
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

import horovod.torch.distributed  # registers the backend


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="gorovod")
    parser.add_argument("--hook", choices=["none", "allreduce", "fp16"], default="none", help="DDP communication hook")
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=60, help="images per step, of all ranks together")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--save", metavar="PATH", help="where rank 0 saves the trained weights")
    return parser.parse_args()


def accuracy(model, dataset):
    """The share of the dataset that is recognised; each rank tries a part of it."""
    images, labels = (t[dist.get_rank() :: dist.get_world_size()] for t in dataset.tensors)
    with torch.no_grad():
        right = (model(images).argmax(1) == labels).sum()
    dist.all_reduce(right)
    return right.item() / len(dataset)


def main():
    args = parse_args()
    dist.init_process_group(args.backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    if args.batch_size % size:
        raise SystemExit(f"--batch-size {args.batch_size} cannot be split evenly over {size} ranks")
    torch.set_num_threads(1)
    torch.manual_seed(args.seed + rank)  # different weights everywhere, until DDP copies rank 0's

    train, test = load_digits()
    sampler = DistributedSampler(train, seed=args.seed)
    loader = DataLoader(train, batch_size=args.batch_size // size, sampler=sampler, drop_last=True)
    model = DistributedDataParallel(Net())
    if args.hook == "allreduce":
        model.register_comm_hook(None, horovod.torch.distributed.allreduce_hook)
    elif args.hook == "fp16":
        model.register_comm_hook(None, horovod.torch.distributed.compressed_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)

    if rank == 0:
        print(f"training on {len(train)} digits, {size} rank(s), batches of {args.batch_size}", flush=True)
    seconds = []
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        dist.barrier()
        start = time.perf_counter()
        total = torch.zeros(1)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()  # each bucket of gradients is on its way as soon as it is full
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        seconds.append(time.perf_counter() - start)
        schedule.step()
        right = accuracy(model, test)
        if rank == 0:
            mean = total.item() / (len(loader) * size)
            print(f"epoch {epoch + 1:2d}/{args.epochs}  loss {mean:.4f}  test accuracy {right:.4f}", flush=True)
    if rank == 0:
        print(f"test accuracy          {right:.4f} ({len(test)} digits that no rank has trained on)")
        print(f"time per epoch         {sorted(seconds)[len(seconds) // 2]:.3f} s (median), over {args.backend}")
        if args.save:
            torch.save(model.module.state_dict(), args.save)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
