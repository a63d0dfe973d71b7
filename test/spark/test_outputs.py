"""The columns that a model adds to a data frame: on real Spark."""

import numpy as np
import pytest
from pyspark.ml.linalg import Vectors
from pyspark.sql import functions, types

from horovod.spark.common import _outputs


def add(df, features, kind, predict):
    """The data frame with a column ``out`` that ``predict`` makes of the features, for a label of the type ``kind``."""
    return _outputs.add(df, features, [_outputs.Column("out", kind, 1)], lambda: lambda found: [predict(found)])


def rows_at_a_time(found):
    values = next(iter(found.values()))
    return np.full(len(values), len(values))


def test_names_of_columns(spark):
    rows = spark.range(100).selectExpr("cast(id as double) as `a.b`", "id", "id as `c[0]`", "id as out")
    out = add(rows, ["a.b"], types.DoubleType, lambda found: found["a.b"] * 2)
    assert out.columns == ["a.b", "id", "c[0]", "out"]
    assert sorted(row.out for row in out.collect()) == list(range(0, 200, 2))


def test_a_model_gets_parts_of_sparks_batches(spark):
    out = add(spark.range(5000).repartition(1), ["id"], types.LongType, rows_at_a_time)
    sizes = [row.out for row in out.collect()]
    assert len(sizes) == 5000 and 1000 <= max(sizes) <= 1024
    assert sorted(row.id for row in out.collect()) == list(range(5000))


@pytest.mark.parametrize("how", ["sparse", "array"])
def test_wide_rows_come_in_small_parts(spark, how):
    width, count = (1 << 18, 100) if how == "sparse" else (1 << 15, 800)  # 2 MiB and 256 KiB of a row
    if how == "sparse":
        df = spark.createDataFrame([(Vectors.sparse(width, [i], [1.0]),) for i in range(count)], ["x"])
    else:
        df = spark.range(count).select(functions.array_repeat(functions.col("id").cast("double"), width).alias("x"))
    sizes = [row.out for row in add(df.repartition(1), ["x"], types.LongType, rows_at_a_time).select("out").collect()]
    assert len(sizes) == count and max(sizes) <= (8 if how == "sparse" else 64)


def test_a_model_that_works_in_place_changes_no_column(spark):
    df = spark.range(10).selectExpr("id", "cast(id as float) as f", "array(cast(id as double)) as a")

    def doubles(found):
        for values in found.values():
            values *= 2
        return found["id"] + found["f"] + found["a"][:, 0]

    out = add(df, ["id", "f", "a"], types.DoubleType, doubles).orderBy("id").collect()
    assert [(row.id, row.f, row.a, row.out) for row in out] == [(i, i, [i], 6 * i) for i in range(10)]


@pytest.mark.parametrize("kind", ["tinyint", "smallint", "int", "bigint", "boolean"])
def test_what_a_whole_type_cannot_hold_is_null(spark, kind):
    given = [None, float("nan"), 1.4]
    lost = [] if kind == "boolean" else [1e30, -1e30, float("inf")]
    df = spark.createDataFrame([(i, x) for i, x in enumerate([*given, *lost])], "i int, x double")
    label = type(df.selectExpr(f"cast(i as {kind})").schema[0].dataType)
    out = add(df, ["x"], label, lambda found: found["x"]).orderBy("i").collect()
    assert [row.out for row in out] == [None, None, 1] + [None] * len(lost)
    floats = add(df, ["x"], types.DoubleType, lambda found: found["x"]).orderBy("i").collect()
    assert np.isnan(floats[0].out) and floats[2].out == 1.4


@pytest.mark.parametrize(("bits", "kind"), [(8, types.ByteType), (64, types.LongType)])
@pytest.mark.parametrize("whole", [True, False])
def test_the_ends_of_whole_types(spark, bits, kind, whole):
    end = 2 ** (bits - 1)
    values = [-end, end - 1 if whole or bits == 8 else end - 1024]
    made = np.array(values, np.int64 if whole else np.float64)
    out = add(spark.range(2).coalesce(1), ["id"], kind, lambda found: made[found["id"]])
    assert [row.out for row in out.orderBy("id").collect()] == values
