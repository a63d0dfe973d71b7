"""Spark's part in a job: a thread in which Spark runs the tasks, and the names under which Spark shows them."""

from __future__ import annotations

import contextlib
import itertools
import pickle
import time
from typing import Any, Callable, Iterable, Iterator

from pyspark import InheritableThread

from horovod.spark import _session

_numbers = itertools.count()
_AGAIN_S = 0.25  # between two requests to Spark to cancel a job: Spark forgets one that comes before the job

Task = Callable[[], Iterator[bytes]]


class SparkJob:
    """A job of Spark with a task for each of ``size`` partitions.

    Args:
        session: to run it in.
        kind: "run" or "run_elastic", for Spark's pages.
        size: how many tasks there are.
        name: of the user's function, for Spark's pages.
        task: yields pickled rows.
        done: called with the rows and None, or with None and an exception, on another thread.
    """

    def __init__(
        self, session: Any, kind: str, size: int, name: str, task: Task, done: Callable[[Any, Any], None]
    ) -> None:
        self._session = session
        self._connect = _session.is_connect(session)
        self.group = f"horovod.spark.{kind}.{next(_numbers)}"
        self.description = f"horovod.spark.{kind}: {name}, {size} processes"
        self._barrier = kind == "run"
        self._size = size
        self._task = task
        self._done = done
        self._thread = InheritableThread(target=self._run, **({"session": session} if self._connect else {}))
        self._thread.daemon = True
        self._thread.start()

    def end(self, seconds: float) -> bool:
        """Cancel the job, if it has not ended, and wait for its end; False if that takes longer."""
        limit = time.monotonic() + seconds
        while not self.wait(0):
            if time.monotonic() > limit:
                return False
            self._cancel()
            self.wait(_AGAIN_S)
        return True

    def _cancel(self) -> None:
        with contextlib.suppress(Exception):
            if self._connect:
                self._session.interruptTag(self.group)
            else:
                self._session.sparkContext.cancelJobGroup(self.group)

    def wait(self, seconds: float) -> bool:
        """Wait for its end; False if that takes longer."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            rows = self._run_on_connect() if self._connect else self._run_on_context()
        except Exception as error:
            self._done(None, error)
            return
        self._done([pickle.loads(row) for row in rows], None)

    def _run_on_context(self) -> list[bytes]:
        task, context = self._task, self._session.sparkContext

        def partition(_: Iterable[Any]) -> Iterator[bytes]:
            return task()

        partition.__module__ = "__main__"  # so that it travels by value
        context.setJobGroup(self.group, self.description, True)
        # A barrier stage takes its tasks' places all at once; other tasks start as places become free.
        parts = context.parallelize(range(self._size), self._size)
        rows = parts.barrier().mapPartitions(partition) if self._barrier else parts.mapPartitions(partition)
        return list(rows.setName(self.description).collect())

    def _run_on_connect(self) -> list[bytes]:
        task = self._task

        def partition(batches: Iterable[Any]) -> Iterator[Any]:
            import pandas

            for _ in batches:
                pass
            for row in task():
                yield pandas.DataFrame({"row": [row]})

        partition.__module__ = "__main__"
        self._session.addTag(self.group)
        frame = self._session.range(0, self._size, 1, self._size)
        return [bytes(row.row) for row in frame.mapInPandas(partition, "row binary", barrier=True).collect()]
