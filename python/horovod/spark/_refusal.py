"""Why Spark has refused or ended a job, in this package's words."""

from __future__ import annotations

import re
from typing import Any, Mapping, Optional, Sequence

_MOST_TEXT = 2000
_RAW = ("Py4JJavaError", "PythonException", "SparkException", "SparkConnectGrpcException")
_FROM_PYTHON = "An exception was thrown from the Python worker:\n"
_FAILED = "Spark job has failed, see the error above."


def of(error: Exception, size: int, failed: str = "") -> RuntimeError:
    """The error to raise for an exception of Spark that ended a job of ``size`` processes.

    ``failed`` says where its first task failed, if that is known.
    """
    text = _point(str(error))
    if "SPARK-24942" in text:
        return RuntimeError(
            f"horovod.spark.run starts its {size} processes at once, as a barrier stage, and Spark has none while "
            "spark.dynamicAllocation.enabled is true. Set it to false, or use horovod.spark.run_elastic."
        )
    if "SPARK-24819" in text:
        return RuntimeError(
            f"Spark has fewer than {size} slots, and horovod.spark.run starts its {size} processes at once: lower "
            "num_proc, or give Spark more cores or executors."
        )
    if "PYTHON_VERSION_MISMATCH" in text:
        where = re.search(r"\(TID \d+\) \((\S+) executor (\S+)\)", text)
        who = f"executor {where[2]} on {where[1]}" if where else failed or "an executor"
        says = re.search(r"\[PYTHON_VERSION_MISMATCH\][^\n]*", text)
        return RuntimeError(
            f"{who} has another Python than the driver: {says[0] if says else text}. Install the same Python on all "
            "nodes, or say where it is by PYSPARK_PYTHON or spark.pyspark.python."
        )
    advice = ""
    if "OutOfMemoryError" in text or "maxResultSize" in text:
        advice = (
            "\nIf the processes return much, such as a large model, raise spark.driver.memory and "
            "spark.driver.maxResultSize before the session begins, or have rank 0 write it to a file."
        )
    return RuntimeError(f"{_FAILED} Spark says: {text}{advice}")


def of_rows(error: Exception) -> Optional[RuntimeError]:
    """The error to raise for an exception of Spark that ended the writing of rows.

    None if the exception itself says what is wrong, such as a division by zero.
    """
    if type(error).__name__ not in _RAW:
        return None
    text = str(error)
    lost = re.search(r"most recent failure: (.*)", text, re.DOTALL)
    said = _first_part(_point(lost[1] if lost else text).removeprefix(_FROM_PYTHON))
    advice = ""
    if "PYTHON_VERSION_MISMATCH" in text or re.search(r"No module named '?(horovod|pyarrow|fsspec)\b", text):
        advice = ". Install the same Python and the same gorovod[spark] on all nodes."
    elif "Python worker exited unexpectedly" in text:
        advice = (
            ". Its Python was ended, perhaps since the host has no memory left: the log of the executor or of the "
            "kernel may say more."
        )
    return RuntimeError(f"Spark could not write the rows for the training: {said}{advice}")


def _first_part(text: str) -> str:
    """The text to its first empty line, or to the stack of the driver."""
    return re.split(r"\n\s*\n|\nDriver stacktrace:", text.strip())[0].rstrip(" :\n.")


def of_unfit(facts: Sequence[Any], executors: Mapping[int, str]) -> RuntimeError:
    """The error to raise if executors have no gorovod, or another one than the driver.

    ``executors`` are their names by the ids of tasks' attempts.
    """
    found = {}
    for each in facts:
        executor = executors.get(each["attempt"])
        found["the executor" if executor is None else f"executor {executor}"] = each
    return RuntimeError(
        "these executors cannot take part in the job: "
        + "; ".join(f"{who} on {each['host']} has {each['unfit']}" for who, each in found.items())
        + ". Install the same Python and the same gorovod[spark] on all nodes."
    )


def _point(text: str) -> str:
    """Spark's message without the stacks of Java and Python. The raised error comes after these."""
    text = re.sub(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*", "", text)
    lines = [line for line in text.splitlines() if not re.match(r"\s+at [\w.$/]+\(?", line)]
    kept = "\n".join(lines)
    return kept if len(kept) <= _MOST_TEXT else kept[:_MOST_TEXT] + "…"
