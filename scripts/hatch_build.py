"""Puts what `make build` built into the wheel, and names the platform it is for."""

import platform
import re
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIBRARY = "build/libgorovod.so"
COMMANDS = ("build/gorovod", "build/horovodrun")


class BuildHook(BuildHookInterface):
    def initialize(self, version, build_data):
        for path in (LIBRARY, *COMMANDS):
            if not (Path(self.root) / path).is_file():
                raise FileNotFoundError(f"{path} is missing: run `make build` first")
        build_data["tag"] = f"py3-none-{platform_of(Path(self.root) / LIBRARY)}"
        build_data["pure_python"] = False
        build_data["force_include"][LIBRARY] = "horovod/lib/libgorovod.so"
        for path in COMMANDS:
            build_data["shared_scripts"][path] = Path(path).name


def platform_of(library):
    """The tag of the systems whose C library is new enough for this one, such as manylinux_2_34_x86_64 (PEP 600).

    An older system's pip then refuses the wheel, instead of its Python failing to load the library.
    """
    needed = [int(minor) for minor in re.findall(rb"\bGLIBC_2\.(\d+)", library.read_bytes())]
    if not needed:
        return f"linux_{platform.machine()}"
    return f"manylinux_2_{max(needed)}_{platform.machine()}"
