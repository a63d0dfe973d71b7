"""What the documentation shows is true: programs run, blocks of Python are Python, commands and options exist."""

import ast
import json
import os
import re
import subprocess
import sys
import textwrap
import time
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HOROVODRUN = os.environ.get("HOROVODRUN", str(ROOT / "build" / "horovodrun"))
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "DESIGN.md", "test/README.md")]
PAGES += sorted(ROOT.glob("docs/**/*.md"))
# Their first block of Python is a whole program for PyTorch, which these numbers of ranks run.
PROGRAMS = {
    "README.md": 2,
    "docs/start.md": 4,
    "docs/pytorch.md": 2,
    "docs/torch_distributed.md": 2,
    "docs/sharded_optimizer.md": 2,
    "docs/sparse_tables.md": 2,
}


def blocks(page, language):
    """The fenced blocks of a language in a page."""
    fenced = re.findall(r"^```([^\n]*)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [text for name, text in fenced if name == language]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_are_python(page):
    for block in blocks(page, "python"):
        ast.parse(textwrap.dedent(block))


@pytest.mark.parametrize("page, ranks", PROGRAMS.items())
def test_first_program_prints_what_the_page_shows(page, ranks, tmp_path):
    program = tmp_path / "train.py"
    program.write_text(blocks(ROOT / page, "python")[0])
    command = [HOROVODRUN, "-np", str(ranks), sys.executable, str(program)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "[0]<stdout>:" in result.stdout
    after = (ROOT / page).read_text().split("```python\n")[1]
    for line in re.findall(r"^\[\d\]<stdout>:.*", after, re.MULTILINE):
        words, number = line.rsplit(" ", 1)
        printed = re.findall(rf"^{re.escape(words)} (\S+)$", result.stdout, re.MULTILINE)
        assert [float(one) for one in printed] == [pytest.approx(float(number), rel=0.01, abs=0.001)], line


def test_commands_print_what_the_readme_shows_of_ranks_that_wait(tmp_path):
    """``gorovod ps``, ``gorovod top`` and the page have a line each in the README, all three of such a job."""
    folder = tmp_path / "mnist"
    folder.mkdir()
    (folder / "train.py").write_text(
        "import os, time, torch, horovod.torch as hvd\n"
        "hvd.init()\n"
        "while hvd.rank() == 0 and not os.path.exists('go'):\n"
        "    time.sleep(0.05)\n"
        "hvd.allreduce(torch.ones(1), name='loss')\n"
    )
    starts = {"ps": "  rank 1 waits for rank 0 in ", "top": "Rank 0: its program", "page": "All wait for rank 0 "}
    readme = (ROOT / "README.md").read_text()
    shown = {name: re.search(rf"^{start}.*$", readme, re.MULTILINE)[0].strip() for name, start in starts.items()}
    gorovod = Path(HOROVODRUN).with_name("gorovod")

    def told(*command):
        return subprocess.run([gorovod, *command], capture_output=True, text=True, timeout=60).stdout

    def line_of_ps():
        mine = re.search(rf"^{job.pid} .*\n((?:  .*\n)*)", told("ps"), re.MULTILINE)
        return " ".join(mine[1].split()) if mine else ""

    def line_of_top():
        return "".join(re.findall(r"^Rank 0: .*", told("top", "--once", str(job.pid)), re.MULTILINE))

    def line_of_page():
        with urllib.request.urlopen(f"{address}snapshot", timeout=60) as answer:
            return json.load(answer)["sentence"]

    without = re.compile(r"(\d+m)?\d+(\.\d)? ?(s|%)|:\d+")  # times, shares and line numbers
    seen = {}
    command = [HOROVODRUN, "-np", "2", "--dashboard", sys.executable, "train.py"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as job:
        try:
            address = re.search(r"http://\S+/", job.stderr.readline())[0]
            for name, line in ("ps", line_of_ps), ("top", line_of_top), ("page", line_of_page):
                until = time.monotonic() + 60
                while time.monotonic() < until:
                    assert job.poll() is None, job.stderr.read()
                    seen[name] = line()
                    if without.sub("N", seen[name]) == without.sub("N", shown[name]):
                        break
                    time.sleep(0.1)
        finally:
            (folder / "go").touch()
            errors = job.stderr.read()
    assert job.returncode == 0, errors
    assert {name: without.sub("N", line) for name, line in seen.items()} == {
        name: without.sub("N", line) for name, line in shown.items()
    }


def test_the_readme_is_short():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 110, len(lines)


def shell_lines(page):
    """The commands in a page's blocks, without prompts."""
    for block in blocks(page, "sh") + blocks(page, ""):
        for line in block.replace("\\\n", " ").splitlines():
            yield line.lstrip("$ ")


@pytest.mark.parametrize("command", ["horovodrun", "gorovod bench", "gorovod doctor", "gorovod rendezvous"])
def test_commands_know_the_options(command):
    words = command.split()
    program = Path(HOROVODRUN).with_name(words[0])
    told = subprocess.run([program, *words[1:], "--help"], capture_output=True, text=True, timeout=60).stdout
    known = set(re.findall(r"--[a-z][a-z-]*[a-z]", told.replace("--[no-]", "--no-") + told.replace("[no-]", "")))
    unknown = {
        f"{page.name}: {option}"
        for page in PAGES
        for line in shell_lines(page)
        if re.match(rf"([A-Z_]+=\S+ )*{command} ", line)
        for option in re.findall(r"(?<!\S)(--[a-z][a-z-]*)", re.split(r"python |#|\||\./", line)[0])
        if option not in known
    }
    assert known and not unknown, f"{command} --help does not have: {sorted(unknown)}"


# How a command line says how many processes there are, or that it starts none.
COUNTS = r" (-np|--num-proc|--nnodes) | --(version|help)$"


def test_commands_of_horovodrun_say_how_many_processes():
    silent = {
        f"{page.name}: {line}"
        for page in PAGES
        for line in shell_lines(page)
        if re.match(r"([A-Z_]+=\S+ )*horovodrun ", line) and not re.search(COUNTS, line)
        if page.name != "kubernetes.md"  # an MPIJob's operator writes a file that says it
    }
    assert not silent


@pytest.mark.parametrize("page", ["README.md", "docs/kubernetes.md"])
def test_manifests_of_the_pages_are_printed(page, tmp_path):
    lines = [line for line in shell_lines(ROOT / page) if re.match("gorovod k8s render [a-z]", line)]
    assert lines
    for line in lines:
        command = line.replace("gorovod", str(Path(HOROVODRUN).with_name("gorovod").resolve()), 1)
        done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, line + "\n" + done.stderr
        assert "|" not in line or "--secret" in line, f"without --secret the key is a placeholder: {line}"


def test_figures_are_those_of_the_tables():
    """A figure of the README or of the table of states is the one of the table or picture that it comes from."""
    readme, status, compatibility, ecosystem, performance, picture = (
        (ROOT / name).read_text()
        for name in (
            "README.md",
            "docs/status.md",
            "docs/compatibility.md",
            "docs/ecosystem.md",
            "docs/performance.md",
            "docs/bench-summary.svg",
        )
    )
    programs = re.findall(r"^\| [^|]+ \| ([\w-]+) [\d.]+\S* \|", ecosystem, re.MULTILINE)
    told = f"{len(programs)} programs with {len(set(programs))} packages"
    assert told in status and told in readme.replace("[", ""), told
    grid = re.search(r"^\| PyTorch \\ Python .*?^<!-- end", compatibility, re.MULTILINE | re.DOTALL)[0]
    told = f"{len(re.findall('(?<=[|]) (?:part|all) (?=[|])', grid))} pairs of Python and PyTorch"
    assert told in status, told
    for contender in ("gorovod (Python)", "torch gloo"):
        after = picture[picture.index("Gradients of ResNet-50") :].partition(f">{contender}<")[2]
        told = f"{float(re.search('>([0-9.]+) ms<', after)[1]):.0f} ms"
        assert f" {told} " in readme and told in performance, told


def test_make_knows_the_targets():
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    unknown = {
        f"{page.name}: {target}"
        for page in PAGES
        for text in [*shell_lines(page), *re.findall(r"`([^`\n]+)`", page.read_text())]
        for target in re.findall(r"^make ([a-z][a-z0-9-]*)", text)
        if target not in targets
    }
    assert not unknown, f"the Makefile has no {sorted(unknown)}"


def test_variables_are_known():
    """A page that names a variable of ours names one that there is."""
    known = set(re.findall(r"`(_?(?:HOROVOD|GOROVOD)_[A-Z_]+)`", (ROOT / "docs" / "knobs.md").read_text()))
    known |= set(re.findall(r"\bGOROVOD_[A-Z_]+\b", (ROOT / "include" / "gorovod.h").read_text()))
    unknown = {
        f"{page.name}: {name}"
        for page in PAGES
        for name in re.findall(r"\b((?:HOROVOD|GOROVOD)_[A-Z][A-Z_]*[A-Z])\b", page.read_text())
        if name not in known
    }
    assert not unknown, f"docs/knobs.md does not have: {sorted(unknown)}"


def test_places_in_the_code_exist():
    """A page that sends its reader to a package or a file of the repository names one that there is."""
    places = r"`((?:\./)?(?:internal|cmd|hvd|shim|python|scripts|test|bench|examples|include)/[\w./-]+)`"
    missing = {
        f"{page.name}: {place}"
        for page in PAGES
        if "lab" not in page.parts  # a diary names what there was
        for place in re.findall(places, page.read_text())
        if not (ROOT / place).exists() and not list(ROOT.glob(place.rstrip("/") + "*"))
    }
    assert not missing, f"the repository has no {sorted(missing)}"


def test_errors_are_ones_that_there_are():
    """The headings of errors.md quote messages that the sources still have, but for those of Go's runtime."""
    files = [file for folder in ("internal", "python", "hvd", "cmd") for file in (ROOT / folder).rglob("*.*")]
    files = [file for file in files if file.suffix in (".go", ".py", ".c") and not file.name.endswith("_test.go")]
    sources = "\n".join(file.read_text() for file in files)
    sources = re.sub(r'" ?\+\n\s*"', "", sources)  # a long text in Go stands on several lines
    headings = re.findall(r"^### (.*)", (ROOT / "docs" / "errors.md").read_text(), re.MULTILINE)
    messages = [message for heading in headings for message in re.findall(r"`([^`]+)`", heading)]
    missing = []
    for message in messages:
        # A value splits a message into pieces; a piece of several words must be in the sources.
        pieces = [piece.strip(" ,-") for piece in re.split(r"[^A-Za-z', -]|\bAL+REDUCE\b|\bspark\b", message)]
        if not any(len(piece) > 9 and piece in sources for piece in pieces) and "fatal error" not in message:
            missing.append(message)
    assert len(messages) > 20 and not missing


def public_modules():
    """The modules without an underscore in their names."""
    package = ROOT / "python" / "horovod"
    for file in sorted(package.rglob("*.py")):
        parts = file.relative_to(package.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if "._" not in name:
            yield name


def exports(module):
    """What a module's ``__all__`` has: names, and what it adds of other modules' (``__all__ += other.__all__``)."""
    path = ROOT / "python" / Path(*module.split("."))
    body = ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()).body
    imported = {a.name: f"{n.module}.{a.name}" for n in body if isinstance(n, ast.ImportFrom) for a in n.names}
    found = set()
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(getattr(target, "id", "") == "__all__" for target in targets):
            other = isinstance(node.value, ast.Attribute) and imported[node.value.value.id]
            found |= exports(other) if other else {one.value for one in node.value.elts}
    return found


def test_the_reference_has_every_public_name():
    """The directive ``api`` shows all that a module exports. docs/api.md has what is Horovod's, and what is ours."""
    pages = "\n".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    shown = set(re.findall(r"^```\{api\} (\S+)$", pages, re.MULTILINE))
    modules = {name: exports(name) for name in public_modules()}
    missing = sorted(name for name, exported in modules.items() if exported and name not in shown)
    assert not missing, f"docs/reference has no ```{{api}} MODULE for {missing}"
    assert not shown - modules.keys(), f"docs/reference shows what there is not: {sorted(shown - modules.keys())}"
    table = (ROOT / "docs" / "api.md").read_text()
    for front_end in ("horovod.torch", "horovod.tensorflow", "horovod.keras", "horovod.tensorflow.keras"):
        section = re.search(rf"^### `{re.escape(front_end)}`\n(.*?)^##", table, re.MULTILINE | re.DOTALL)[1]
        told = set(re.findall(r"(?:^\| |^|, |: )`(\w+)", section, re.MULTILINE))
        missing = sorted(modules[front_end] - told)
        assert not missing, f"docs/api.md, {front_end}: {missing} (scripts/compare_api.py --write)"


def test_names_in_the_pages_exist():
    """``hvd.name`` in a page is a name of a front end, or of the Go package."""
    known = set().union(*map(exports, public_modules()))
    go = "\n".join(file.read_text() for file in (ROOT / "hvd").glob("*.go"))
    known |= set(re.findall(r"^(?:func (?:\(\w+ \S+\) )?|\t|type |const |var )([A-Z]\w*)", go, re.MULTILINE))
    unknown = {
        f"{page.name}: hvd.{name}"
        for page in PAGES
        if "lab" not in page.parts  # a diary names what there was
        for name in re.findall(r"\bhvd\.([A-Za-z]\w*)", page.read_text())
        if name not in known
    }
    assert not unknown, sorted(unknown)
