"""Uploaded plugins of a home, each in a folder of its digest.

``<home>/plugins/<digest>`` appears by one rename, complete or not at all. So an existing folder can
be used, also without a service: its ``environment`` is an argument for ``--plugin-env``. The digest
covers wheel, lock file, Python and platform; the same files have the same environment. Only the
service of the home writes here, one build at a time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
import sysconfig
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from bicycle_runtime.base.files import own_folder, replace_file, sync_folder
from bicycle_runtime.base.storage_urls import resolve_location
from bicycle_runtime.base.stored import decode_stored, encode_stored
from bicycle_runtime.extraction.discovery import PluginRef, discover
from bicycle_runtime.extraction.extract import check_plugin
from bicycle_runtime.extraction.limits import ExtractionLimits
from bicycle_runtime.extraction.packing import (
    HELD_BY_RUNTIME,
    closure_of,
    find_installed,
    require_no_conflict,
)
from bicycle_runtime.extraction.plugin_env import own_environment
from bicycle_runtime.jobs.home import UNREADABLE, Home, JobFolder
from bicycle_runtime.jobs.savepoints.commands import known_savepoints
from bicycle_runtime.jobs.status import JobState
from bicycle_runtime.jobs.upgrading.notes import noted_requests
from bicycle_runtime.service.address import queue_folder
from bicycle_runtime.service.errors import OPERATION_FACTS_INVALID, QUOTA_EXCEEDED, SERVICE_BUSY
from bicycle_runtime.service.plugins.building import BuildLimits, build_environment
from bicycle_runtime.service.plugins.errors import (
    LOCK_INCOMPLETE,
    PLUGIN_IN_USE,
    PLUGIN_UNKNOWN,
    UPLOAD_GONE,
    WHEEL_REFUSED,
)
from bicycle_runtime.service.plugins.lock_files import read_lock
from bicycle_runtime.service.plugins.locking import lock_requirements
from bicycle_runtime.service.plugins.wheels import (
    UploadedPlugin,
    WheelFacts,
    WheelLimits,
    check_wheel,
    file_digest,
)
from bicycle_sdk.clock import Clock
from bicycle_sdk.errors import BicycleError

_DIGEST = re.compile(r"[0-9a-f]{64}")
_FACTS_FILE = "plugin.json"
_LOCK_FILE = "requirements.lock"
_ENVIRONMENT = "environment"
_UPLOADS = "uploads"
_LEFTOVERS = ("tmp", "log", "requirements.txt", "held", "held.txt", "report.json", "locked.txt")
_RECEIVING_MAX = 2
_CHUNK_BYTES = 1 << 20
# A finished job does not continue; all other jobs may be started again with the same plugin.
_OVER = frozenset({JobState.FINISHED})


class InstallFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Received files: ``digest`` is their folder; the other facts are for people.

    With ``needs_lock``, the service selects the versions of libraries.
    """

    digest: str
    file: str
    owner: str
    has_lock: bool
    needs_lock: bool = False


