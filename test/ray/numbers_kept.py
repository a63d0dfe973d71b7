"""Checkpoints of Ray Train that hold a number."""

from pathlib import Path

from ray.train import Checkpoint


def save(number, folder):
    """The number as a checkpoint, in a folder that is there."""
    (Path(folder) / "number").write_text(str(number))
    return Checkpoint.from_directory(folder)


def saved(checkpoint):
    """The number that :func:`save` has saved."""
    with checkpoint.as_directory() as folder:
        return int((Path(folder) / "number").read_text())
