"""The settings of an elastic job, in the form in which programs that start a job pass them on."""

from __future__ import annotations

from typing import Any, Optional, Sequence

from horovod.runner.common.util.settings import BaseSettings
from horovod.runner.elastic.discovery import HostDiscovery


class ElasticSettings(BaseSettings):
    """The settings of an elastic job. The executors of ``horovod.ray`` accept them.

    Args:
        discovery: finds the hosts.
        min_num_proc: the fewest processes with which the job can go on.
        max_num_proc: the most processes; None: as many as there is room for.
        elastic_timeout: seconds for each wait for room, and for processes.
        reset_limit: how often the job may be formed anew; None is any number of times.
        cooldown_range: for how many seconds a failed host stays unused: the least and the most.
        kwargs: those of :class:`horovod.runner.common.util.settings.BaseSettings`.

    Example:
        >>> from horovod.runner.elastic.settings import ElasticSettings
        >>> ElasticSettings(min_num_proc=2, max_num_proc=4).elastic
        True
    """

    def __init__(
        self,
        discovery: Optional[HostDiscovery] = None,
        min_num_proc: Optional[int] = None,
        max_num_proc: Optional[int] = None,
        elastic_timeout: Optional[float] = None,
        reset_limit: Optional[int] = None,
        cooldown_range: Optional[Sequence[float]] = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"elastic": True, **kwargs})
        self.discovery = discovery
        self.min_num_proc = min_num_proc
        self.max_num_proc = max_num_proc
        self.elastic_timeout = elastic_timeout
        self.reset_limit = reset_limit
        self.cooldown_range = cooldown_range
