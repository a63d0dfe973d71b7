"""The session of Spark in which a job runs."""

from __future__ import annotations

from typing import Any

_NONE = (
    "Could not find an active SparkContext, are you running in a PySpark session? "
    "Make one first: SparkSession.builder.getOrCreate()"
)


def active() -> Any:
    """The active session, which may be one of Spark Connect. Raises RuntimeError if there is none."""
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is None:
        session = _of_context()
    if session is None:
        raise RuntimeError(_NONE)
    return session


def _of_context() -> Any:
    """A session of the context that there is, though this thread has no active one; None if there is no context."""
    try:
        from pyspark.core.context import SparkContext
    except ImportError:  # before Spark 4
        from pyspark.context import SparkContext
    if SparkContext._active_spark_context is None:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.builder.getOrCreate()


def is_connect(session: Any) -> bool:
    """Whether the session is one of Spark Connect: then there is no SparkContext here."""
    return type(session).__module__.startswith("pyspark.sql.connect.")


def default_parallelism(session: Any) -> int:
    """How many processes a job has that names no number. Raises ValueError over Spark Connect if that is not set."""
    if not is_connect(session):
        return int(session.sparkContext.defaultParallelism)
    number = session.conf.get("spark.default.parallelism", None)
    if number is None:
        raise ValueError("over Spark Connect say num_proc, or set spark.default.parallelism: there is no other default")
    return int(number)
