"""A tf.data service by jobs of Horovod, and on Spark: real dispatchers and workers of TensorFlow."""

import os
import socket
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from horovod.runner import _channel
from horovod.runner.common.service.compute_service import ComputeClient, ComputeService
from horovod.runner.common.util.timeout import TimeoutException

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def service():
    service = ComputeService(2, 2, b"key")
    yield service
    service.shutdown()


def test_processes_find_each_other(service):
    client = ComputeClient(service.addresses(), b"key")
    found = []
    waiting = threading.Thread(target=lambda: found.append(client.wait_for_dispatcher_registration(1, 60)))
    waiting.start()
    client.register_dispatcher(1, "grpc://a:1")
    waiting.join()
    assert found == ["grpc://a:1"]
    client.register_worker_for_dispatcher(1, 2)
    client.register_worker_for_dispatcher(1, 2)  # the same again
    with pytest.raises(TimeoutException, match="1 workers of dispatcher 1 have not started within 0.01 seconds"):
        client.wait_for_dispatcher_worker_registration(1, 0.01)
    client.register_worker_for_dispatcher(1, 3)
    client.wait_for_dispatcher_worker_registration(1, 60)
    with pytest.raises(TimeoutException, match="dispatcher 0 has not started within 0.01 seconds"):
        client.wait_for_dispatcher_registration(0, 0.01)


def test_wrong_requests(service):
    client = ComputeClient(service.addresses(), b"key")
    client.register_dispatcher(0, "grpc://a:1")
    with pytest.raises(ValueError, match="dispatcher 0 is registered already, at grpc://a:1"):
        client.register_dispatcher(0, "grpc://b:1")
    asking = [
        lambda number: client.register_dispatcher(number, "grpc://a:1"),
        lambda number: client.register_worker_for_dispatcher(number, 0),
        lambda number: client.wait_for_dispatcher_registration(number, 60),
        lambda number: client.wait_for_dispatcher_worker_registration(number, 60),
    ]
    for ask in asking:
        for number in (2, -1):
            with pytest.raises(IndexError, match=f"there is no dispatcher {number}: they have the numbers below 2"):
                ask(number)
    with pytest.raises(ConnectionError, match="has another key"):
        ComputeClient(service.addresses(), b"another").shutdown()
    with pytest.raises(ValueError, match="dispatchers=0"):
        ComputeService(0, 1, b"key")
    with pytest.raises(ValueError, match="network interface 'none'"):
        ComputeService(1, 1, b"key", nics=["none"])


def test_the_end_of_the_service(service):
    client = ComputeClient(service.addresses(), b"key")
    waiting = threading.Thread(target=client.wait_for_shutdown)
    waiting.start()
    client.shutdown()
    waiting.join()
    assert service.wait_for_shutdown(0)
    client.wait_for_shutdown()  # the service is gone, and that is an end, too
    client.shutdown()
    with pytest.raises(ConnectionRefusedError, match="the compute service cannot be reached at"):
        client.register_dispatcher(0, "grpc://a:1")


def test_waiting_ends_with_the_service(service):
    """At once, and not as if the time were over."""
    client = ComputeClient(service.addresses(), b"key")
    told = []

    def wait(ask):
        try:
            ask(0, 60)
        except ConnectionAbortedError as e:
            told.append(str(e))

    asking = (client.wait_for_dispatcher_registration, client.wait_for_dispatcher_worker_registration)
    waiting = [threading.Thread(target=wait, args=(ask,)) for ask in asking]
    for thread in waiting:
        thread.start()
    client.register_dispatcher(1, "grpc://a:1")
    client.shutdown()
    for thread in waiting:
        thread.join(30)
    assert sorted(told) == [
        "the compute service was shut down before 2 workers of dispatcher 0 have started",
        "the compute service was shut down before dispatcher 0 has started",
    ]


def test_no_message_waits_for_an_acknowledgement():
    """Of several small messages, each goes out at once: with Nagle's algorithm a request would take 40 ms."""
    ends = []
    with _channel.listen(True) as listener:
        port = listener.getsockname()[1]
        asking = threading.Thread(
            target=lambda: ends.append(_channel.connect(["127.0.0.1"], port, b"key", "the service"))
        )
        asking.start()
        ends.append(_channel.welcome(listener.accept()[0], b"key"))
        asking.join()
    for end in ends:
        with end, socket.socket(fileno=os.dup(end.fileno())) as there:
            assert there.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_service_that_dies_while_it_is_asked(monkeypatch):
    """Its answer never comes."""
    service = ComputeService(1, 1, b"key")
    monkeypatch.setattr(service, "_answer", lambda request: (_ for _ in ()).throw(OSError("gone")))
    ComputeClient(service.addresses(), b"key").shutdown()
    service.shutdown()


def test_a_service_that_cannot_be_reached_is_told(monkeypatch):
    client = ComputeClient({"": [["127.0.0.1", 1]]}, b"key")

    def unreachable(*_):
        raise OSError(113, "No route to host")

    monkeypatch.setattr("socket.create_connection", unreachable)
    with pytest.raises(ConnectionError, match="No route to host"):
        client.shutdown()


