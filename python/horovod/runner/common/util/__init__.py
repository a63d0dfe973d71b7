"""Small modules that training code imports by their Horovod path."""
