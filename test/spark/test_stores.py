"""Stores: on files of this machine, in memory, over http, in a server that speaks S3; HDFS and DBFS by their paths."""

import functools
import http.server
import io
import os
import pickle
import re
import threading
import uuid
from typing import NamedTuple

import pyarrow as pa
import pytest
from pyarrow import parquet

from horovod.spark.common import _files, _sync
from horovod.spark.common.reader import ParquetReader
from horovod.spark.common.store import DBFSLocalStore, FilesystemStore, HDFSStore, LocalStore, Store


class S3(NamedTuple):
    """How to reach a server, and a bucket of its own, because all servers of a process share their buckets."""

    options: dict
    bucket: str


@pytest.fixture(scope="module")
def s3():
    """A server that speaks S3, with a bucket."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    options = {"key": "key", "secret": "secret", "client_kwargs": {"endpoint_url": f"http://{host}:{port}"}}
    made = S3(options, f"bucket-{uuid.uuid4().hex}")
    filesystem, _ = _files.open_filesystem(f"s3://{made.bucket}", options)
    filesystem.mkdir(made.bucket)
    yield made
    server.stop()


@pytest.fixture(params=["file", "memory", "s3"])
def store(request, tmp_path):
    name = uuid.uuid4().hex
    if request.param == "file":
        return Store.create(str(tmp_path))
    if request.param == "memory":
        return Store.create(f"memory://{name}")
    s3 = request.getfixturevalue("s3")
    return Store.create(f"s3://{s3.bucket}/{name}", storage_options=s3.options)


def test_files_of_a_store(store):
    path = store.get_checkpoint_path("run")
    assert not store.exists(path)
    store.write_text(path, "begun …")
    store.write_text(path, "done …")
    assert store.exists(path) and store.read(path).decode() == "done …"
    assert store.get_checkpoints("run", suffix="point") == [path] and store.get_checkpoints("run") == []
    assert store.get_checkpoints("no run") == []
    with pytest.raises(FileNotFoundError):
        store.read(store.get_checkpoint_path("no run"))


def test_a_runs_own_folder_is_among_sparks(store, tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    with store.to_remote("run", 0).get_local_output_dir() as folder:
        assert os.path.dirname(folder) == str(tmp_path)
    assert not os.path.exists(folder)


def test_what_a_run_writes_comes_to_the_store(store):
    remote = pickle.loads(pickle.dumps(store.to_remote("run", 0)))
    with remote.get_local_output_dir() as folder:
        os.makedirs(os.path.join(folder, "logs", "train"))
        for name in ("a.ckpt", "b.ckpt", "logs/train/events"):
            with open(os.path.join(folder, name), "w") as file:
                file.write(name)
        remote.sync(folder)
        with open(os.path.join(folder, "a.ckpt"), "a") as file:
            file.write(", again")
        remote.sync(folder)
    assert not os.path.exists(folder)
    assert store.get_checkpoints("run") == [f"{remote.run_path}/{name}.ckpt" for name in "ab"]
    assert store.read(f"{remote.run_path}/a.ckpt") == b"a.ckpt, again"
    assert store.read(f"{remote.logs_path}/train/events") == b"logs/train/events"
    names = sorted(os.path.basename(path) for path in store.fs.find(store.get_localized_path(remote.run_path)))
    assert names == ["a.ckpt", "b.ckpt", "events"]


def test_only_what_changed_is_copied(tmp_path, monkeypatch):
    sync = Store.create(str(tmp_path / "store")).sync_fn("run")
    copied = []
    put = _sync.put
    monkeypatch.setattr(
        _sync, "put", lambda fs, source, path: (copied.append(os.path.basename(path)), put(fs, source, path))
    )
    (tmp_path / "a").mkdir()
    for name in "bc":
        (tmp_path / "a" / name).write_text(name)
    sync(str(tmp_path / "a"))
    (tmp_path / "a" / "c").write_text("changed")
    sync(str(tmp_path / "a"))
    assert sorted(copied[:2]) == ["b", "c"] and copied[2:] == ["c"]


def test_a_checkpoint_is_whole_or_not_there(tmp_path, monkeypatch):
    """A process that dies during a copy leaves the earlier checkpoint."""
    store = Store.create(str(tmp_path / "store"))
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "checkpoint").write_text("one")
    store.sync_fn("run")(str(tmp_path / "a"))
    (tmp_path / "a" / "checkpoint").write_text("another")
    monkeypatch.setattr(_sync, "_replace", lambda *_: (_ for _ in ()).throw(OSError("gone")))
    with pytest.raises(OSError, match="gone"):
        store.sync_fn("run")(str(tmp_path / "a"))
    assert store.read(store.get_checkpoint_path("run")) == b"one"
    assert os.listdir(tmp_path / "store" / "runs" / "run") == ["checkpoint"]


def test_parquet_files_of_a_store(store):
    path = store.get_train_data_path(3)
    assert not store.is_parquet_dataset(path)
    filesystem, folder = _files.open_filesystem(path, store.storage_options)
    filesystem.makedirs(folder, exist_ok=True)
    with filesystem.open(f"{folder}/one.parquet", "wb") as file:
        parquet.write_table(pa.table({"x": range(100)}), file, row_group_size=10)
    assert store.is_parquet_dataset(path)
    assert store.get_parquet_dataset(path).read().num_rows == 100
    batches = list(ParquetReader(path, storage_options=store.storage_options))
    assert sorted(int(x) for batch in batches for x in batch["x"]) == list(range(100))


@pytest.fixture
def over_http(tmp_path):
    """The URL of a server of the files below tmp_path."""
    handler = functools.partial(Quiet, directory=str(tmp_path))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files, parts of files and lists of folders, without a log."""

    def send_head(self):
        path = self.translate_path(self.path)
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if wanted is None or not os.path.isfile(path):
            return super().send_head()
        first, last = map(int, wanted.groups())
        with open(path, "rb") as file:
            content = file.read()
        part = content[first : last + 1]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        return io.BytesIO(part)

    def log_message(self, *_):
        pass


