"""Why Spark has refused a job, or ended it, in words of this package."""

from __future__ import annotations

import re
from typing import Any, Mapping, Sequence

_MOST_TEXT = 2000
_FAILED = "Spark job has failed, see the error above."


def of(error: Exception, size: int, failed: str = "") -> RuntimeError:
    """What to raise for an exception of Spark's that ended a job of ``size`` processes.

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
    return RuntimeError(f"{_FAILED} Spark says: {text}")


def of_unfit(facts: Sequence[Any], executors: Mapping[int, str]) -> RuntimeError:
    """What to raise because executors have no gorovod, or another one than the driver.

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
    """Spark's message without the stacks of Java and of Python: what was raised comes after them."""
    text = re.sub(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*", "", text)
    lines = [line for line in text.splitlines() if not re.match(r"\s+at [\w.$/]+\(?", line)]
    kept = "\n".join(lines)
    return kept if len(kept) <= _MOST_TEXT else kept[:_MOST_TEXT] + "…"