class Plugins:
    """The uploaded plugins: reception and queries of files.

    Args:
        home: The home.
        limit_of: Returns the limit of an owner's wheels in bytes; None without a limit.
    """

    def __init__(
        self, home: Home, *, limit_of: Callable[[str], int | None] = lambda _owner: None
    ) -> None:
        self._home = home
        self._limit_of = limit_of
        self.limits = WheelLimits()
        self._receiving = threading.BoundedSemaphore(_RECEIVING_MAX)

    def receive(
        self, name: str, wheel: BinaryIO, lock: bytes | None, *, owner: str,
        is_shared: bool = True, may_lock: bool = False,
    ) -> InstallFacts:  # fmt: skip
        """Take the files of an upload, and check them; they wait to be installed then.

        Args:
            name: File name of the wheel.
            wheel: Its bytes.
            lock: The lock file, or None.
            owner: The owner of the files.
            is_shared: Whether the same files of another owner are the same plugin; otherwise each
                owner has a separate plugin.
            may_lock: Whether the service may select the versions of libraries without a lock
                file.

        Raises:
            WHEEL_REFUSED: the wheel breaks a rule.
            LOCK_REFUSED: the lock file does.
            LOCK_INCOMPLETE: the wheel needs libraries, and there may be no lock file made here.
            QUOTA_EXCEEDED: the owner has as many bytes of wheels as they may.
            SERVICE_BUSY: others are received.
        """
        if not self._receiving.acquire(blocking=False):
            raise SERVICE_BUSY(waiting=_RECEIVING_MAX)
        try:
            with self._upload_folder() as folder:
                return self._receive(
                    folder, name, wheel, lock, owner=owner, is_shared=is_shared, may_lock=may_lock
                )
        finally:
            self._receiving.release()

    def used_bytes(self, owner: str) -> int:
        """Return how many bytes of wheels of an owner are kept."""
        plugins = uploaded_plugins(self._home)
        return sum(each.byte_count for each in plugins if each.owner == owner)

    def all(self) -> list[UploadedPlugin]:
        """Return all plugins, the last upload first, with the jobs that need them."""
        needed = _jobs_by_digest(self._home)
        found = uploaded_plugins(self._home)
        return [
            msgspec.structs.replace(each, jobs=sorted(needed.get(each.digest, ())))
            for each in found
        ]

    def get(self, digest: str) -> UploadedPlugin:
        """Return one plugin.

        Raises:
            PLUGIN_UNKNOWN: no uploaded plugin has this digest.
        """
        found = find_uploaded(self._home, digest)
        return msgspec.structs.replace(
            found, jobs=sorted(_jobs_by_digest(self._home).get(digest, ()))
        )

    def owner_of(self, digest: str) -> str:
        """Return whose a plugin is.

        Raises:
            PLUGIN_UNKNOWN: no uploaded plugin has this digest.
        """
        return find_uploaded(self._home, digest).owner

    def digest_of(self, environment: str) -> str:
        """Return the digest of the plugin that a folder belongs to, empty for any other."""
        return _digest_of(self._home, environment)

    @contextmanager
    def _upload_folder(self) -> Iterator[Path]:
        uploads = _folder(self._home) / _UPLOADS
        own_folder(uploads)
        with tempfile.TemporaryDirectory(dir=uploads, prefix=".", ignore_cleanup_errors=True) as at:
            yield Path(at)

    def _receive(
        self, folder: Path, name: str, wheel: BinaryIO, lock: bytes | None, *,
        owner: str, is_shared: bool, may_lock: bool,
    ) -> InstallFacts:  # fmt: skip
        if Path(name).name != name or len(name) > self.limits.path_length_max or not name:
            raise WHEEL_REFUSED(file=name[:100], problem="its name is not the name of a wheel")
        content = folder / "content"
        content.mkdir()
        _copy(wheel, content / name, self.limits.byte_count_max)
        limit, used = self._limit_of(owner), self.used_bytes(owner)
        if limit is not None and used + (content / name).stat().st_size > limit:
            raise QUOTA_EXCEEDED(
                owner=owner, what="bytes of wheels", limit=limit, used=used,
                hint="remove unused plugins",
            )  # fmt: skip
        facts = check_wheel(content / name, self.limits)
        if lock is not None:
            read_lock(lock)
            (content / _LOCK_FILE).write_bytes(lock)
        elif facts.missing and not may_lock:
            title = f"{facts.name} {facts.version}"
            raise LOCK_INCOMPLETE(title=title, missing_text=", ".join(facts.missing))
        digest = _digest(facts, lock, "" if is_shared else owner)
        path = folder.parent / digest
        with contextlib.suppress(OSError):  # The same files wait there already.
            content.rename(path)
        return InstallFacts(
            digest=digest, file=name, owner=owner, has_lock=lock is not None,
            needs_lock=lock is None and bool(facts.missing),
        )  # fmt: skip


def environment_of(home: Home, digest: str) -> str:
    """Return the folder of a plugin's environment, as ``--plugin-env`` takes it.

    Raises:
        PLUGIN_UNKNOWN: no uploaded plugin has this digest.
    """
    find_uploaded(home, digest)
    return str(_folder(home) / digest / _ENVIRONMENT)


def plugin_environment(home: Home, digest: str, plugin: str) -> str:
    """Return the environment of an uploaded wheel that contains a plugin of this name.

    Raises:
        PLUGIN_UNKNOWN: no wheel with this digest was uploaded.
        OPERATION_FACTS_INVALID: the wheel contains no such plugin.
    """
    known = find_uploaded(home, digest)
    if plugin not in known.plugins:
        problem, hint = f"{known.title} has no plugin {plugin!r}", ", ".join(known.plugins)
        raise OPERATION_FACTS_INVALID(kind="submit", problem=problem, hint=f"it has {hint}")
    return environment_of(home, digest)


def _digest_of(home: Home, environment: str) -> str:
    if not environment:
        return ""
    path, folder = Path(resolve_location(environment)), _folder(home).resolve()
    name = path.relative_to(folder).parts[0] if folder in path.parents else ""
    return name if _DIGEST.fullmatch(name) else ""


def find_uploaded(home: Home, digest: str) -> UploadedPlugin:
    """Return a plugin without the jobs that need it.

    Raises:
        PLUGIN_UNKNOWN: no uploaded plugin has this digest.
    """
    path = _folder(home) / digest / _FACTS_FILE
    if not _DIGEST.fullmatch(digest) or not path.is_file():
        raise PLUGIN_UNKNOWN(digest=digest[:100])
    return decode_stored(path.read_bytes(), UploadedPlugin, path=str(path))


