"""Spark's own reports about its executors and tasks. Only a driver with a SparkContext can get them."""

from __future__ import annotations

import socket
from typing import Any, NamedTuple

_MOST_TASKS = 100_000


class Executor(NamedTuple):
    """One executor of Spark."""

    id: str
    host: str
    slots: int  # room for tasks
    busy: int  # slots in use

    def __str__(self) -> str:
        return f"executor {self.id} on {self.host} has {self.slots} slots, {self.busy} of them busy"


def executors(context: Any) -> list[Executor]:
    """The existing executors; empty if Spark does not say."""
    try:
        found = context._jsc.sc().statusStore().executorList(True)
        every = [found.apply(index) for index in range(found.size())]
        alone = context._jsc.sc().isLocal()
        return [
            Executor(e.id(), e.hostPort().rpartition(":")[0], e.maxTasks(), e.activeTasks())
            for e in every
            if alone or e.id() != "driver"
        ]
    except Exception:  # the report is only a help, by methods that are not public
        return []


def in_words(context: Any) -> str:
    """The executors, for a message."""
    there = executors(context)
    if not there:
        return "Spark has no executors yet"
    slots = sum(e.slots for e in there)
    more = f"; and {len(there) - 8} more" if len(there) > 8 else ""
    return f"Spark has {slots} slots: " + "; ".join(map(str, there[:8])) + more


def running(context: Any, group: str) -> int:
    """How many tasks of a job group Spark runs."""
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    return sum(stage.numActiveTasks for stage in stages if stage)


def executor_of(context: Any, group: str) -> dict[int, str]:
    """The executors' names, by the ids of the attempts of a job group's tasks, as far as Spark knows."""
    return {task.taskId(): task.executorId() for task in _tasks(context, group)}


def failed(context: Any, group: str) -> str:
    """Where the first task of a job group failed, as in "executor 1 on host"; empty if Spark does not say."""
    for task in _tasks(context, group):
        if task.status() == "FAILED":
            return f"executor {task.executorId()} on {task.host()}"
    return ""


def _tasks(context: Any, group: str) -> list[Any]:
    """The first attempts of a job group's tasks, as far as Spark knows."""
    found: list[Any] = []
    try:
        tracker, store = context.statusTracker(), context._jsc.sc().statusStore()
        for job in tracker.getJobIdsForGroup(group):
            for stage in tracker.getJobInfo(job).stageIds:
                tasks = store.taskList(stage, 0, _MOST_TASKS)
                found += [tasks.apply(index) for index in range(tasks.size())]
    except Exception:  # the report is only a help, by methods that are not public
        pass
    return found


def addresses(context: Any) -> list[str]:
    """The addresses at which the executors reach this process."""
    return [str(context.getConf().get("spark.driver.host", "127.0.0.1"))]


def address(context: Any) -> str:
    """The address of this host, as the executors see it."""
    return socket.gethostbyname(addresses(context)[0])
