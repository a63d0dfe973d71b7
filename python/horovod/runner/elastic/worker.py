"""How a worker hears that the hosts of its job have changed: Horovod's place for these names."""

from horovod.common._host_updates import HostUpdateResult, WorkerNotificationManager

__all__ = ["HostUpdateResult", "WorkerNotificationManager"]