def uploaded_plugins(home: Home) -> list[UploadedPlugin]:
    """Return all plugins, the last upload first, without jobs."""
    paths = _folder(home).glob(f"*/{_FACTS_FILE}")
    found = [find_uploaded(home, path.parent.name) for path in paths if _is_kept(path.parent)]
    return sorted(found, key=lambda each: (-each.uploaded_ms, each.digest))


def install_plugin(
    home: Home, facts: InstallFacts, *, clock: Clock, build: BuildLimits | None = None,
    extraction: ExtractionLimits | None = None,
) -> tuple[UploadedPlugin, bool]:  # fmt: skip
    """Build the environment of received files, and load each plugin in a process.

    All files of a failed upload are removed.

    Args:
        home: The home.
        facts: From ``Plugins.receive``.
        clock: The time of day.
        build: Limits of the build; None selects the defaults.
        extraction: Limits of loading a plugin; None selects the defaults.

    Returns:
        The plugin, and whether it is new.

    Raises:
        UPLOAD_GONE: the files no longer exist.
        ENVIRONMENT_NOT_BUILT: the installer failed.
        LOCK_INCOMPLETE: the lock file lacks a library.
        ENVIRONMENT_CONFLICT: the plugin and the runtime require different versions of a library.
        BicycleError: a plugin cannot be loaded; the error names the line and the reason.
    """
    path, upload = _folder(home) / facts.digest, _folder(home) / _UPLOADS / facts.digest
    if _is_kept(path):
        shutil.rmtree(upload, ignore_errors=True)
        return find_uploaded(home, facts.digest), False
    if not (upload / facts.file).is_file():
        raise UPLOAD_GONE(title=facts.file)
    building = _folder(home) / f".building-{facts.digest}"
    shutil.rmtree(building, ignore_errors=True)
    try:
        shutil.copytree(upload, building)
        plugin = _build(building, facts, clock, build=build, extraction=extraction)
        replace_file(building / _FACTS_FILE, encode_stored(plugin))
        building.rename(path)
        sync_folder(path.parent)
    finally:
        shutil.rmtree(building, ignore_errors=True)
        shutil.rmtree(upload, ignore_errors=True)
    return plugin, True


def require_unused(home: Home, digest: str) -> UploadedPlugin:
    """Return a plugin that no job needs.

    Raises:
        PLUGIN_UNKNOWN: no uploaded plugin has this digest.
        PLUGIN_IN_USE: a job needs it, perhaps a job that the caller may not see.
    """
    found = find_uploaded(home, digest)
    job_count = len(_jobs_by_digest(home).get(digest, ()))
    if job_count:
        jobs_text = "1 job" if job_count == 1 else f"{job_count} jobs"
        raise PLUGIN_IN_USE(title=found.title, digest=digest, jobs_text=jobs_text)
    return found


def remove_plugin(home: Home, digest: str) -> UploadedPlugin:
    """Remove a plugin that no job needs.

    Raises:
        PLUGIN_UNKNOWN: no uploaded plugin has this digest.
        PLUGIN_IN_USE: a job needs it.
    """
    found = require_unused(home, digest)
    gone = _folder(home) / f".removed-{digest}"
    (_folder(home) / digest).rename(gone)  # Atomic: no reader sees a part of it.
    shutil.rmtree(gone, ignore_errors=True)
    return found


def clear_leftovers(home: Home) -> None:
    """Remove the unfinished files of a killed service."""
    for path in [*_folder(home).glob(".*"), *(_folder(home) / _UPLOADS).glob(".*")]:
        shutil.rmtree(path)


def clear_uploads(home: Home, *, waiting: Collection[str]) -> None:
    """Remove received files without a requested installation; ``waiting`` are digests."""
    for path in (_folder(home) / _UPLOADS).glob("*"):
        if path.name not in waiting:
            shutil.rmtree(path, ignore_errors=True)


def _folder(home: Home) -> Path:
    return home.path / "plugins"


def _is_kept(folder: Path) -> bool:
    return bool(_DIGEST.fullmatch(folder.name)) and (folder / _FACTS_FILE).is_file()


def _copy(source: BinaryIO, target: Path, bytes_max: int) -> None:
    left = bytes_max
    with target.open("xb") as stream:
        while chunk := source.read(_CHUNK_BYTES):
            left -= len(chunk)
            if left < 0:
                problem = f"it has more than {bytes_max} bytes"
                raise WHEEL_REFUSED(file=target.name, problem=problem)
            stream.write(chunk)


