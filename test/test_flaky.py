"""The scripts that run tests: a test that fails once is flaky, one that fails each time fails, and all tests run."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ("flaky.py", "go_tests.py", "python_tests.py")

# What the tests below use: fails(name, n) is true in the first n runs of a test.
PYTHON = """
import os, signal, time
from pathlib import Path

import pytest

def fails(name, times=1):
    runs = Path(__file__).with_name(f"{name}.{os.environ.get('HOROVOD_RANK', 0)}.runs")
    runs.open("a").write("x")
    return len(runs.read_text()) <= times

def on_rank_1():
    return os.environ.get("HOROVOD_RANK", "1") == "1"

"""
GO = """package fake

import (
	"fmt"
	"os"
	"testing"
	"time"
)

var _ = fmt.Sprint(time.Second)

func fails(name string, times int) bool {
	f, _ := os.OpenFile(name+".runs", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	f.WriteString("x")
	f.Close()
	runs, _ := os.ReadFile(name + ".runs")
	return len(runs) <= times
}

"""


@pytest.fixture
def room(tmp_path):
    """A folder like a checkout: it has the scripts, and tests of their own."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "test").mkdir()
    for script in SCRIPTS:
        shutil.copy(ROOT / "scripts" / script, tmp_path / "scripts")
    return tmp_path


def run(room, script, *arguments, listing=True):
    """Run a script. Return its status, its output, and the list of flaky tests."""
    env = {name: value for name, value in os.environ.items() if name not in ("FLAKY_TESTS", "PYTEST_ADDOPTS")}
    env["HOROVODRUN"] = str(ROOT / "build" / "horovodrun")
    if listing:
        env["FLAKY_TESTS"] = str(room / "flaky.txt")
    command = [sys.executable, f"scripts/{script}", *arguments]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(command, cwd=room, env=env, **pipes, text=True)
    listed = room / "flaky.txt"
    return done.returncode, done.stdout, listed.read_text().splitlines() if listed.exists() else []


def runs(room, name, rank=0):
    file = room / "test" / f"{name}.{rank}.runs"
    return len(file.read_text()) if file.exists() else 0


# Tests, the status of the script, the names of the flaky ones, and how often tests have run.
PYTHON_CASES = {
    "once": ("def test_a(): assert not fails('a')", 0, ["test_a"], {"a": 2}),
    "twice": ("def test_a(): assert not fails('a', 2)", 0, ["test_a"], {"a": 3}),
    "always": ("def test_a(): assert not fails('a', 99)", 1, [], {"a": 3}),
    "one of its cases": (
        "@pytest.mark.parametrize('p', ['x y', 'z'])\ndef test_a(p): assert not fails(p)",
        0,
        ["test_a[x y]", "test_a[z]"],
        {"x y": 2, "z": 2},
    ),
    "one once and one always": (
        "def test_a(): assert not fails('a')\ndef test_b(): assert not fails('b', 99)",
        1,
        ["test_a"],
        {"a": 2, "b": 3},
    ),
    "no import": ("import not_there\ndef test_a(): fails('a')", 1, [], {"a": 0}),
    "no tests": ("", 1, [], {}),
    "a crash once": (
        "def test_a():\n  if fails('a'): os.kill(os.getpid(), signal.SIGKILL)\ndef test_b(): fails('b')",
        0,
        ["test_a"],
        {"a": 3, "b": 1},
    ),
    "a crash each time": (
        "def test_a():\n  if fails('a', 99): os.kill(os.getpid(), signal.SIGKILL)\ndef test_b(): fails('b')",
        1,
        [],
        {"a": 3, "b": 0},
    ),
    "a crash, and another failure of what had not run": (
        "def test_a():\n  if fails('a'): os.kill(os.getpid(), signal.SIGKILL)\ndef test_b(): assert not fails('b', 99)",
        1,
        ["test_a"],
        {"b": 3},
    ),
    "a hang once": ("def test_a():\n  if fails('a'): time.sleep(600)", 0, ["test_a"], {"a": 3}),
    "four": (
        "@pytest.mark.parametrize('p', range(4))\ndef test_a(p): assert not fails(p)",
        0,
        [f"test_a[{n}]" for n in range(4)],
        {0: 2},
    ),
    "too many": (
        "@pytest.mark.parametrize('p', range(11))\ndef test_a(p): assert not fails(p)",
        1,
        [],
        {0: 1},
    ),
}


@pytest.mark.parametrize("case", PYTHON_CASES)
def test_python_tests(room, case):
    tests, status, flaky, counts = PYTHON_CASES[case]
    (room / "test" / "test_fake.py").write_text(PYTHON + tests)
    got, output, listed = run(
        room, "python_tests.py", "--alone", "--timeout", "4" if "hang" in case else "60", "test/test_fake.py"
    )
    assert got == status, output
    assert [line.partition(",")[0] for line in listed] == [f"test/test_fake.py::{name}" for name in flaky], output
    assert {name: runs(room, name) for name in counts} == counts, output
    over, said, _ = run(room, "flaky.py")
    assert over == (len(flaky) > 3), said
    assert all(line in said for line in listed)


def test_python_tests_without_a_list(room):
    (room / "test" / "test_fake.py").write_text(PYTHON + "def test_a(): assert not fails('a')")
    status, output, _ = run(room, "python_tests.py", "--alone", "test/test_fake.py", listing=False)
    assert status == 1 and runs(room, "a") == 1, output


def test_a_job_of_two_ranks(room):
    """Rank 1 fails; the tests that come later run all the same, and one of these is flaky, too."""
    (room / "test" / "test_fake.py").write_text(
        PYTHON + "def test_a():\n  print('seed 42'); assert not (on_rank_1() and fails('a'))\n"
        "def test_b():\n  if on_rank_1() and fails('b'): os.kill(os.getpid(), signal.SIGKILL)\n"
        "  if not on_rank_1() and not Path(__file__).with_name('b.1.runs').exists(): time.sleep(600)\n"
    )
    (room / "test" / "test_later.py").write_text(PYTHON + "def test_c(): fails('c')\n")
    arguments = ("--ranks", "2", "--together", "test/test_fake.py", "test/test_later.py")
    status, output, listed = run(room, "python_tests.py", *arguments)
    assert status == 0, output
    assert [line.partition(",")[0] for line in listed] == [f"test/test_fake.py::test_{name}" for name in "ab"], output
    assert "np 2" in listed[0] and "seed 42" in listed[0] and " load " in listed[0], listed
    assert runs(room, "c", 0) and runs(room, "c", 1), output
    assert output.splitlines()[-1].endswith(", 0 failed, 0 skipped, 2 flaky"), output


GO_CASES = {
    "once": ('func TestA(t *testing.T) { if fails("a", 1) { t.Error("seed=7") } }', 0, ["TestA"], {"a": 2}),
    "always": ('func TestA(t *testing.T) { if fails("a", 99) { t.Error() } }', 1, [], {"a": 3}),
    "a subtest": (
        'func TestA(t *testing.T) { t.Run("x", func(t *testing.T) { if fails("a", 2) { t.Error() } }) }',
        0,
        ["TestA/x"],
        {"a": 3},
    ),
    "four": (
        "".join(f'func Test{n}(t *testing.T) {{ if fails("{n}", 1) {{ t.Error() }} }}\n' for n in "ABCD"),
        0,
        ["TestA", "TestB", "TestC", "TestD"],
        {"A": 2},
    ),
    "a build": ("func TestA(t *testing.T) { no() }", 1, [], {}),
    "a panic once": (
        'func TestA(t *testing.T) { if fails("a", 1) { panic("p") } }\nfunc TestB(t *testing.T) { fails("b", 0) }',
        0,
        ["the whole package (it ended in TestA)"],
        {"a": 2, "b": 1},
    ),
    "a panic each time": ('func TestA(t *testing.T) { if fails("a", 99) { panic("p") } }', 1, [], {"a": 3}),
    "an exit": (
        'func TestA(t *testing.T) { if fails("a", 1) { os.Exit(1) } }\nfunc TestB(t *testing.T) { fails("b", 0) }',
        0,
        ["the whole package (it ended in TestA)"],
        {"a": 2, "b": 1},
    ),
    "a hang once": (
        'func TestA(t *testing.T) { if fails("a", 1) { time.Sleep(time.Hour) } }',
        0,
        ["the whole package (it ended in TestA)"],
        {"a": 2},
    ),
    "after the tests": (
        'func TestA(t *testing.T) { fails("a", 0) }\n'
        'func TestMain(m *testing.M) { m.Run(); if fails("main", 1) { os.Exit(1) } }',
        0,
        ["the whole package"],
        {"a": 2},
    ),
    "a race": (
        'func TestA(t *testing.T) { fmt.Println("WARNING: DATA RACE"); if fails("a", 1) { t.Error() } }',
        1,
        [],
        {"a": 1},
    ),
}


@pytest.mark.parametrize("case", GO_CASES)
def test_go_tests(room, case):
    tests, status, flaky, counts = GO_CASES[case]
    (room / "go.mod").write_text("module example.com/fake\n\ngo 1.26\n")
    (room / "test" / "fake_test.go").write_text(GO + tests)
    got, output, listed = run(room, "go_tests.py", "-timeout", "5s", "./...")
    assert got == status, output
    assert [line.partition(": ")[0] for line in listed] == [
        f"example.com/fake/test{',' if name.startswith('the') else ''} {name}" for name in flaky
    ], output
    assert {name: len((room / "test" / f"{name}.runs").read_text()) for name in counts} == counts, output
    assert run(room, "flaky.py")[0] == (len(flaky) > 3)
    assert case != "once" or "seed 7;" in listed[0]


def test_go_tests_without_a_list(room):
    (room / "go.mod").write_text("module example.com/fake\n\ngo 1.26\n")
    (room / "test" / "fake_test.go").write_text(GO + GO_CASES["once"][0])
    status, output, _ = run(room, "go_tests.py", "./...", listing=False)
    assert status == 1 and "again" not in output, output
