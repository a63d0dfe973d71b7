"""Stores, in which estimators keep data, checkpoints and logs.

>>> from horovod.spark.common.store import Store
>>> store = Store.create("s3://bucket/folder", storage_options={"anon": False})
"""

from horovod.spark.common._dbfs_store import DBFSLocalStore, on_databricks
from horovod.spark.common._filesystem_store import AbstractFilesystemStore, FilesystemStore, LocalStore
from horovod.spark.common._hdfs_store import HDFSStore
from horovod.spark.common._store import RemoteStore, Store, kinds

__all__ = [
    "AbstractFilesystemStore",
    "DBFSLocalStore",
    "FilesystemStore",
    "HDFSStore",
    "LocalStore",
    "RemoteStore",
    "Store",
]

kinds[:] = [
    (HDFSStore.matches, HDFSStore),
    (lambda path: on_databricks() and DBFSLocalStore.matches(path), DBFSLocalStore),
    (lambda path: True, FilesystemStore),
]
