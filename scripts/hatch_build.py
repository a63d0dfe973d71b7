"""Puts what `make wheel` compiled into the wheel, and names the platform it is for."""

import platform
import re
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# Where each file comes from, and where it goes.
FILES = {
    "build/wheel/libgorovod.so": "horovod/lib/libgorovod.so",
    "build/wheel/libgorovod_tensorflow.so": "horovod/lib/libgorovod_tensorflow.so",
    "build/wheel/gorovod": "horovod/bin/gorovod",
}
# The minor versions of glibc 2 that the platforms of wheels are named for.
MANYLINUX = (17, 28, 34, 39)


class BuildHook(BuildHookInterface):
    def initialize(self, version, build_data):
        for path in FILES:
            if not (Path(self.root) / path).is_file():
                raise FileNotFoundError(f"{path} is missing: use `make wheel`")
        build_data["tag"] = f"py3-none-{platform_of([Path(self.root) / path for path in FILES])}"
        build_data["pure_python"] = False
        build_data["force_include"].update(FILES)


def platform_of(files):
    """The tag of the systems whose C library is new enough for all files, such as manylinux_2_28_x86_64 (PEP 600).

    An older system's pip then refuses the wheel, instead of its Python failing to load the library.
    """
    machine = platform.machine()
    symbols = [symbol for file in files for symbol in re.findall(rb"\bGLIBC_2\.(\d+)", file.read_bytes())]
    needed = max(map(int, symbols), default=0)
    minor = next((minor for minor in MANYLINUX if minor >= needed), needed)
    tag = f"manylinux_2_{minor}_{machine}"
    return f"{tag}.manylinux2014_{machine}" if minor == 17 else tag
