"""``horovod.spark.run`` and ``run_elastic``: a function in the tasks of Spark."""

from __future__ import annotations

import sys
from typing import Any, Callable, Mapping, Optional, Sequence

import cloudpickle

from horovod.runner import _elastic_settings
from horovod.spark import _arguments, _cluster, _elastic_job, _session, _static
from horovod.spark._output import Output


@_session.interruptible
def run(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Optional[Mapping[str, Any]] = None,
    num_proc: Optional[int] = None,
    start_timeout: Optional[float] = None,
    use_mpi: Optional[bool] = None,
    use_gloo: Optional[bool] = None,
    extra_mpi_args: Optional[str] = None,
    env: Optional[Mapping[str, str]] = None,
    stdout: Optional[Any] = None,
    stderr: Optional[Any] = None,
    verbose: int = 1,
    nics: Optional[Sequence[str]] = None,
    prefix_output_with_timestamp: bool = False,
    executable: Optional[str] = None,
) -> list[Any]:
    """Call ``fn(*args, **kwargs)`` in ``num_proc`` processes, each in a task of Spark, and return the results.

    The tasks are a barrier stage: Spark starts them all at once, as soon as it has room. Ranks are numbered host by
    host, starting with the host of partition 0. Blocks; an interrupt ends all processes.

    Args:
        fn: the function. It calls ``hvd.init()``. It travels by cloudpickle, and so do its arguments and results.
        args: its positional arguments.
        kwargs: its keyword arguments.
        num_proc: how many processes; None: as many as Spark's default parallelism.
        start_timeout: seconds until all processes must have started; None: the value of
            ``HOROVOD_SPARK_START_TIMEOUT``, or 600.
        use_mpi: must not be True: Spark starts the processes.
        use_gloo: no effect.
        extra_mpi_args: must be empty.
        env: variables of the processes' environment, in addition to those of the executors.
        stdout: a text file for the processes' output; None: ``sys.stdout``.
        stderr: the same for stderr.
        verbose: 0 does not print what the job waits for.
        nics: names of the network interfaces that the ranks may use; None: all.
        prefix_output_with_timestamp: also begin each line of the processes with the time.
        executable: the Python of the processes; None: that of Spark's tasks.

    Returns:
        The results by rank.

    Raises:
        RuntimeError: there is no session, Spark has ended the job, or a process has failed, with its exception.
        TimeoutException: of ``horovod.runner.common.util.timeout``: the processes have not started in time.
        TypeError: ``fn`` cannot be called, or cannot be pickled; the text names the object that cannot.
        ValueError: arguments make no sense.

    Example:
        >>> import horovod.spark
        >>> def rank():
        ...     import horovod.torch as hvd
        ...     hvd.init()
        ...     return hvd.rank()
        >>> horovod.spark.run(rank, num_proc=2)
        [0, 1]
    """
    _refuse_mpi(use_mpi, extra_mpi_args)
    session = _session.active()
    size = _arguments.whole("num_proc", _session.default_parallelism(session) if num_proc is None else num_proc)
    _check_slots(session, size)
    silent = _arguments.is_silent(verbose)
    job = {
        "work": _arguments.pickled(fn, args, kwargs),
        "path": sys.path,
        "env": _arguments.variables(env),
        "nics": _arguments.interfaces(nics),
        "executable": _arguments.interpreter(executable),
        "start_timeout": _arguments.start_limit(start_timeout),
    }
    output = Output(stdout, stderr, prefix_output_with_timestamp)
    results = _static.run(session, _arguments.name_of(fn), size, job, output, silent=silent)
    return [_loaded(rank, result) for rank, result in enumerate(results)]


