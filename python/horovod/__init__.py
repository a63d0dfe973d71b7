"""Horovod's Python interface on gorovod's engine.

Training scripts import a front end: ``import horovod.torch as hvd``.
"""

# The Horovod release whose interface this is, then gorovod's own version.
__version__ = "0.28.1+gorovod.0.1.0"
