"""The error of Horovod's modules for platforms that gorovod does not run on yet."""

from __future__ import annotations

import importlib.util


def error(module: str, platform: str, package: str) -> ModuleNotFoundError:
    """What to raise when ``module``, Horovod's for ``platform``, is imported. ``package`` has what it needs besides."""
    text = f"{module} is not in this version of gorovod yet"
    if importlib.util.find_spec(package) is None:
        text += f", and {platform} is not installed, which it needs in Horovod (pip install {package})"
    return ModuleNotFoundError(
        f"{text}. Until then start programs with horovodrun, or functions with horovod.run; docs/schedulers.md says "
        "which other launchers can start the processes.",
        name=module,
    )
