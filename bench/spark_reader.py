#!/usr/bin/env python3
"""Rows per second of the reader of Parquet files, and of PyTorch's plain DataLoader over the same files, in turn.

    build/spark/bin/python bench/spark_reader.py [--rows N] [--memory MIB]

Three loops, which do nothing with the batches:

- ours: horovod.spark's reader, with tensors, shuffled, two threads
- plain, one pass: a DataLoader with two workers over an IterableDataset, which reads row groups by pyarrow and yields
  their rows one by one, not shuffled
- plain, in memory: a DataLoader over a Dataset that holds the whole table as tensors, shuffled; the time to read the
  files is not counted

Then a separate process reads the files with a memory limit of a tenth of their size, and prints its peak. It uses the
same allocator of Arrow as the processes of horovod.spark.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
FEATURES = 100
BATCH = 256


def write(folder, rows, files=8):
    import pyarrow as pa
    from pyarrow import parquet

    chance = np.random.default_rng(0)
    for number in range(files):
        count = rows // files
        x = pa.FixedSizeListArray.from_arrays(chance.random(count * FEATURES, dtype=np.float32), FEATURES)
        table = pa.table({"x": x.cast(pa.list_(pa.float32())), "y": chance.integers(0, 10, count)})
        parquet.write_table(table, f"{folder}/part-{number}.parquet", row_group_size=20_000)  # 8 MB


def ours(folder, memory=256 << 20):
    from horovod.spark.common.reader import ParquetReader
    from horovod.spark.data_loaders.pytorch_data_loaders import PytorchDataLoader

    loader = PytorchDataLoader(ParquetReader(folder, batch_size=BATCH, memory=memory))
    return sum(len(batch["y"]) for batch in loader)


def plain_rows(folder):
    import torch
    from pyarrow import parquet

    class Rows(torch.utils.data.IterableDataset):
        def __iter__(self):
            worker = torch.utils.data.get_worker_info()
            for path in sorted(Path(folder).glob("*.parquet"))[worker.id :: worker.num_workers]:
                file = parquet.ParquetFile(path)
                for group in range(file.num_row_groups):
                    table = file.read_row_group(group)
                    x = np.stack(table["x"].to_numpy())
                    y = table["y"].to_numpy()
                    yield from zip(x, y)

    return sum(len(y) for _, y in torch.utils.data.DataLoader(Rows(), batch_size=BATCH, num_workers=2))


def plain_held(folder):
    import torch
    from pyarrow import parquet

    if folder not in plain_held.tables:
        table = parquet.read_table(folder)
        x = np.concatenate([chunk.flatten().to_numpy() for chunk in table["x"].chunks]).reshape(-1, FEATURES)
        held = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(table["y"].to_numpy()))
        plain_held.tables[folder] = held
    loader = torch.utils.data.DataLoader(plain_held.tables[folder], batch_size=BATCH, shuffle=True)
    return sum(len(y) for _, y in loader)


plain_held.tables = {}


def peak(folder, memory):
    """Read the files, and print how many bytes of memory that took beyond the memory of the imports."""
    import torch  # noqa: F401

    from horovod.spark.common.reader import ParquetReader

    def said(name):
        return int(next(line for line in open("/proc/self/status") if line.startswith(name)).split()[1]) << 10

    list(ParquetReader(folder, cur_shard=0, shard_count=1000))  # so that lazy imports are done
    before = said("VmRSS")
    rows = ours(folder, memory)
    print(json.dumps({"rows": rows, "bytes": said("VmHWM") - before}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_600_000)
    parser.add_argument("--memory", type=int, default=64, help="MiB of the reader whose memory is measured")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak:
        return peak(arguments.peak[0], int(arguments.peak[1]))
    with tempfile.TemporaryDirectory() as folder:
        write(folder, arguments.rows)
        if arguments.rounds:
            plain_held(folder)
        found = {"ours": [], "plain, one pass": [], "plain, in memory": []}
        for _ in range(arguments.rounds):
            for name, loop in zip(found, (ours, plain_rows, plain_held)):
                begin = time.perf_counter()
                assert loop(folder) == arguments.rows
                found[name].append(arguments.rows / (time.perf_counter() - begin))
        print(
            f"{arguments.rows} rows of {FEATURES} float32 and an int64 in batches of {BATCH}, {arguments.rounds} rounds"
        )
        for name, rates in found.items() if arguments.rounds else ():
            print(f"{name:18} {statistics.median(rates):12,.0f} rows/s ({min(rates):,.0f} to {max(rates):,.0f})")
        plain_held.tables.clear()
        decoded = arguments.rows * (FEATURES * 4 + 8)
        told = subprocess.run(
            [sys.executable, __file__, "--peak", folder, str(arguments.memory << 20)],
            check=True,
            capture_output=True,
            text=True,
            env={
                "ARROW_DEFAULT_MEMORY_POOL": "jemalloc",
                **os.environ,
                "PYTHONPATH": str(Path(__file__).resolve().parents[1] / "python"),
            },
        )
        result = json.loads(told.stdout)
        print(
            f"{decoded / 2**20:,.0f} MiB of rows read with memory={arguments.memory} MiB: the process grew by "
            f"{result['bytes'] / 2**20:,.0f} MiB at most"
        )


if __name__ == "__main__":
    main()
