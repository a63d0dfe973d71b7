"""Optuna's TorchDistributedTrial over gorovod: rank 0 has the study, and every rank of a trial the same parameters."""

import optuna
import torch
import torch.distributed as dist
from optuna_integration import TorchDistributedTrial

import horovod.torch.distributed  # noqa: F401 - registers the backend

TRIALS = 8


def objective(trial):
    trial = TorchDistributedTrial(trial)
    rate = trial.suggest_float("rate", 0.001, 0.3, log=True)
    kind = trial.suggest_categorical("kind", ["SGD", "Adam"])
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = getattr(torch.optim, kind)([weight], lr=rate)
    for step in range(20):
        optimizer.zero_grad()
        (weight - dist.get_rank()).pow(2).sum().backward()
        dist.all_reduce(weight.grad, dist.ReduceOp.AVG)
        optimizer.step()
        loss = (weight.detach() - 0.5).abs().item()  # the ranks' mean
        trial.report(loss, step)
        if trial.should_prune():
            raise optuna.TrialPruned()
    return loss


def main():
    dist.init_process_group("gorovod")
    if dist.get_rank() == 0:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=1))
        study.optimize(objective, n_trials=TRIALS)
        assert len(study.trials) == TRIALS
        assert study.best_value < 0.25, study.best_value
        print(f"passed: {TRIALS} trials, best {study.best_value:.4f}", flush=True)
    else:
        for _ in range(TRIALS):
            try:
                objective(None)
            except optuna.TrialPruned:
                pass
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
