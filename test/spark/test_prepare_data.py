"""prepare_data and what is known of the data: on real Spark."""

import contextlib
import json
import os
import shutil
import threading
import time

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.ml.linalg import DenseVector, SparseVector, Vectors, VectorUDT
from pyspark.sql import functions, types
from test_stores import s3  # noqa: F401 - a fixture

from horovod.spark.common import _columns, _files, constants, util
from horovod.spark.common.reader import ParquetReader
from horovod.spark.common.store import Store


@pytest.fixture
def store(tmp_path):
    return Store.create(str(tmp_path))


@pytest.fixture(autouse=True)
def forget():
    yield
    util.clear_training_cache()


def vector(i):
    return Vectors.dense([1.0, 0.0, i]) if i % 2 else Vectors.sparse(3, [2], [float(i)])


@pytest.fixture(scope="module")
def df(spark):
    """100 rows with columns of several kinds."""
    rows = [(i, float(i), vector(i), Vectors.sparse(5, [1], [1.0 + i]), [i, i + 1], i % 4 == 0) for i in range(100)]
    return spark.createDataFrame(rows, ["id", "label", "mixed", "sparse", "list", "marked"])


def ids(path, store=None):
    options = store.storage_options if store else None
    reader = ParquetReader(path, storage_options=options, columns=["id"], batch_size=16)
    return sorted(int(i) for batch in reader for i in batch["id"])


@pytest.mark.smoke
def test_what_is_written(df, store):
    with util.prepare_data(2, store, df, ["label"], ["id", "mixed", "sparse", "list"], partitions_per_process=2) as idx:
        rows, val_rows, metadata, row_size = util.get_dataset_properties(idx)
        assert (idx, rows, val_rows) == (0, 100, 0) and 80 < row_size < 200
        assert util.get_simple_meta_from_parquet(store, ["label"], ["id"], dataset_idx=idx) == (
            rows,
            0,
            metadata,
            row_size,
        )
        path = store.get_train_data_path(idx)
        assert store.is_parquet_dataset(path) and len(store.get_parquet_dataset(path).files) == 4
        batch = next(iter(ParquetReader(path, batch_size=100, shuffle=False)))
    order = np.argsort(batch["id"])
    assert batch["id"][order].tolist() == batch["label"][order].tolist() == list(range(100))
    assert batch["mixed"][order].tolist() == [vector(i).toArray().tolist() for i in range(100)]
    assert batch["list"][order].tolist() == [[i, i + 1] for i in range(100)]

    def column(kind, shape=1, how=constants.NOCHANGE, sparse=False):
        return {
            "spark_data_type": kind,
            "is_sparse_vector_only": sparse,
            "shape": shape,
            "intermediate_format": how,
            "max_size": shape,
        }

    assert metadata == {
        "id": column(types.LongType),
        "label": column(types.DoubleType),
        "mixed": column(DenseVector, 3, constants.ARRAY),
        "sparse": column(SparseVector, 5, constants.ARRAY, sparse=True),
        "list": column(types.ArrayType, 2),
    }
    with open(store.get_localized_path(f"{path}/_horovod.json")) as file:
        assert json.load(file)["rows"] == 100


def test_compressed_vectors(df, store):
    with util.prepare_data(2, store, df, ["id"], ["mixed", "sparse"], compress_sparse=True) as idx:
        metadata = util.get_dataset_properties(idx)[2]
        batch = next(iter(ParquetReader(store.get_train_data_path(idx), batch_size=100)))
    assert {name: metadata[name]["max_size"] for name in ("mixed", "sparse")} == {"mixed": 2, "sparse": 1}
    assert metadata["mixed"]["intermediate_format"] == constants.CUSTOM_SPARSE
    assert batch["mixed"].shape == (100, 5) and batch["sparse"].shape == (100, 3)
    for i, mixed, sparse in zip(batch["id"], batch["mixed"], batch["sparse"]):
        assert _columns.decompress(mixed[None], 3)[0].tolist() == vector(i).toArray().tolist()
        assert sparse.tolist() == [1, 1, 1.0 + i]


