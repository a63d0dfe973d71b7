"""Horovod on Apache Spark, which gorovod does not have yet: the import says so."""

from horovod import _not_yet

raise _not_yet.error(__name__, "Apache Spark", "pyspark")
