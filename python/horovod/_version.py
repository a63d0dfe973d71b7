"""The version. Generated from internal/base/version by go generate; do not edit."""

# The Horovod release whose interface this is, then gorovod's own version.
__version__ = "0.28.1+gorovod.0.1.0"
