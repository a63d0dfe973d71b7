"""The session of Spark in which a job runs."""

from __future__ import annotations

import functools
import os
import shutil
from typing import Any, Callable, Optional, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])

_NONE = (
    "Could not find an active SparkContext, are you running in a PySpark session? "
    "Make one first: SparkSession.builder.getOrCreate()"
)


def active() -> Any:
    """The active session, which may be one of Spark Connect. Raises RuntimeError if no session is alive."""
    from pyspark.sql import SparkSession

    try:
        session = SparkSession.getActiveSession() or _of_context()
        stopped = session is not None and not is_connect(session) and _is_stopped(session.sparkContext)
    except Exception as error:
        if _is_silence(error):
            raise RuntimeError(
                "the Java of this session does not answer. It has ended, perhaps for lack of memory "
                "(spark.driver.memory): begin a new Python, and make the session there"
            ) from error
        raise
    if session is None:
        raise RuntimeError(_NONE + _without_java())
    if stopped:
        raise RuntimeError(
            "the SparkContext of this session has been stopped: make a new session, SparkSession.builder.getOrCreate()"
        )
    return session


def _is_silence(error: Exception) -> bool:
    """Whether the error means that Java does not answer: an error that Java itself raised is an answer."""
    if isinstance(error, OSError):
        return True
    kind = type(error)  # py4j may be missing if there is only Spark Connect
    return kind.__module__.startswith("py4j.") and kind.__name__ != "Py4JJavaError" and not _is_forbidden(error)


def _is_forbidden(error: Exception) -> bool:
    """Whether the cluster forbids Python this call of Java, as shared ones of Databricks do with many."""
    return "Py4JSecurityException" in str(error)


def _is_stopped(context: Any) -> bool:
    """Whether the context has been stopped. Spark does so by itself when its memory runs out."""
    from py4j.protocol import Py4JError

    try:
        return context._jsc is None or bool(context._jsc.sc().isStopped())
    except Py4JError as error:
        if _is_forbidden(error):
            return False
        raise


def _without_java() -> str:
    """The message if Spark cannot start here, because it finds no Java."""
    home = os.environ.get("JAVA_HOME")
    if shutil.which(os.path.join(home, "bin", "java") if home else "java"):
        return ""
    where = f"JAVA_HOME={home} has no bin/java" if home else "there is no java in PATH, and JAVA_HOME is not set"
    return f". Spark needs Java 17 or later: {where}"


def _of_context() -> Any:
    """A session of the existing context, although this thread has no active one; None if there is no context."""
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
    """The number of processes of a job that names none. Raises ValueError over Spark Connect if that is not set."""
    if not is_connect(session):
        return int(session.sparkContext.defaultParallelism)
    number = session.conf.get("spark.default.parallelism", None)
    if number is None:
        raise ValueError("over Spark Connect say num_proc, or set spark.default.parallelism: there is no other default")
    return int(number)


def interruptible(function: _F) -> _F:
    """Make the function raise KeyboardInterrupt at an interrupt.

    Py4J raises an error of its own if the interrupt comes while it talks to Java.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if _of_interrupt(error):
                raise KeyboardInterrupt from error
            raise

    return call  # type: ignore[return-value]


def _of_interrupt(error: Optional[BaseException]) -> bool:
    """Whether the error was raised while an interrupt propagated."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None
