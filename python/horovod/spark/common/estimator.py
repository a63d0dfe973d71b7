"""The code that the estimators of all frameworks share: from a data frame to a trained model."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import math
import numbers
import threading
import uuid
import warnings
from typing import Any, Iterator, Mapping, Optional, Sequence

from pyspark.ml import Estimator, Model
from pyspark.sql import DataFrame

from horovod.spark.common import _describe, _files, _given, _outputs, _persistence, _progress, _sync, _types, util
from horovod.spark.common._training import Data, Training, Transformation
from horovod.spark.common.backend import Backend, SparkBackend, default_num_proc
from horovod.spark.common.datamodule import READER_POOL_TYPES, NVTabularDataModule, ParquetDataModule
from horovod.spark.common.params import EstimatorParams, ModelParams
from horovod.spark.common.store import AbstractFilesystemStore, Store


class HorovodEstimator(Estimator, EstimatorParams, _persistence.Saved):
    """Trains a model on the rows of a data frame, in several processes. A subclass adds the framework."""

    def fit_on_parquet(
        self, params: Optional[Mapping[Any, Any]] = None, dataset_idx: Optional[int] = None
    ) -> HorovodModel:
        """Train on Parquet files that are already in the store.

        Args:
            params: other values of parameters, for this training alone.
            dataset_idx: the index of the data set in the store, if there are several.

        Returns:
            The trained model.

        Raises:
            ValueError: the store has no such files, or parameters make no sense.
        """
        if params:
            return self.copy(params).fit_on_parquet(dataset_idx=dataset_idx)
        self._check()
        found = util.get_simple_meta_from_parquet(
            self._store(),
            label_columns=self._value("label_cols"),
            feature_columns=self._value("feature_cols"),
            sample_weight_col=self._value("sample_weight_col"),
            dataset_idx=dataset_idx,
        )
        self._check_types({name: column["spark_data_type"] for name, column in found[2].items()})
        if self._value("transformation_fn") is None:
            store, has_val = self._store(), found[1] > 0
            for path in [store.get_train_data_path(dataset_idx), store.get_val_data_path(dataset_idx)][: 1 + has_val]:
                _describe.refuse_nulls(path, getattr(store, "storage_options", None) or {}, list(found[2]))
        return self._train(self._backend(), dataset_idx, *found)

    def _fit(self, dataset: Any) -> HorovodModel:
        """The work of ``fit(df, params=None)``."""
        self._check()
        backend = self._backend()
        if isinstance(dataset, DataFrame):
            self._check_types({field.name: field.dataType for field in dataset.schema.fields})
        with util.prepare_data(
            int(backend.num_processes()),
            self._store(),
            dataset,
            label_columns=self._value("label_cols"),
            feature_columns=self._value("feature_cols"),
            validation=self._value("validation"),
            sample_weight_col=self._value("sample_weight_col"),
            compress_sparse=self._value("compress_sparse_cols"),
            partitions_per_process=self._value("partitions_per_process"),
            verbose=self._value("verbose"),
            seed=self._value("random_seed"),
        ) as index:
            return self._train(backend, index, *util.get_dataset_properties(index))

    def _value(self, name: str) -> Any:
        return self.getOrDefault(name)

    def _check(self) -> None:
        """Raise ValueError for missing or senseless parameters, before anything is done."""
        for name in ("model", "feature_cols", "label_cols", *self._needed()):
            if not self._value(name):
                raise ValueError(f"{type(self).__name__} needs the parameter {name}")
        for name in _COUNTS:
            if self._value(name) is not None and self._value(name) < 1:
                raise ValueError(f"{name}={self._value(name)}: at least 1 is needed")
        for name in ("shuffle_buffer_size", "tensorflow_dataset_prefetch_buffer_size"):
            if self._value(name) is not None and self._value(name) < 0:
                raise ValueError(f"{name}={self._value(name)}: at least 0 is needed")
        if self._value("sample_weight_col") == "":
            raise ValueError("sample_weight_col='': the name of a column is needed; None for rows of one weight")
        if self._value("run_id") is not None:
            _given.run_id(self._value("run_id"))
        _given.seed(self._value("random_seed"))
        _given.weights(self._value("loss_weights"))
        _given.shapes("label_shapes", self._value("label_shapes"), "label_cols", self._value("label_cols"))
        _given.edited(self._value("transformation_edit_fields"))
        if self._value("reader_pool_type") not in READER_POOL_TYPES:
            raise ValueError(f"reader_pool_type={self._value('reader_pool_type')!r}: only 'thread' is known")
        if self._value("num_proc") is not None and self._value("backend") is not None:
            raise ValueError('At most one of parameters "backend" and "num_proc" may be specified')
        if self._value("data_module") is NVTabularDataModule:
            NVTabularDataModule()
        if self._value("data_module") is None:
            for name in ("continuous_cols", "categorical_cols"):
                if self._value(name):
                    raise ValueError(f"{name} is for a data module of your own: give data_module, or leave {name} out")
        if self._value("mp_start_method") is not None:
            warnings.warn("mp_start_method changes nothing: threads read the rows", stacklevel=3)
        if self._value("shuffle_buffer_size") is not None:
            warnings.warn("shuffle_buffer_size is deprecated: use shuffle", DeprecationWarning, stacklevel=3)
        self._check_framework()

    def _check_types(self, kinds: Mapping[str, Any]) -> None:
        """Raise ValueError if a column that is learnt has no numbers, unless a transformation may make some."""
        if self._value("transformation_fn") is None and self._value("data_module") is None:
            names = [*self._value("feature_cols"), *self._value("label_cols"), self._value("sample_weight_col")]
            _types.check({name: kinds[name] for name in names if name in kinds}, self._texts())

    def _texts(self) -> Sequence[str]:
        """The columns that may have text."""
        return ()

    def _store(self) -> Store:
        store = self._value("store")
        if store is None:
            raise ValueError(f'{type(self).__name__} needs the parameter store: Store.create("/a/folder/of/all/hosts")')
        return store

    def _backend(self) -> Backend:
        """The user's backend, or Spark's tasks."""
        backend = self._value("backend")
        if backend is None:
            return SparkBackend(self._value("num_proc") or default_num_proc())
        size = backend.num_processes()
        if not isinstance(size, numbers.Integral) or size < 1:
            raise ValueError(f"{type(backend).__name__}.num_processes() returned {size!r}: at least 1 is needed")
        return backend

    def _results(self, backend: Backend, training: Training) -> list[Any]:
        """Run the training. A progress bar shows on a terminal, unless the backend is the user's."""
        if self._value("backend") is not None:
            return backend.run(self._function(), args=(training,), env=self._environment())
        verbose, bar = self._value("verbose"), None
        if verbose and _progress.possible():
            bar, training = _progress.Bar(), dataclasses.replace(training, progress=True)
        spark = SparkBackend(backend.num_processes(), verbose=verbose, stdout=bar)
        try:
            return spark.run(self._function(), args=(training,), env=self._environment())
        finally:
            if bar is not None:
                bar.clear()

    def _train(
        self, backend: Backend, index: Optional[int], train_rows: int, val_rows: int, columns: Any, row_size: float
    ) -> HorovodModel:
        if train_rows == 0:
            raise ValueError("there are no rows to train on")
        self._check_columns(self._transformed(columns))
        self._check_weights(columns)
        store, run_id = self._store(), self._value("run_id") or f"{type(self).__name__.lower()}-{uuid.uuid4().hex[:12]}"
        _check_run(store, run_id)
        with _alone(store, run_id):
            training = Training(
                store=store.to_remote(run_id, index),
                data=self._data(train_rows, val_rows, columns, self._value("validation") is not None or val_rows > 0),
                epochs=self._value("epochs"),
                verbose=self._value("verbose"),
                seed=self._value("random_seed"),
                use_gpu=self._use_gpu(),
                checkpoint=_earlier(store, run_id),
            )
            results = self._results(backend, training)
        if not isinstance(results, (list, tuple)) or not results or results[0] is None:
            raise TypeError(f"{type(backend).__name__}.run returned no results: a list is needed, that of rank 0 first")
        return self._trained(results[0], run_id, columns)

    def _transformed(self, columns: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """The columns' properties after the transformation. A size that it may change is None."""
        known = self._value("transformation_fn") is None
        made = {name: {**column, "shape": column["shape"] if known else None} for name, column in columns.items()}
        for name, _, shape, *_ in self._value("transformation_edit_fields") or ():
            if name in made and shape is not None and all(length is not None and length >= 0 for length in shape):
                made[name]["shape"] = math.prod(shape)
        return made

    def _data(self, train_rows: int, val_rows: int, columns: Mapping[str, Any], validates: bool) -> Data:
        shuffle = self._value("shuffle") and self._value("shuffle_buffer_size") != 0
        batch = self._value("batch_size")
        chosen, ours = self._value("data_module"), self._data_module()
        own = chosen in (None, ours, ParquetDataModule)
        return Data(
            module=ours if own else chosen,
            own=own,
            columns={name: dict(column, spark_data_type=None) for name, column in columns.items()},
            features=self._value("feature_cols"),
            labels=self._value("label_cols"),
            weight=self._value("sample_weight_col"),
            train_rows=train_rows,
            val_rows=val_rows if validates else 0,
            batch_size=batch,
            val_batch_size=self._value("val_batch_size") or batch,
            shuffle=shuffle,
            train_steps=self._value("train_steps_per_epoch"),
            val_steps=self._value("validation_steps_per_epoch"),
            transformation=Transformation(
                self._value("transformation_fn"),
                self._value("transformation_edit_fields"),
                self._value("transformation_removed_fields"),
            ),
            keep=self._value("inmemory_cache_all"),
            train_threads=self._value("train_reader_num_workers"),
            val_threads=self._value("val_reader_num_workers"),
            pool=self._value("reader_pool_type"),
            further={name: self._value(name) for name in ("continuous_cols", "categorical_cols") if self._value(name)},
        )

    def _use_gpu(self) -> bool:
        """Whether to train on GPUs if there are any."""
        return bool(self._value("use_gpu"))

    def _environment(self) -> dict[str, str]:
        """Variables of the processes' environment."""
        return {}

    def _needed(self) -> tuple[str, ...]:
        """Further parameters that the framework needs."""
        return ("loss", "optimizer")

    def _check_framework(self) -> None:
        """Raise ValueError for parameters that the framework cannot use."""

    def _check_columns(self, columns: dict[str, dict[str, Any]]) -> None:
        """Raise ValueError if the model cannot take these columns."""

    def _check_weights(self, columns: Mapping[str, Any]) -> None:
        """Raise ValueError if the column of the rows' weights has several numbers for a row."""
        name = self._value("sample_weight_col")
        if name is None or self._value("transformation_fn") is not None or self._value("data_module") is not None:
            return
        if columns[name]["shape"] != 1:
            raise ValueError(
                f"sample_weight_col={name!r}: the column has {columns[name]['shape']} numbers in each row, not one"
            )

    @abc.abstractmethod
    def _data_module(self) -> type[ParquetDataModule]:
        """The class of the data module."""

    @abc.abstractmethod
    def _function(self) -> Any:
        """The function that each process calls with the Training. It can be pickled."""

    @abc.abstractmethod
    def _trained(self, result: Any, run_id: str, columns: Mapping[str, Any]) -> HorovodModel:
        """The model, from the function's result on rank 0."""


_COUNTS = (
    "num_proc batch_size val_batch_size epochs train_steps_per_epoch validation_steps_per_epoch "
    "backward_passes_per_step partitions_per_process train_reader_num_workers val_reader_num_workers"
).split()


class HorovodModel(Model, ModelParams, _persistence.Saved):
    """A trained model, which adds its outputs to data frames."""

    _takes_texts = False

    def _transform(self, dataset: Any) -> Any:
        """The work of ``transform(df, params=None)``."""
        for name in ("model", "feature_columns", "label_columns", "_metadata"):
            if self.getOrDefault(name) in (None, [], {}):
                whose = f"{type(self).__name__} has no {name.strip('_')}"
                raise ValueError(f"{whose}: use what an estimator's fit() returned, or load() what it saved")
        if not isinstance(dataset, DataFrame):
            raise TypeError(f"a data frame of Spark is needed, not {type(dataset).__name__}")
        labels = self.getOrDefault("label_columns")
        unknown = [name for name in labels if name not in self.getOrDefault("_metadata")]
        if unknown:
            raise ValueError(f"label_columns has {unknown[0]!r}, which was no column of the training")
        names = self.output_names()
        if len(names) != len(labels):
            raise ValueError(f"there are {len(labels)} label columns, but {len(names)} output columns")
        features = self.getOrDefault("feature_columns")
        missing = [name for name in features if name not in dataset.columns]
        if missing:
            raise ValueError(f"the data frame has no column {missing[0]!r}; it has {', '.join(dataset.columns)}")
        _types.check({name: dataset.schema[name].dataType for name in features}, features if self._takes_texts else ())
        columns = self.getOrDefault("_metadata")
        outputs = [
            _outputs.Column(name, columns[label]["spark_data_type"], size)
            for name, label, size in zip(names, labels, self._output_sizes())
        ]
        return _outputs.add(dataset, features, outputs, self._predictor())

    @abc.abstractmethod
    def _output_sizes(self) -> list[int]:
        """How many numbers each output has for a row."""

    @abc.abstractmethod
    def _predictor(self) -> Any:
        """A function that can be pickled. It makes the function from arrays by feature to arrays of rows."""


def _check_run(store: Store, run_id: str) -> None:
    """Raise OSError unless the run's folder can be written: otherwise a checkpoint would fail only after an epoch."""
    if not store.saving_runs() or not isinstance(store, AbstractFilesystemStore):
        return
    folder = store.get_run_path(run_id)
    try:
        _sync.check(*_files.open_filesystem(folder, store.storage_options))
    except (OSError, NotImplementedError) as e:
        raise OSError(
            f"the run's folder {folder} cannot be written: {str(e) or type(e).__name__}. Give the store another "
            "runs_path, or save_runs=False for no checkpoints"
        ) from e


@contextlib.contextmanager
def _alone(store: Store, run_id: str) -> Iterator[None]:
    """Raise ValueError if another training of this program uses the same run: both would write its checkpoint."""
    if not store.saving_runs():
        yield
        return
    run = store.get_run_path(run_id)
    with _lock:
        if run in _under_way:
            raise ValueError(
                f"run_id={run_id!r}: another fit() of this program trains this run now, and both would write its "
                "checkpoint. Wait for it, or give another run_id"
            )
        _under_way.add(run)
    try:
        yield
    finally:
        with _lock:
            _under_way.remove(run)


_lock = threading.Lock()
_under_way: set[str] = set()  # folders of runs


def _earlier(store: Store, run_id: str) -> Optional[bytes]:
    """The checkpoint of an earlier training of this name."""
    path = store.get_checkpoint_path(run_id)
    return store.read(path) if path and store.exists(path) else None
