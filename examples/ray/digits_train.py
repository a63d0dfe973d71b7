"""Trains a small network with Ray Train: datasets, checkpoints, and a restart after a worker has died.

    python examples/ray/digits_train.py
    python examples/ray/digits_train.py --kill-at 5

Starts a cluster on this machine, or uses the one that RAY_ADDRESS names. --kill-at has a worker die once.
"""

import argparse
import os
import signal
import tempfile
from pathlib import Path

import digits
import ray
import ray.data
import ray.train
import torch
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig

import horovod.torch as hvd
from horovod.ray.train import HorovodTrainer


def train(config):
    """Runs on every worker. After a death it runs anew, from the newest checkpoint."""
    hvd.init()
    training = digits.Training(config["lr"], config["epochs"], newest_state())
    mine = ray.train.get_dataset_shard("train")
    while training.epoch < config["epochs"]:
        batches = mine.iter_torch_batches(batch_size=config["batch_size"] // hvd.size(), drop_last=True)
        loss = training.train_epoch(digits.tensors(b["image"], b["label"]) for b in batches)
        right = training.accuracy(*config["test"])
        report({"epoch": training.epoch, "loss": loss, "accuracy": right}, training.state())
        if training.epoch == config["kill_at"] and hvd.rank() == 1 and first_time(config["killed"]):
            os.kill(os.getpid(), signal.SIGKILL)


def newest_state():
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        return None
    with checkpoint.as_directory() as folder:
        return torch.load(Path(folder) / "state.pt")


def report(metrics, state):
    """All ranks report; rank 0 leaves the checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = None
        if hvd.rank() == 0:
            torch.save(state, Path(folder) / "state.pt")
            checkpoint = Checkpoint.from_directory(folder)
        ray.train.report(metrics, checkpoint=checkpoint)


def first_time(path):
    there = os.path.exists(path)
    Path(path).touch()
    return not there


class Say(ray.train.UserCallback):
    """Prints each epoch, in the process of Ray Train that controls the run; Ray shows that in the driver."""

    def after_report(self, run_context, metrics, checkpoint):
        say("epoch {epoch:2d}  loss {loss:.4f}  test accuracy {accuracy:.4f}".format(**metrics[0]))

    def after_exception(self, run_context, worker_exceptions):
        say(f"ranks {sorted(worker_exceptions)} have failed")


def say(text):
    print(text, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=60, help="images per step, of all workers together")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--kill-at", type=int, metavar="EPOCH", help="kill rank 1 once, after this epoch")
    args = parser.parse_args()

    ray.init(ignore_reinit_error=True)
    (images, labels), test = digits.load()
    with tempfile.TemporaryDirectory() as storage:
        result = HorovodTrainer(
            train,
            train_loop_config={
                "lr": args.lr,
                "epochs": args.epochs,
                "batch_size": args.batch_size,
                "test": test,
                "kill_at": args.kill_at,
                "killed": str(Path(storage) / "killed"),
            },
            scaling_config=ScalingConfig(num_workers=args.workers),
            run_config=RunConfig(
                storage_path=storage,
                callbacks=[Say()],
                checkpoint_config=CheckpointConfig(num_to_keep=1),
                failure_config=FailureConfig(max_failures=1),
            ),
            datasets={"train": ray.data.from_items([{"image": i, "label": n} for i, n in zip(images, labels)])},
        ).fit()
    ray.shutdown()
    print("test accuracy {accuracy:.4f} after epoch {epoch}".format(**result.metrics))


if __name__ == "__main__":
    main()
