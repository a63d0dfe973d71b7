"""Puts what make has compiled, completions and man pages into the wheel, and names the wheel's platform.

`make wheel` names the folder with its files. If none is named, as in `pip install .`, make compiles them first.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

# The folder with what make has built for the wheel's machine. The default is that of make pip-files.
GIVEN = os.environ.get("GOROVOD_WHEEL_BUILD")
BUILT = GIVEN or "build/pip"
# The same for this machine. Its gorovod runs here, to print completions and man pages.
NATIVE = os.environ.get("GOROVOD_WHEEL_NATIVE", BUILT)
# The path of each file, and its place in the wheel.
FILES = {
    f"{BUILT}/libgorovod.so": "horovod/lib/libgorovod.so",
    f"{BUILT}/libgorovod_tensorflow.so": "horovod/lib/libgorovod_tensorflow.so",
    f"{BUILT}/libgorovod_jax.so": "horovod/lib/libgorovod_jax.so",
    f"{BUILT}/libgorovod_python.so": "horovod/lib/libgorovod_python.so",
    f"{BUILT}/gorovod": "horovod/bin/gorovod",
}
# The bill of materials of these files, for programs that look for vulnerable components (PEP 770).
SBOM = f"{BUILT}/gorovod.cdx.json"
# Files under Python's prefix where shells and man(1) look, each with the gorovod command that prints it.
SHARED = {
    "share/bash-completion/completions/gorovod": ("completion", "bash"),
    "share/bash-completion/completions/horovodrun": ("completion", "bash"),
    "share/zsh/site-functions/_gorovod": ("completion", "zsh"),
    "share/fish/vendor_completions.d/gorovod.fish": ("completion", "fish"),
    "share/fish/vendor_completions.d/horovodrun.fish": ("completion", "fish"),
    "share/man/man1/gorovod.1": ("man", "gorovod"),
    "share/man/man1/horovodrun.1": ("man", "horovodrun"),
}
# e_machine of an ELF file, and the name of that machine in a wheel's tag.
MACHINES = {b"\x3e\x00": "x86_64", b"\xb7\x00": "aarch64"}
# The minor versions of glibc 2 for which there are platform tags.
MANYLINUX = (17, 28, 34, 39)


class MetadataHook(MetadataHookInterface):
    """Makes the README the description, and its links to files of the repository absolute."""

    def update(self, metadata):
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        home = metadata["urls"]["Homepage"]
        text = re.sub(r"(!\[[^]]*\])\((?![a-z]+:)", rf"\1({home}/raw/main/", text)  # pictures
        text = re.sub(r"\]\((?![a-z]+:|#)", f"]({home}/blob/main/", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


class BuildHook(BuildHookInterface):
    def initialize(self, version, build_data):
        if not GIVEN:
            compile_here(self.root)
        for path in (*FILES, SBOM):
            if not (Path(self.root) / path).is_file():
                raise FileNotFoundError(f"{path} is missing: use `make wheel`")
        build_data["tag"] = f"py3-none-{platform_of([Path(self.root) / path for path in FILES])}"
        build_data["pure_python"] = False
        build_data["force_include"].update(FILES)
        build_data["sbom_files"].append(SBOM)
        for target, arguments in SHARED.items():
            file = Path(self.root, BUILT, target)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(subprocess.check_output([Path(self.root, NATIVE, "gorovod"), *arguments]))
            build_data["shared_data"][str(file)] = target


def compile_here(root):
    """Compile the files of the wheel for this machine."""
    compiler = os.environ.get("CC", "cc").split()[0]
    needed = {
        "go": "Go 1.26 or later (https://go.dev/dl)",
        "make": "make (Debian: make)",
        compiler: "a C compiler (Debian: gcc libc6-dev)",
    }
    missing = [what for program, what in needed.items() if not shutil.which(program)]
    if missing:
        raise SystemExit(f"gorovod's sources cannot be compiled, because these are missing: {', '.join(missing)}")
    # pip's own environment for building is not for what make starts.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(["make", "--no-print-directory", "pip-files"], cwd=root, env=env, check=True)


def platform_of(files):
    """Return the tag of the systems whose C library is new enough for all files (PEP 600).

    For example manylinux_2_28_x86_64. So pip of an older system refuses the wheel. Otherwise Python would fail there to
    load the library.
    """
    contents = [file.read_bytes() for file in files]
    machines = {MACHINES[content[18:20]] for content in contents}
    assert len(machines) == 1, machines
    machine = machines.pop()
    symbols = [symbol for content in contents for symbol in re.findall(rb"\bGLIBC_2\.(\d+)", content)]
    needed = max(map(int, symbols), default=0)
    minor = next((minor for minor in MANYLINUX if minor >= needed), needed)
    tag = f"manylinux_2_{minor}_{machine}"
    return f"{tag}.manylinux2014_{machine}" if minor == 17 else tag
