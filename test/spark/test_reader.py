"""The reader of Parquet files: every row exactly once, in even shares, within the memory that it may take."""

import random
import threading
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from horovod.spark.common import _columns, _row_groups
from horovod.spark.common._loader import Loader
from horovod.spark.common.reader import ParquetReader


def write(folder, rows, files, group_rows, columns=None):
    """Files with the rows from 0 on, in row groups of ``group_rows`` at most."""
    folder.mkdir(exist_ok=True)
    ends = sorted(random.Random(rows * files).choices(range(rows + 1), k=files - 1)) + [rows]
    begin = 0
    for number, end in enumerate(ends):
        table = pa.table({"row": np.arange(begin, end), **(columns(begin, end) if columns else {})})
        parquet.write_table(table, folder / f"part-{number}.parquet", row_group_size=group_rows)
        begin = end
    return str(folder)


def epoch(path, size, **options):
    """The rows of each of ``size`` processes in an epoch."""
    readers = [ParquetReader(path, cur_shard=rank, shard_count=size, **options) for rank in range(size)]
    rows = [[int(row) for batch in reader for row in batch["row"]] for reader in readers]
    assert [len(each) for each in rows] == [reader.rows for reader in readers]
    return rows


@pytest.mark.parametrize("seed", range(40))
def test_every_row_exactly_once(tmp_path, seed):
    chance = random.Random(seed)
    rows = chance.choice([1, 2, 7, 100, 1000, 4999])
    path = write(tmp_path / "data", rows, chance.randint(1, 6), chance.choice([1, 3, 64, 1000]) if rows < 1000 else 128)
    size = chance.randint(1, 9)
    batch_size = chance.choice([1, 5, 32, 1000])
    options = {
        "batch_size": batch_size,
        "shuffle": chance.random() < 0.7,
        "seed": chance.randrange(1000),
        "workers": chance.randint(1, 4),
        "memory": chance.choice([1, 1000, 20_000, 1 << 20]),  # down to less than a row
        "keep": chance.random() < 0.2,
    }
    readers = [ParquetReader(path, cur_shard=rank, shard_count=size, **options) for rank in range(size)]
    orders = []
    for _ in range(3):
        batches = [list(reader) for reader in readers]
        assert [len(each) for each in batches] == [len(reader) for reader in readers], (seed, options)
        for each in batches:
            assert all(len(batch["row"]) == batch_size for batch in each[:-1]), (seed, options)
        shares = [sum(len(batch["row"]) for batch in each) for each in batches]
        assert max(shares) - min(shares) <= 1 and shares == [reader.rows for reader in readers], (seed, options)
        order = [int(row) for each in batches for batch in each for row in batch["row"]]
        assert sorted(order) == list(range(rows)), (seed, options)
        orders.append(order)
    if not options["shuffle"]:
        assert orders == [list(range(rows))] * 3
    elif rows >= 100:
        assert orders[0] != orders[1] != orders[2] and orders[0] != list(range(rows))


def test_a_seed_repeats_and_another_differs(tmp_path):
    path = write(tmp_path / "data", 1000, 3, 50)
    assert epoch(path, 2, seed=3) == epoch(path, 2, seed=3, workers=4)
    assert epoch(path, 2, seed=3) != epoch(path, 2, seed=4)


