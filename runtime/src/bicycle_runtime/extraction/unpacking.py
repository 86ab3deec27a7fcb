"""A packed environment on a host: unpacked once, first on the import path.

All processes of a host share one cache of folders, named by digest. A process holds a shared lock
on the folder that it uses, which the kernel lets go when it ends; when a new environment comes, old
ones that nobody holds go. Executors import this module: it needs the standard library only, and
starts nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

from bicycle_runtime.extraction.errors import ENVIRONMENT_FOLDER_UNUSABLE
from bicycle_runtime.extraction.undeclared import guard_imports

KEPT_COUNT = 8  # Unused environments that a host keeps for the next job.
_LOCK_SUFFIX = ".lock"
_held: dict[str, int] = {}


def enter_environment(archive: Path, digest: str) -> Path:
    """Put an environment first on the import path of this process, permanently.

    Args:
        archive: The packed environment; not read when this host has it unpacked.
        digest: Its name.

    Returns:
        The folder it is in.

    Raises:
        ENVIRONMENT_FOLDER_UNUSABLE: the cache is not to be trusted or cannot be written.
    """
    folder = unpack(archive, digest)
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    guard_imports(folder)
    return folder


def unpack(archive: Path, digest: str) -> Path:
    """Return the folder of an unpacked archive, locked until this process ends.

    Raises:
        ENVIRONMENT_FOLDER_UNUSABLE: the cache is not to be trusted or cannot be written.
    """
    cache = cache_folder()
    folder = cache / digest
    try:
        _require_own(cache)
        if digest not in _held:
            _held[digest] = _hold(cache / f"{digest}{_LOCK_SUFFIX}")
        if not folder.is_dir():
            _remove_unused(cache)
            _unpack(archive, folder)
        os.utime(folder)
    except (OSError, zipfile.BadZipFile) as error:
        raise ENVIRONMENT_FOLDER_UNUSABLE(folder=str(cache), reason=str(error)) from error
    return folder


def cache_folder() -> Path:
    """Return this user's folder of environments in the host's temporary directory."""
    return Path(tempfile.gettempdir()) / f"bicycle-environments-{os.getuid()}"


def _require_own(cache: Path) -> None:
    """Create the cache; refuse one that other users can write, since code runs there."""
    cache.mkdir(mode=0o700, exist_ok=True)
    status = cache.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022 or cache.is_symlink():
        raise ENVIRONMENT_FOLDER_UNUSABLE(folder=str(cache), reason="it belongs to another user")


def _hold(lock: Path) -> int:
    """Take a shared lock; again, should the file have been removed meanwhile."""
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        with contextlib.suppress(FileNotFoundError):
            if lock.stat().st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        os.close(descriptor)


def _unpack(archive: Path, folder: Path) -> None:
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name[:16]}-", dir=folder.parent))
    try:
        with zipfile.ZipFile(archive) as stream:
            stream.extractall(temporary)
        with contextlib.suppress(OSError):  # Another process of this host was faster.
            temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    if not folder.is_dir():
        raise OSError(f"{folder} could not be created")


def _remove_unused(cache: Path) -> None:
    """Remove the oldest folders beyond the limit, except for used ones."""
    folders = [path for path in cache.iterdir() if path.is_dir() and not path.name.startswith(".")]
    folders.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for folder in folders[KEPT_COUNT - 1 :]:
        lock = cache / f"{folder.name}{_LOCK_SUFFIX}"
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            shutil.rmtree(folder, ignore_errors=True)
            lock.unlink(missing_ok=True)
        finally:
            os.close(descriptor)