@_session.interruptible
def run_elastic(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Optional[Mapping[str, Any]] = None,
    num_proc: Optional[int] = None,
    min_num_proc: Optional[int] = None,
    max_num_proc: Optional[int] = None,
    start_timeout: Optional[float] = None,
    elastic_timeout: Optional[float] = None,
    reset_limit: Optional[int] = None,
    env: Optional[Mapping[str, str]] = None,
    stdout: Optional[Any] = None,
    stderr: Optional[Any] = None,
    verbose: int = 1,
    nics: Optional[Sequence[str]] = None,
    prefix_output_with_timestamp: bool = False,
    min_np: Optional[int] = None,
    max_np: Optional[int] = None,
) -> list[Any]:
    """Call ``fn(*args, **kwargs)`` in processes that may come and go, each in a task of Spark.

    The function trains under ``hvd.elastic.run``. Each attempt of a task counts as a host with one slot. If a process
    fails, its task fails, and Spark starts it again: here or elsewhere, as ``spark.task.maxFailures`` and
    ``spark.excludeOnFailure`` say (:mod:`horovod.spark.conf`). The last attempt of a task ends without a failure, so
    that Spark does not give up the job. Blocks; an interrupt ends all processes.

    Args:
        fn: the function.
        args: its positional arguments.
        kwargs: its keyword arguments.
        num_proc: how many processes the job begins with; None: as many as Spark's default parallelism.
        min_num_proc: the fewest processes with which it can go on; None: ``num_proc``.
        max_num_proc: the most processes; None: ``num_proc``.
        start_timeout: seconds until ``num_proc`` tasks must run; None: the value of ``HOROVOD_SPARK_START_TIMEOUT``, or
            600.
        elastic_timeout: seconds for each later wait for processes; None: the value of ``HOROVOD_ELASTIC_TIMEOUT``, or
            600.
        reset_limit: how often the job may be formed anew.
        env: as for :func:`run`, like the rest.
        stdout: a file for text.
        stderr: likewise.
        verbose: 0 does not print what happens to the job.
        nics: names of network interfaces.
        prefix_output_with_timestamp: also begin each line of the processes with the time.
        min_np: old name of ``min_num_proc``, which wins.
        max_np: old name of ``max_num_proc``, which wins.

    Returns:
        The results of the processes of the last world, by rank.

    Raises:
        RuntimeError: there is no session, or the job has failed, with the exception of the process that failed first.
        TimeoutException: of ``horovod.runner.common.util.timeout``: there were not enough tasks in time.
        TypeError: ``fn`` cannot be called, or cannot be pickled; the text names the object that cannot.
        ValueError: arguments make no sense; or the session is one of Spark Connect, whose client tasks cannot reach.

    Example:
        >>> import horovod.spark
        >>> results = horovod.spark.run_elastic(train, num_proc=4, min_num_proc=2)
    """
    session = _session.active()
    if _session.is_connect(session):
        raise ValueError(
            "run_elastic needs a driver with a SparkContext: over Spark Connect no task could reach this process. Use "
            "horovod.spark.run there."
        )
    least, most = min_num_proc if min_np is None else min_np, max_num_proc if max_np is None else max_np
    size = _arguments.whole("num_proc", _session.default_parallelism(session) if num_proc is None else num_proc)
    least = size if least is None else _arguments.whole("min_num_proc", least)
    most = size if most is None else _arguments.whole("max_num_proc", most)
    if not least <= size <= most:
        raise ValueError(f"min_num_proc={least}, num_proc={size}, max_num_proc={most}: they must not decrease")
    _check_slots(session, size)
    silent = _arguments.is_silent(verbose)
    asked = _arguments.variables(env)
    config = {
        "np": size,
        "min": least,
        "max": most,
        "reset_limit": None if reset_limit is None else _arguments.whole("reset_limit", reset_limit, least=0),
        "timeout": _arguments.elastic_limit(elastic_timeout),
        "interfaces": _arguments.interfaces(nics),
        "terms": {"min": "min_num_proc", "timeout": "elastic_timeout"},
        **_elastic_settings.told_by_environment(asked),
    }
    job = {
        "work": _arguments.pickled(fn, args, kwargs),
        "path": sys.path,
        "env": asked,
        "nics": _arguments.interfaces(nics),
        "start_timeout": _arguments.start_limit(start_timeout),
    }
    output = Output(stdout, stderr, prefix_output_with_timestamp)
    result = _elastic_job.ElasticJob(session, _arguments.name_of(fn), most, config, job, output, silent=silent).run()
    if result.error:
        raise RuntimeError(result.error)
    return [_loaded(rank, value) for rank, value in sorted(result.values.items())]


def _loaded(rank: int, result: bytes) -> Any:
    """A rank's result."""
    try:
        return cloudpickle.loads(result)
    except Exception as error:
        raise RuntimeError(
            f"what rank {rank} has returned cannot be loaded here: {type(error).__name__}: {error}. Return plain "
            "values, or have the same packages here and on the executors"
        ) from error


def _refuse_mpi(use_mpi: Optional[bool], extra_mpi_args: Optional[str]) -> None:
    if use_mpi or extra_mpi_args:
        given = "use_mpi" if use_mpi else "extra_mpi_args"
        raise ValueError(f"{given} makes no sense here: Spark's tasks start the processes, not mpirun. Leave it out.")


def _check_slots(session: Any, size: int) -> None:
    """Raise ValueError at once if there can never be enough slots: a session on this host cannot grow."""
    if _session.is_connect(session) or not session.sparkContext._jsc.sc().isLocal():
        return
    slots = sum(executor.slots for executor in _cluster.executors(session.sparkContext))
    if 0 < slots < size:
        raise ValueError(
            f"num_proc={size}, but this session ({session.sparkContext.master}) has {slots} slots for tasks: lower "
            f"num_proc, or make the session with master local[{size}]"
        )
