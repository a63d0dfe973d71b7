"""Stores on HDFS, by pyarrow's client."""

from __future__ import annotations

from typing import Any, Mapping, Optional
from urllib.parse import urlsplit

from horovod.spark.common._filesystem_store import AbstractFilesystemStore

_SCHEME = "hdfs://"


class HDFSStore(AbstractFilesystemStore):
    """A store on HDFS. Each host needs Hadoop's client library: set ``HADOOP_HOME`` and ``CLASSPATH`` there.

    Args:
        prefix_path: ``hdfs://host:port/path``, or a path. If host and port are missing, Hadoop's settings name them.
        train_path, val_path, test_path, runs_path, save_runs: as for AbstractFilesystemStore.
        host: the name node, in place of the one in the URL.
        port: its port.
        user: the user who connects.
        kerb_ticket: the path of a Kerberos ticket cache.
        driver: only ``libhdfs``; pyarrow no longer has another one.
        extra_conf: further settings of Hadoop's client.
        kwargs: as for AbstractFilesystemStore.

    Raises:
        ValueError: another driver, or a URL of another kind.

    Example:
        >>> HDFSStore("hdfs://names:8020/horovod", user="trainer").get_train_data_path()
        'hdfs://names:8020/horovod/intermediate_train_data'
    """

    def __init__(
        self,
        prefix_path: str,
        train_path: Optional[str] = None,
        val_path: Optional[str] = None,
        test_path: Optional[str] = None,
        runs_path: Optional[str] = None,
        save_runs: bool = True,
        host: Optional[str] = None,
        port: Optional[int] = None,
        user: Optional[str] = None,
        kerb_ticket: Optional[str] = None,
        driver: str = "libhdfs",
        extra_conf: Optional[Mapping[str, str]] = None,
        **kwargs: Any,
    ) -> None:
        if driver != "libhdfs":
            raise ValueError(f"driver={driver!r}: pyarrow's client of HDFS is libhdfs, and no other")
        in_url_host, in_url_port, _ = self.parse_url(prefix_path)
        self._host = host or in_url_host or "default"
        self._port = int(port if port is not None else in_url_port or 0)
        # Host and port are in every URL that this store makes.
        options = {"user": user, "kerb_ticket": kerb_ticket, "extra_conf": dict(extra_conf) if extra_conf else None}
        options = {name: value for name, value in options.items() if value is not None}
        options.update(kwargs.pop("storage_options", None) or {})
        super().__init__(
            prefix_path, train_path, val_path, test_path, runs_path, save_runs, storage_options=options, **kwargs
        )

    @classmethod
    def matches(cls, path: str) -> bool:
        """Look at the scheme.

        Args:
            path: a path or URL.

        Returns:
            Whether the path is a URL of HDFS.
        """
        return path.startswith(_SCHEME)

    @classmethod
    def parse_url(cls, url: str) -> tuple[Optional[str], Optional[int], str]:
        """Split a URL.

        Args:
            url: a URL or path.

        Returns:
            Host, port and path; None for parts that are missing.

        Raises:
            ValueError: it is a URL of another kind, or has a port that is no number, or no absolute path.
        """
        if "://" not in url:
            host, port, path = None, None, url
        else:
            if not cls.matches(url):
                raise ValueError(f"{url}: a URL of HDFS begins with {_SCHEME}")
            parts = urlsplit(url)
            host, port, path = parts.hostname, parts.port, parts.path
        if not path.startswith("/"):
            raise ValueError(f"{url}: a path of HDFS begins with /, as in hdfs://host:8020/path")
        return host, port, path

    def get_full_path(self, path: str) -> str:
        """Complete a path.

        Args:
            path: a path or URL.

        Returns:
            The path as a URL, with host and port if they are known.
        """
        _, _, plain = self.parse_url(path)
        if self._host == "default":
            return _SCHEME + plain
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{_SCHEME}{host}{f':{self._port}' if self._port else ''}{plain}"
