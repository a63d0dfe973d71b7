"""Addresses of this host."""

from __future__ import annotations

import fcntl
import socket
import struct
from typing import Optional, Sequence

_SIOCGIFADDR = 0x8915  # of linux/sockios.h


def get_driver_ip(nics: Optional[Sequence[str]] = None) -> str:
    """The IPv4 address at which other hosts reach this one: the first address that one of the interfaces ``nics`` has.

    Without ``nics`` it is that of the interface with the default route; if there is none, that of the host's name.
    Raises RuntimeError if no such interface has an address.
    """
    for nic in nics or ():
        address = _address_of(nic)
        if address is not None:
            return address
    if nics:
        there = ", ".join(name for _, name in socket.if_nameindex())
        raise RuntimeError(f"none of the interfaces {', '.join(nics)} has an IPv4 address here; this host has {there}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # the address of no host; this sends nothing
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostbyname(socket.gethostname())


def _address_of(nic: str) -> Optional[str]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            found = fcntl.ioctl(any_socket, _SIOCGIFADDR, struct.pack("256s", nic.encode()[:15]))
        except OSError:
            return None
    return socket.inet_ntoa(found[20:24])
