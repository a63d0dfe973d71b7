"""Whether Horovod itself is installed beside gorovod, whose package has the same name."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from typing import Optional

PACKAGE = "horovod/__init__.py"


@functools.lru_cache(maxsize=None)
def conflict() -> Optional[str]:
    """What is wrong if the distribution ``horovod`` is installed too, and what to do; None if it is not.

    Both have a folder ``horovod``. In one site-packages the later installation has overwritten files of the other; in
    two, the order of ``sys.path`` decides which one is imported. A distribution of that name without the package, as
    some make to satisfy a requirement, does no harm.
    """
    if not any(map(_may_hold, sys.path)):
        return None
    from importlib import metadata  # imported only here, because the import takes tens of milliseconds in every rank

    try:
        upstream = metadata.distribution("horovod")
    except metadata.PackageNotFoundError:
        return None
    files = upstream.files
    if files is not None and PACKAGE not in map(str, files):
        return None
    return (
        f"Horovod {upstream.version} is installed too, at {upstream.locate_file('horovod')}. gorovod takes its place "
        "under the same name, and the two cannot be used side by side: uninstall both (pip uninstall horovod gorovod), "
        "then install gorovod again."
    )


def _may_hold(folder: str) -> bool:
    """Whether the metadata of a distribution ``horovod`` seems to be in a folder of ``sys.path``."""
    with contextlib.suppress(OSError):
        return any(
            name.startswith("horovod-") and name.endswith((".dist-info", ".egg-info"))
            for name in os.listdir(folder or ".")
        )
    return False
