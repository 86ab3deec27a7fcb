"""Claims on local folders: one per worker process; folders of dead ones are taken.

Several processes of a host may run the same subtask, one after another; each has a *folder* of its
own. The kernel releases a lock when its process ends, so the folder of a dead process is taken over
with its content, while the folder of a zombie stays untouched and another folder is used. Folders
of ranges without an owner are removed in the same way, if no process holds them.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Collection
from pathlib import Path

from bicycle_runtime.state.errors import LOCAL_STATE_UNUSABLE

_FOLDERS_MAX = 1_024
_LOCK = "lock"
_PREFIX, _GONE = "slot-", ".gone-"
_CONTENT = "rocksdb-"
_SCRATCH = "base-"


class ClaimedFolder:
    """A folder that this process alone uses until ``release``.

    Its content has a number that grows each time it is built again, because a damaged database may
    still be held open by a reader.
    """

    def __init__(self, path: Path, number: int, descriptor: int) -> None:
        self.path = path
        self.number = number
        self._descriptor: int | None = descriptor

    def current(self) -> Path:
        """Return the path of the present content, or of the first content."""
        return self._content(max(self._numbers(), default=0))

    def renew(self) -> Path:
        """Remove the content, and return a new path for the next content."""
        numbers = self._numbers()
        for number in numbers:
            remove(self._content(number))
        return self._content(max(numbers, default=0) + 1)

    def scratch(self, name: str) -> Path:
        """Return an unused path beside the content."""
        path = self.path / f"{_SCRATCH}{name}"
        remove(path)
        return path

    def discard_scratch(self) -> None:
        """Remove temporary files that earlier owners left beside the content."""
        for path in self.path.glob(f"{_SCRATCH}*"):
            remove(path)

    def _content(self, number: int) -> Path:
        return self.path / f"{_CONTENT}{number}"

    def _numbers(self) -> list[int]:
        words = [path.name.removeprefix(_CONTENT) for path in self.path.glob(f"{_CONTENT}*")]
        return [int(word) for word in words if word.isdecimal()]

    def release(self) -> None:
        """Release the folder to other processes. Repeated calls have no effect."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def remove(path: Path) -> None:
    """Remove a folder, or a file or link at its path."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def identity_of(job_url: str, operator: str, groups: range) -> str:
    """Return a text that identifies a range of state on this machine."""
    return f"{job_url}\n{operator}\n{groups.start}-{groups.stop}"


def folder_of(root: str, identity: str) -> Path:
    """Return the parent folder of a range of state; its name starts with the job's.

    Args:
        root: Folder of all local state.
        identity: Identifies the job's storage, the operator and the key groups.
    """
    job_url = identity.partition("\n")[0]
    return Path(root) / f"{_job_prefix(job_url)}{_digest(identity)[:24]}"


def claim_folder(folder: Path) -> ClaimedFolder:
    """Claim the first folder without an owner.

    Raises:
        LOCAL_STATE_UNUSABLE: the folder cannot be used, or all folders are held.
    """
    number = 0
    while number < _FOLDERS_MAX:
        path = folder / f"{_PREFIX}{number}"
        try:
            path.mkdir(parents=True, exist_ok=True)
            descriptor = _lock(path)
        except FileNotFoundError:
            continue  # Another process has just removed it, as a range without an owner.
        except OSError as error:
            raise LOCAL_STATE_UNUSABLE(folder=str(path), reason=str(error)) from error
        if descriptor is not None:
            return ClaimedFolder(path, number, descriptor)
        number += 1
    raise LOCAL_STATE_UNUSABLE(
        folder=str(folder), reason=f"{_FOLDERS_MAX} processes hold a part of it"
    )


def remove_others(root: str, job_url: str, kept: Collection[str]) -> int:
    """Remove the folders of a job except for some identities; return how many.

    Folders held by a process, be it a zombie, stay until the next call.
    """
    names = {folder_of(root, identity).name for identity in kept}
    found = Path(root).glob(f"{_job_prefix(job_url)}*")
    return sum(_is_removed(folder) for folder in sorted(found) if folder.name not in names)


def _is_removed(folder: Path) -> bool:
    for path in sorted(folder.glob(f"{_PREFIX}*")):
        with contextlib.suppress(OSError):
            descriptor = _lock(path)
            if descriptor is not None:
                # Renamed first: a process that comes meanwhile finds nothing there, instead of a
                # half.
                path.rename(folder / f"{_GONE}{path.name}-{os.getpid()}")
                os.close(descriptor)
    for path in folder.glob(f"{_GONE}*"):
        remove(path)
    with contextlib.suppress(OSError):
        folder.rmdir()
    return not folder.exists()


def _lock(path: Path) -> int | None:
    """Return a descriptor that holds the lock of a folder, or None if it is locked.

    Raises:
        FileNotFoundError: the folder was removed in the meantime.
    """
    descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    is_held = False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_held = os.path.samestat(os.fstat(descriptor), (path / _LOCK).stat())
    except BlockingIOError:
        return None
    finally:
        if not is_held:
            os.close(descriptor)
    if not is_held:
        raise FileNotFoundError(path)
    return descriptor


def _job_prefix(job_url: str) -> str:
    return f"{_digest(job_url)[:12]}-"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
