"""Steps per second of the digits example: one process, gorovod, and tf.distribute's MultiWorkerMirroredStrategy.

    python bench/tensorflow_training.py [--workers 2]

The same network, data, and batch of all workers together; the three take turns on the same machine, each several
times, and the medians are compared. Workers have one thread for operations inside a kernel.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOROVODRUN = os.environ.get("HOROVODRUN", str(ROOT / "build" / "horovodrun"))
BATCH = 60
WARM_UP, STEPS = 30, 200


def worker(kind):
    """Trains, and prints the rate on the first worker."""
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
    start = 0.0
    for i in range(WARM_UP + STEPS):
        if i == WARM_UP:
            start = time.perf_counter()
        mine = random.permutation(TRAIN_SIZE)[rank * share :][:share]
        step(tf.constant(images[mine]), tf.constant(labels[mine]))
    model.trainable_variables[0].numpy()
    if rank == 0:
        print("rate", STEPS / (time.perf_counter() - start), flush=True)


def free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def rate(kind, workers):
    """Runs one job, and returns its steps per second."""
    command = [sys.executable, __file__, "--worker", kind]
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    if kind == "mirrored":
        addresses = [f"127.0.0.1:{port}" for port in free_ports(workers)]
        jobs = []
        for i in range(workers):
            config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": i}}
            env = {**os.environ, "TF_CONFIG": json.dumps(config)}
            jobs.append(
                subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            )
    else:
        if kind == "gorovod":
            command = [HOROVODRUN, "-np", str(workers), *command]
        jobs = [subprocess.Popen(command, **quiet)]
    outputs = [job.communicate(timeout=120)[0] for job in jobs]
    return next(float(line.split("rate ")[1]) for output in outputs for line in output.splitlines() if "rate " in line)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        worker(args.worker)
        return
    rates = {"single": [], "gorovod": [], "mirrored": []}
    for _ in range(args.repeat):
        for kind, values in rates.items():
            values.append(rate(kind, args.workers))
    medians = {kind: statistics.median(values) for kind, values in rates.items()}
    names = {
        "single": "one process",
        "gorovod": f"gorovod, {args.workers} ranks",
        "mirrored": f"MultiWorkerMirroredStrategy, {args.workers} workers",
    }
    print(f"| batches of {BATCH} | steps/s | to one process | of each run |\n|---|---|---|---|")
    for kind, median in medians.items():
        each = ", ".join(f"{value:.0f}" for value in rates[kind])
        print(f"| {names[kind]} | {median:.0f} | {median / medians['single']:.2f} | {each} |")
    print(
        f"\ngorovod does {medians['gorovod'] / medians['mirrored']:.2f} times the steps of MultiWorkerMirroredStrategy."
    )


if __name__ == "__main__":
    main()
