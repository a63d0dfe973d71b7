"""Opening the file system behind a URL: fsspec's for files of all kinds, and pyarrow's to read Parquet from it."""

from __future__ import annotations

import re
from typing import Any, Mapping, Optional

# scheme://user:password@host, but not scheme://host:port/name@name
_PASSWORD = re.compile(r"://[^/:@\[]*:(?!\d*(?:/|$))[^@]*@")


def refuse_secrets(url: str) -> None:
    """Raise ValueError for a URL with a password or a query. The error shows neither.

    Messages show a store's URL, and the URLs of its folders begin with it.
    """
    if _PASSWORD.search(url):
        raise ValueError(
            f"a URL of {url.partition('://')[0]}:// has a password, which messages would show: give user and password "
            "by storage_options"
        )
    if url.startswith(("http://", "https://")) and "?" in url:
        raise ValueError(
            f"{url.partition('?')[0]} is followed by a query, to which no path can be added: give what it says by "
            "storage_options"
        )


def open_filesystem(url: str, storage_options: Optional[Mapping[str, Any]] = None) -> tuple[Any, str]:
    """The file system of fsspec for the URL, and the path in it.

    Raises:
        ImportError: the package for this kind of URL is missing; the text names it.
        ValueError: this kind of URL is unknown, or it has a password.
    """
    import fsspec

    refuse_secrets(url)
    if "::" in url and url.startswith(("/", "file:")):  # fsspec would read it as a chain of file systems, not as a name
        filesystem = fsspec.filesystem("file", **(storage_options or {}))
        return filesystem, filesystem._strip_protocol(url)
    filesystem, path = fsspec.core.url_to_fs(url, **(storage_options or {}))
    return filesystem, path


def for_arrow(filesystem: Any) -> Any:
    """The same file system, for pyarrow."""
    from pyarrow import fs

    if is_local(filesystem):
        return fs.LocalFileSystem()
    wrapped = getattr(filesystem, "fs", None)
    if isinstance(wrapped, fs.FileSystem):  # such as Hadoop's
        return wrapped
    return fs.PyFileSystem(fs.FSSpecHandler(filesystem))


def data_files(filesystem: Any, folder: str) -> list[str]:
    """The files in the folder and below, without those whose names Parquet's readers skip.

    Raises:
        FileNotFoundError: there is no such folder.
    """
    filesystem.invalidate_cache()  # other programs write here, too
    if not filesystem.exists(folder):
        raise FileNotFoundError(f"{folder} does not exist")
    above = folder.rstrip("/") + "/"
    found = (path for path in filesystem.find(folder) if path.startswith(above))
    return sorted(path for path in found if not any(part[:1] in "_." for part in path[len(above) :].split("/")))


def protocols(filesystem: Any) -> tuple[str, ...]:
    """The schemes of the file system's URLs."""
    names = filesystem.protocol
    return tuple(names) if isinstance(names, (tuple, list)) else (names,)


def is_private(filesystem: Any) -> bool:
    """Whether only this process sees the files."""
    return "memory" in protocols(filesystem)


def is_local(filesystem: Any) -> bool:
    """Whether the files are on this machine."""
    return "file" in protocols(filesystem)
