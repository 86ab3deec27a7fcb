"""Storage in S3 and compatible servers: one request per call where S3 has one.

The idea a reader needs: an object appears when its PUT, or the completion of its multipart upload,
succeeds, and never in part. *Create* is a PUT with ``If-None-Match: *``, of which one wins at the
server. Uploads that were begun and never completed are no objects, but they cost money:
``discard_unfinished`` removes them. The general driver would send many requests twice.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from bicycle_runtime.base.errors import ObjectMissingError, StorageError, StorageUnreachableError
from bicycle_runtime.base.remote_storage import FsspecStorage

_PART_BYTES = 8 << 20  # 5 MiB is the least that S3 takes; 10 000 parts are the most.
_UPLOADS = 4  # of one object, at a time
_BLOCK_BYTES = 8 << 20
_KEYS_PER_REQUEST = 1_000
_COPY_BYTES_MAX = 5 << 30


@dataclass(frozen=True, slots=True)
class S3Storage(FsspecStorage):
    """A prefix of a bucket, ``s3://bucket/prefix``."""

    def read(self, path: str) -> bytes:
        # As a span, which the client compares with no checksum of its own: callers have theirs, and
        # know how to handle damage; for the client it is an error like any other.
        return self.attempt("read", path, lambda: self._span(path, 0, None))

    def write(self, path: str, data: bytes) -> None:
        if len(data) <= _PART_BYTES:
            FsspecStorage.write(self, path, data)
            return
        # A request that takes long to be sent looks like one without an answer.
        with _Upload(self, path) as upload:
            upload.send_all(data)

    def open_write(self, path: str) -> contextlib.AbstractContextManager[BinaryIO]:
        return cast("contextlib.AbstractContextManager[BinaryIO]", _Upload(self, path))

    def open_read(self, path: str) -> BinaryIO:
        blocks = _Blocks(self, path)
        return cast("BinaryIO", io.BufferedReader(blocks, _BLOCK_BYTES))

    def exists(self, path: str) -> bool:
        try:
            self.size(path)
        except ObjectMissingError:
            return False
        return True

    def size(self, path: str) -> int:
        return int(self.call("look at", path, "head_object")["ContentLength"])

    def list(self, prefix: str) -> list[str]:
        return sorted(self.sizes(prefix))

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the sizes of all objects in the folder ``prefix``, a thousand per call."""
        base = self.key("")
        folder = f"{prefix.rstrip('/')}/" if prefix else ""
        found: dict[str, int] = {}
        more: dict[str, str] = {}
        while True:
            page = self.call("list", folder, "list_objects_v2", "Prefix", **more)
            items = page.get("Contents", ())
            found |= {item["Key"].removeprefix(base): int(item["Size"]) for item in items}
            if not page.get("IsTruncated"):
                return found
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def delete(self, path: str) -> None:
        self.call("delete", path, "delete_object")

    def delete_all(self, paths: Iterable[str]) -> None:
        """Remove objects, a thousand in one request; missing is fine."""
        waiting = list(paths)
        while waiting:
            batch, waiting = waiting[:_KEYS_PER_REQUEST], waiting[_KEYS_PER_REQUEST:]
            if len(batch) == 1:
                self.delete(batch[0])
                continue
            keys = [{"Key": self.key(path)} for path in batch]
            answer = self.call(
                "delete", batch[0], "delete_objects", None, Delete={"Objects": keys, "Quiet": True}
            )
            for refused in answer.get("Errors", ()):
                path = refused["Key"].removeprefix(self.key(""))
                reason = refused.get("Message") or refused.get("Code", "refused")
                raise StorageError(url=self.url, action="delete", path=path, reason=reason)

    def delete_tree(self, prefix: str) -> None:
        self.delete_all(self.list(prefix))

    def copy_from(self, source: S3Storage, path: str, *, byte_count: int | None) -> bool:
        """Copy an object from another prefix or bucket on the server.

        Args:
            source: Its location.
            path: The object, here and there.
            byte_count: Its size, when that is known.

        Returns:
            Whether it did: it refuses objects of more than 5 GiB, and some of another bucket.

        Raises:
            ObjectMissingError: there is no such object.
            StorageUnreachableError: it does not answer.
        """
        if (source.size(path) if byte_count is None else byte_count) > _COPY_BYTES_MAX:
            return False
        copied_from = dict(zip(("Bucket", "Key"), source.bucket_and_key(path), strict=True))
        try:
            self.call("copy", path, "copy_object", CopySource=copied_from)
        except (ObjectMissingError, StorageUnreachableError):
            raise
        except StorageError:
            return False
        return True

    def discard_unfinished(self, prefix: str) -> int:
        count = 0
        markers: dict[str, str] = {}
        folder = f"{prefix.rstrip('/')}/" if prefix else ""
        while True:
            page = self.call("list", folder, "list_multipart_uploads", "Prefix", **markers)
            for item in page.get("Uploads", ()):
                path = item["Key"].removeprefix(self.key(""))
                if path.startswith(folder):
                    self.drop_upload(path, item["UploadId"])
                    count += 1
            if not page.get("IsTruncated"):
                return count
            markers = {
                "KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]
            }  # fmt: skip

    def key(self, path: str) -> str:
        """Return the key of an object in its bucket."""
        return self.bucket_and_key(path)[1]

    def bucket_and_key(self, path: str) -> tuple[str, str]:
        """Return the bucket of an object, and its key there."""
        bucket, _, key = self._at(path).partition("/")
        return bucket, key

    def call(
        self, action: str, path: str, method: str, key_name: str | None = "Key", **arguments: Any
    ) -> Any:
        """Send a request to the server.

        Args:
            action: For errors.
            path: The object; for errors alone when ``key_name`` is None.
            method: The operation, as the client of S3 names it.
            key_name: Under which name the operation wants the key of ``path``.
            arguments: Its other arguments.
        """
        bucket, key = self.bucket_and_key(path)
        named = {} if key_name is None else {key_name: key}
        return self.attempt(
            action, path, lambda: self._fs.call_s3(method, Bucket=bucket, **named, **arguments)
        )

    def read_span(self, path: str, start: int, end: int) -> bytes:
        """Return the bytes from ``start`` to before ``end``, fewer where the object ends."""
        return self.attempt("read", path, lambda: self._span(path, start, end))

    def drop_upload(self, path: str, upload_id: str) -> None:
        """Forget a multipart upload that was begun; missing is fine."""
        with contextlib.suppress(ObjectMissingError):
            self.call("drop", path, "abort_multipart_upload", UploadId=upload_id)

    def _span(self, path: str, start: int, end: int | None) -> bytes:
        try:
            data: bytes = self._fs.cat_file(self._at(path), start=start, end=end)
        except OSError as error:
            cause = getattr(error.__cause__, "response", {})
            if cause.get("Error", {}).get("Code") in ("InvalidRange", "416"):
                return b""  # The object ends before ``start``.
            raise
        return data


class _Upload(io.BufferedIOBase):
    """Bytes for one object: one PUT if few, else a multipart upload.

    One that is never left asks nothing of the server when it is collected: that may be at the end
    of a process whose client has ended before.
    """

    def __init__(self, storage: S3Storage, path: str) -> None:
        self._storage = storage
        self._path = path
        self._waiting = bytearray()
        self._id = ""
        self._etags: list[str] = []
        self._byte_count = 0

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            try:
                self.complete()
            except BaseException:
                self.abort()
                raise
        else:
            self.abort()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self._waiting += data
        self._byte_count += size
        while len(self._waiting) >= _PART_BYTES:
            part = bytes(self._waiting[:_PART_BYTES])
            del self._waiting[:_PART_BYTES]
            self._send(part)
        return size

    def tell(self) -> int:
        return self._byte_count

    def complete(self) -> None:
        """Complete the upload, which makes the object visible."""
        if not self._id:
            self._storage.write(self._path, bytes(self._waiting))
            return
        if self._waiting:
            self._send(bytes(self._waiting))
        parts = [{"PartNumber": n, "ETag": etag} for n, etag in enumerate(self._etags, 1)]
        try:
            self._storage.call(
                "write", self._path, "complete_multipart_upload", UploadId=self._id,
                MultipartUpload={"Parts": parts},
            )  # fmt: skip
        except ObjectMissingError:
            # The upload is gone: completed by a request whose answer was lost, or dropped.
            if not self._storage.exists(self._path):
                raise
            if self._storage.size(self._path) != self._byte_count:
                raise

    def abort(self) -> None:
        """Remove the upload if the server responds; else the next sweep removes it."""
        if self._id:
            with contextlib.suppress(StorageError):  # The error that is on its way counts.
                self._storage.drop_upload(self._path, self._id)

    def send_all(self, data: bytes) -> None:
        """Send all there is, several parts at a time."""
        self._begin()
        self._byte_count = len(data)

        def send(start: int) -> str:
            return self._send_part(start // _PART_BYTES + 1, data[start : start + _PART_BYTES])

        with ThreadPoolExecutor(_UPLOADS, thread_name_prefix="bicycle-upload") as pool:
            self._etags = list(pool.map(send, range(0, len(data), _PART_BYTES)))

    def _send(self, part: bytes) -> None:
        if not self._id:
            self._begin()
        self._etags.append(self._send_part(len(self._etags) + 1, part))

    def _begin(self) -> None:
        begun = self._storage.call("write", self._path, "create_multipart_upload")
        self._id = begun["UploadId"]

    def _send_part(self, number: int, part: bytes) -> str:
        sent = self._storage.call(
            "write", self._path, "upload_part", UploadId=self._id, Body=part, PartNumber=number
        )
        return str(sent["ETag"])


class _Blocks(io.RawIOBase):
    """One object, read from its start in requests of some MiB each."""

    def __init__(self, storage: S3Storage, path: str) -> None:
        self._storage = storage
        self._path = path
        self._offset = 0
        self._block = storage.read_span(path, 0, _BLOCK_BYTES)  # A missing object raises here.
        self._is_last = len(self._block) < _BLOCK_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._block and not self._is_last:
            self._block = self._storage.read_span(
                self._path, self._offset, self._offset + _BLOCK_BYTES
            )
            self._is_last = len(self._block) < _BLOCK_BYTES
        size = min(len(buffer), len(self._block))
        buffer[:size] = self._block[:size]
        self._block = self._block[size:]
        self._offset += size
        return size
