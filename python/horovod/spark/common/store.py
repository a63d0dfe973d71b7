"""Where estimators keep data, checkpoints and logs.

>>> from horovod.spark.common.store import Store
>>> store = Store.create("s3://bucket/folder", storage_options={"anon": False})
"""

from horovod.spark.common._dbfs_store import DBFSLocalStore
from horovod.spark.common._filesystem_store import AbstractFilesystemStore, FilesystemStore, LocalStore
from horovod.spark.common._hdfs_store import HDFSStore
from horovod.spark.common._store import RemoteStore, Store

__all__ = [
    "AbstractFilesystemStore",
    "DBFSLocalStore",
    "FilesystemStore",
    "HDFSStore",
    "LocalStore",
    "RemoteStore",
    "Store",
]
