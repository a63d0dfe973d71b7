"""Python side of the launcher. Jobs are started by the ``horovodrun`` program."""