def test_a_configuration_is_json_that_only_its_user_reads(tmp_path):
    pytest.importorskip("tensorflow")
    from horovod.tensorflow.data.compute_service import TfDataServiceConfig

    config = TfDataServiceConfig(1, 2, "compute", {"": [["127.0.0.1", 5]]}, b"\x00key", 7)
    file = tmp_path / "service.json"
    config.write(str(file))
    assert TfDataServiceConfig.read(str(file)) == config == TfDataServiceConfig.from_dict(config.to_dict())
    assert file.stat().st_mode & 0o777 == 0o600 and os.listdir(tmp_path) == ["service.json"]
    assert "key" not in repr(config)
    with pytest.raises(ValueError, match="dispatcher_side='both'"):
        TfDataServiceConfig(1, 2, "both", {}, b"")
    with pytest.raises(RuntimeError, match="use tf_data_service"):
        import tensorflow as tf

        training = TfDataServiceConfig(1, 2, "training", {}, b"")
        tf.data.Dataset.range(3).send_to_data_service(training, 0)


TRAINING = """
    import contextlib, sys
    import tensorflow as tf
    import horovod.tensorflow as hvd
    from horovod.tensorflow.data.compute_service import TfDataServiceConfig, tf_data_service

    hvd.init()
    config = TfDataServiceConfig.read(sys.argv[1], wait_for_file_creation=True)
    rows = tf.data.Dataset.range(100)
    if config.dispatcher_side == "compute":
        found = list(rows.send_to_data_service(config, hvd.rank(), hvd.size(), reuse_dataset=True).as_numpy_iterator())
    else:
        with tf_data_service(config, hvd.rank()) as address:
            service = tf.data.experimental.service.distribute("distributed_epoch", address, job_name="job")
            found = list(rows.apply(service).as_numpy_iterator())
            hvd.allgather_object("done")  # before a dispatcher ends
    everything = sorted(int(i) for share in hvd.allgather_object(found) for i in share)
    times = hvd.size() if config.dispatchers > 1 else 1
    assert everything == sorted(list(range(100)) * times), everything
    if hvd.rank() == 0:
        config.compute_client().shutdown()
        print("all rows have come")
"""


def launch(arguments):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "TF_CPP_MIN_LOG_LEVEL": "2"}
    return subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def said(process):
    """What the process has printed, if it has ended well."""
    try:
        output, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, output
    return output


@pytest.mark.parametrize("options", [[], ["--dispatchers", "2"], ["--dispatcher-side", "training"]], ids=str)
def test_jobs_of_horovod(tmp_path, options):
    pytest.importorskip("tensorflow")
    file = str(tmp_path / "service.json")
    run = [str(ROOT / "build" / "horovodrun"), "-np", "2", sys.executable]
    computing = launch([*run, "-m", "horovod.tensorflow.data.compute_worker", file, *options])
    training = launch([*run, "-c", textwrap.dedent(TRAINING), file])
    try:
        assert "all rows have come" in said(training)
    except BaseException:
        computing.terminate()
        print(computing.communicate()[0])
        raise
    said(computing)


def test_the_job_on_spark(tmp_path):
    pytest.importorskip("tensorflow")
    file = str(tmp_path / "service.json")
    submit = launch([sys.executable, "-m", "horovod.spark.tensorflow.compute_worker", file, "--num-proc", "2"])
    training = launch([sys.executable, "-c", textwrap.dedent(TRAINING), file])
    try:
        assert "all rows have come" in said(training)
    except BaseException:
        submit.terminate()
        print(submit.communicate()[0])
        raise
    said(submit)


def test_processes_that_do_not_divide(tmp_path, monkeypatch):
    pytest.importorskip("tensorflow")
    from horovod.tensorflow.data import compute_worker

    monkeypatch.setattr(compute_worker.hvd, "init", lambda: None)
    monkeypatch.setattr(compute_worker.hvd, "size", lambda: 3)
    for rank in (0, 1):
        monkeypatch.setattr(compute_worker.hvd, "rank", lambda rank=rank: rank)
        with pytest.raises(ValueError, match="3 processes cannot be divided among 2 dispatchers"):
            compute_worker.main(2, "compute", str(tmp_path / "file"), timeout=5)
    assert not os.listdir(tmp_path)


def test_a_job_started_by_a_call(tmp_path):
    """A program of one's own calls main, with Horovod's arguments."""
    pytest.importorskip("tensorflow")
    file = str(tmp_path / "service.json")
    program = "import sys; from horovod.tensorflow.data.compute_worker import main; main(1, 'compute', sys.argv[1], 50)"
    computing = launch([str(ROOT / "build" / "horovodrun"), "-np", "2", sys.executable, "-c", program, file])
    training = launch([sys.executable, "-c", textwrap.dedent(TRAINING), file])
    try:
        assert "all rows have come" in said(training)
    except BaseException:
        computing.terminate()
        print(computing.communicate()[0])
        raise
    said(computing)
