"""Data loaders that prepare batches while the training computes.

>>> from horovod.data import AsyncDataLoaderMixin, BaseDataLoader
>>> class Loader(BaseDataLoader):
...     def __len__(self):
...         return 3
...     def _iterate(self):
...         yield from range(3)
>>> class AsyncLoader(AsyncDataLoaderMixin, Loader):
...     pass
>>> list(AsyncLoader(async_loader_queue_size=2))
[0, 1, 2]
"""

from horovod.data.data_loader_base import AsyncDataLoaderMixin, BaseDataLoader

__all__ = ["AsyncDataLoaderMixin", "BaseDataLoader"]
