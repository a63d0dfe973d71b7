"""A tf.data service that a job of Horovod runs for another one.

The job that computes: ``horovodrun -np 4 python -m horovod.tensorflow.data.compute_worker /shared/service.json``.
The job that trains:

>>> from horovod.tensorflow.data.compute_service import TfDataServiceConfig
>>> config = TfDataServiceConfig.read("/shared/service.json", wait_for_file_creation=True)
>>> rows = rows.send_to_data_service(config, hvd.rank(), hvd.size())
>>> model.fit(rows)
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import tempfile
import time
from typing import Any, Iterator, Mapping, Optional
from urllib.parse import urlsplit

import tensorflow as tf

import horovod.tensorflow as hvd
from horovod.runner.common.service import compute_service
from horovod.runner.common.service.compute_service import ComputeClient

__all__ = ["TfDataServiceConfig", "compute_worker_fn", "send_to_data_service", "tf_data_service"]

_SIDES = ("compute", "training")


@dataclasses.dataclass(frozen=True)
class TfDataServiceConfig:
    """How to find a tf.data service. It holds the key: anybody who knows the key can end the service.

    Args:
        dispatchers: how many dispatchers there are.
        workers_per_dispatcher: how many workers each has.
        dispatcher_side: which job runs the dispatchers: ``compute`` or ``training``.
        addresses: of the compute service.
        key: of the compute service.
        timeout: seconds for dispatchers and workers to start.

    Raises:
        ValueError: the side does not exist, or a number below 1.
    """

    dispatchers: int
    workers_per_dispatcher: int
    dispatcher_side: str
    addresses: Mapping[str, Any]
    key: bytes = dataclasses.field(repr=False)
    timeout: int = 60

    def __post_init__(self) -> None:
        if self.dispatcher_side not in _SIDES:
            raise ValueError(f"dispatcher_side={self.dispatcher_side!r}: it must be 'compute' or 'training'")
        for name in ("dispatchers", "workers_per_dispatcher"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: at least 1 is needed")

    def compute_client(self, verbose: int = 1) -> ComputeClient:
        """A client of the compute service."""
        return ComputeClient(self.addresses, self.key, verbose)

    def to_dict(self) -> dict[str, Any]:
        """The fields, in a form that JSON can hold."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**fields, "addresses": dict(self.addresses), "key": self.key.hex()}

    @staticmethod
    def from_dict(config: Mapping[str, Any]) -> TfDataServiceConfig:
        """The config from which :meth:`to_dict` made the dict."""
        return TfDataServiceConfig(**{**config, "key": bytes.fromhex(config["key"])})

    def write(self, filename: str) -> None:
        """Write a file of JSON, which only this user may read. Other processes see it once it is whole."""
        folder, name = os.path.split(os.path.abspath(filename))
        descriptor, beside = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
        try:
            with open(descriptor, "w") as file:
                json.dump(self.to_dict(), file)
            os.replace(beside, filename)
        except BaseException:
            os.unlink(beside)
            raise

    @staticmethod
    def read(filename: str, wait_for_file_creation: bool = False) -> TfDataServiceConfig:
        """Read the file from :meth:`write`; if asked to, first wait for it, without a limit."""
        while wait_for_file_creation and not os.path.exists(filename):
            time.sleep(0.1)
        with open(filename) as file:
            return TfDataServiceConfig.from_dict(json.load(file))


@contextlib.contextmanager
def tf_data_service(compute_config: TfDataServiceConfig, rank: int) -> Iterator[str]:
    """The address of the dispatcher for a training rank: its own if there are several, otherwise the only one.

    If the training runs the dispatchers, this starts the one of this rank, and stops it in the end.

    Args:
        compute_config: of the service.
        rank: of this process in the training.

    Yields:
        ``grpc://host:port``, once all workers of the dispatcher are ready.

    Raises:
        TimeoutException: the dispatcher or a worker has not started in time.
        ValueError: there are several dispatchers, but none for this rank.
    """
    config = compute_config
    dispatcher_id = rank if config.dispatchers > 1 else 0
    if dispatcher_id >= config.dispatchers:
        raise ValueError(
            f"rank {rank} has no dispatcher: there are {config.dispatchers}; there must be 1, or as many as ranks"
        )
    client = config.compute_client()
    with contextlib.ExitStack() as stack:
        if config.dispatcher_side == "training" and rank == dispatcher_id:
            stack.enter_context(_dispatcher(client, dispatcher_id))
        address = client.wait_for_dispatcher_registration(dispatcher_id, config.timeout)
        client.wait_for_dispatcher_worker_registration(dispatcher_id, config.timeout)
        yield _chosen(address)


