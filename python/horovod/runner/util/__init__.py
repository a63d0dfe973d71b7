"""Small modules that programs import by their Horovod path."""
