"""A plugin's environment as an archive: its files, and its libraries' files.

The archive holds what pip installed, by the record of each distribution, and the sources of those
that are installed editable. It is named by the digest of its content, so equal environments are one
archive, no matter who made it and when. What the runtime holds itself is left out. Whether workers
can use it is for the handshake to say; ``unpacking`` is the other half.

Which distributions belong to it is read from metadata alone: a plugin's *closure* is the plugin and
all it needs, as far as installed; what the runtime needs of its own is known the same way.
Requirements that are not installed are no matter here: importing says so, with the line that does
it.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import importlib_metadata
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from bicycle_runtime.base.own_code import OWN_DISTRIBUTIONS
from bicycle_runtime.extraction.discovery import PluginRef
from bicycle_runtime.extraction.errors import ENVIRONMENT_CONFLICT, ENVIRONMENT_FILES_UNKNOWN
from bicycle_runtime.extraction.undeclared import ISOLATED

# One process has one of each, and both sides of every pipe must have the same: never a plugin's.
HELD_BY_RUNTIME = frozenset({*OWN_DISTRIBUTIONS, "pyspark", "py4j", "msgspec", "cloudpickle"})
_RUNTIME = "bicycle-runtime"
_REQUIREMENT_LENGTH_MAX = 2_000

_EPOCH = (1980, 1, 1, 0, 0, 0)  # Equal content is equal bytes: no times of files.
_NATIVE = (".so", ".pyd", ".dylib")
# Notes of pip about location and method of the installation, and files without code.
_NOT_PACKED = frozenset({"direct_url.json", "INSTALLER", "REQUESTED", "RECORD"})
_CACHES = frozenset({"__pycache__"})


@dataclass(frozen=True, slots=True)
class Closure:
    """Distributions by canonical name, with pairs of requirer and requirement.

    Names that are asked for and not installed are in ``asked`` only.
    """

    members: Mapping[str, Any]
    asked: Mapping[str, list[tuple[str, Requirement]]]


def find_installed(path: Iterable[str]) -> dict[str, Any]:
    """Return an import path's distributions by canonical name; the first one counts."""
    found: dict[str, Any] = {}
    for dist in importlib_metadata.distributions(path=list(path)):
        name = _name_of(dist)
        if name is not None:
            found.setdefault(canonicalize_name(name), dist)
    return found


def _name_of(dist: Any) -> str | None:
    try:
        return dist.metadata["Name"] or None
    except Exception:  # noqa: BLE001 - Metadata is foreign data; an unreadable file declares no library.
        return None


def closure_of(*roots: str, among: Mapping[str, Any]) -> Closure:
    """Return distributions and all that they need.

    Args:
        roots: Names of the distributions.
        among: What is installed, by canonical name.
    """
    members: dict[str, Any] = {}
    asked: dict[str, list[tuple[str, Requirement]]] = {}
    waiting: list[tuple[str, frozenset[str]]] = [
        (canonicalize_name(root), frozenset()) for root in roots
    ]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, extras = item = waiting.pop(0)
        if item in seen or name not in among:
            continue
        seen.add(item)
        members[name] = among[name]
        for requirement in _requirements(among[name], extras):
            needed = canonicalize_name(requirement.name)
            asked.setdefault(needed, []).append((name, requirement))
            waiting.append((needed, frozenset(requirement.extras)))
    return Closure(members=members, asked=asked)


def require_no_conflict(plugin: Closure, runtime_path: Iterable[str], *, name: str) -> None:
    """Refuse a plugin that cannot live in one process with the runtime.

    What the runtime holds itself must be of a version that the plugin takes; of other libraries the
    plugin brings its own, which must be of a version that the runtime takes.

    Raises:
        ENVIRONMENT_CONFLICT: with library, versions and who asks for what.
    """
    ours = closure_of(_RUNTIME, among=find_installed(runtime_path))
    for library in sorted(plugin.asked.keys() & ours.members.keys() & HELD_BY_RUNTIME):
        _require(plugin.asked[library], ours.members[library].version, library, name)
    for library in sorted(plugin.members.keys() & ours.asked.keys() - HELD_BY_RUNTIME):
        _require(ours.asked[library], plugin.members[library].version, library, name)


def read_requirement(text: str) -> Requirement:
    """Return the requirement in a line of metadata or of a lock file.

    Raises:
        InvalidRequirement: it is none, or longer than any that somebody means: to read those takes
            minutes, or more stack than there is.
    """
    if len(text) > _REQUIREMENT_LENGTH_MAX:
        raise InvalidRequirement(f"it has {len(text):,} characters")
    try:
        return Requirement(text)
    except RecursionError as error:
        raise InvalidRequirement("its brackets are nested too deeply") from error


def bare_text(requirement: Requirement) -> str:
    """Return a requirement whose marker is met without the marker.

    Example:
        >>> bare_text(Requirement("colors[full]>=2; python_version > '3'"))
        'colors[full]>=2'
    """
    return str(requirement).partition(";")[0].strip()


def _requirements(dist: Any, extras: frozenset[str]) -> Iterator[Requirement]:
    for text in dist.metadata.get_all("Requires-Dist") or []:
        try:
            requirement = read_requirement(text)
        except InvalidRequirement:  # No version satisfies it; discovery reports that of the SDK.
            continue
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