def send_to_data_service(
    dataset: Any,
    compute_config: TfDataServiceConfig,
    rank: int,
    size: Optional[int] = None,
    processing_mode: str = "distributed_epoch",
    reuse_dataset: bool = False,
    round_robin: bool = False,
) -> Any:
    """Let the service compute a data set. ``tf.data.Dataset`` has this as a method, too.

    Args:
        dataset: the data set.
        compute_config: of the service, whose dispatchers must be on the side ``compute``.
        rank: of this process in the training.
        size: how many processes train; needed with ``round_robin``.
        processing_mode: how the workers share the data: see ``tf.data.experimental.service.distribute``.
        reuse_dataset: whether the ranks of one dispatcher share the elements, so that each element goes to one of them.
        round_robin: whether each rank gets every ``size``-th element, in turn; only with ``reuse_dataset``.

    Returns:
        A data set of the same elements.

    Raises:
        RuntimeError: the training runs the dispatchers: then use :func:`tf_data_service`.
        ValueError: ``round_robin`` without ``reuse_dataset`` or ``size``.
        TimeoutException: the dispatcher or a worker has not started in time.
    """
    if compute_config.dispatcher_side != "compute":
        raise RuntimeError(
            "dispatcher_side='training': use tf_data_service, which ends the dispatcher after the training"
        )
    if round_robin and not (reuse_dataset and size):
        raise ValueError("round_robin needs reuse_dataset=True and size")
    with tf_data_service(compute_config, rank) as address:  # this dispatcher outlives the context
        return dataset.apply(
            tf.data.experimental.service.distribute(
                service=address,
                processing_mode=processing_mode,
                job_name="job" if reuse_dataset else None,
                consumer_index=rank if round_robin else None,
                num_consumers=size if round_robin else None,
            )
        )


tf.data.Dataset.send_to_data_service = send_to_data_service


def compute_worker_fn(compute_config: TfDataServiceConfig) -> None:
    """Run a computing process: a worker, and a dispatcher in the first process of each. Blocks until the service ends.

    Call it in each process of a job of ``dispatchers * workers_per_dispatcher`` ranks.

    Raises:
        ValueError: the job has another size.
        TimeoutException: the dispatcher has not started in time.
    """
    config = compute_config
    hvd.init()
    if hvd.size() != config.dispatchers * config.workers_per_dispatcher:
        raise ValueError(
            f"the job has {hvd.size()} ranks, but {config.dispatchers} dispatchers with "
            f"{config.workers_per_dispatcher} workers each need {config.dispatchers * config.workers_per_dispatcher}"
        )
    dispatcher_id, worker_id = divmod(hvd.rank(), config.workers_per_dispatcher)
    client = config.compute_client()
    with contextlib.ExitStack() as stack:
        if config.dispatcher_side == "compute" and worker_id == 0:
            stack.enter_context(_dispatcher(client, dispatcher_id))
        address = _chosen(client.wait_for_dispatcher_registration(dispatcher_id, config.timeout))
        worker = _worker(address)
        client.register_worker_for_dispatcher(dispatcher_id, hvd.rank())
        client.wait_for_shutdown()
        worker._stop()


@contextlib.contextmanager
def _dispatcher(client: ComputeClient, dispatcher_id: int) -> Iterator[None]:
    """A registered dispatcher, under all addresses of this host."""
    server = tf.data.experimental.service.DispatchServer()
    port = urlsplit(server.target).port
    client.register_dispatcher(dispatcher_id, " ".join(f"grpc://{a}:{port}" for a in compute_service.addresses_of()))
    try:
        yield
    finally:
        server._stop()


def _worker(dispatcher: str) -> Any:
    host = urlsplit(dispatcher).hostname or "localhost"
    config = tf.data.experimental.service.WorkerConfig(
        dispatcher_address=dispatcher.partition("://")[2],
        worker_address=f"{compute_service.way_to(host)}:%port%",  # TensorFlow fills in the port
    )
    return tf.data.experimental.service.WorkerServer(config)


def _chosen(addresses: str) -> str:
    """The first of several addresses at which the dispatcher answers."""
    for address in addresses.split():
        if compute_service.reachable(address):
            return address
    raise ConnectionError(f"the dispatcher cannot be reached at {addresses}")
