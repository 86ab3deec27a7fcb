"""The note on a version in a job's shadow: its place, progress and errors.

Three processes share the file. The upgrading process writes it before the shadow is started, and
removes it at the end; the shadow writes its progress; the job keeps the epochs that are not
followed yet. It is a note of this machine: without it a job continues with its own state.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from bicycle_runtime.base.files import replace_file
from bicycle_runtime.base.stored import decode_stored, encode_stored
from bicycle_runtime.jobs.home import JobFolder
from bicycle_runtime.jobs.options import JobRequest


class ShadowNote(msgspec.Struct, kw_only=True):
    """A version in the shadow of its job.

    ``request`` is the job with that version. The running shadow writes to a folder named after its
    ``attempt``, below the job's checkpoints. It began with the epoch ``first``, 0 before that, and
    has followed to ``epoch``.
    """

    request: dict[str, Any]
    epoch: int
    attempt: str = msgspec.field(name="place", default="")
    first: int = 0
    error: dict[str, Any] | None = None

    def is_of(self, request: JobRequest) -> bool:
        """Return whether a job runs this very version."""
        own, other = JobRequest.from_json(self.request).options, request.options
        return own.plugin == other.plugin and _folder(own.plugin_env) == _folder(other.plugin_env)


class _Followed(msgspec.Struct):
    epoch: int


def read_shadow(folder: JobFolder) -> ShadowNote | None:
    """Return the note; None if no version runs in the shadow of the job."""
    data = _read(folder)
    return None if data is None else decode_stored(data, ShadowNote, path=str(folder.shadow_path))


def followed_epoch(folder: JobFolder) -> int | None:
    """Return the first epoch that a shadow still needs; None without a shadow."""
    data = _read(folder)
    if data is None:
        return None
    return decode_stored(data, _Followed, path=str(folder.shadow_path)).epoch


def write_shadow(folder: JobFolder, note: ShadowNote) -> None:
    """Note it, as one step."""
    replace_file(folder.shadow_path, encode_stored(note))


def forget_shadow(folder: JobFolder) -> None:
    """Remove the note: the job has no follower any more."""
    folder.shadow_path.unlink(missing_ok=True)


def _read(folder: JobFolder) -> bytes | None:
    try:
        return folder.shadow_path.read_bytes()
    except FileNotFoundError:
        return None


def _folder(path: str | None) -> Path | None:
    return None if path is None else Path(path).expanduser().absolute()
