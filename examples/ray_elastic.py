"""An elastic job on Ray: workers die, nodes come and go, and the training goes on.

    python examples/ray_elastic.py                 # on this machine
    python examples/ray_elastic.py --address auto  # on the cluster that this machine belongs to

A worker kills itself after a while, to show what happens: the others go on with what they have committed, and a new
one takes its place.
"""

import argparse
import os
import signal

import ray

from horovod.ray import RayExecutor


def train(steps, die_at):
    import time

    import torch

    import horovod.torch as hvd
    from horovod.ray import ray_logger

    hvd.init()
    torch.manual_seed(1)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    target = torch.arange(8.0)
    resets = []

    @hvd.elastic.run
    def loop(state):
        while state.step < steps:
            inputs = torch.randn(64, 8)
            optimizer.zero_grad()
            loss = (model(inputs).squeeze(1) - inputs @ target).pow(2).mean()
            loss.backward()
            optimizer.step()
            time.sleep(0.005)  # stands for the work of a larger model
            state.step += 1
            if state.step % 20 == 0:
                if state.step == die_at and hvd.rank() == 1 and not resets:  # once
                    os.kill(os.getpid(), signal.SIGKILL)
                ray_logger.log({"step": state.step, "workers": hvd.size(), "loss": round(loss.item(), 4)})
                state.commit()
        return float(loss)

    state = hvd.elastic.TorchState(model, optimizer, step=0)
    state.register_reset_callbacks([lambda: resets.append(state.step)])
    return loop(state)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--address", help="of a Ray cluster; without it one is started here")
    parser.add_argument("--min-workers", type=int, default=2)
    parser.add_argument("--max-workers", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--die-at", type=int, default=200, help="the step at which rank 1 kills itself; 0: it does not")
    args = parser.parse_args()
    ray.init(address=args.address or "local", **({} if args.address else {"num_cpus": args.max_workers}))
    # After a failure, a worker's slot is used again in 1 to 10 seconds.
    executor = RayExecutor(min_workers=args.min_workers, max_workers=args.max_workers, cooldown_range=(1, 10))
    executor.start()
    losses = executor.run(train, args=[args.steps, args.die_at], callbacks=[print])
    executor.shutdown()
    print(f"{len(losses)} workers have come to the end; loss {losses[0]:.4f}")


if __name__ == "__main__":
    main()
