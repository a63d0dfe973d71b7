"""Saving estimators and models as Spark ML does: a folder with one line of JSON.

Parameters that are plain numbers, texts and lists stand there as such. Objects, such as models, are pickled, all in one
piece: so an optimizer still has the parameters of its model when it is loaded. Whoever can write to the folder can have
code run where it is loaded.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import cloudpickle
from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReadable, MLReader, MLWritable, MLWriter


class Saved(MLWritable, MLReadable):
    """What can be saved and loaded: ``x.save(path)``, ``x.write().overwrite().save(path)``, ``Class.load(path)``."""

    def write(self) -> MLWriter:
        """What saves this object."""
        return _Writer(self)

    @classmethod
    def read(cls) -> MLReader[Any]:
        """What loads such an object. Load only what comes from somebody you trust."""
        return _Reader(cls)


class _Writer(MLWriter):
    def __init__(self, instance: Any) -> None:
        super().__init__()
        self._instance = instance

    def saveImpl(self, path: str) -> None:  # noqa: N802
        chosen = [one for one in self._instance.params if self._instance.isSet(one)]
        values = {one.name: self._instance.getOrDefault(one) for one in chosen}
        plain = {name: value for name, value in values.items() if _is_plain(value)}
        objects = {name: value for name, value in values.items() if name not in plain}
        saved = {"plain": plain, "pickle": base64.b64encode(cloudpickle.dumps(objects)).decode()}
        DefaultParamsWriter.saveMetadata(
            self._instance, path, self.sparkSession, extraMetadata={"horovod": saved}, paramMap={}
        )


class _Reader(MLReader[Any]):
    def __init__(self, cls: type) -> None:
        super().__init__()
        self._cls = cls

    def load(self, path: str) -> Any:
        """The object that was saved there. Raises ValueError if it is of another class."""
        metadata = DefaultParamsReader.loadMetadata(path, self.sparkSession)
        wanted = f"{self._cls.__module__}.{self._cls.__name__}"
        if metadata["class"] != wanted or "horovod" not in metadata:
            raise ValueError(f"{path} has a {metadata['class']}, not a {wanted}")
        instance = self._cls()
        instance._resetUid(metadata["uid"])
        saved = metadata["horovod"]
        instance._set(**saved["plain"], **cloudpickle.loads(base64.b64decode(saved["pickle"])))
        return instance


def _is_plain(value: Any) -> bool:
    """Whether JSON gives the value back as it was."""
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError):
        return False
