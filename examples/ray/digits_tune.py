"""Looks for a good learning rate with Ray Tune: each trial is a Horovod job of 2 workers.

    python examples/ray/digits_tune.py

Starts a cluster on this machine, or uses the one that RAY_ADDRESS names.
"""

import argparse
import tempfile

import digits
import ray
from ray import tune

import horovod.torch as hvd
from horovod.ray import RayExecutor, ray_logger


def train(data, lr, epochs, batch_size):
    """Runs on every worker of a trial."""
    (images, labels), test = data
    hvd.init()
    training = digits.Training(lr, epochs)
    for epoch in range(epochs):
        loss = training.train_epoch(digits.shuffled(images, labels, epoch, batch_size))
        right = training.accuracy(*test)
        if hvd.rank() == 0:
            ray_logger.log({"epoch": epoch + 1, "loss": loss, "accuracy": right})
    hvd.shutdown()


def trial(config, data):
    """Runs once for each learning rate. Its workers use the places that Tune has reserved for the trial."""
    executor = RayExecutor(num_workers=config["workers"])
    executor.start()
    try:
        args = [data, config["lr"], config["epochs"], config["batch_size"]]
        executor.run(train, args=args, callbacks=[tune.report])
    finally:
        executor.shutdown()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2, help="of each trial")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=60, help="images per step, of all workers together")
    parser.add_argument("--lr", type=float, nargs="+", default=[0.001, 0.1], help="the learning rates to try")
    args = parser.parse_args()

    ray.init(log_to_driver=False, ignore_reinit_error=True)
    # One bundle for the trial itself, which only waits, and one for each worker.
    places = tune.PlacementGroupFactory([{}] + [{"CPU": 1}] * args.workers)
    with tempfile.TemporaryDirectory() as storage:
        results = tune.Tuner(
            tune.with_resources(tune.with_parameters(trial, data=digits.load()), places),
            param_space={
                "lr": tune.grid_search(args.lr),
                "workers": args.workers,
                "epochs": args.epochs,
                "batch_size": args.batch_size,
            },
            tune_config=tune.TuneConfig(metric="accuracy", mode="max"),
            run_config=tune.RunConfig(storage_path=storage, verbose=0),
        ).fit()
    ray.shutdown()
    for result in results:
        print(f"lr {result.config['lr']:g}: test accuracy {result.metrics['accuracy']:.4f}")
    print(f"best lr {results.get_best_result().config['lr']:g}")


if __name__ == "__main__":
    main()
