"""Horovod itself beside gorovod: both have a package ``horovod``, so whoever imports it or starts a job is told."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "python"
# The folder with the distribution comes last in sys.path: gorovod's files are those that are imported.
BESIDE = "import sys; sys.path.append(sys.argv.pop(1)); "
IMPORT = BESIDE + "import horovod"
COMMAND = BESIDE + "from horovod._program import gorovod; gorovod()"


def installed(folder, record):
    """Make a distribution of Horovod's name, with these files."""
    info = folder / "horovod-0.28.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: horovod\nVersion: 0.28.1\n")
    (info / "RECORD").write_text("".join(f"{name},,\n" for name in record))
    for name in record:  # Python looks whether they are there
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    return folder


def run(code, folder):
    ours = {"PYTHONPATH": str(PACKAGE)} if PACKAGE.is_dir() else {}  # else a wheel is installed
    command = [sys.executable, "-c", code, str(folder), "--version"]
    return subprocess.run(command, env={**os.environ, **ours}, capture_output=True, text=True, timeout=60, check=True)


@pytest.mark.parametrize("code", [IMPORT, COMMAND], ids=["import", "command"])
def test_upstream_beside_gorovod_is_told(tmp_path, code):
    told = run(code, installed(tmp_path, ["horovod/__init__.py", "horovod/torch/__init__.py"])).stderr
    assert f"Horovod 0.28.1 is installed too, at {tmp_path}/horovod" in told
    assert "uninstall both" in told


@pytest.mark.parametrize("code", [IMPORT, COMMAND], ids=["import", "command"])
def test_nothing_is_told_otherwise(tmp_path, code):
    assert run(code, tmp_path).stderr == ""


def test_a_distribution_without_the_package_does_no_harm(tmp_path):
    assert run(IMPORT, installed(tmp_path, ["horovod-0.28.1.dist-info/METADATA"])).stderr == ""
