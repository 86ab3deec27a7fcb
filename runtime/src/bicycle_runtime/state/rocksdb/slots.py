"""Which local folder a worker process may use: each holds one, and finds those of the dead.

Several processes of a host may run the same subtask, one after another; each has a *slot* of its
own. The kernel lets a lock go when its process ends, so the slot of a dead process is taken over
with all that lies in it, while that of a zombie stays untouched and another slot is used.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from pathlib import Path

from bicycle_runtime.state.errors import LocalStateError

__all__ = ["Slot", "claim_slot", "folder_of"]

_SLOTS_MAX = 1_024
_LOCK = "lock"
_CONTENT = "rocksdb-"
_SCRATCH = "base-"


class Slot:
    """A folder that this process alone uses until ``release``.

    What lies in it has a number that grows with each time that it is built anew, because a database
    that is damaged may still be held open by a reader.
    """

    def __init__(self, path: Path, number: int, descriptor: int) -> None:
        self.path = path
        self.number = number
        self._descriptor: int | None = descriptor

    def current(self) -> Path:
        """Return where what lies here is, or is to be."""
        return self._content(max(self._numbers(), default=0))

    def renew(self) -> Path:
        """Remove what lies here, and return where something new is to be."""
        numbers = self._numbers()
        for number in numbers:
            remove(self._content(number))
        return self._content(max(numbers, default=0) + 1)

    def scratch(self, name: str) -> Path:
        """Return a place beside what lies here, which nothing is in."""
        path = self.path / f"{_SCRATCH}{name}"
        remove(path)
        return path

    def discard_scratch(self) -> None:
        """Remove what those who held the folder before left beside its content."""
        for path in self.path.glob(f"{_SCRATCH}*"):
            remove(path)

    def _content(self, number: int) -> Path:
        return self.path / f"{_CONTENT}{number}"

    def _numbers(self) -> list[int]:
        words = [path.name.removeprefix(_CONTENT) for path in self.path.glob(f"{_CONTENT}*")]
        return [int(word) for word in words if word.isdecimal()]

    def release(self) -> None:
        """Let others have the folder. Doing it again is harmless."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def remove(path: Path) -> None:
    """Remove a folder, or what lies in its place."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def folder_of(root: str, identity: str) -> Path:
    """Return the folder for the slots of a range of state.

    Args:
        root: Folder of all local state.
        identity: Tells the job's storage, the operator and the key groups.
    """
    return Path(root) / hashlib.sha256(identity.encode()).hexdigest()[:24]


def claim_slot(folder: Path) -> Slot:
    """Take the first slot that nobody holds.

    Raises:
        LocalStateError: the folder can not be used, or all slots are held.
    """
    for number in range(_SLOTS_MAX):
        path = folder / f"slot-{number}"
        try:
            path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        except OSError as error:
            raise LocalStateError(folder=str(path), reason=str(error)) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        return Slot(path, number, descriptor)
    raise LocalStateError(folder=str(folder), reason=f"{_SLOTS_MAX} processes hold a part of it")