def test_a_store_over_http_is_read(tmp_path, over_http):
    (tmp_path / "intermediate_train_data").mkdir()
    parquet.write_table(pa.table({"x": range(100)}), tmp_path / "intermediate_train_data" / "one.parquet")
    store = Store.create(over_http)
    path = store.get_train_data_path()
    assert store.exists(path) and store.is_parquet_dataset(path)
    assert sum(len(batch["x"]) for batch in ParquetReader(path)) == 100
    with pytest.raises(NotImplementedError):
        store.write_text(f"{over_http}/new", "text")


def test_paths(tmp_path):
    prefix = f"file://{tmp_path}"
    store = Store.create(str(tmp_path))
    assert type(store) is FilesystemStore
    assert store.get_train_data_path() == f"{prefix}/intermediate_train_data"
    assert store.get_val_data_path(0) == f"{prefix}/intermediate_val_data.0"
    assert store.get_test_data_path(12) == f"{prefix}/intermediate_test_data.12"
    assert store.get_run_path("a") == f"{prefix}/runs/a"
    assert (
        store.get_checkpoint_path("a") == f"{prefix}/runs/a/checkpoint"
        and store.get_checkpoint_filename() == "checkpoint"
    )
    assert store.get_logs_path("a") == f"{prefix}/runs/a/logs" and store.get_logs_subdir() == "logs"
    assert store.saving_runs()
    for form in (prefix, f"file:{tmp_path}", os.path.relpath(tmp_path)):
        assert Store.create(form).get_runs_path() == f"{prefix}/runs"


def test_paths_of_ones_own():
    store = Store.create(
        "s3://bucket/a", train_path="s3://other/t", runs_path="gs://third/r", save_runs=False, checkpoint_filename="c"
    )
    assert (
        store.get_train_data_path(1) == "s3://other/t.1"
        and store.get_val_data_path() == "s3://bucket/a/intermediate_val_data"
    )
    assert store.get_runs_path() == "gs://third/r" and store.get_checkpoint_filename() == "c"
    assert not store.saving_runs() and store.get_checkpoint_path("a") is None and store.get_logs_path("a") is None


def test_runs_on_another_file_system_than_the_rows(tmp_path):
    store = Store.create(f"memory://{uuid.uuid4().hex}", runs_path=str(tmp_path / "runs"))
    store.write_text(store.get_checkpoint_path("run"), "done")
    assert (tmp_path / "runs" / "run" / "checkpoint").read_text() == "done"
    assert store.read(store.get_checkpoint_path("run")) == b"done" and len(store.get_checkpoints("run", "point")) == 1


def test_the_older_name(tmp_path):
    with pytest.warns(DeprecationWarning, match="use FilesystemStore"):
        assert isinstance(LocalStore(str(tmp_path)), FilesystemStore)


@pytest.mark.parametrize(
    "url, host, port, full",
    [
        ("hdfs://name:8020/a/b", "name", 8020, "hdfs://name:8020/a/b"),
        ("hdfs://name/a", "name", 0, "hdfs://name/a"),
        ("hdfs:///a", "default", 0, "hdfs:///a"),
        ("/a", "default", 0, "hdfs:///a"),
        ("hdfs://[::1]:8020/a", "::1", 8020, "hdfs://[::1]:8020/a"),
    ],
)
def test_urls_of_hdfs(url, host, port, full):
    store = HDFSStore(url, user="me")
    assert (store._host, store._port, store.prefix_path) == (host, port, full)
    assert store.get_train_data_path(1) == f"{full}/intermediate_train_data.1"
    assert store.storage_options == {"user": "me"}
    if url.startswith("hdfs"):
        assert type(Store.create(url)) is HDFSStore


