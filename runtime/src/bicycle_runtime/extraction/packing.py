"""A plugin's environment as one archive: its files and those of the libraries that it needs.

The archive holds what pip installed, by the record of each distribution, and the sources of those
that are installed editable. It is named by the digest of its content, so equal environments are one
archive whoever made it and whenever. What the runtime holds itself is left out. Whether workers can
use it is for the handshake to say; ``unpacking`` is the other half.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bicycle_runtime.extraction.discovery import PluginRef
from bicycle_runtime.extraction.errors import EnvironmentFilesError
from bicycle_runtime.extraction.requirements_closure import (
    HELD_BY_RUNTIME,
    closure_of,
    installed,
    require_no_conflict,
)

__all__ = ["PackedEnvironment", "pack_environment"]

_EPOCH = (1980, 1, 1, 0, 0, 0)  # Equal content is equal bytes: no times of files.
_NATIVE = (".so", ".pyd", ".dylib")
# What pip notes about the place and the way of the installation, and what is no code of anybody.
_NOT_PACKED = frozenset({"direct_url.json", "INSTALLER", "REQUESTED", "RECORD"})
_CACHES = frozenset({"__pycache__"})


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
    ref: PluginRef, path: Iterable[str], *, runtime_path: Iterable[str], cache_dir: Path
) -> PackedEnvironment:
    """Pack what a plugin needs beside the runtime.

    Args:
        ref: The plugin.
        path: Import path of the environment that it is installed in.
        runtime_path: Import path of the runtime.
        cache_dir: Archives are kept there, by digest; one that is there is not written again.

    Raises:
        EnvironmentConflictError: the plugin and the runtime can not live in one process.
        EnvironmentFilesError: the files of a distribution are not to be found.
    """
    closure = closure_of(ref.dist_name, installed([ref.location, *path]))
    require_no_conflict(closure, runtime_path, name=ref.name)
    members = {name: dist for name, dist in closure.members.items() if name not in HELD_BY_RUNTIME}
    files: dict[str, Path] = {}
    for name in sorted(members):
        files.update(_files_of(members[name], name))
    digest = _digest(files)
    archive = cache_dir / "environments" / f"{digest}.zip"
    if not archive.is_file():
        write_archive(archive, {place: files[place].read_bytes() for place in files})
    return PackedEnvironment(
        digest=digest,
        path=archive,
        libraries=tuple(f"{name} {members[name].version}" for name in sorted(members)),
        is_native=any(name.endswith(_NATIVE) for name in files),
    )


def _files_of(dist: Any, name: str) -> Mapping[str, Path]:
    """Return the files of a distribution by their place in the archive."""
    recorded = dict(_recorded(dist))
    if any(not _is_metadata(place) for place in recorded):
        return recorded
    sources = dict(_editable_files(dist, recorded))
    if not sources:
        raise EnvironmentFilesError(library=f"{name} {dist.version}")
    return {**{place: file for place, file in recorded.items() if _is_metadata(place)}, **sources}


def _recorded(dist: Any) -> Iterator[tuple[str, Path]]:
    """Yield the files that were installed, but for scripts and what only means something there."""
    for entry in dist.files or ():
        place = entry.as_posix()
        if place.startswith(("..", "/")) or place.endswith((".pth", ".pyc")):
            continue
        file = Path(dist.locate_file(entry))
        if entry.name not in _NOT_PACKED and not _CACHES & set(entry.parts) and file.is_file():
            yield place, file


def _is_metadata(place: str) -> bool:
    top = place.partition("/")[0]
    return top.endswith((".dist-info", ".egg-info")) or top.startswith("__editable__")


def _editable_files(dist: Any, recorded: Mapping[str, Path]) -> Iterator[tuple[str, Path]]:
    """Yield the sources of an editable installation: its packages below the folder it names."""
    info = next((file.parent for place, file in recorded.items() if _is_metadata(place)), None)
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
    """Return the packages that entry points lead to, for builders that list none."""
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


def _digest(files: Mapping[str, Path]) -> str:
    digest = hashlib.sha256()
    for place in sorted(files):
        content = hashlib.sha256(files[place].read_bytes()).digest()
        name = place.encode()
        digest.update(len(name).to_bytes(8, "little") + name + content)
    return digest.hexdigest()


def write_archive(archive: Path, contents: Mapping[str, bytes]) -> None:
    """Write an archive of files by place, as one step; equal content is equal bytes."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    temporary = archive.with_name(f".{archive.name}.{id(contents)}.tmp")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as stream:
        for place in sorted(contents):
            entry = zipfile.ZipInfo(place, date_time=_EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            stream.writestr(entry, contents[place])
    temporary.replace(archive)
