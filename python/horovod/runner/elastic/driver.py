"""The settings that programs give to an elastic job's driver. Horovod has these names in this module.

The driver itself is the program ``gorovod drive``.
"""

DISCOVER_HOSTS_FREQUENCY_SECS = 1.0
"""Seconds between looks for hosts. ``horovod.ray`` reads it when a job begins, and where your own discovery finds the
hosts, after each look."""

__all__ = ["DISCOVER_HOSTS_FREQUENCY_SECS"]
