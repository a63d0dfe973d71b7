"""The figures of ``hvd.metrics()`` as one sentence for people."""

from __future__ import annotations

from typing import Any


def sentence(figures: dict[str, Any]) -> str:
    """Return what matters of the figures: the work, whom this rank has waited for, and what is pending."""
    of = figures["collectives"]
    said = [
        f"rank {figures['rank']} of {figures['size']}: {sum(c['count'] for c in of)} collectives "
        f"({_bytes(sum(c['bytes'] for c in of))} of tensors) in {_seconds(sum(c['seconds'] for c in of))}"
    ]
    steps = figures["steps"]
    if steps["count"]:
        said.append(f"{steps['count']} steps of {_seconds(steps['seconds'] / steps['count'])}")
    if figures["samples"]:
        said.append(f"{figures['samples']} samples")
    waited = f"waited {_seconds(figures['wait_seconds'])} for other ranks"
    if figures["waited_for"]:
        most = max(figures["waited_for"], key=lambda w: w["seconds"])
        waited += f", most for rank {most['rank']} ({_seconds(most['seconds'])})"
    said.append(waited)
    if figures["pending"]:
        said.append(f"{figures['pending']} pending, the oldest for {_seconds(figures['oldest_pending_seconds'])}")
    if figures["nans"]:
        said.append(f"{figures['nans']} tensors with a NaN or an infinity")
    return "; ".join(said)


def _seconds(seconds: float) -> str:
    for factor, unit in ((1e6, "µs"), (1e3, "ms")):
        if seconds * factor < 1000:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.1f} s"


def _bytes(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.4g} TB"
