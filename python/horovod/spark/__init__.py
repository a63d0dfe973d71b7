"""Horovod's jobs on Apache Spark: each rank runs in a task.

>>> from pyspark.sql import SparkSession
>>> import horovod.spark
>>> session = SparkSession.builder.master("local[4]").getOrCreate()
>>> results = horovod.spark.run(train, args=(config,), num_proc=4)  # train() calls hvd.init()
"""

from horovod.spark import _require as _require  # first: it says what is missing
from horovod.spark.runner import run, run_elastic

__all__ = ["run", "run_elastic"]
