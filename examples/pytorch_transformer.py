"""Trains a small transformer to write like Python's reference manual, letter by letter, data-parallel.

    horovodrun -np 4 python examples/pytorch_transformer.py

The text is that of Python's own help topics (``help("topics")``), which come with every Python: half a million
letters, under the PSF licence. The batch size is that of all ranks together, so the loss curve does not depend on their
number, up to rounding. Runs alone too.
"""

import argparse
import math
import time

import torch
import torch.nn.functional as F
from pytorch_digits import weights_are_identical
from torch import nn

import horovod.torch as hvd

SYMBOLS = 128  # ASCII; any other letter becomes a question mark


def load_text():
    """The help topics as numbers below SYMBOLS: the text to train on, and the last tenth of each topic, held out."""
    from pydoc_data.topics import topics

    train, held_out = [], []
    for _, text in sorted(topics.items()):
        letters = torch.tensor(list(text.encode("ascii", "replace")))
        cut = len(letters) * 9 // 10
        train.append(letters[:cut])
        held_out.append(letters[cut:])
    return torch.cat(train), torch.cat(held_out)


class Block(nn.Module):
    """Attention to this letter and those before, then two linear layers for each letter."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.attend = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.think = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, mask):
        batch, length, width = x.shape
        heads = self.attend(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-2, -1) / math.sqrt(width // self.heads) + mask
        seen = scores.softmax(-1) @ value
        x = x + self.project(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.think(self.norm2(x))


class Transformer(nn.Module):
    """Predicts each next letter: letters (batch, length) to logits (batch, length, SYMBOLS)."""

    def __init__(self, length, width=96, heads=4, layers=2):
        super().__init__()
        self.letter = nn.Embedding(SYMBOLS, width)
        self.place = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, SYMBOLS)
        self.register_buffer("mask", torch.full((length, length), -math.inf).triu(1), persistent=False)

    def forward(self, letters):
        length = letters.shape[1]
        x = self.letter(letters) + self.place.weight[:length]
        for block in self.blocks:
            x = block(x, self.mask[:length, :length])
        return self.out(self.norm(x))


class Batches:
    """Random pieces of the text, the same for a seed on any number of ranks; each rank gets its share of a batch."""

    def __init__(self, text, batch_size, length, seed, rank, size):
        self.pieces = text.unfold(0, length + 1, 1)
        self.batch_size = batch_size
        self.generator = torch.Generator().manual_seed(seed)
        self.share = slice(rank, None, size)

    def next(self):
        """This rank's share: letters, and the letters that follow."""
        starts = torch.randint(len(self.pieces), (self.batch_size,), generator=self.generator)
        pieces = self.pieces[starts[self.share]]
        return pieces[:, :-1], pieces[:, 1:]


def loss_of(model, batch):
    """The loss in nats per letter."""
    letters, following = batch
    return F.cross_entropy(model(letters).flatten(0, 1), following.flatten())


def held_out_loss(model, text, length):
    """The loss on some 200 pieces of text that no rank has trained on. Each rank reads a part of them."""
    pieces = text.unfold(0, length + 1, length)
    pieces = pieces[:: max(1, len(pieces) // 200)][hvd.rank() :: hvd.size()]
    total = torch.zeros(2)  # nats, letters
    with torch.no_grad():
        for part in pieces.split(64):
            logits = model(part[:, :-1]).flatten(0, 1)
            total[0] += F.cross_entropy(logits, part[:, 1:].flatten(), reduction="sum")
            total[1] += len(logits)
    nats, letters = hvd.allreduce(total, name="held_out", op=hvd.Sum)
    return (nats / letters).item()


def write(model, start, letters, length, seed):
    """Returns ``start`` and so many letters more."""
    generator = torch.Generator().manual_seed(seed)
    text = list(start.encode("ascii"))
    with torch.no_grad():
        for _ in range(letters):
            logits = model(torch.tensor([text[-length:]]))[0, -1]
            text.append(torch.multinomial((logits / 0.7).softmax(0), 1, generator=generator).item())
    return bytes(text).decode("ascii")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300, help="(%(default)s)")
    parser.add_argument("--batch-size", type=int, default=24, help="pieces per step, of all ranks together")
    parser.add_argument("--length", type=int, default=64, help="letters in a piece (%(default)s)")
    parser.add_argument("--lr", type=float, default=0.005)
    parser.add_argument("--compression", choices=["none", "fp16", "bf16"], default="none", help="of gradients")
    parser.add_argument("--every", type=int, default=50, help="steps between reports (%(default)s)")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--save", metavar="PATH", help="where rank 0 saves the trained weights")
    args = parser.parse_args()
    if args.steps < 1 or args.length < 1 or args.every < 1:
        parser.error("--steps, --length and --every must be at least 1")
    return args


def main():
    args = parse_args()
    hvd.init()
    if args.batch_size < 1 or args.batch_size % hvd.size():
        raise SystemExit(f"--batch-size {args.batch_size} cannot be split evenly over {hvd.size()} ranks")
    torch.set_num_threads(1)
    torch.manual_seed(args.seed + hvd.rank())  # different weights everywhere, until rank 0's are broadcast
    say = print if hvd.rank() == 0 else (lambda *_, **__: None)

    train, held_out = load_text()
    batches = Batches(train, args.batch_size, args.length, args.seed, hvd.rank(), hvd.size())
    model = Transformer(args.length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=getattr(hvd.Compression, args.compression),
    )
    warmup = max(1, args.steps // 20)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warmup, 0.5 + 0.5 * math.cos(math.pi * step / args.steps))
    )

    weights = sum(p.numel() for p in model.parameters())
    work = f"training {weights:,} weights on {len(train):,} letters, {hvd.size()} rank(s), batches of {args.batch_size}"
    say(work, flush=True)
    say(f"before: {held_out_loss(model, held_out, args.length) / math.log(2):.3f} bits per letter", flush=True)
    total, steps, start = torch.zeros(1), 0, time.perf_counter()
    for step in range(1, args.steps + 1):
        optimizer.zero_grad()
        loss = loss_of(model, batches.next())
        loss.backward()
        optimizer.step()
        schedule.step()
        total += loss.detach()
        steps += 1
        if step % args.every == 0 or step == args.steps:
            mean = hvd.allreduce(total / steps, name="loss").item()
            rate = steps * args.batch_size * args.length / (time.perf_counter() - start)
            say(f"step {step:4d}/{args.steps}  loss {mean:.4f}  {rate:6.0f} letters/s, all ranks together", flush=True)
            total, steps, start = torch.zeros(1), 0, time.perf_counter()

    bits = held_out_loss(model, held_out, args.length) / math.log(2)
    same = weights_are_identical(model)
    if hvd.rank() == 0:
        print(f"held-out text  {bits:.3f} bits per letter")
        print(f"weights        {'bit-identical on all ranks' if same else 'DIFFER between ranks'}")
        print("it writes      " + write(model, "The ", 200, args.length, args.seed).replace("\n", "\n               "))
        if args.save:
            torch.save(model.state_dict(), args.save)
    hvd.shutdown()
    if not same:
        raise SystemExit("the ranks ended with different weights")


if __name__ == "__main__":
    main()
