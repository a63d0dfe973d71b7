"""Steps per second of the digits example: one process, gorovod, and tf.distribute's MultiWorkerMirroredStrategy.

    python bench/tensorflow_training.py [--workers 2]

Each job trains the same network on the same data, with the same global batch. All three jobs run at once, but only one
trains at a time: in a round each trains for some steps, and the next round begins with another one. So other load on
the machine affects all alike. The medians of the rounds are compared. A worker uses one thread inside a kernel.
"""

import argparse
import json
import os
import socket
import statistics
import struct
import subprocess
import sys
import time
from pathlib import Path

import paired

ROOT = Path(__file__).resolve().parents[1]
HOROVODRUN = os.environ.get("HOROVODRUN", str(ROOT / "build" / "horovodrun"))
BATCH = 60
LONGEST_S = 120  # for anything to start, answer or end
WARM_UP, STEPS = 50, 100  # before the first round, and in each


def worker(kind):
    """Trains on each order, and answers with its speed."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "python")]
    import numpy as np
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    if kind == "mirrored":
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        rank, size = strategy.cluster_resolver.task_id, strategy.num_replicas_in_sync
    elif kind == "gorovod":
        import horovod.tensorflow as hvd

        hvd.init()
        rank, size = hvd.rank(), hvd.size()
    else:
        rank, size = 0, 1
    from tensorflow_digits import TRAIN_SIZE, Net, load_digits

    images, labels = load_digits()
    model = None

    def forward(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x)))
        return tape, loss

    def update(gradients):
        for v, g in zip(model.trainable_variables, gradients):
            v.assign_sub(0.05 * g)

    if kind == "mirrored":
        with strategy.scope():
            model = Net(42)

        def replica(x, y):
            tape, loss = forward(x, y)
            gradients = tape.gradient(loss, model.trainable_variables)
            update(tf.distribute.get_replica_context().all_reduce("mean", gradients))

        @tf.function
        def step(x, y):
            strategy.run(replica, args=(x, y))
    else:
        model = Net(42)

        @tf.function
        def step(x, y):
            tape, loss = forward(x, y)
            if kind == "gorovod":
                tape = hvd.DistributedGradientTape(tape)
            update(tape.gradient(loss, model.trainable_variables))

    share = BATCH // size
    random = np.random.RandomState(1)

    def train(steps):
        start = time.perf_counter()
        for _ in range(steps):
            mine = random.permutation(TRAIN_SIZE)[rank * share :][:share]
            step(tf.constant(images[mine]), tf.constant(labels[mine]))
        model.trainable_variables[0].numpy()
        return steps / (time.perf_counter() - start)

    train(WARM_UP)
    with socket.create_connection(("127.0.0.1", int(os.environ["TURNS_PORT"]))) as turns:
        turns.sendall(struct.pack("d", 0))
        while turns.recv(1):
            turns.sendall(struct.pack("d", train(STEPS)))


def free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Job:
    """Workers that have warmed up and wait."""

    def __init__(self, kind, workers):
        command = [sys.executable, __file__, "--worker", kind]
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(LONGEST_S)
            env = {**os.environ, "TURNS_PORT": str(server.getsockname()[1])}
            environments = [env]
            if kind == "mirrored":
                addresses = [f"127.0.0.1:{port}" for port in free_ports(workers)]
                tasks = [
                    {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": i}} for i in range(workers)
                ]
                environments = [{**env, "TF_CONFIG": json.dumps(task)} for task in tasks]
            elif kind == "gorovod":
                command = [HOROVODRUN, "-np", str(workers), *command]
            self.processes = [subprocess.Popen(command, env=e, stderr=subprocess.DEVNULL) for e in environments]
            self.workers = [server.accept()[0] for _ in range(1 if kind == "single" else workers)]
        for worker in self.workers:
            worker.settimeout(LONGEST_S)
        self.answers()

    def answers(self):
        return [struct.unpack("d", worker.recv(8, socket.MSG_WAITALL))[0] for worker in self.workers]

    def turn(self):
        """Let the job train for one turn, and return the steps per second of its slowest worker."""
        for worker in self.workers:
            worker.sendall(b"!")
        return min(self.answers())

    def end(self):
        for worker in self.workers:
            worker.close()
        for process in self.processes:
            process.wait(LONGEST_S)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        worker(args.worker)
        return
    kinds = ["single", "gorovod", "mirrored"]
    jobs = {kind: Job(kind, args.workers) for kind in kinds}
    rates = {kind: [] for kind in kinds}
    for i in range(args.rounds):
        for kind in paired.order(kinds, i):
            rates[kind].append(jobs[kind].turn())
    for job in jobs.values():
        job.end()
    medians = {kind: statistics.median(values) for kind, values in rates.items()}
    names = {
        "single": "one process",
        "gorovod": f"gorovod, {args.workers} ranks",
        "mirrored": f"MultiWorkerMirroredStrategy, {args.workers} workers",
    }
    print(f"| batches of {BATCH} | steps/s | to one process | slowest and fastest round |\n|---|---|---|---|")
    for kind, median in medians.items():
        to_single = statistics.median(a / b for a, b in zip(rates[kind], rates["single"]))
        print(f"| {names[kind]} | {median:.0f} | {to_single:.2f} | {min(rates[kind]):.0f} to {max(rates[kind]):.0f} |")
    ratios = sorted(a / b for a, b in zip(rates["gorovod"], rates["mirrored"]))
    print(
        f"\ngorovod does {statistics.median(ratios):.2f} times the steps of MultiWorkerMirroredStrategy "
        f"({ratios[0]:.2f} to {ratios[-1]:.2f} in {args.rounds} rounds)."
    )


if __name__ == "__main__":
    main()
