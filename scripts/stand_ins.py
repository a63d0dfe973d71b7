"""Makes empty stand-ins for NVIDIA's libraries, so that a PyTorch from PyPI can be imported without them.

    python scripts/stand_ins.py

PyPI's PyTorch for x86-64 is linked against some 3 GB of NVIDIA's libraries, of which a machine without a GPU calls none
but the CUDA runtime. This writes a library into PyTorch's folder for each that is missing, with the functions that
PyTorch looks up when it is loaded. A call of one ends the process (SIGILL), so no test passes by a stand-in. Needs
readelf and a C compiler.
"""

import re
import subprocess
import sysconfig
import tempfile
from pathlib import Path

NVIDIA = re.compile(r"lib(cu(?!da\.)|nv|nccl)")  # not the driver's libcuda: that is looked for at run time


def main():
    site = Path(sysconfig.get_path("platlib"))
    torch = site / "torch"
    libraries = [*torch.glob("lib/*.so*"), *torch.glob("*.so")]
    told = subprocess.run(
        ["readelf", "-W", "-d", "-V", "--dyn-syms", *map(str, libraries)], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    there = {path.name for path in site.rglob("*.so*")}
    needed = set(re.findall(r"\(NEEDED\)\s+Shared library: \[(.*?)\]", told))
    missing = sorted(name for name in needed - there if NVIDIA.match(name))
    library_of, library = {"": missing[0] if missing else ""}, ""  # by version; symbols without one go to the first
    for file, version in re.findall(r"File: (\S+)|Name: (\S+)", told):
        if file:
            library = file
        else:
            library_of[version] = library
    symbols = {}
    for symbol, version in re.findall(r" UND ((?:cu|nv|nccl)\w+)(?:@(\S+))?", told):
        symbols.setdefault(library_of[version], {}).setdefault(version, set()).add(symbol)
    with tempfile.TemporaryDirectory() as work:
        for library in missing:
            versions = symbols.get(library, {})
            code = "".join(f"void {s}(void) {{ __builtin_trap(); }}\n" for some in versions.values() for s in some)
            script = Path(work, "versions")
            script.write_text(
                "".join(f"{v} {{ global: {'; '.join(some)}; }};\n" for v, some in versions.items() if v) or "{ };\n"
            )
            subprocess.run(
                ["cc", "-w", "-shared", "-nostdlib", "-fno-builtin", "-x", "c", "-", f"-Wl,-soname,{library}",
                 f"-Wl,--version-script,{script}", "-o", str(torch / "lib" / library)],
                input=code, text=True, check=True,
            )  # fmt: skip
    print(f"stand-ins for {', '.join(missing) or 'nothing'}")


if __name__ == "__main__":
    main()
