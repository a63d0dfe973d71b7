"""Measures training on made-up images: how many images per second each rank gets through.

    horovodrun -np 4 python examples/pytorch_synthetic_benchmark.py
    horovodrun -np 4 python examples/pytorch_synthetic_benchmark.py --model resnet50 --batch-size 8

The images are noise, made once, so nothing is measured but computing and reducing gradients. ``convnet`` is a small
network of this script; any other name is one of torchvision's models. Compare with one rank (``horovodrun -np 1``):
what a rank loses beside others is the cost of sharing the machine and of the gradients' travel.
"""

import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn

import horovod.torch as hvd


def convnet():
    """Six convolutions and a linear layer: half a million weights."""
    layers = []
    for inputs, outputs in [(3, 32), (32, 64), (64, 64), (64, 128), (128, 128), (128, 128)]:
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        if outputs != inputs:
            layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 1000))


def make_model(name):
    if name == "convnet":
        return convnet()
    try:
        from torchvision import models
    except ImportError:
        raise SystemExit(f"--model {name} needs torchvision, which is not installed; convnet does not") from None
    if not callable(getattr(models, name, None)):
        raise SystemExit(f"--model {name}: torchvision has no such model")
    return getattr(models, name)()


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="convnet", help="convnet, or a model of torchvision (%(default)s)")
    parser.add_argument("--batch-size", type=positive, default=16, help="images per step and rank (%(default)s)")
    parser.add_argument("--image-size", type=positive, help="pixels per side (convnet: 32, others: 224)")
    parser.add_argument("--num-warmup-batches", type=positive, default=5, help="steps that are not measured")
    parser.add_argument("--num-batches-per-iter", type=positive, default=5, help="steps in each figure")
    parser.add_argument("--num-iters", type=positive, default=10, help="how many figures")
    parser.add_argument("--fp16-allreduce", action="store_true", help="halve the gradients that travel")
    parser.add_argument("--use-adasum", action="store_true", help="combine gradients by Adasum instead of averaging")
    parser.add_argument("--no-cuda", action="store_true", help="stay on the CPU even if there is a GPU")
    parser.add_argument("--num-threads", type=positive, default=1, help="of PyTorch in each rank (%(default)s)")
    parser.add_argument("--seed", type=int, default=42)
    args = parser.parse_args()
    args.image_size = args.image_size or (32 if args.model == "convnet" else 224)
    return args


def mean_and_spread(rates):
    """Mean and 1.96 standard deviations: 95 % of the figures lie within them, if they spread normally."""
    rates = torch.tensor(rates, dtype=torch.float64)
    return rates.mean().item(), 1.96 * rates.std(unbiased=False).item()


def main():
    args = parse_args()
    hvd.init()
    torch.set_num_threads(args.num_threads)
    torch.manual_seed(args.seed)
    say = print if hvd.rank() == 0 else (lambda *_, **__: None)
    if torch.cuda.is_available() and not args.no_cuda:
        torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
        device, kind = torch.device("cuda", torch.cuda.current_device()), "GPU"
    else:
        device, kind = torch.device("cpu"), "CPU"

    model = make_model(args.model).to(device)
    # Adasum needs no larger rate for more ranks.
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * (1 if args.use_adasum else hvd.size()))
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none,
        op=hvd.Adasum if args.use_adasum else hvd.Average,
    )
    images = torch.randn(args.batch_size, 3, args.image_size, args.image_size, device=device)
    labels = torch.randint(1000, (args.batch_size,), device=device)

    def run(steps):
        """Images per second of this rank."""
        start = time.perf_counter()
        for _ in range(steps):
            optimizer.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()
        if kind == "GPU":
            torch.cuda.synchronize()
        return steps * args.batch_size / (time.perf_counter() - start)

    weights = sum(p.numel() for p in model.parameters())
    say(f"Model: {args.model}, {weights / 1e6:.1f} million weights")
    say(f"Batch size: {args.batch_size} images of {args.image_size}x{args.image_size} per {kind}")
    say(f"Number of {kind}s: {hvd.size()} (one for each rank)")
    say("Running warmup...", flush=True)
    run(args.num_warmup_batches)
    say("Running benchmark...", flush=True)
    rates = []
    for i in range(args.num_iters):
        rates.append(run(args.num_batches_per_iter))
        say(f"Iter #{i}: {rates[-1]:.1f} img/sec per {kind}", flush=True)

    per_rank = hvd.allgather_object(mean_and_spread(rates))
    mean, spread = per_rank[0]
    for rank, (rank_mean, rank_spread) in enumerate(per_rank):
        say(f"Rank {rank}: {rank_mean:.1f} +-{rank_spread:.1f} img/sec")
    say(f"Img/sec per {kind}: {mean:.1f} +-{spread:.1f}")
    say(f"Total img/sec on {hvd.size()} {kind}(s): {hvd.size() * mean:.1f} +-{hvd.size() * spread:.1f}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