def test_validation_by_share(df, store):
    with util.prepare_data(2, store, df, ["label"], ["id"], validation=0.3) as idx:
        rows, val_rows, _, _ = util.get_dataset_properties(idx)
        train, val = ids(store.get_train_data_path(idx)), ids(store.get_val_data_path(idx))
    assert (len(train), len(val)) == (rows, val_rows) and sorted(train + val) == list(range(100)) and 10 < val_rows < 55


@pytest.mark.parametrize("kind", ["boolean", "int", "double"])
def test_validation_by_column(df, store, kind):
    marked = df.withColumn("marked", functions.col("marked").cast(kind))
    with util.prepare_data(2, store, marked, ["label"], ["id"], validation="marked") as idx:
        assert ids(store.get_val_data_path(idx)) == list(range(0, 100, 4))
        assert util.get_dataset_properties(idx)[:2] == (75, 25)
        assert "marked" not in util.get_dataset_properties(idx)[2]


def test_one_data_set_for_trainings_at_one_time(df, store):
    with contextlib.ExitStack() as first:
        one = first.enter_context(util.prepare_data(2, store, df, ["label"], ["id"]))
        with util.prepare_data(2, store, df, ["label"], ["id"]) as same:
            assert same == one == 0
        with util.prepare_data(2, store, df, ["label"], ["id"], validation=0.5) as other:
            assert other == 1
            first.close()
            with util.prepare_data(2, store, df, ["label"], ["list"]) as free:
                assert free == 0
            with pytest.raises(KeyError):
                util.get_dataset_properties(0)


