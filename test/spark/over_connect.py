"""A program that uses Spark Connect: its session has no SparkContext."""

import functions
from pyspark.sql import SparkSession

import horovod.spark

session = SparkSession.builder.remote("local[4]").getOrCreate()


def talk():
    import horovod.torch as hvd

    hvd.init()
    print("hello from", hvd.rank())
    return hvd.size()


print(horovod.spark.run(functions.place, args=(10,), num_proc=3), flush=True)
print(horovod.spark.run(talk, num_proc=2), flush=True)
for program in (
    lambda: horovod.spark.run(functions.fail, ("raise",), num_proc=2),
    lambda: horovod.spark.run(functions.fail, ("kill",), num_proc=2),
    lambda: horovod.spark.run_elastic(functions.place, num_proc=2),
    lambda: horovod.spark.run(functions.place),
    lambda: horovod.spark.run(functions.place, num_proc=9, start_timeout=8),
):
    try:
        print(program())
    except Exception as e:
        print(f"===== {type(e).__name__}: {e}", flush=True)
session.stop()
