"""Horovod itself beside gorovod: both have a package ``horovod``, so whoever imports it or starts a job is told."""

import os
import shutil
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


def run(code, folder, package=PACKAGE, *options):
    ours = {"PYTHONPATH": str(package)} if package.is_dir() else {}  # else a wheel is installed
    command = [sys.executable, *options, "-c", code, str(folder), "--version"]
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


@pytest.fixture
def copy(tmp_path):
    """A copy of the package, that a test may damage, with the program."""
    import horovod

    there = Path(horovod.__file__).parent
    ignored = shutil.ignore_patterns("lib", "bin", "__pycache__")
    here = shutil.copytree(there, tmp_path / "copy" / "horovod", ignore=ignored)
    (here / "bin").mkdir()
    program = next(p for p in (there / "bin" / "gorovod", there.parent.parent / "build" / "gorovod") if p.is_file())
    (here / "bin" / "gorovod").symlink_to(program)
    return here


def test_a_library_that_horovod_has_left_is_told(copy, tmp_path):
    (copy / "torch" / "mpi_lib_v2.cpython-311-x86_64-linux-gnu.so").touch()
    for code in (IMPORT, COMMAND):
        told = run(code, tmp_path, copy.parent).stderr
        assert "torch/mpi_lib_v2.cpython-311-x86_64-linux-gnu.so is a file that Horovod has left" in told


def test_files_that_pip_removed_with_horovod_are_told(copy, tmp_path):
    (copy / "__init__.py").unlink()  # as pip does where it replaces Horovod after it has installed gorovod
    (copy / "torch" / "__init__.py").unlink()
    told = run(COMMAND, tmp_path, copy.parent, "-S").stderr  # not the whole package that may be installed
    assert "horovod/__init__.py is missing. pip removes it with a Horovod that was there before" in told
