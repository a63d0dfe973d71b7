"""Puts what `make build` built into the wheel, and names the platform it is for."""

import sysconfig
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIBRARY = "build/libgorovod.so"
COMMANDS = ("build/gorovod", "build/horovodrun")


class BuildHook(BuildHookInterface):
    def initialize(self, version, build_data):
        for path in (LIBRARY, *COMMANDS):
            if not (Path(self.root) / path).is_file():
                raise FileNotFoundError(f"{path} is missing: run `make build` first")
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
        build_data["pure_python"] = False
        build_data["force_include"][LIBRARY] = "horovod/lib/libgorovod.so"
        for path in COMMANDS:
            build_data["shared_scripts"][path] = Path(path).name
