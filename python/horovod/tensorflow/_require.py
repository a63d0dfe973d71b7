"""Checks that TensorFlow is installed. Otherwise importing this module raises ImportError, which names this Python."""

from horovod.common import _missing

_missing.need("horovod.tensorflow", "tensorflow", "tensorflow")