def _digest(wheel: WheelFacts, lock: bytes | None, owner: str) -> str:
    own = own_environment()
    words = [wheel.file, wheel.digest, _minor(own.python), own.platform]
    if lock is not None:
        words.append(hashlib.sha256(lock).hexdigest())
    if owner:
        words.append(f"owner {owner}")
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _build(
    folder: Path, facts: InstallFacts, clock: Clock, *, build: BuildLimits | None,
    extraction: ExtractionLimits | None,
) -> UploadedPlugin:  # fmt: skip
    """Fill a folder that has wheel and lock file; return the plugin."""
    wheel = check_wheel(folder / facts.file)
    title = f"{wheel.name} {wheel.version}"
    lines = [f"./{facts.file} --hash=sha256:{file_digest(folder / facts.file)}"]
    has_lock = facts.has_lock or facts.needs_lock
    if facts.needs_lock:
        data = lock_requirements(folder, wheel.requires, title=title, limits=build)
        (folder / _LOCK_FILE).write_bytes(data)
    if has_lock:
        locked = read_lock((folder / _LOCK_FILE).read_bytes())
        # The runtime brings its own of these, and a wheel is no place to replace it.
        left_out = HELD_BY_RUNTIME | {wheel.name}
        lines += [each.line for each in locked if each.name not in left_out]
    build_environment(folder, lines, title=title, limits=build)
    for leftover in _LEFTOVERS:
        _remove(folder / leftover)
    own, site = own_environment(), str(_site(folder))
    closure = closure_of(wheel.name, among=find_installed([site]))
    missing = sorted(closure.asked.keys() - closure.members.keys() - HELD_BY_RUNTIME)
    if missing:
        raise LOCK_INCOMPLETE(title=title, missing_text=", ".join(missing))
    refs = [ref for ref in discover([site]).found if ref.name in wheel.plugins]
    for ref in refs:
        require_no_conflict(closure, own.path, name=ref.name)
        _try(ref, extraction)
    libraries = [f"{name} {dist.version}" for name, dist in closure.members.items()]
    return UploadedPlugin(
        digest=facts.digest, name=wheel.name, version=wheel.version, file=facts.file,
        byte_count=wheel.byte_count, plugins=dict(wheel.plugins), has_lock=has_lock,
        libraries=sorted(each for each in libraries if each != title),
        python=_minor(own.python), platform=own.platform, owner=facts.owner,
        uploaded_ms=clock.now_ms(),
    )  # fmt: skip


def _try(ref: PluginRef, limits: ExtractionLimits | None) -> None:
    """Load a plugin in a child process; errors contain paths without our folder."""
    try:
        check_plugin(ref, limits)
    except BicycleError as error:
        error.facts.update({name: _inner(value, ref) for name, value in error.facts.items()})
        raise


def _inner(value: Any, ref: PluginRef) -> Any:
    if isinstance(value, list | tuple):
        return [_inner(each, ref) for each in value]
    return value.replace(f"{ref.location}/", "") if isinstance(value, str) else value


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _site(folder: Path) -> Path:
    base = str(folder / _ENVIRONMENT)
    return Path(sysconfig.get_path("purelib", "venv", {"base": base, "platbase": base}))


def _jobs_by_digest(home: Home) -> dict[str, set[str]]:
    """Return the jobs that need each digest, from their requests."""
    needed: dict[str, set[str]] = {}
    for folder in sorted((home.path / "jobs").glob("*/")):
        job = JobFolder(folder)
        is_over = _is_over(home, job)
        for digest in _digests_of(home, job):
            if not is_over:
                needed.setdefault(digest, set()).add(job.id)
    for name, digest in _waiting_starts(home):
        needed.setdefault(digest, set()).add(name)
    return needed


def _waiting_starts(home: Home) -> Iterator[tuple[str, str]]:
    """Yield the job and the digest of each start that waits: it has no folder yet."""
    for path in queue_folder(home).glob("*.json"):
        with contextlib.suppress(OSError, ValueError):  # It has begun, or is damaged.
            facts = json.loads(path.read_bytes())
            environment = facts.get("options", {}).get("plugin_env") or ""
            if digest := facts.get("digest") or _digest_of(home, environment):
                yield facts.get("name") or facts["plugin"], digest


def _digests_of(home: Home, job: JobFolder) -> set[str]:
    """Return the digests of plugins in whose environment a job runs, or may run."""
    try:
        asked = [job.read_request(), *noted_requests(home, job.id)]
    except UNREADABLE:
        return set()
    chosen = [_digest_of(home, request.options.plugin_env or "") for request in asked]
    return set(filter(None, chosen))


def _is_over(home: Home, job: JobFolder) -> bool:
    """Return whether a job can neither be started again nor resumed from a savepoint."""
    try:
        status = job.status()
        is_over = status is not None and status.state in _OVER
        return is_over and not known_savepoints(home, job.id)
    except BicycleError:  # It cannot be read, or its storage does not answer.
        return False
