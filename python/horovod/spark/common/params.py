"""The parameters of estimators and of their models, in the style of Spark ML.

Each parameter ``some_name`` has ``setSomeName(value)``, which returns the object, and ``getSomeName()``.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

from pyspark.ml.param import Param, Params, TypeConverters

from horovod.spark.common.store import Store

_Converter = Optional[Callable[[Any], Any]]


def param(name: str, doc: str, converter: _Converter = None) -> Any:
    """A parameter of a class of parameters. ``converter`` checks its values; None accepts all."""
    return Param(Params._dummy(), name, doc, converter)


def _an(kind: type, hint: str) -> Callable[[Any], Any]:
    """A converter that accepts objects of a class."""

    def convert(value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError(f"{value!r} is not a {kind.__name__}: {hint}")
        return value

    return convert


def to_backend(value: Any) -> Any:
    """A converter that accepts objects with the methods of a Backend, of whatever class."""
    missing = [name for name in ("run", "num_processes") if not callable(getattr(value, name, None))]
    if isinstance(value, type) or missing:
        lacks = "is a class, not an object of it" if isinstance(value, type) else f"has no {' and no '.join(missing)}"
        raise TypeError(f"backend={value!r} {lacks}: an object with run and num_processes is needed, such as a Backend")
    return value


def to_function(value: Any) -> Any:
    """A converter that accepts callable objects."""
    if not callable(value):
        raise TypeError(f"{value!r} cannot be called")
    return value


def accessors(*older: tuple[str, str]) -> Callable[[type], type]:
    """Give a class a setter and a getter for each of its parameters.

    Args:
        older: Horovod's older names of parameters, with the parameters' names.
    """

    def add(cls: type) -> type:
        words = [(_camel(name), name) for name, value in vars(cls).items() if isinstance(value, Param)]
        for word, name in [*words, *older]:
            setattr(cls, f"set{word}", _setter(f"set{word}", name))
            setattr(cls, f"get{word}", _getter(f"get{word}", name))
        return cls

    return add


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _setter(word: str, name: str) -> Callable[..., Any]:
    def setter(self: Any, value: Any) -> Any:
        return self._set(**{name: value})

    setter.__name__ = word
    setter.__doc__ = f"""Set the parameter ``{name}``.

        Args:
            value: the new value.

        Returns:
            This object.
        """
    return setter


def _getter(word: str, name: str) -> Callable[..., Any]:
    def getter(self: Any) -> Any:
        return self.getOrDefault(getattr(self, name))

    getter.__name__ = word
    getter.__doc__ = f"""Tell the parameter ``{name}``.

        Returns:
            Its value, or its default.
        """
    return getter


class _Keywords(Params):
    """Parameters that a constructor takes by name."""

    def _take(self, given: dict[str, Any]) -> None:
        """Set the given parameters. Raises TypeError for an unknown name."""
        for name in given:
            if not self.hasParam(name):
                raise TypeError(f"{type(self).__name__} has no parameter {name!r}")
        self._set(**given)

    def _set(self, **given: Any) -> Any:
        """Set parameters, checked by converters; None restores the default. Constructors, setters and copies use it."""
        for name, value in given.items():
            if value is None:
                self.clear(self.getParam(name))
        return super()._set(**{name: value for name, value in given.items() if value is not None})


@accessors(
    ("TrainReaderNumWorker", "train_reader_num_workers"),
    ("ValReaderNumWorker", "val_reader_num_workers"),
    ("ShufflingBufferSize", "shuffle_buffer_size"),
    ("InMemoryCacheAll", "inmemory_cache_all"),
)
class EstimatorParams(_Keywords):
    """The parameters of all estimators."""

    num_proc = param("num_proc", "how many processes; Spark's default parallelism without it", TypeConverters.toInt)
    store = param("store", "where data, checkpoints and logs go", _an(Store, 'Store.create("/a/folder") makes one'))
    backend = param("backend", "the Backend that runs the processes, in place of num_proc", to_backend)
    model = param("model", "the model to train")
    optimizer = param("optimizer", "the optimizer, with the learning rate of one process")
    loss = param("loss", "the loss function, or one for each output")
    loss_weights = param("loss_weights", "the weight of each output's loss", TypeConverters.toListFloat)
    sample_weight_col = param("sample_weight_col", "the column of the rows' weights", TypeConverters.toString)
    metrics = param("metrics", "functions of outputs and labels to report", TypeConverters.toList)
    feature_cols = param("feature_cols", "the columns to learn from", TypeConverters.toListString)
    label_cols = param("label_cols", "the columns to learn", TypeConverters.toListString)
    continuous_cols = param("continuous_cols", "columns for a data module of one's own", TypeConverters.toListString)
    categorical_cols = param("categorical_cols", "columns for a data module of one's own", TypeConverters.toListString)
    validation = param("validation", "the share of rows for validation, or the column that marks them")
    callbacks = param("callbacks", "callbacks of the training", TypeConverters.toList)
    gradient_compression = param("gradient_compression", "how gradients travel: of hvd.Compression")
    compress_sparse_cols = param("compress_sparse_cols", "store sparse vectors without zeros", TypeConverters.toBoolean)
    batch_size = param("batch_size", "rows of a batch in each process", TypeConverters.toInt)
    val_batch_size = param("val_batch_size", "the same for validation; batch_size without it", TypeConverters.toInt)
    epochs = param("epochs", "how often the rows are learnt", TypeConverters.toInt)
    train_steps_per_epoch = param("train_steps_per_epoch", "batches of an epoch", TypeConverters.toInt)
    validation_steps_per_epoch = param("validation_steps_per_epoch", "batches of a validation", TypeConverters.toInt)
    shuffle_buffer_size = param("shuffle_buffer_size", "deprecated: 0 is shuffle=False", TypeConverters.toInt)
    shuffle = param("shuffle", "whether to shuffle the training rows", TypeConverters.toBoolean)
    verbose = param("verbose", "0 says nothing, 1 tells of the training's progress", TypeConverters.toInt)
    random_seed = param("random_seed", "of the shuffling, and of the framework's generators", TypeConverters.toInt)
    partitions_per_process = param("partitions_per_process", "files for each process", TypeConverters.toInt)
    run_id = param("run_id", "the run's name in the store; that of an earlier run goes on", TypeConverters.toString)
    transformation_fn = param("transformation_fn", "turns rows, as a pandas.DataFrame, into those to use", to_function)
    transformation_edit_fields = param(
        "transformation_edit_fields", "(name, type, shape, nullable) of what it changes", TypeConverters.toList
    )
    transformation_removed_fields = param(
        "transformation_removed_fields", "columns to leave out after it", TypeConverters.toListString
    )
    train_reader_num_workers = param("train_reader_num_workers", "threads of a process that read", TypeConverters.toInt)
    val_reader_num_workers = param("val_reader_num_workers", "the same for validation", TypeConverters.toInt)
    reader_pool_type = param("reader_pool_type", "'thread'", TypeConverters.toString)
    label_shapes = param("label_shapes", "the shape of each label, with -1 for a batch's rows", TypeConverters.toList)
    inmemory_cache_all = param("inmemory_cache_all", "keep all rows in memory", TypeConverters.toBoolean)
    use_gpu = param("use_gpu", "train on GPUs if there are any", TypeConverters.toBoolean)
    data_module = param("data_module", "the class of the data module that reads the rows", to_function)
    mp_start_method = param("mp_start_method", "None: no processes read", TypeConverters.toString)
    backward_passes_per_step = param("backward_passes_per_step", "batches for each step", TypeConverters.toInt)
    tensorflow_dataset_prefetch_buffer_size = param(
        "tensorflow_dataset_prefetch_buffer_size", "batches that tf.data keeps ready", TypeConverters.toInt
    )

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(
            **dict.fromkeys(_WITHOUT_DEFAULT),
            metrics=[],
            callbacks=[],
            compress_sparse_cols=False,
            batch_size=32,
            epochs=1,
            shuffle=True,
            verbose=1,
            partitions_per_process=10,
            train_reader_num_workers=2,
            val_reader_num_workers=2,
            reader_pool_type="thread",
            inmemory_cache_all=False,
            use_gpu=True,
            backward_passes_per_step=1,
            tensorflow_dataset_prefetch_buffer_size=0,
        )


_WITHOUT_DEFAULT = (
    "num_proc store backend model optimizer loss loss_weights sample_weight_col feature_cols label_cols "
    "continuous_cols categorical_cols validation gradient_compression val_batch_size random_seed shuffle_buffer_size "
    "run_id train_steps_per_epoch validation_steps_per_epoch transformation_fn transformation_edit_fields "
    "transformation_removed_fields label_shapes mp_start_method data_module"
).split()


@accessors(
    ("LabelColoumns", "label_columns"),
    ("FeatureColumns", "feature_columns"),
    ("OutputCols", "output_cols"),
)
class ModelParams(_Keywords):
    """The parameters of all estimators' models."""

    history = param("history", "what the training has reported, by epoch")
    model = param("model", "the trained model")
    feature_columns = param("feature_columns", "the columns that the model takes", TypeConverters.toListString)
    label_columns = param("label_columns", "the columns that it has learnt", TypeConverters.toListString)
    output_cols = param("output_cols", "the columns that transform() adds", TypeConverters.toListString)
    run_id = param("run_id", "the run's name in the store", TypeConverters.toString)
    _metadata = param("_metadata", "what is known of the columns")

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(
            history=None, model=None, feature_columns=None, label_columns=None, run_id=None, output_cols=None
        )
        self._setDefault(_metadata=None)

    def output_names(self) -> list[str]:
        """Name the columns that transform() adds.

        Returns:
            By default the labels' names followed by ``__output``.
        """
        names = self.getOrDefault(self.output_cols)
        return list(names) if names else [f"{name}__output" for name in self.getOrDefault(self.label_columns) or ()]
