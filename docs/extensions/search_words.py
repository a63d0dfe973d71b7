"""Words by which readers search, and the section that answers each: it stands first in the site's search.

Sphinx ranks pages by the words that they contain. It can't know that "hang" asks for the page of errors, and it ranks a
title that merely contains the letters ("change") above a page that has the word.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.util import logging

logger = logging.getLogger(__name__)

# By page, or page#section.
WORDS = {
    "coming-from-horovod": ["horovod", "migrate", "upgrade", "switch"],
    "compatibility": ["python version", "pytorch version", "version", "versions"],
    "divergence#nans": ["nan", "nans", "infinity", "inf"],
    "divergence#ranks-that-differ": ["different weights", "diverge", "out of sync"],
    "elastic": ["resume", "restart", "recover", "preemption", "spot", "fault tolerance", "checkpoint"],
    "errors": ["error", "crash", "crashes", "fails", "exit code", "root cause"],
    "errors#a-rank-has-failed": ["out of memory", "oom", "killed", "sigkill", "segfault"],
    "errors#ranks-wait-for-one-another": ["hang", "hangs", "deadlock", "stuck", "freeze", "stall"],
    "gpu": ["gpu", "cuda", "nccl"],
    "kubernetes": ["kubernetes", "k8s", "pod", "docker", "container", "helm"],
    "launcher": ["ssh", "hostfile", "hosts", "multi-node", "multinode"],
    "launcher#addresses": ["port", "ports", "firewall", "interface"],
    "logging": ["log", "logs", "output", "debug"],
    "metrics": ["metrics", "prometheus", "grafana", "monitoring"],
    "mpi": ["mpi", "open mpi", "mpich"],
    "performance#what-you-can-tune": [
        "slow", "faster", "speed", "tune", "tuning", "compress", "compression", "fp16", "autotune", "bandwidth",
    ],
    "profiling": ["profile", "profiling", "timeline", "straggler"],
    "schedulers": ["slurm", "srun", "sbatch", "torchrun", "mpirun", "lsf"],
    "security": ["tls", "secret", "encryption", "certificate", "password"],
    "start": [
        "install", "pip", "externally managed", "begin", "tutorial", "getting started", "shard", "sampler", "dataset",
    ],
    "torch_compile": ["compile", "torch.compile"],
    "torch_distributed": ["ddp", "fsdp", "process group"],
}  # fmt: skip


def add_entries(app: Any, doctree: nodes.document) -> None:
    """Puts an index entry for each word into the page that has its answer, before the page is indexed."""
    for place, words in WORDS.items():
        page, _, section = place.partition("#")
        if page != app.env.docname:
            continue
        if section and section not in doctree.ids:
            logger.warning("search_words.py sends readers to %s, which has no such section", place)
        entries = [("single", word, section, "main", None) for word in words]
        doctree.insert(0, addnodes.index(entries=entries))


def answering_pages(app: Any, *_: Any) -> list[str]:
    """The pages to read again in every build: Sphinx keeps the index entries of a page for one build only."""
    return [place.partition("#")[0] for place in WORDS]


def check_pages(app: Any, env: Any) -> None:
    for place in WORDS:
        if place.partition("#")[0] not in env.found_docs:
            logger.warning("search_words.py sends readers to %s, which there is not", place)


def setup(app: Any) -> dict[str, bool]:
    app.connect("doctree-read", add_entries)
    app.connect("env-get-outdated", answering_pages)
    app.connect("env-updated", check_pages)
    return {"parallel_read_safe": True}