def test_rows_of_a_batch_are_from_many_row_groups(tmp_path):
    path = write(tmp_path / "data", 10_000, 1, 100)
    batch = next(iter(ParquetReader(path, batch_size=100)))
    assert len({int(row) // 100 for row in batch["row"]}) > 30


def test_kept_rows_are_read_once(tmp_path):
    path = write(tmp_path / "data", 1000, 2, 100)
    reader = ParquetReader(path, keep=True, cur_shard=1, shard_count=2)
    first = [int(row) for batch in reader for row in batch["row"]]
    for file in (tmp_path / "data").iterdir():
        file.unlink()
    second = [int(row) for batch in reader for row in batch["row"]]
    assert sorted(first) == sorted(second) and first != second


def test_a_large_row_group_is_read_in_pieces(tmp_path):
    def columns(begin, end):
        return {"wide": list(np.arange(begin * 100, end * 100, dtype=np.float32).reshape(-1, 100))}

    path = write(tmp_path / "data", 100_000, 1, 100_000, columns)  # 40 MB in one row group
    reader = ParquetReader(path, memory=4 << 20, batch_size=64)
    before = pa.total_allocated_bytes()
    most = 0
    for batch in reader:
        most = max(most, pa.total_allocated_bytes() - before)
        assert (batch["wide"][:, 0] == batch["row"] * 100).all()
    assert most < 10 << 20, f"{most} bytes of Arrow at a time"


def test_long_texts_count_with_their_characters(tmp_path):
    def columns(begin, end):
        return {"text": [f"{i:010}" * 1000 for i in range(begin, end)]}

    path = write(tmp_path / "data", 4000, 1, 50, columns)  # 40 MB, half a MB in each row group
    reader = ParquetReader(path, memory=6 << 20, batch_size=8)
    tracemalloc.start()
    assert sum(len(batch["row"]) for batch in reader) == 4000
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 8 << 20, f"{most} bytes of Python at a time"


def test_a_reader_that_nobody_reads_to_the_end_leaves_no_threads(tmp_path):
    path = write(tmp_path / "data", 1000, 2, 10)
    before = threading.active_count()
    iterator = iter(ParquetReader(path, memory=2000))
    next(iterator)
    assert threading.active_count() > before
    iterator.close()
    assert threading.active_count() == before


def test_columns_of_all_kinds(tmp_path):
    table = pa.table(
        {
            "int8": pa.array([1, 2, 3], pa.int8()),
            "bool": [True, False, True],
            "float": pa.array([1.0, None, 3.0], pa.float32()),
            "list": [[1, 2], [3, 4], [5, 6]],
            "nested": [[[1.0], [2.0]], [[3.0], [4.0]], [[5.0], [6.0]]],
            "fixed": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int32(), 2)),
            "decimal": pa.array([1, 2, 3], pa.decimal128(5, 2)),
            "text": ["a", "bc", None],
            "class": pa.array(["x", "y", "x"]).dictionary_encode(),
        }
    )
    parquet.write_table(table, tmp_path / "one.parquet")
    batch = next(iter(ParquetReader(str(tmp_path), shuffle=False)))
    assert {name: (array.dtype.name, array.shape) for name, array in batch.items()} == {
        "int8": ("int8", (3,)),
        "bool": ("bool", (3,)),
        "float": ("float32", (3,)),
        "list": ("int64", (3, 2)),
        "nested": ("float64", (3, 2, 1)),
        "fixed": ("int32", (3, 2)),
        "decimal": ("float64", (3,)),
        "text": ("object", (3,)),
        "class": ("object", (3,)),
    }
    assert np.isnan(batch["float"][1]) and batch["nested"][2, 1, 0] == 6 and batch["decimal"][2] == 3
    assert list(batch["text"]) == ["a", "bc", None]


@pytest.mark.parametrize(
    "values, words",
    [
        ([[1], [2, 3]], "'x' has arrays of 1 to 2 elements"),
        ([[1], None], "'x' has 1 rows without an array"),
        ([1, None], "'x' lacks 1 values of the type int64"),
    ],
)
def test_rows_of_different_shapes(tmp_path, values, words):
    parquet.write_table(pa.table({"x": values}), tmp_path / "one.parquet")
    with pytest.raises(ValueError, match=words):
        list(ParquetReader(str(tmp_path)))


def test_partitioned_folders(tmp_path):
    for year in (2025, 2026):
        (tmp_path / f"year={year}").mkdir()
        parquet.write_table(pa.table({"row": [year, year + 10]}), tmp_path / f"year={year}" / "a.parquet")
    batch = next(iter(ParquetReader(str(tmp_path), shuffle=False, columns=["year", "row"])))
    assert list(batch) == ["year", "row"] and batch["year"].tolist() == [2025, 2025, 2026, 2026]


def test_folders_above_the_data_are_no_partitions(tmp_path):
    (tmp_path / "lr=0.1" / "row=3").mkdir(parents=True)
    path = write(tmp_path / "lr=0.1" / "row=3" / "data", 10, 2, 10)
    batch = next(iter(ParquetReader(path, shuffle=False)))
    assert list(batch) == ["row"] and batch["row"].tolist() == list(range(10))


