"""How a worker hears that the hosts of its job have changed. Horovod has these names in this module."""

from horovod.common._host_updates import HostUpdateResult, WorkerNotificationManager

__all__ = ["HostUpdateResult", "WorkerNotificationManager"]
