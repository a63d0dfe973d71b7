"""gorovod's Python package is called horovod. Importing this one fails, and says so."""

raise ModuleNotFoundError(
    "gorovod's Python package is called horovod: write `import horovod.torch as hvd` and call hvd.init(); there are "
    "horovod.tensorflow, horovod.keras and horovod.jax, too",
    name=__name__,
)