def test_transformation(tmp_path):
    path = write(tmp_path / "data", 100, 2, 10, lambda a, b: {"pair": list(np.arange(2 * a, 2 * b).reshape(-1, 2))})

    def transform(frame):
        frame = frame[frame["row"] % 2 == 0].copy()
        frame["double"] = frame["row"] * 2
        frame["pair"] = frame["pair"].map(lambda pair: pair + 1)
        return frame

    batches = list(ParquetReader(path, transform_fn=transform, batch_size=7))
    rows = np.concatenate([batch["row"] for batch in batches])
    assert sorted(rows) == list(range(0, 100, 2))
    assert all((batch["pair"][:, 0] == batch["double"] + 1).all() for batch in batches)


@pytest.mark.parametrize("keep", [False, True])
def test_a_transformation_makes_arrays_of_several_dimensions(tmp_path, keep):
    path = write(tmp_path / "data", 20, 1, 7)  # batches of 5 have rows of two row groups

    def transform(frame):
        return frame.assign(image=[np.full((2, 3), row, np.float32) for row in frame["row"]], text="a")

    reader = ParquetReader(path, transform_fn=transform, batch_size=5, keep=keep)
    assert list(reader.sample()) == ["row", "image", "text"]
    for _ in range(2):
        batches = list(reader)
        assert sorted(np.concatenate([batch["row"] for batch in batches])) == list(range(20))
        for batch in batches:
            assert batch["image"].shape == (5, 2, 3) and batch["image"].dtype == np.float32
            assert (batch["image"] == batch["row"][:, None, None]).all()


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (np.zeros((3, 2)), r"column 'image' has rows of the shapes \[.*\] and \[.*\]"),
        (np.zeros(6), r"column 'image' has rows of the shapes \[.*\] and \[.*\]"),
        (None, "column 'image' has 1 rows without an array: fill them"),
    ],
)
@pytest.mark.parametrize("place", [0, 4])
def test_a_transformation_makes_unlike_arrays(tmp_path, other, words, place):
    path = write(tmp_path / "data", 5, 1, 5)
    values = [other if row == place else np.zeros((2, 3)) for row in range(5)]
    with pytest.raises(ValueError, match=words):
        list(ParquetReader(path, transform_fn=lambda frame: frame.assign(image=values), shuffle=False))


def test_what_makes_no_sense(tmp_path):
    path = write(tmp_path / "data", 10, 1, 10)
    for options, words in (
        ({"columns": ["row", "column"]}, "no column 'column'; it has row"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"memory": 0}, "memory=0"),
        ({"cur_shard": 2, "shard_count": 2}, "cur_shard=2"),
    ):
        with pytest.raises(ValueError, match=words):
            ParquetReader(path, **options)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no Parquet files"):
        ParquetReader(str(tmp_path / "empty"))
    with pytest.raises(FileNotFoundError):
        ParquetReader(str(tmp_path / "nowhere"))


def test_an_error_in_a_thread_ends_the_epoch(tmp_path):
    path = write(tmp_path / "data", 100, 1, 10)

    def transform(frame):
        if frame["row"].iloc[0] == 50:
            raise KeyError("fifty")
        return frame

    seen = []
    with pytest.raises(KeyError, match="fifty"):
        for batch in ParquetReader(path, shuffle=False, batch_size=10, transform_fn=transform, memory=400):
            seen += batch["row"].tolist()
    assert seen == list(range(len(seen))) and 0 < len(seen) <= 50


def test_more_processes_than_rows(tmp_path):
    assert sorted(map(len, epoch(write(tmp_path / "data", 2, 1, 10), 5))) == [0, 0, 0, 1, 1]


