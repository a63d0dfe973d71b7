"""What make and pip say where Python, PyTorch, Go or a compiler is missing: the path that is used, and a next step."""

import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# A Python that has the modules, and one that has none; the latter makes environments whose pip fails.
WITH_TORCH = """#!/bin/sh
[ "$1" != -c ] || echo "prepare: using $3" >&2
"""
WITHOUT = """#!/bin/sh
case "$*" in
*"-m pip --version"* | --version) echo "Python 3.99" ;;
*"-m venv"*) for last; do :; done; mkdir -p "$last/bin"; cp "$0" "$last/bin/python" ;;
*) exit 1 ;;
esac
"""


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.fixture
def room(tmp_path):
    """A folder with scripts/prepare.sh, for which usr/python3 is the system's Python, and the user is not root."""
    text = (ROOT / "scripts/prepare.sh").read_text().replace("/usr/bin/python3", str(tmp_path / "usr/python3"))
    program(tmp_path / "scripts/prepare.sh", text)
    program(tmp_path / "bin/id", "#!/bin/sh\necho 1000\n")
    return tmp_path


def prepare(room, *parts, path=None, **env):
    env = {"PATH": path or f"{room / 'bin'}:/usr/bin:/bin", "HOME": str(room), **env}
    command = [str(room / "scripts/prepare.sh"), *parts]
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_the_python_in_path_is_taken_first(room):
    python = program(room / "bin/python3", WITH_TORCH)
    program(room / "usr/python3", WITH_TORCH)
    assert prepare(room, "python") == (0, f"prepare: using {python}\n")
    assert (room / "build/python").read_text().strip() == python


def test_the_active_environment_is_taken_before(room):
    program(room / "bin/python3", WITH_TORCH)
    python = program(room / "venv/bin/python", WITH_TORCH)
    assert prepare(room, "python", VIRTUAL_ENV=str(room / "venv")) == (0, f"prepare: using {python}\n")


def test_pyenv_beside_the_systems_python(room):
    pyenv, system = program(room / "bin/python3", WITHOUT), program(room / "usr/python3", WITH_TORCH)
    status, said = prepare(room, "python")
    assert status == 0 and f"using {system}" in said, said
    assert f"not the python3 in PATH, {pyenv}, which has not all of torch" in said and "PYTHON=/path/to/python" in said


def test_no_pytorch(room):
    python = program(room / "bin/python3", WITHOUT)
    status, said = prepare(room, "python")
    assert status == 1, said
    lines = said.splitlines()
    assert lines[0].startswith(f"prepare: {python} has not all of torch") and "making build/venv from PyPI" in lines[0]
    assert "pip could not install torch numpy pytest cloudpickle for Python 3.99" in lines[-1], said
    assert "PYTHON=/path/to/another/python" in lines[-1], said


def test_no_pytorch_as_root(room):
    python = program(room / "bin/python3", WITHOUT)
    program(room / "bin/id", "#!/bin/sh\necho 0\n")
    program(room / "bin/apt-get", "#!/bin/sh\necho 'apt-get: no network'\nexit 100\n")
    status, said = prepare(room, "python")
    assert status == 1, said
    first, _, installs = said.splitlines()[:3]
    assert first.startswith(f"prepare: {python} has not all of torch") and "installing Debian's for" in first
    assert installs.startswith("prepare: apt-get install python3 python3-torch"), said


@pytest.mark.parametrize(
    "python, says",
    [("bin/python3", "python3 -m pip install torch numpy pytest cloudpickle"), ("none", "give the path of a Python")],
)
def test_an_unfit_python_is_given(room, python, says):
    program(room / "bin/python3", WITHOUT)
    status, said = prepare(room, "python", PYTHON=str(room / python))
    assert status == 1 and f"PYTHON={room / python}" in said and says in said, said


def test_no_go(room):
    for name in ("bash", "dirname", "mkdir"):
        (room / "bin" / name).symlink_to(shutil.which(name))
    status, said = prepare(room, "toolchain", path=str(room / "bin"))
    assert status == 1 and "install Go 1.26 or later (https://go.dev/dl)" in said, said


def install(**env):
    env = {"PATH": os.environ["PATH"], **env}
    command = [str(ROOT / "scripts/install.sh")]
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def managed(tmp_path):
    """A Python with the file by which a distribution says that pip must not change it."""
    folder = tmp_path / "lib"
    folder.mkdir()
    (folder / "EXTERNALLY-MANAGED").touch()
    (tmp_path / "sitecustomize.py").write_text(
        "import sysconfig\n"
        "path = sysconfig.get_path\n"
        f"sysconfig.get_path = lambda name, *more: {str(folder)!r} if name == 'stdlib' else path(name, *more)\n"
    )
    # Not in a virtual environment, whatever runs this test.
    base = Path(sys.base_prefix) / "bin" / "python3"
    program(tmp_path / "python3", f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {base} "$@"\n')
    return tmp_path / "python3"


def test_install_leaves_the_systems_python_alone(managed):
    status, said = install(PYTHON=str(managed))
    assert status == 1 and "the system's package manager keeps the packages of" in said, said
    assert "python3 -m venv --system-site-packages ~/gorovod-venv" in said and "make install" in said, said


def test_the_page_says_what_to_type_when_pip_refuses(managed, tmp_path):
    """pip refuses such a Python before it reads what it is to install, so only a page can say how to go on."""
    command = [managed, "-m", "pip", "install", "--no-index", tmp_path / "nothing"]
    (tmp_path / "nothing").mkdir()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    if "No module named pip" in done.stderr:
        pytest.skip(f"the Python in {sys.base_prefix} has no pip (Debian: python3-pip)")
    reason = re.search("^error: (.*)$", done.stderr, re.MULTILINE)
    assert done.returncode == 1 and reason, done
    page = (ROOT / "docs/start.md").read_text()
    advice = page.partition(f"`{reason[1]}`")[2].partition("\n## ")[0]
    assert "\npython3 -m venv --system-site-packages ~/venv && . ~/venv/bin/activate\npip install ." in advice


def test_install_needs_pip(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    status, said = install(VIRTUAL_ENV=str(tmp_path / "venv"))
    assert status == 1 and "has no pip" in said and "-m ensurepip" in said, said


def test_install_needs_a_python():
    status, said = install(PYTHON="/no/python")
    assert status == 1 and said == "install: /no/python does not run: name a Python by PYTHON=/path/to/python\n"


def test_pip_install_names_what_is_missing(monkeypatch, tmp_path):
    """The hook of the wheel, which pip runs in an environment with hatchling."""
    for name, attribute in (
        ("hatchling.builders.hooks.plugin.interface", "BuildHookInterface"),
        ("hatchling.metadata.plugin.interface", "MetadataHookInterface"),
    ):
        module = types.ModuleType(name)
        setattr(module, attribute, object)
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("hatchling", "hatchling.builders", "hatchling.builders.hooks", "hatchling.builders.hooks.plugin"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    for name in ("hatchling.metadata", "hatchling.metadata.plugin"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "scripts/hatch_build.py")
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(SystemExit) as e:
        hook.compile_here(str(tmp_path))
    assert str(e.value) == (
        "gorovod's sources cannot be compiled, because these are missing: Go 1.26 or later (https://go.dev/dl), "
        "make (Debian: make), a C compiler (Debian: gcc libc6-dev)"
    )
