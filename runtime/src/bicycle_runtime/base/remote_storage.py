"""Storage with a URL: any fsspec file system that has an exclusive create.

The idea a reader needs: every call goes through ``attempt``, which turns all errors of a driver
into ours and repeats, with growing pauses, calls whose errors may pass: no answer, a broken
connection, "slow down". A client is opened once per process, not per call or thread, and never
travels: only the URL is pickled. Credentials come from the driver's own places, never from us.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from urllib.parse import urlsplit

from bicycle_runtime.base.errors import (
    ATOMIC_CREATE_MISSING,
    STORAGE_ACCESS_DENIED,
    STORAGE_DRIVER_MISSING,
    STORAGE_FULL,
    STORAGE_MISSING,
    ObjectExistsError,
    ObjectMissingError,
    StorageError,
    StorageUnreachableError,
)
from bicycle_runtime.base.object_paths import checked_path, refuse_links
from bicycle_sdk.errors import BicycleError

_FIRST_PAUSE_S, _PAUSE_MAX_S = 0.1, 5.0
_CONNECT_S, _READ_S = 5, 15
_ONE_REQUEST_BYTES = 64 << 20
# By name: the drivers are extras, and to name a class is not to import it.
_PASSING = {
    "ClientConnectionError", "ClientPayloadError", "ConnectionError", "FSTimeoutError",
    "HTTPClientError", "IncompleteRead", "IncompleteReadError", "ResponseParserError",
    "ResponseStreamingError", "TimeoutError",
}  # fmt: skip
_NO_CREDENTIALS = {"CredentialRetrievalError", "NoCredentialsError", "PartialCredentialsError"}
_PASSING_STATUS = {408, 409, 429, 500, 502, 503, 504}
_PASSING_ERRNO = {errno.EBUSY, getattr(errno, "EREMOTEIO", errno.EIO)}
_FULL_ERRNO = {errno.ENOSPC, errno.EDQUOT}
_SECRETS = re.compile(r"//[^/@\s\"']+@")
_OPTIONS: dict[str, dict[str, Any]] = {
    # Each call sends one request, and only we repeat it.
    "s3": {
        "use_listings_cache": False,
        "max_concurrency": 1,
        "config_kwargs": {
            "retries": {"max_attempts": 0},
            "connect_timeout": _CONNECT_S,
            "read_timeout": _READ_S,
            "max_pool_connections": 32,
        },
    },
}
_OPTIONS["s3a"] = _OPTIONS["s3"]

_T = TypeVar("_T")
_systems: dict[tuple[int, str, str], Any] = {}
_lock = threading.Lock()
_watchers: list[Callable[[str, bool], object]] = []
_away: set[str] = set()


@contextlib.contextmanager
def outages_told_to(watcher: Callable[[str, bool], object]) -> Iterator[None]:
    """Report unavailable storages to a watcher inside the block.

    Args:
        watcher: Gets the URL and whether the storage is away: True with each try that fails, False
            with the first answer behind them. Called in the threads that use the storage.
    """
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def file_system(url: str) -> Any:
    """Return the file system of a URL: one for all threads of this process.

    Raises:
        STORAGE_DRIVER_MISSING: the driver of the scheme is not installed, or cannot be opened.
    """
    parts = urlsplit(url)
    key = (os.getpid(), parts.scheme, parts.netloc)
    with _lock:
        if key not in _systems:
            _systems[key] = _open(url, parts.scheme)
        return _systems[key]


def _open(url: str, scheme: str) -> Any:
    try:
        import fsspec  # slow to import, and needed only for URLs

        options = {"skip_instance_cache": True, **_OPTIONS.get(scheme, {})}
        system, _ = fsspec.core.url_to_fs(url, **options)
    except (ImportError, ValueError, OSError) as error:
        raise STORAGE_DRIVER_MISSING(
            url=url, action="open", path="", reason=_without_secrets(str(error))
        ) from error
    if scheme in ("s3", "s3a"):
        system.retries = 1
    return system


@dataclass(frozen=True, slots=True)
class FsspecStorage:
    """Any file system that fsspec knows and that has an exclusive create, as GCS does.

    Args:
        url: The root.
        patience_s: How long a call that may succeed later is tried again.
    """

    url: str
    patience_s: float = 30.0

    def read(self, path: str) -> bytes:
        data: bytes = self.attempt("read", path, lambda: self._fs.cat_file(self._at(path)))
        return data

    def write(self, path: str, data: bytes) -> None:
        self.attempt("write", path, lambda: self._fs.pipe_file(self._at(path), data))

    def create(self, path: str, data: bytes) -> None:
        try:
            self.attempt("create", path, lambda: self._create(path, data))
        except ObjectExistsError:
            # Our own request may have arrived though its answer was lost.
            if self.read(path) != data:
                raise

    def open_write(self, path: str) -> contextlib.AbstractContextManager[BinaryIO]:
        return _Writing(self, path)

    def open_read(self, path: str) -> BinaryIO:
        stream: BinaryIO = self.attempt("read", path, lambda: self._fs.open(self._at(path), "rb"))
        return stream

    def exists(self, path: str) -> bool:
        return bool(self.attempt("look for", path, lambda: self._fs.isfile(self._at(path))))

    def size(self, path: str) -> int:
        return int(self.attempt("look at", path, lambda: self._fs.size(self._at(path))))

    def list(self, prefix: str) -> list[str]:
        base = self._at("")
        found = self.attempt("list", prefix, lambda: self._fs.find(self._at(prefix).rstrip("/")))
        return sorted(str(path).removeprefix(base) for path in found)

    def delete(self, path: str) -> None:
        with contextlib.suppress(ObjectMissingError):
            self.attempt("delete", path, lambda: self._fs.rm_file(self._at(path)))

    def delete_tree(self, prefix: str) -> None:
        with contextlib.suppress(ObjectMissingError):
            self.attempt(
                "delete", prefix, lambda: self._fs.rm(self._at(prefix).rstrip("/"), recursive=True)
            )

    def discard_unfinished(self, prefix: str) -> int:  # noqa: ARG002 - contract
        return 0  # An uncommitted object does not exist, and these drivers show nothing else.

    def write_file(self, path: str, source: Path) -> None:
        """Create or replace an object with the content of a local file, in one step."""
        if source.stat().st_size <= _ONE_REQUEST_BYTES:
            self.write(path, source.read_bytes())
        else:
            self.attempt("write", path, lambda: self._fs.put_file(str(source), self._at(path)))

    def attempt(self, action: str, path: str, call: Callable[[], _T]) -> _T:
        """Return the result of a call; retry transient errors until the time limit.

        Raises:
            ObjectMissingError: there is no such object.
            ObjectExistsError: it may be created only once.
            StorageError: anything else; its class is the kind.
        """
        deadline = time.monotonic() + self.patience_s
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                result = call()
                self._tell(is_away=False)
                return result
            except BicycleError:
                raise
            except Exception as error:
                problem = self._problem(error, action, path)
                is_away = isinstance(problem, StorageUnreachableError)
                self._tell(is_away=is_away)
                if not is_away or time.monotonic() + pause_s > deadline:
                    raise problem from error
            threading.Event().wait(pause_s)  # There is nothing to wait for but time.
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    def _tell(self, *, is_away: bool) -> None:
        if is_away:
            _away.add(self.url)
        elif self.url not in _away:
            return
        else:
            _away.discard(self.url)
        for watcher in tuple(_watchers):
            watcher(self.url, is_away)

    @property
    def _fs(self) -> Any:
        return file_system(self.url)

    def _at(self, path: str) -> str:
        checked_path(path)
        root: str = self._fs._strip_protocol(self.url).rstrip("/")
        if getattr(self._fs, "local_file", False):
            refuse_links(root, path)
        return f"{root}/{path}"

    def _create(self, path: str, data: bytes) -> None:
        try:
            self._fs.pipe_file(self._at(path), data, mode="create")
        except (RuntimeError, TypeError, ValueError) as error:  # The drivers' errors for a refusal.
            reason = "its driver does not support exclusive creation"
            raise ATOMIC_CREATE_MISSING(
                url=self.url, action="create", path=path, reason=reason
            ) from error

    def _problem(self, error: Exception, action: str, path: str) -> BicycleError:
        """Return our error for a driver's error, by its kind and the server's response."""
        code, status = _answer(error)
        names = {kind.__name__ for kind in type(error).__mro__}
        number = error.errno if isinstance(error, OSError) else None
        if code == "NoSuchBucket":
            kind: Callable[..., BicycleError] = STORAGE_MISSING
        elif isinstance(error, FileNotFoundError) or status == 404:
            return ObjectMissingError(url=self.url, path=path)
        elif isinstance(error, FileExistsError) or status == 412:
            return ObjectExistsError(url=self.url, path=path)
        elif isinstance(error, PermissionError) or status in (401, 403) or names & _NO_CREDENTIALS:
            kind = STORAGE_ACCESS_DENIED
        elif status == 501 and action == "create":
            kind = ATOMIC_CREATE_MISSING
        elif number in _FULL_ERRNO or status == 507:
            kind = STORAGE_FULL
        elif status in _PASSING_STATUS or number in _PASSING_ERRNO or names & _PASSING:
            kind = StorageUnreachableError
        else:
            kind = StorageError
        reason = _without_secrets(str(error)) or type(error).__name__
        return kind(url=self.url, action=action, path=path, reason=reason)


class _Writing:
    """A stream into a local file, which becomes an object at the end without error.

    Drivers do not agree about the rest of an interrupted stream; of a file they all do.
    """

    def __init__(self, storage: FsspecStorage, path: str) -> None:
        self._storage = storage
        self._path = path
        self._cleanup = contextlib.ExitStack()

    def __enter__(self) -> BinaryIO:
        folder = self._cleanup.enter_context(tempfile.TemporaryDirectory(prefix="bicycle-upload-"))
        self._file = Path(folder) / "object"
        self._stream = self._cleanup.enter_context(self._file.open("wb"))
        return self._stream

    def __exit__(self, kind: object, *_: object) -> None:
        with self._cleanup:
            if kind is None:
                self._stream.close()
                self._storage.write_file(self._path, self._file)


def _answer(error: BaseException | None) -> tuple[str, int]:
    """Return the code and HTTP status of a server's response, "" and 0 without one."""
    while error is not None:
        response = getattr(error, "response", None)
        if isinstance(response, dict):
            code = str(response.get("Error", {}).get("Code", ""))
            return code, int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        error = error.__cause__
    return "", 0


def _without_secrets(text: str) -> str:
    """Return a driver's words without the user part of any URL in them."""
    return _SECRETS.sub("//", text)