def test_shards_of_random_row_groups():
    for seed in range(300):
        chance = random.Random(seed)
        groups = [_row_groups.RowGroup(0, i, chance.choice([0, 1, 5, 100]), 8) for i in range(chance.randint(1, 20))]
        size = chance.randint(1, 12)
        order = _row_groups.order(len(groups), seed, 0)
        seen = []
        for rank in range(size):
            pieces = _row_groups.shard(groups, order, rank, size)
            own = [(p.group.index, row) for p in pieces for row in range(p.first, p.stop)]
            limit = chance.choice([1, 8, 100])
            cut = [
                (c.group.index, row)
                for p in pieces
                for c in _row_groups.cut(p, limit)
                for row in range(c.first, c.stop)
            ]
            assert cut == own, seed
            assert len(own) == _row_groups.shard_rows(sum(g.rows for g in groups), rank, size), seed
            seen += own
        assert sorted(seen) == [(g.index, row) for g in groups for row in range(g.rows)], seed


def vectors(rows, size, chance):
    """A column of vectors as Spark gives it, and the same as a matrix."""
    matrix = np.where(chance.random((rows, size)) < 0.3, chance.integers(1, 9, (rows, size)), 0).astype(float)
    values = []
    for row in matrix:
        if chance.random() < 0.5:
            values.append({"type": 1, "size": None, "indices": None, "values": row.tolist()})
        else:
            places = np.flatnonzero(row).tolist()
            values.append({"type": 0, "size": size, "indices": places, "values": row[places].tolist()})
    fields = [
        ("type", pa.int8()),
        ("size", pa.int32()),
        ("indices", pa.list_(pa.int32())),
        ("values", pa.list_(pa.float64())),
    ]
    return pa.array(values, pa.struct(fields)), matrix


@pytest.mark.parametrize("seed", range(20))
def test_vectors(seed):
    chance = np.random.default_rng(seed)
    column, matrix = vectors(int(chance.integers(1, 50)), int(chance.integers(1, 20)), chance)
    first = int(chance.integers(0, len(matrix)))
    column, matrix = column.slice(first), matrix[first:]
    assert (_columns.dense("v", column) == matrix).all()
    width = _columns.widest(column)
    assert width == (matrix != 0).sum(axis=1).max()
    compressed = _columns.compressed("v", column, width)
    assert compressed.shape == (len(matrix), 1 + 2 * width)
    assert (_columns.decompress(compressed, matrix.shape[1]) == matrix).all()


def test_vectors_of_different_sizes():
    one, other = (vectors(1, size, np.random.default_rng(0))[0] for size in (2, 3))
    with pytest.raises(ValueError, match="'v' has vectors of 2 to 3 elements"):
        _columns.dense("v", pa.concat_arrays([one, other]))


@pytest.mark.parametrize(
    ("rows", "batch", "steps", "sizes"),
    [
        (33, 16, None, [16, 17]),
        (34, 16, None, [16, 16, 2]),
        (32, 16, None, [16, 16]),
        (1, 16, None, [1]),
        (3, 1, None, [1, 1, 1]),
        (17, 4, 6, [4, 4, 4, 5, 4, 4]),  # the last two repeat rows of the epoch
        (17, 4, 2, [4, 4, 4, 5]),  # two epochs
    ],
)
def test_no_batch_of_a_single_row(tmp_path, rows, batch, steps, sizes):
    reader = ParquetReader(write(tmp_path / "data", rows, 2, 5), batch_size=batch, memory=1000)
    loader = Loader(reader, steps, single=False)
    epochs = [list(loader) for _ in range(max(1, len(sizes) // (steps or len(sizes))))]
    assert [len(each) for each in epochs] == [len(loader)] * len(epochs)
    assert [len(rows["row"]) for each in epochs for rows in each] == sizes
    if steps is None:
        assert sorted(int(row) for each in epochs for one in each for row in one["row"]) == list(range(rows))


def test_a_process_without_rows_takes_some_of_the_others(tmp_path):
    path = write(tmp_path / "data", 10, 1, 10)

    def late(frame):
        return frame[frame.row >= 7]

    for options in ({"cur_shard": 0, "shard_count": 11}, {"cur_shard": 0, "shard_count": 2, "transform_fn": late}):
        loader = Loader(ParquetReader(path, batch_size=4, **options), 2)
        assert all(0 < len(batch["row"]) <= 4 for batch in loader) and len(list(loader)) == 2
    none = ParquetReader(path, transform_fn=lambda frame: frame[frame.row > 10])
    with pytest.raises(ValueError, match="there are no rows: the transformation has left none"):
        list(Loader(none, 2))
