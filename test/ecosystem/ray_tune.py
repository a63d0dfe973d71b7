"""Ray Tune over horovod.ray: each trial is a RayExecutor of 2 workers, in the places that Tune has reserved for it."""

import tempfile

import ray
from ray import tune

from horovod.ray import RayExecutor, ray_logger

WORKERS = 2


def train(lr, steps):
    """On each worker: bring x to the ranks' mean target, 0.5, by averaged gradients."""
    import torch

    import horovod.torch as hvd

    hvd.init()
    x = torch.zeros(1)
    for step in range(steps):
        gradient = hvd.allreduce(2 * (x - hvd.rank()), name=f"gradient.{step}")
        x -= lr * gradient
        if hvd.rank() == 0:
            ray_logger.log({"distance": abs(x.item() - 0.5), "ranks": hvd.size()})
    hvd.shutdown()
    return x.item()


def trial(config):
    executor = RayExecutor(num_workers=WORKERS)
    executor.start()
    try:
        found = executor.run(train, args=[config["lr"], 5], callbacks=[tune.report])
    finally:
        executor.shutdown()
    assert len(found) == WORKERS and len(set(found)) == 1, found


def main():
    ray.init(num_cpus=2 * WORKERS, include_dashboard=False, log_to_driver=False)
    places = tune.PlacementGroupFactory([{}] + [{"CPU": 1}] * WORKERS)
    with tempfile.TemporaryDirectory() as storage:
        results = tune.Tuner(
            tune.with_resources(trial, places),
            param_space={"lr": tune.grid_search([0.01, 0.4])},
            tune_config=tune.TuneConfig(metric="distance", mode="min"),
            run_config=tune.RunConfig(storage_path=storage, verbose=0),
        ).fit()
    ray.shutdown()
    assert results.num_errors == 0, results.errors
    assert all(result.metrics["ranks"] == WORKERS for result in results)
    best = results.get_best_result()
    assert best.config["lr"] == 0.4 and best.metrics["distance"] < 0.01, best.metrics
    print(f"passed: {len(results)} trials of {WORKERS} workers, best learning rate {best.config['lr']}", flush=True)


if __name__ == "__main__":
    main()