def test_hdfs_by_arguments():
    store = HDFSStore("/a", host="name", port=9000, kerb_ticket="/ticket", extra_conf={"x": "y"}, runs_path="/runs")
    assert store.get_runs_path() == "hdfs://name:9000/runs"
    assert store.storage_options == {"kerb_ticket": "/ticket", "extra_conf": {"x": "y"}}


@pytest.mark.parametrize("url", ["s3://bucket/a", "hdfs://name:port/a", "relative", "hdfs://name"])
def test_urls_that_are_none_of_hdfs(url):
    with pytest.raises(ValueError):
        HDFSStore(url)


def test_the_driver_of_hdfs():
    with pytest.raises(ValueError, match="driver='libhdfs3'"):
        HDFSStore("/a", driver="libhdfs3")


@pytest.mark.parametrize("form", ["dbfs:/a/b", "dbfs:///a/b", "/dbfs/a/b", "file:/dbfs/a/b", "file:///dbfs/a/b"])
def test_paths_of_dbfs(form, monkeypatch):
    store = DBFSLocalStore(form)
    assert store.get_train_data_path() == "/dbfs/a/b/intermediate_train_data"
    assert store.get_checkpoint_path("r") == "/dbfs/a/b/runs/r/checkpoint.tf"
    assert store.get_localized_path(store.get_runs_path()) == "/dbfs/a/b/runs"
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "15.4")
    assert type(Store.create(form)) is DBFSLocalStore
    assert type(Store.create("/tmp")) is FilesystemStore


def test_paths_that_are_none_of_dbfs():
    with pytest.raises(ValueError, match="/tmp/a: a path of DBFS begins with"):
        DBFSLocalStore("/tmp/a")


@pytest.mark.parametrize("path", [None, 5, b"/a", [], "", " "])
def test_what_is_no_path(path, tmp_path):
    store = Store.create(str(tmp_path))
    for call in (Store.create, store.exists, store.read, store.get_parquet_dataset):
        with pytest.raises((TypeError, ValueError), match="path=.*: a path or URL is needed"):
            call(path)


def test_arguments_of_stores(tmp_path):
    for given, words in [
        ({"train_path": 5}, "train_path=5: a path or URL"),
        ({"storage_options": "x"}, "storage_options of the type str: a dict"),
        ({"checkpoint_filename": "a/b"}, "checkpoint_filename='a/b': it must be a name"),
        ({"checkpoint_filename": ".."}, "checkpoint_filename='..': it must be a name"),
        ({"checkpoint_filename": 5}, "checkpoint_filename=5"),
    ]:
        with pytest.raises((TypeError, ValueError), match=words):
            Store.create(str(tmp_path), **given)
    store = Store.create(tmp_path)
    for run in (None, "", "..", "a/b", "a\0", 5):
        with pytest.raises((TypeError, ValueError), match="run_id="):
            store.get_checkpoint_path(run)
    for index in (-1, "1", 1.5, True):
        with pytest.raises(ValueError, match="the index of a data set is"):
            store.get_train_data_path(index)
    with pytest.raises(ValueError, match="is the root of a file system"):
        Store.create(str(tmp_path), train_path="/").get_train_data_path(0)


def test_a_path_in_the_home_of_the_user(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Store.create("~/store").get_runs_path() == f"file://{tmp_path}/store/runs"


@pytest.mark.parametrize(
    "url",
    [
        "s3://me:SECRET@bucket/a",
        "s3://me:SEC/SECRET@bucket/a",
        "http://me:SECRET@127.0.0.1:1/a",
        "hdfs://me:SECRET@name:8020/a",
        "ftp://:SECRET@host/a",
        "simplecache::sftp://me:SECRET@host/a",
        "http://127.0.0.1:1/a?token=SECRET",
    ],
)
def test_secrets_in_urls_are_refused_and_not_told(url, tmp_path):
    for call in (
        lambda: Store.create(url),
        lambda: Store.create(str(tmp_path), runs_path=url),
        lambda: Store.create(str(tmp_path)).exists(url),
        lambda: ParquetReader(url),
    ):
        with pytest.raises(ValueError, match="storage_options") as raised:
            call()
        assert "SECRET" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    ["hdfs://name:8020/a@b", "hdfs://[::1]:8020/a@b", "abfs://box@account/a", "sftp://me@host/a:b@c", "s3://b/a:b@c"],
)
def test_urls_without_secrets(url):
    _files.refuse_secrets(url)


def test_keys_are_in_no_text_about_a_store(tmp_path):
    store = Store.create(str(tmp_path), storage_options={"secret": "SECRET"})
    assert "SECRET" not in repr(store) + repr(store.to_remote("run", 0))


def test_a_kind_of_url_that_nothing_knows():
    with pytest.raises(ValueError, match="unknown"):
        Store.create("unknown://a").exists("unknown://a/b")
