"""Whether the workers run the same programs as the driver."""

from __future__ import annotations

from typing import Sequence

from horovod.ray._facts import Facts, of_this_process


def same_as_driver(workers: Sequence[Facts]) -> None:
    """Raise RuntimeError, which names the nodes, where workers have another Python or another gorovod."""
    driver = of_this_process()
    wrong: dict[str, str] = {}
    for worker in workers:
        found = []
        if _minor(worker.python) != _minor(driver.python):
            found.append(f"Python {worker.python} (the driver has {driver.python})")
        if worker.gorovod != driver.gorovod:
            found.append(f"gorovod {worker.gorovod} in {worker.package} (the driver has {driver.gorovod})")
        if found:
            wrong[f"{worker.address} ({worker.node_id[:8]})"] = " and ".join(found)
    if wrong:
        raise RuntimeError(
            "these nodes cannot take part in the job: "
            + "; ".join(f"{node} has {what}" for node, what in wrong.items())
            + ". Install the same versions on all nodes."
        )


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
