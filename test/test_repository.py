"""What the repository promises those who change it: hooks, workflows, forms, and versions that agree."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def found(pattern, path):
    match = re.search(pattern, (ROOT / path).read_text(), re.MULTILINE)
    assert match, f"{path} has no {pattern}"
    return match[1]


def test_the_oldest_python_is_the_same_everywhere():
    oldest = found(r'^requires-python = ">=3\.(\d+)"$', "pyproject.toml")
    assert found(r'^requires-python = ">=3\.(\d+)"$', "compat/pyproject.toml") == oldest
    assert found(r'^target-version = "py3(\d+)"', "ruff.toml") == oldest


@pytest.mark.parametrize(
    "subject, good",
    [
        ("launch: forward SIGUSR1 to ranks", True),
        ("test/hosts: wait for sshd", True),
        ("torch, keras: keep a frozen parameter", True),
        ("go.mod: raise x/sys", True),
        (".ci/run: list flaky tests", True),
        ('Revert "launch: forward SIGUSR1 to ranks"', True),
        ("fixup! launch: forward SIGUSR1 to ranks", True),
        ("Forward SIGUSR1 to ranks", False),
        ("launch forward SIGUSR1", False),
        ("launch: Forward SIGUSR1", False),
        ("launch: forward SIGUSR1 to ranks.", False),
        ("launch: " + "x" * 65, False),
        ("launch:", False),
        ("", False),
    ],
)
def test_the_subject_of_a_commit(tmp_path, subject, good):
    message = tmp_path / "message"
    message.write_text(f"{subject}\n\nWhy.\n# Please enter the commit message\n")
    done = subprocess.run([ROOT / ".githooks/commit-msg", message], capture_output=True, text=True)
    assert (done.returncode == 0) == good, done.stderr
    assert good or "launch: forward SIGUSR1 to ranks" in done.stderr and subject in done.stderr


def test_make_hooks_turns_them_on(tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for name in ("Makefile", ".githooks"):
        subprocess.run(["cp", "-r", ROOT / name, tmp_path], check=True)
    subprocess.run(["make", "-s", "hooks"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "Makefile"], cwd=tmp_path, check=True)
    commit = ["git", "-c", "user.name=a", "-c", "user.email=a@localhost", "commit", "-qm", "Not so"]
    # The first hook runs the quick half of make check; that of the message comes after.
    (tmp_path / "Makefile").write_text("check-quick:\n\t@echo the quick half\n")
    done = subprocess.run(commit, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0 and "the quick half" in done.stdout + done.stderr, done
    assert "commit-msg: the subject" in done.stderr, done
    commit[-1] = "make: add a target"
    subprocess.run(commit, cwd=tmp_path, check=True)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_name_versions_and_have_no_secret(workflow):
    """An action is one version: its tag, or the commit that scripts/pin_actions.sh has found for the tag."""
    text = workflow.read_text()
    used = re.findall(r"uses: (.*)", text)
    version = r"[\w.-]+/[\w./-]+@(v\d+\.\d+\.\d+|[0-9a-f]{40} # v\d+\.\d+\.\d+)"
    assert used and all(re.fullmatch(version, one) for one in used), used
    assert "secrets." not in text and not re.search(r"(?i)password|api[-_]?token", text)
    assert re.search(r"^permissions:\n  contents: read$", text, re.MULTILINE)


def test_actions_are_pinned_to_the_commits_of_their_tags(tmp_path):
    """Folders stand for GitHub. One tag is annotated, so that its object is not the commit."""

    def git(*words):
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@localhost", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    commits = {}
    for name, tag in ("light", ["tag", "v1.2.3"]), ("annotated", ["tag", "-am", "a release", "v4.5.6"]):
        folder = str(tmp_path / "github" / "of" / name)
        git("init", "-q", folder)
        git("-C", folder, "commit", "-qm", "a: begin", "--allow-empty")
        git("-C", folder, *tag)
        commits[name] = git("-C", folder, "rev-parse", "HEAD")
    workflow = tmp_path / "ci.yml"
    text = "      - uses: of/light@v1.2.3\n      - uses: of/annotated/part@v4.5.6\n        uses: of/light@v1.2.3\n"
    workflow.write_text(text)
    redirect = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": f"url.file://{tmp_path}/github/.insteadOf"}
    env = {**os.environ, **redirect, "GIT_CONFIG_VALUE_0": "https://github.com/"}
    command = [ROOT / "scripts/pin_actions.sh", workflow]
    light, annotated = f"{commits['light']} # v1.2.3", f"{commits['annotated']} # v4.5.6"
    pinned = text.replace("v1.2.3", light).replace("v4.5.6", annotated)
    for _ in range(2):  # the second time there is nothing to do
        subprocess.run(command, env=env, check=True)
        assert workflow.read_text() == pinned
    workflow.write_text(text + "      - uses: of/light@v7.8.9\n")
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 1 and "https://github.com/of/light has no tag v7.8.9" in done.stderr, done
    assert "# v" not in workflow.read_text()


def test_the_workflows_run_what_a_person_runs():
    assert ".ci/run" in (ROOT / ".github/workflows/ci.yml").read_text()
    release = (ROOT / ".github/workflows/release.yml").read_text()
    assert "make release" in release and "id-token: write" in release and "_aarch64.whl" in release


def test_the_devcontainer_is_the_debian_of_ci():
    image = found(r"^FROM (\S+)$", ".devcontainer/Dockerfile")
    assert image == found(r"image: (\S+)$", ".github/workflows/ci.yml") == "debian:bookworm"
    version = found(r'"version": "(.+?)"', ".devcontainer/devcontainer.json")
    assert found(r"^go (\d+\.\d+)", "go.mod") == version
    assert all(found(r"go-version: (\S+)\.x$", workflow) == version for workflow in WORKFLOWS)


def test_forms():
    assert len((ROOT / ".github/pull_request_template.md").read_text().splitlines()) == 5
    bundle = re.findall(r"`gorovod doctor --bundle(.*?)`", (ROOT / ".github/ISSUE_TEMPLATE/bug.yml").read_text())
    assert bundle == [" help.tar.gz"]  # the option needs a file
    assert (ROOT / ".github/ISSUE_TEMPLATE/feature.yml").exists()


@pytest.mark.parametrize(
    "target, says",
    [
        ("docs", "making the pages"),
        ("build", "compiling gorovod and its libraries into build"),
        ("wheel", "packing the wheel"),
        ("k8s-apiserver", "scripts/k8s_apiserver.sh"),
    ],
)
def test_make_says_what_takes_long(target, says):
    done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=True)
    assert says in done.stdout, done.stdout


def test_scripts_say_what_they_install():
    """A quiet installation stands at most 25 lines after a line that speaks."""
    quiet = re.compile(r"^\s*[^#\n]*(pip install --quiet|pip\" install --quiet|apt-get -qq install)")
    silent = []
    for script in sorted((ROOT / "scripts").glob("*.sh")):
        lines = script.read_text().splitlines()
        for number, line in enumerate(lines):
            told = re.search(r"\b(echo|say)\b", "\n".join(lines[max(0, number - 25) : number]))
            if quiet.match(line) and "--no-index" not in line and not told:
                silent.append(f"{script.name}:{number + 1}: {line.strip()}")
    assert not silent