def test_trainings_in_threads_write_once(df, store):
    found = []
    meet = threading.Barrier(4)

    def train():
        with util.prepare_data(2, store, df, ["label"], ["id"]) as idx:
            found.append((idx, ids(store.get_train_data_path(idx))))
            meet.wait(60)

    threads = [threading.Thread(target=train) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [(0, list(range(100)))] * 4


def test_what_was_there_is_overwritten(df, store):
    for rows in (df, df.filter("id < 10")):
        with util.prepare_data(2, store, rows, ["label"], ["id"]) as idx:
            assert idx == 0 and ids(store.get_train_data_path(0)) == list(range(rows.count()))


def test_in_a_server_that_speaks_s3(df, s3):  # noqa: F811
    store = Store.create(f"s3://{s3.bucket}/prepared", storage_options=s3.options)
    with util.prepare_data(2, store, df, ["label"], ["id", "mixed"], validation="marked") as idx:
        assert ids(store.get_train_data_path(idx), store) == [i for i in range(100) if i % 4]
        assert util.get_simple_meta_from_parquet(store, ["label"], ["id"], dataset_idx=idx)[:2] == (75, 25)


def test_a_task_that_ends_late_in_s3(df, s3):  # noqa: F811
    store = Store.create(f"s3://{s3.bucket}/late", storage_options=s3.options)
    with pytest.raises(ValueError, match="null"):
        prepare(store, df.selectExpr("id", "if(id = 3, null, label) as label"))
    path = f"{s3.bucket}/late/intermediate_train_data.0"
    filesystem = _files.open_filesystem(store.get_train_data_path(0), s3.options)[0]
    assert [each.rpartition("/")[2] for each in filesystem.find(path)] == ["_horovod.json"]
    with filesystem.open(f"{path}/part-00000-late.parquet", "wb") as file:
        parquet.write_table(pa.table({"id": [1], "label": [1.0]}), file)
    with pytest.raises(ValueError, match="another job is still writing them, or was killed"):
        util.get_simple_meta_from_parquet(store, ["label"], ["id"], dataset_idx=0)
    with util.prepare_data(2, store, df, ["label"], ["id"]) as idx:
        assert ids(store.get_train_data_path(idx), store) == list(range(100))


def test_files_that_spark_wrote(df, store):
    path = store.get_train_data_path()
    with pytest.raises(ValueError, match="does not exist"):
        util.get_simple_meta_from_parquet(store, ["label"], ["id"])
    df.write.parquet(path)
    features = ["id", "mixed", "sparse", "list"]
    rows, val_rows, metadata, row_size = util.get_simple_meta_from_parquet(store, ["label"], features)
    assert (rows, val_rows) == (100, 0) and row_size > 20
    assert {name: column["shape"] for name, column in metadata.items()} == {
        "id": 1,
        "mixed": 3,
        "sparse": 5,
        "list": 2,
        "label": 1,
    }
    assert metadata["sparse"]["spark_data_type"] is SparseVector and metadata["id"]["spark_data_type"] is types.LongType
    batch = next(iter(ParquetReader(path, batch_size=100, transform_fn=lambda frame: frame.drop(columns="marked"))))
    assert all((batch["mixed"][n] == vector(i).toArray()).all() for n, i in enumerate(batch["id"]))
    with pytest.raises(ValueError, match="no column 'other'"):
        util.get_simple_meta_from_parquet(store, ["label"], ["other"])


def prepare(store, df, labels=("label",), features=("id",), **options):
    with util.prepare_data(2, store, df, list(labels), list(features), partitions_per_process=1, **options):
        pass


def test_bad_input(spark, df, store, tmp_path):
    for options, words in (
        ({"features": ["nothing"]}, "the data frame has no column 'nothing'; it has id, label"),
        ({"validation": 1.0}, "validation=1.0"),
        ({"validation": "nothing"}, "validation='nothing': the data frame has no such column"),
        ({"validation": "list"}, "validation='list': the column must have booleans or numbers, not array"),
        ({"validation": True}, "validation=True"),
    ):
        with pytest.raises(ValueError, match=words):
            prepare(store, df, **options)
    with pytest.raises(ValueError, match="no rows for the training$"):
        prepare(store, df.filter("id < 0"))
    with pytest.raises(ValueError, match="no rows for the training: all its 1 rows are for validation"):
        prepare(store, df.filter("id = 0"), validation="marked")
    uneven = spark.createDataFrame([(i, [0.0] * (1 + i // 20)) for i in range(40)], ["label", "list"])
    for partitions in (1, 4):  # within a file, and between files
        with pytest.raises(ValueError, match="column 'list' has (rows of the shapes|arrays of)"):
            prepare(store, uneven.coalesce(partitions), features=["list"])
    vectors = spark.createDataFrame([(1, Vectors.dense([1.0])), (2, Vectors.dense([1.0, 2.0]))], ["label", "v"])
    with pytest.raises(ValueError, match="column 'v' has (rows of the shapes|vectors of)"):
        prepare(store, vectors, features=["v"])
    for what in (None, "x", {"id": [1]}):
        with pytest.raises(TypeError, match="a data frame of Spark is needed, not"):
            prepare(store, what)
    with pytest.raises(ValueError, match="the data frame is a stream"):
        prepare(store, spark.readStream.format("rate").load(), ["value"], ["value"])
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="cannot be written"):
        prepare(Store.create(str(tmp_path / "file" / "below")), df)
    with pytest.raises(OSError, match="http://127.0.0.1:1/a/intermediate_train_data.0 cannot be written"):
        prepare(Store.create("http://127.0.0.1:1/a"), df)


def test_nulls_are_refused_by_column_with_their_number(spark, df, store):
    rows = [(1, 1.0, [1.0, 2.0], vector(1)), (None, None, [None, 2.0], None), (3, None, None, vector(1))]
    nulls = spark.createDataFrame(
        rows * 5,
        schema_of(i=types.IntegerType(), d=types.DoubleType(), a=types.ArrayType(types.DoubleType()), v=VectorUDT()),
    )
    for options in ({}, {"compress_sparse": True}, {"validation": 0.5}):
        with pytest.raises(ValueError) as raised:
            prepare(store, nulls.repartition(3), ["d"], ["i", "a", "v"], **options)
        for words in ("5 in the column 'i'", "10 in the column 'd'", "10 in the column 'a'", "5 in the column 'v'"):
            assert words in str(raised.value)
        assert "df.dropna(subset=" in str(raised.value)
    assert not store.exists(store.get_train_data_path(0)) and not store.exists(store.get_val_data_path(0))
    prepare(store, nulls.dropna(), ["d"], ["i", "a", "v"])


def schema_of(**kinds):
    made = types.StructType()
    for name, kind in kinds.items():
        made = made.add(name, kind)
    return made


def test_nulls_of_a_validation_column_are_no_mark(spark, store):
    rows = spark.createDataFrame([(1.0, True), (2.0, None), (3.0, False)], ["x", "marked"])
    with util.prepare_data(1, store, rows, ["x"], ["x"], validation="marked") as idx:
        assert util.get_dataset_properties(idx)[:2] == (2, 1)


def test_a_column_that_is_learnt_may_mark_the_rows_for_validation(df, store):
    with util.prepare_data(2, store, df, ["label"], ["id"], validation="id") as idx:
        assert util.get_dataset_properties(idx)[:2] == (1, 99)
        assert ids(store.get_train_data_path(idx)) == [0]


@pytest.mark.parametrize("name", ["a.b", "a`b", "a b", "ä", "x.y.z", "a[0]", "a::b"])
def test_names_of_columns_of_all_kinds(df, store, name):
    rows = df.selectExpr("id", "mixed", "label as `" + name.replace("`", "``") + "`")
    for validation in (None, name):
        prepare(store, rows, ["id"], ["mixed"], validation=validation)
    with util.prepare_data(2, store, rows, [name], ["id", "mixed"]) as idx:
        batch = next(iter(ParquetReader(store.get_train_data_path(idx), batch_size=100)))
    assert sorted(batch[name]) == list(range(100))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda told: "", "is no JSON"),
        (lambda told: json.dumps(told)[:100], "is no JSON"),
        (lambda told: json.dumps({**told, "version": 99}), "is of another version of gorovod"),
        (lambda told: json.dumps([told]), "is of another version of gorovod"),
        (lambda told: json.dumps({**told, "files": None}), "is damaged: prepare the data again"),
        (lambda told: json.dumps({**told, "files": ["../other.parquet"]}), "is damaged"),
        (lambda told: json.dumps({**told, "files": [".."]}), "is damaged"),
        (lambda told: json.dumps({**told, "rows": "many"}), "is damaged"),
        (lambda told: json.dumps({**told, "rows": -1}), "is damaged"),
        (lambda told: json.dumps({**told, "columns": []}), "is damaged"),
        (lambda told: json.dumps({**told, "columns": {"id": {"shape": 1}}}), "is damaged"),
        (lambda told: json.dumps({**told, "columns": {}}), "has no column 'id': prepare the data again"),
        (lambda told: json.dumps({**told, "rows": 5}), "says 5 rows, but there are 100: prepare the data again"),
        (lambda told: json.dumps({**told, "files": ["part-a.parquet"]}), "lacks a file that its description names"),
    ],
)
def test_a_damaged_description_of_the_data(tmp_path, change, words):
    store = Store.create(str(tmp_path))
    folder = tmp_path / "intermediate_train_data.0"
    folder.mkdir()
    parquet.write_table(pa.table({"id": range(100)}), folder / "part-0.parquet")
    column = dict.fromkeys(["spark_data_type", "is_sparse_vector_only", "intermediate_format"], "LongType")
    told = {"version": 1, "files": ["part-0.parquet"], "rows": 100, "size": 800}
    told["columns"] = {"id": {**column, "shape": 1, "max_size": 1}}
    (folder / "_horovod.json").write_text(json.dumps(told))
    assert util.get_simple_meta_from_parquet(store, ["id"], ["id"], dataset_idx=0)[0] == 100
    (folder / "_horovod.json").write_text(change(told))
    with pytest.raises((ValueError, FileNotFoundError), match=words):
        util.get_simple_meta_from_parquet(store, ["id"], ["id"], dataset_idx=0)


@pytest.mark.parametrize("name", ["a::b", "a[1]", "a*b?c", "lr=0.1", "id=3", "a b#c%20", "ä"])
def test_names_of_folders_of_all_kinds(df, tmp_path, name):
    store = Store.create(str(tmp_path / name))
    for _ in range(2):  # the second replaces the first
        with util.prepare_data(1, store, df, ["label"], ["id"], validation="marked") as idx:
            assert util.get_simple_meta_from_parquet(store, ["label"], ["id"], dataset_idx=idx)[:2] == (75, 25)
            batch = next(iter(ParquetReader(store.get_train_data_path(idx), batch_size=100)))
            assert sorted(batch["id"]) == [i for i in range(100) if i % 4] and set(batch) == {"id", "label"}
    store.write_text(store.get_checkpoint_path("run") + ".ckpt", "kept")
    assert [store.read(path) for path in store.get_checkpoints("run")] == [b"kept"]
    assert [path.name for path in tmp_path.iterdir()] == [name]


@contextlib.contextmanager
def being_written(df, store, tmp_path):
    """The folder of the rows for the training, while tasks of Spark write to it."""
    go = tmp_path / "go"

    @functions.udf("double")
    def wait(label):
        while not go.exists():
            time.sleep(0.05)
        return label

    thread = threading.Thread(target=prepare, args=(store, df.withColumn("label", wait("label"))))
    thread.start()
    try:
        while not df.sparkSession.sparkContext.statusTracker().getActiveJobsIds():
            assert thread.is_alive()
            time.sleep(0.05)
        yield tmp_path / "intermediate_train_data.0"
    finally:
        go.touch()
        thread.join()


def test_nobody_reads_rows_while_they_are_written(df, store, tmp_path):
    with being_written(df, store, tmp_path) as folder:
        parquet.write_table(pa.table({"id": [1], "label": [1.0]}), folder / "part-00000-a.parquet")
        for read in (
            lambda: ParquetReader(str(folder)),
            lambda: util.get_simple_meta_from_parquet(store, ["label"], ["id"], dataset_idx=0),
            lambda: store.get_parquet_dataset(str(folder)),
        ):
            with pytest.raises(ValueError, match="the rows in .* are incomplete: another job is still writing them"):
                read()
        assert not store.is_parquet_dataset(str(folder))


def test_files_of_killed_attempts_are_not_read(df, store, tmp_path):
    with being_written(df, store, tmp_path) as folder:
        (folder / "part-00000-torn.parquet").write_bytes(b"PAR1")
    assert not (folder / "part-00000-torn.parquet").exists()
    parquet.write_table(pa.table({"id": [1], "label": [1.0]}), folder / "part-00000-late.parquet")
    assert util.get_simple_meta_from_parquet(store, ["label"], ["id"], dataset_idx=0)[0] == 100
    assert store.get_parquet_dataset(str(folder)).read().num_rows == 100 and ids(str(folder)) == list(range(100))


def test_what_ends_a_task_is_told_in_words(df, store, tmp_path):
    @functions.udf("double")
    def raises(label):
        raise KeyError("no such batch")

    @functions.udf("double")
    def exits(label):
        os._exit(3)

    @functions.udf("double")
    def removes(label):
        shutil.rmtree(tmp_path / "intermediate_train_data.0", ignore_errors=True)
        return label

    writes = "Spark could not write the rows for the training"
    for function, error, words in (
        (raises, RuntimeError, f"^{writes}: KeyError: 'no such batch'$"),
        (exits, RuntimeError, f"^{writes}: Lost task .* executor driver.*Python worker exited.*no memory left"),
        (removes, OSError, r"^a task on \S+ cannot write to file:///.*_data.0: FileNotFoundError.*All hosts must see"),
    ):
        with pytest.raises(error, match=words) as raised:
            prepare(store, df.withColumn("label", function("label")))
        assert len(str(raised.value).splitlines()) == 1
        assert not store.exists(store.get_train_data_path(0))

    @functions.udf(VectorUDT())
    def no_vector(i):
        raise KeyError("no vector")

    with pytest.raises(RuntimeError, match=f"^{writes}: KeyError: 'no vector'$"):
        prepare(store, df.withColumn("mixed", no_vector("id")), features=["mixed"], compress_sparse=True)


def test_a_seed_repeats_the_places_of_all_rows(df, store):
    def places(seed):
        with util.prepare_data(2, store, df, ["label"], ["id"], validation=0.3, seed=seed) as idx:
            parts = (store.get_train_data_path(idx), store.get_val_data_path(idx))
            return [[int(i) for b in ParquetReader(path, shuffle=False) for i in b["id"]] for path in parts]

    first = places(7)
    assert first == places(7) and sorted(sum(first, [])) == list(range(100))
    assert sorted(first[1]) != sorted(places(8)[1])


@pytest.mark.parametrize(
    ("kind", "spark"),
    [
        (pa.uint8(), types.ShortType),
        (pa.uint16(), types.IntegerType),
        (pa.uint32(), types.LongType),
        (pa.uint64(), types.DecimalType),
        (pa.float16(), types.FloatType),
        (pa.list_(pa.uint16()), types.ArrayType),
    ],
)
def test_types_that_spark_lacks(store, tmp_path, kind, spark):
    folder = tmp_path / "intermediate_train_data"
    folder.mkdir()
    number = np.float16 if kind == pa.float16() else int
    values = [[number(i)] if spark is types.ArrayType else number(i) for i in range(2)]
    parquet.write_table(pa.table({"x": pa.array(values, kind)}), folder / "one.parquet")
    assert util.get_simple_meta_from_parquet(store, ["x"], ["x"])[2]["x"]["spark_data_type"] is spark


def test_files_of_others_are_not_removed(df, store, tmp_path):
    folder = tmp_path / "intermediate_train_data.0"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(OSError, match="cannot be written: it has files that are no rows of a training, such as notes"):
        prepare(store, df)
    assert (folder / "notes.txt").exists()


def test_a_store_that_other_processes_do_not_see(df):
    with pytest.raises(ValueError, match="memory://a/.* is memory of this process, which Spark's tasks do not see"):
        prepare(Store.create("memory://a"), df)


def test_names_in_sparks_ui(spark, df, store):
    spark.sparkContext.setJobDescription("mine")
    prepare(store, df)
    assert spark.sparkContext.getLocalProperty("spark.job.description") == "mine"
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    said = [str(jobs.apply(i).description().toString()) for i in range(jobs.size())]
    assert "Some(horovod: write the rows for the training)" in said, said


def test_shapes_of_the_model():
    metadata = {"x": {"shape": 6}, "y": {"shape": 1}}
    util.check_shape_compatibility(metadata, ["x"], ["y"], input_shapes=[[-1, 2, 3]], output_shapes=[[-1, 1]])
    util.check_shape_compatibility(metadata, ["x"], ["y"], input_shapes=[[None, 6]], label_shapes=[[-1]])
    util.check_shape_compatibility({**metadata, "x": {"shape": None}}, ["x"], ["y"], input_shapes=[[-1, 5]])
    with pytest.raises(ValueError, match=r"column 'x' has 6 elements .* input of the shape \[-1, 5\] has 5"):
        util.check_shape_compatibility(metadata, ["x"], ["y"], input_shapes=[[-1, 5]])
    with pytest.raises(ValueError, match=r"column 'y' has 1 elements .* output"):
        util.check_shape_compatibility(metadata, ["x"], ["y"], output_shapes=[[-1, 2]])
    with pytest.raises(ValueError, match="1 input columns, but 2 input shapes"):
        util.check_shape_compatibility(metadata, ["x"], ["y"], input_shapes=[[-1, 6], [-1, 6]])
