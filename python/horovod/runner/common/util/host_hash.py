"""Finds out which processes share a host."""

from __future__ import annotations

import hashlib
import os
import socket
from typing import Optional


def host_hash(salt: Optional[str] = None) -> str:
    """Text that is the same for processes of one host and one set of namespaces, and differs between others.

    Args:
        salt: text that changes the result; for example, to distinguish jobs.

    Returns:
        The host's short name, a dash and 32 hexadecimal digits.

    Example:
        >>> from horovod.runner.common.util.host_hash import host_hash
        >>> host_hash() == host_hash(), host_hash() == host_hash("another job")
        (True, False)
    """
    names = [os.readlink(f"/proc/self/ns/{kind}") for kind in ("ipc", "mnt", "net", "pid", "uts")]
    host = socket.gethostname()
    digest = hashlib.sha256("\0".join([host, *names, salt or ""]).encode()).hexdigest()
    return f"{host.partition('.')[0]}-{digest[:32]}"
