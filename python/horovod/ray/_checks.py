"""Checks that the workers run the same programs as the driver."""

from __future__ import annotations

from typing import Any, Iterable, Optional, Sequence

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from horovod.ray import _nodes
from horovod.ray._facts import Facts, of_this_process

_ASKED_S = 20.0


def same_as_driver(workers: Sequence[Facts]) -> None:
    """Raise RuntimeError, which names the nodes, if workers have another Python or another gorovod."""
    found = ((f"{w.address} ({w.node_id[:8]})", _differs(w.python, w.gorovod, w.package)) for w in workers)
    wrong = _refusal(found)
    if wrong is not None:
        raise wrong


def why_no_start(error: Exception) -> Exception:
    """The error for workers that could not be started: which nodes lack what, if that is the reason; else ``error``."""
    found = []
    for node in ray.nodes():
        if node["Alive"]:
            found.append((f"{node['NodeManagerAddress']} ({node['NodeID'][:8]})", _lacks(node["NodeID"])))
    return _refusal(found) or error


def _lacks(node_id: str) -> str:
    """What a node lacks for a worker; empty if nothing is missing, or if the node does not answer."""
    there = NodeAffinitySchedulingStrategy(node_id, soft=False)
    answer = ray.remote(_nodes.portable()).options(num_cpus=0, scheduling_strategy=there, max_retries=0).remote()
    try:
        python, version, package, trouble = ray.get(answer, timeout=_ASKED_S)
    except Exception:
        answer.future()
        return ""
    if trouble:
        return f"a Python that cannot import gorovod's horovod.ray: {trouble}" + (f" (in {package})" if package else "")
    return _differs(python, version, package)


def _differs(python: str, version: str, package: str) -> str:
    driver = of_this_process()
    found = []
    if _minor(python) != _minor(driver.python):
        found.append(f"Python {python} (the driver has {driver.python})")
    if version != driver.gorovod:
        found.append(f"horovod {version} in {package} (the driver has {driver.gorovod})")
    return " and ".join(found)


def _refusal(found: Iterable[tuple[str, str]]) -> Optional[Exception]:
    wrong: dict[str, Any] = {node: what for node, what in found if what}
    if not wrong:
        return None
    return RuntimeError(
        "these nodes cannot take part in the job: "
        + "; ".join(f"{node} has {what}" for node, what in wrong.items())
        + ". Install the same Python and the same gorovod[ray] on all nodes."
    )


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
