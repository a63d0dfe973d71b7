"""The built site answers what readers ask: its search puts the right page first."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "build" / "docs"

QUESTIONS = {
    "hang": "errors#ranks-wait-for-one-another",
    "resume": "elastic",
    "crash": "errors",
    "slow": "performance#what-you-can-tune",
    "compress": "performance#what-you-can-tune",
    "NaN": "divergence#nans",
    "port": "launcher#addresses",
    "slurm": "schedulers",
    "out of memory": "errors#a-rank-has-failed",
    "install": "start",
    "checkpoint": "elastic",
    "nccl": "gpu",
    "kubernetes": "kubernetes",
    "docker": "kubernetes",
    "ssh": "launcher",
    "exit code": "errors",
    "firewall": "launcher#addresses",
    "prometheus": "metrics",
    "DDP": "torch_distributed",
    "sampler": "start",
    "encryption": "security",
    "mpirun": "schedulers",
}


@pytest.mark.skipif(not (SITE / "searchindex.js").exists(), reason="build/docs is not built (make docs)")
@pytest.mark.skipif(not shutil.which("node"), reason="node is not installed (Debian: nodejs)")
def test_search_answers_questions():
    command = ["node", str(ROOT / "test" / "site_search.js"), str(SITE)]
    told = subprocess.run(command, input="\n".join(QUESTIONS), capture_output=True, text=True, timeout=120)
    assert told.returncode == 0, told.stderr
    answers = dict(zip(QUESTIONS, map(json.loads, told.stdout.splitlines())))
    assert len(answers) == len(QUESTIONS)
    wrong = {question: answers[question] for question, page in QUESTIONS.items() if answers[question][:1] != [page]}
    assert not wrong