def _require(
    asked: Iterable[tuple[str, Requirement]], version: str, library: str, plugin: str
) -> None:
    for asker, requirement in asked:
        if not requirement.specifier.contains(version, prereleases=True):
            raise ENVIRONMENT_CONFLICT(
                plugin=plugin, library=library, found=version, asker=asker,
                requirement=f"{library}{requirement.specifier}",
            )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedEnvironment:
    """An archive on disk. ``libraries`` are names with versions; ``is_native`` tells machine code.

    Machine code runs on hosts of the driver's platform only.
    """

    digest: str
    path: Path
    libraries: tuple[str, ...]
    is_native: bool


def pack_environment(
    ref: PluginRef,
    path: Iterable[str],
    *,
    runtime_path: Iterable[str],
    cache_dir: Path,
    others: Sequence[str] = (),
    is_isolated: bool = False,
) -> PackedEnvironment:
    """Pack the files that a plugin needs besides the runtime.

    Args:
        ref: The plugin.
        path: Import path of the environment that it is installed in.
        runtime_path: Import path of the runtime.
        cache_dir: Archives are kept there, by digest; one that is there is not written again.
        others: Further distributions that it uses, though it does not require them.
        is_isolated: Whether its code may import nothing else: see ``undeclared``.

    Raises:
        ENVIRONMENT_CONFLICT: the plugin and the runtime cannot live in one process.
        ENVIRONMENT_FILES_UNKNOWN: the files of a distribution are not to be found.
    """
    closure = closure_of(ref.dist_name, *others, among=find_installed([ref.location, *path]))
    require_no_conflict(closure, runtime_path, name=ref.name)
    members = {name: dist for name, dist in closure.members.items() if name not in HELD_BY_RUNTIME}
    files: dict[str, Path] = {}
    for name in sorted(members):
        files.update(_files_of(members[name], name))
    notes = {ISOLATED: b""} if is_isolated else {}
    digest = _digest(files, notes)
    archive = cache_dir / "environments" / f"{digest}.zip"
    if not archive.is_file():
        contents = {member: file.read_bytes() for member, file in files.items()}
        write_archive(archive, {**contents, **notes})
    return PackedEnvironment(
        digest=digest,
        path=archive,
        libraries=tuple(f"{name} {members[name].version}" for name in sorted(members)),
        is_native=any(name.endswith(_NATIVE) for name in files),
    )


def _files_of(dist: Any, name: str) -> Mapping[str, Path]:
    """Return the files of a distribution by their place in the archive."""
    recorded = dict(_recorded_files(dist))
    if any(not _is_metadata(member) for member in recorded):
        return recorded
    sources = dict(_editable_files(dist, recorded))
    if not sources:
        raise ENVIRONMENT_FILES_UNKNOWN(library=f"{name} {dist.version}")
    return {
        **{member: file for member, file in recorded.items() if _is_metadata(member)},
        **sources,
    }


def _recorded_files(dist: Any) -> Iterator[tuple[str, Path]]:
    """Yield the installed files, without scripts and local files."""
    for entry in dist.files or ():
        member = entry.as_posix()
        if member.startswith(("..", "/")) or member.endswith((".pth", ".pyc")):
            continue
        file = Path(dist.locate_file(entry))
        if entry.name not in _NOT_PACKED and not _CACHES & set(entry.parts) and file.is_file():
            yield member, file


def _is_metadata(member: str) -> bool:
    top = member.partition("/")[0]
    return top.endswith((".dist-info", ".egg-info")) or top.startswith("__editable__")


def _editable_files(dist: Any, recorded: Mapping[str, Path]) -> Iterator[tuple[str, Path]]:
    """Yield the sources of an editable installation, below the folder it names."""
    info = next((file.parent for member, file in recorded.items() if _is_metadata(member)), None)
    if info is None:
        return
    tops = (dist.read_text("top_level.txt") or "").split() or _entry_packages(dist)
    for folder in _named_folders(dist, info.parent):
        for top in tops:
            module = folder / f"{top}.py"
            if module.is_file():
                yield module.name, module
            for file in sorted((folder / top).rglob("*")):
                if file.is_file() and file.suffix != ".pyc" and not _CACHES & set(file.parts):
                    yield file.relative_to(folder).as_posix(), file


def _entry_packages(dist: Any) -> list[str]:
    """Return the packages of entry points, for build tools that list no packages."""
    return sorted({entry.value.partition(":")[0].partition(".")[0] for entry in dist.entry_points})


def _named_folders(dist: Any, site: Path) -> Iterator[Path]:
    names = [entry.name for entry in dist.files or () if entry.name.endswith(".pth")]
    for name in names:
        for line in (site / name).read_text(encoding="utf-8").splitlines():
            if line.strip() and not line.startswith(("#", "import ")):
                yield Path(line.strip())
    address = json.loads(dist.read_text("direct_url.json") or "{}")
    if not names and address.get("dir_info", {}).get("editable"):
        yield Path(address["url"].removeprefix("file://"))


def _digest(files: Mapping[str, Path], notes: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for member in sorted([*files, *notes]):
        data = notes[member] if member in notes else files[member].read_bytes()
        name = member.encode()
        digest.update(len(name).to_bytes(8, "little") + name + hashlib.sha256(data).digest())
    return digest.hexdigest()


def write_archive(archive: Path, contents: Mapping[str, bytes]) -> None:
    """Write an archive of files by place, as one step; equal content is equal bytes."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    temporary = archive.with_name(f".{archive.name}.{id(contents)}.tmp")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as stream:
        for member in sorted(contents):
            entry = zipfile.ZipInfo(member, date_time=_EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            stream.writestr(entry, contents[member])
    temporary.replace(archive)
