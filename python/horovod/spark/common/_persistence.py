"""Saving estimators and models as Spark ML does: a folder with one line of JSON.

Parameters that are plain numbers, texts and lists are in it as they are. Objects, such as models, are pickled, all in
one piece: so an optimizer still has the parameters of its model after loading. Anybody who can write to the folder can
run code where it is loaded.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import cloudpickle
from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReadable, MLReader, MLWritable, MLWriter

import horovod


class Saved(MLWritable, MLReadable):
    """Can be saved and loaded: ``x.save(path)``, ``x.write().overwrite().save(path)``, ``Class.load(path)``."""

    def write(self) -> MLWriter:
        """Begin to save this object.

        Returns:
            The writer: ``x.write().overwrite().save(path)``.
        """
        return _Writer(self)

    @classmethod
    def read(cls) -> MLReader[Any]:
        """Begin to load such an object. Load only objects from somebody whom you trust.

        Returns:
            The reader: ``Class.read().load(path)``.
        """
        return _Reader(cls)

    def _for_pickle(self, objects: dict[str, Any]) -> dict[str, Any]:
        """The objects by parameter in a form that can be pickled."""
        return objects

    def _from_pickle(self, objects: dict[str, Any]) -> dict[str, Any]:
        """The objects, from that form."""
        return objects


class _Writer(MLWriter):
    def __init__(self, instance: Any) -> None:
        super().__init__()
        self._instance = instance

    def saveImpl(self, path: str) -> None:  # noqa: N802
        chosen = [one for one in self._instance.params if self._instance.isSet(one)]
        values = {one.name: self._instance.getOrDefault(one) for one in chosen}
        plain = {name: value for name, value in values.items() if _is_plain(value)}
        objects = {name: value for name, value in values.items() if name not in plain}
        pickled = cloudpickle.dumps(self._instance._for_pickle(objects))
        saved = {"version": horovod.__version__, "plain": plain, "pickle": base64.b64encode(pickled).decode()}
        DefaultParamsWriter.saveMetadata(
            self._instance, path, self.sparkSession, extraMetadata={"horovod": saved}, paramMap={}
        )


class _Reader(MLReader[Any]):
    def __init__(self, cls: type) -> None:
        super().__init__()
        self._cls = cls

    def load(self, path: str) -> Any:
        """The object that was saved at the path.

        Raises ValueError if it is damaged, or of another class or version.
        """
        try:
            metadata = DefaultParamsReader.loadMetadata(path, self.sparkSession)
        except (ValueError, TypeError, LookupError, AttributeError) as e:  # no line, no JSON, or JSON of something else
            raise ValueError(f"{path} is damaged: its metadata is not what save() wrote: {e}") from e
        wanted = f"{self._cls.__module__}.{self._cls.__name__}"
        if metadata["class"] != wanted or "horovod" not in metadata:
            raise ValueError(f"{path} has a {metadata['class']}, not a {wanted}")
        instance = self._cls()
        instance._resetUid(metadata["uid"])
        instance._set(**_parameters(path, instance, metadata["horovod"]))
        return instance


def _parameters(path: str, instance: Any, saved: Any) -> dict[str, Any]:
    """The values of all parameters. Raises ValueError if they are damaged, or of another version."""
    if not isinstance(saved, dict) or not isinstance(saved.get("plain"), dict) or "pickle" not in saved:
        raise ValueError(f"{path} is damaged: its metadata has no parameters")
    both = f"it was saved by version {saved.get('version', 'unknown')}, and this is {horovod.__version__}"
    try:
        objects = instance._from_pickle(cloudpickle.loads(base64.b64decode(saved["pickle"])))
    except Exception as e:
        raise ValueError(
            f"{path} cannot be loaded here: {type(e).__name__}: {e}. It is damaged, or needs packages that are not "
            f"here: {both}"
        ) from e
    values = {**saved["plain"], **objects}
    unknown = [name for name in values if not instance.hasParam(name)]
    if unknown:
        raise ValueError(f"{path} has the parameter {unknown[0]!r}, which {type(instance).__name__} lacks: {both}")
    return values


def _is_plain(value: Any) -> bool:
    """Whether JSON returns the value unchanged."""
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError):
        return False
