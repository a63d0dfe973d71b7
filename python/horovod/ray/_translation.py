"""Settings that were not made for Ray, as those of a job on Ray: Horovod's own, or an object with such attributes."""

from __future__ import annotations

import dataclasses
from typing import Any

from horovod.ray._saying import say
from horovod.ray._settings import ElasticSettings, MiniSettings

# A job that ignored these would not do what they ask for.
_REFUSED = {
    "output_filename": "Ray keeps the output of each worker, in the folder logs of its session",
    "extra_mpi_args": "there is no mpirun",
    "binding_args": "there is no mpirun; bind inside the function, for instance with os.sched_setaffinity",
}
# A job that ignores these says so.
_WITHOUT_EFFECT = {
    "hosts": "Ray places the workers",
    "key": "rank 0's worker makes the secret of the job",
    "prefix_output_with_timestamp": "Ray prints the workers' lines",
    "ssh_identity_file": "nothing is started by ssh",
    "ssh_port": "nothing is started by ssh",
    "tcp_flag": "between hosts it is TCP anyway; GOROVOD_TRANSPORT=tcp makes workers of one host use it, too",
}
_ELASTIC = ("min_num_proc", "max_num_proc", "elastic_timeout", "reset_limit", "cooldown_range", "discovery")
_ANYWAY = ("run_func_mode", "start_timeout")  # all jobs are the first; the second becomes timeout_s


def of(value: Any) -> MiniSettings:
    """The settings of the job: ``value`` itself if it was made for Ray.

    What it has that the job cannot do raises ValueError, or is told in one line.
    """
    _refuse(value)
    _tell(value)
    if isinstance(value, MiniSettings):
        return value
    elastic = getattr(value, "elastic", False) or any(getattr(value, name, None) is not None for name in _ELASTIC)
    kind = ElasticSettings if elastic else MiniSettings
    given = {field.name: getattr(value, field.name, None) for field in dataclasses.fields(kind)}
    if given["timeout_s"] is None:
        given["timeout_s"] = _seconds(getattr(value, "start_timeout", None))
    if kind is ElasticSettings and given["min_num_proc"] is None:
        given["min_num_proc"] = given["num_proc"]
    return kind(**{name: setting for name, setting in given.items() if setting is not None})


def _seconds(start_timeout: Any) -> Any:
    """The seconds of a Timeout that are left, or the number that it is."""
    if not hasattr(start_timeout, "remaining"):
        return start_timeout
    start_timeout.check_time_out_for("the making of the executor")
    return start_timeout.remaining()


def _refuse(value: Any) -> None:
    for name, why in _REFUSED.items():
        if getattr(value, name, None):
            raise ValueError(f"settings.{name}={getattr(value, name)!r} cannot act on Ray: {why}. Leave it unset")


def _tell(value: Any) -> None:
    known = {field.name for field in dataclasses.fields(ElasticSettings)} | {*_ANYWAY, *_REFUSED}
    why = dict(_WITHOUT_EFFECT)
    for name in vars(value):
        if name not in known and not name.startswith("_"):
            why.setdefault(name, "there is no such setting")
    set_ = [f"{name} ({reason})" for name, reason in why.items() if getattr(value, name, None)]
    if set_:
        say(f"settings without effect: {'; '.join(set_)}")
