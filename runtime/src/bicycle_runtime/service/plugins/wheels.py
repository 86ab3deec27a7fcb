"""A received wheel: read as a zip file with bounds, never executed or unpacked.

A wheel must be as a build tool writes it: one archive from the first byte to the last, with plain
files below the folder in which it is unpacked, each listed in RECORD with its hash. Any other wheel
is refused, because two readers could interpret it differently.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
from packaging.tags import sys_tags
from packaging.utils import (
    InvalidWheelFilename,
    canonicalize_name,
    canonicalize_version,
    parse_wheel_filename,
)

from bicycle_runtime.extraction.discovery import discover
from bicycle_runtime.extraction.packing import (
    HELD_BY_RUNTIME,
    bare_text,
    closure_of,
    find_installed,
)
from bicycle_runtime.service.plugins.errors import WHEEL_REFUSED
from bicycle_sdk.errors import BicycleError

_END = struct.Struct("<4s4H2LH")
_END_MARK = b"PK\x05\x06"
_CHUNK_BYTES = 1 << 20
_METADATA_BYTES_MAX = 1 << 20
_RECORD_BYTES_MAX = 16 << 20
_DIRECTORY_BYTES_PER_FILE = 1_024
_RATIO_FREE_BYTES = 1 << 20  # So small a wheel may be packed as tightly as it likes.
_HASHES = frozenset({"sha256", "sha384", "sha512"})
_UNHASHED = ("RECORD", "RECORD.jws", "RECORD.p7s")
_PACKED = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
_READ_PARTS = ("METADATA", "entry_points.txt")
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError, ValueError)
_IS_ENCRYPTED = 0x1
_LINE_FILES = (
    ".pth",
    ".start",
)  # Python runs their lines, or the modules that they name.
_STARTED_MODULES = ("sitecustomize", "usercustomize")
_ENTRY_LINE = re.compile(r"|[#;].*|\[.*\]|\w[\w.+-]{0,99}\s*=.*")


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelLimits:
    """Bounds of one wheel."""

    byte_count_max: int = 256 << 20
    file_count_max: int = 20_000
    unpacked_bytes_max: int = 2 << 30
    ratio_max: int = 200
    path_length_max: int = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelFacts:
    """A wheel that was checked.

    ``plugins`` are its entry points, name to target. ``requires`` are the libraries that it needs
    and the runtime does not hold itself, with their versions; ``missing`` are their names.
    """

    file: str
    name: str
    version: str
    digest: str
    byte_count: int
    plugins: Mapping[str, str]
    missing: tuple[str, ...]
    requires: tuple[str, ...]


class UploadedPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """A distribution with plugins that can be run.

    ``plugins`` are its entry points, name to target; ``libraries`` are the other installed
    distributions, name to version. ``jobs`` need it: they run in its environment, or may be started
    again.
    """

    digest: str
    name: str
    version: str
    file: str
    byte_count: int
    plugins: dict[str, str]
    libraries: list[str]
    has_lock: bool
    python: str
    platform: str
    owner: str
    uploaded_ms: int
    jobs: list[str] = []

    @property
    def title(self) -> str:
        """Name and version, for people."""
        return f"{self.name} {self.version}"


def check_wheel(path: Path, limits: WheelLimits | None = None) -> WheelFacts:
    """Check a wheel, and return the facts in its metadata.

    Args:
        path: The file, with the name that it was sent with.
        limits: Bounds; the defaults when None.

    Raises:
        WHEEL_REFUSED: it is no wheel, or breaks a rule.
    """
    try:
        return _Check(path, limits or WheelLimits()).facts()
    except _BROKEN as error:
        raise _refusal(path, f"it cannot be read as a zip file ({error})") from error


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _refusal(path: Path, problem: str) -> BicycleError:
    return WHEEL_REFUSED(file=path.name, problem=problem)


class _Check:
    """One wheel under examination."""

    def __init__(self, path: Path, limits: WheelLimits) -> None:
        self._path = path
        self._limits = limits
        self._byte_count = path.stat().st_size

    def facts(self) -> WheelFacts:
        name, version = self._read_name()
        directory_at = self._frame()
        with zipfile.ZipFile(self._path) as archive:
            entries = archive.infolist()
            self._entries(entries, directory_at)
            files = {entry.filename: entry for entry in entries if not entry.is_dir()}
            info = self._info_folder(files, name, version)
            self._contents(archive, files, info)
            with tempfile.TemporaryDirectory() as folder:
                for part in _READ_PARTS:
                    if f"{info}/{part}" in files:
                        archive.extract(f"{info}/{part}", folder)
                plugins, requires = self._metadata(folder, name, version)
        return WheelFacts(
            file=self._path.name, name=name, version=version, digest=file_digest(self._path),
            byte_count=self._byte_count, plugins=plugins, missing=tuple(sorted(requires)),
            requires=tuple(text for name in sorted(requires) for text in requires[name]),
        )  # fmt: skip

    def _refuse_if(self, is_wrong: bool, problem: str) -> None:
        if is_wrong:
            raise _refusal(self._path, problem)

    def _read_name(self) -> tuple[str, str]:
        try:
            name, version, _build, tags = parse_wheel_filename(self._path.name)
        except InvalidWheelFilename as error:
            raise _refusal(self._path, "its name is not the name of a wheel") from error
        self._refuse_if(
            tags.isdisjoint(sys_tags()),
            f"it is for {', '.join(sorted(map(str, tags))[:3])}, not for this Python and platform",
        )
        return name, str(version)

    def _frame(self) -> int:
        """Ensure that the archive fills the file; return where its directory begins."""
        limits = self._limits
        self._refuse_if(
            self._byte_count > limits.byte_count_max,
            f"it has more than {limits.byte_count_max} bytes",
        )
        self._refuse_if(self._byte_count < _END.size, "it is not a zip file")
        with self._path.open("rb") as stream:
            stream.seek(-_END.size, io.SEEK_END)
            end = _END.unpack(stream.read())
        mark, disk, first_disk, here, count, size, start, comment = end
        is_whole = mark == _END_MARK and (disk, first_disk, comment) == (0, 0, 0)
        is_whole = is_whole and here == count and start + size + _END.size == self._byte_count
        self._refuse_if(not is_whole, "it is not exactly one zip archive")
        self._refuse_if(count > limits.file_count_max, f"it has {count} files")
        # The directory is read into memory.
        self._refuse_if(
            size > (count + 1) * _DIRECTORY_BYTES_PER_FILE, "its directory is too large"
        )
        return int(start)

    def _entries(self, entries: list[zipfile.ZipInfo], directory_at: int) -> None:
        limits = self._limits
        self._refuse_if(len(entries) > limits.file_count_max, f"it has {len(entries)} files")
        unpacked = sum(entry.file_size for entry in entries)
        self._refuse_if(
            unpacked > limits.unpacked_bytes_max,
            f"it unpacks to {unpacked} bytes, more than {limits.unpacked_bytes_max}",
        )
        self._refuse_if(
            unpacked > max(_RATIO_FREE_BYTES, self._byte_count * limits.ratio_max),
            f"it unpacks to more than {limits.ratio_max} times its size",
        )
        seen: set[str] = set()
        for entry in entries:
            self._entry(entry)
            folded = entry.filename.rstrip("/").casefold()
            self._refuse_if(folded in seen, f"it contains {entry.filename!r} twice")
            seen.add(folded)
        self._layout(entries, directory_at)

    def _entry(self, entry: zipfile.ZipInfo) -> None:
        # zipfile truncates a name at NUL, and replaces some characters: the stored name counts.
        name = entry.orig_filename
        parts = name.rstrip("/").split("/")
        is_bad = name != entry.filename or "\\" in name or ":" in parts[0]
        is_bad = is_bad or any(part in ("", ".", "..") for part in parts)
        is_bad = is_bad or not name.isprintable() or len(name) > self._limits.path_length_max
        self._refuse_if(is_bad, f"the path {name[:300]!r} in it is unsafe or not normalized")
        kind = stat.S_IFMT(entry.external_attr >> 16)
        wanted = (0, stat.S_IFDIR) if entry.is_dir() else (0, stat.S_IFREG)
        self._refuse_if(kind not in wanted, f"{name!r} in it is a link or a device")
        self._refuse_if(bool(entry.flag_bits & _IS_ENCRYPTED), f"{name!r} in it is encrypted")
        self._refuse_if(
            entry.compress_type not in _PACKED, f"{name!r} in it has an unsupported compression"
        )
        self._refuse_if(
            _runs_by_itself(parts), f"it contains {name!r}, which Python runs automatically"
        )
        # Files there do not reach workers, and may replace the interpreter.
        is_data = parts[0].endswith(".data") and parts[1:2] not in (["purelib"], ["platlib"], [])
        self._refuse_if(
            is_data, f"it contains {name!r}, which would be installed outside of its packages"
        )

    def _layout(self, entries: Iterable[zipfile.ZipInfo], directory_at: int) -> None:
        """Ensure that no two files share bytes: many may unpack the same ones."""
        position = 0
        for entry in sorted(entries, key=lambda entry: entry.header_offset):
            self._refuse_if(entry.header_offset < position, "files in it overlap")
            header = zipfile.sizeFileHeader  # type: ignore[attr-defined]  # The typeshed lacks it.
            position = entry.header_offset + header + len(entry.orig_filename) + entry.compress_size
        self._refuse_if(position > directory_at, "files in it overlap")

    def _info_folder(self, files: Mapping[str, zipfile.ZipInfo], name: str, version: str) -> str:
        found = {top for path in files if (top := path.partition("/")[0]).endswith(".dist-info")}
        self._refuse_if(len(found) != 1, f"it has {len(found)} metadata folders")
        (info,) = found
        told_name, _, told_version = info.removesuffix(".dist-info").partition("-")
        is_same = canonicalize_name(told_name) == name
        is_same = is_same and canonicalize_version(told_version) == canonicalize_version(version)
        self._refuse_if(not is_same, f"its name and its folder {info!r} differ")
        for part in ("METADATA", "WHEEL", "RECORD"):
            self._refuse_if(f"{info}/{part}" not in files, f"it has no {part}")
        for part in ("WHEEL", *_READ_PARTS):
            entry = files.get(f"{info}/{part}")
            is_large = entry is not None and entry.file_size > _METADATA_BYTES_MAX
            self._refuse_if(is_large, f"its {part} is too large")
        self._refuse_if(
            files[f"{info}/RECORD"].file_size > _RECORD_BYTES_MAX, "its RECORD is large"
        )
        return info

    def _contents(
        self, archive: zipfile.ZipFile, files: Mapping[str, zipfile.ZipInfo], info: str
    ) -> None:
        """Read every byte, and compare it with RECORD."""
        text = archive.read(f"{info}/RECORD").decode("utf-8")
        listed = {row[0]: row[1] for row in csv.reader(io.StringIO(text)) if len(row) == 3}
        unhashed = {f"{info}/{part}" for part in _UNHASHED}
        for path in listed.keys() - files.keys() - unhashed:
            raise _refusal(self._path, f"RECORD lists {path!r}, which is missing")
        for path, entry in files.items():
            if path in unhashed:
                continue
            algorithm, _, wanted = listed.get(path, "").partition("=")
            self._refuse_if(algorithm not in _HASHES, f"RECORD has no hash for {path!r}")
            found = hashlib.new(algorithm)
            with archive.open(entry) as stream:  # It checks the size, and the name in the header.
                while chunk := stream.read(_CHUNK_BYTES):
                    found.update(chunk)
            told = base64.urlsafe_b64encode(found.digest()).rstrip(b"=").decode()
            self._refuse_if(told != wanted.rstrip("="), f"{path!r} does not match RECORD")

    def _metadata(
        self, folder: str, name: str, version: str
    ) -> tuple[dict[str, str], dict[str, list[str]]]:
        """Return the entry points, and the wheel's requirements, by name.

        Args:
            folder: Folder with its unpacked metadata; a reader of the wheel would keep it open.
            name: The name in the file name.
            version: The version in the file name.
        """
        among = find_installed([folder])
        self._refuse_if(name not in among, "its METADATA has another name")
        told = str(among[name].version)
        is_same = canonicalize_version(told) == canonicalize_version(version)
        self._refuse_if(not is_same, f"its METADATA has version {told!r}")
        for line in (among[name].read_text("entry_points.txt") or "").splitlines():
            is_plain = bool(_ENTRY_LINE.fullmatch(line.strip()))
            # An installer writes files of the names of some of them.
            self._refuse_if(not is_plain, f"{line[:100]!r} is not an entry point with a plain name")
        found = discover([folder])
        for refusal in found.refused:
            raise _refusal(self._path, f"plugin {refusal.name!r}: {refusal.reason}")
        plugins = {ref.name: ref.target for ref in found.found}
        self._refuse_if(not plugins, "it has no entry point in the group bicycle.plugins")
        needed = closure_of(name, among=among).asked
        left = needed.keys() - {name} - HELD_BY_RUNTIME
        return plugins, {each: [bare_text(asked) for _, asked in needed[each]] for each in left}


def _runs_by_itself(parts: list[str]) -> bool:
    """Return whether Python runs an installed file at each start.

    Args:
        parts: Its path in the wheel; files below ``.data/purelib`` are installed one level up.

    Example:
        >>> found = ["a.pth", "a-1.data/purelib/a.pth", "usercustomize/a.py", "a/a.pth"]
        >>> [_runs_by_itself(path.split("/")) for path in found]
        [True, True, True, False]
    """
    installed = parts[2:] if parts[0].endswith(".data") else parts
    if not installed:
        return False
    first = installed[0].casefold()
    is_line_file = len(installed) == 1 and first.endswith(_LINE_FILES)
    return is_line_file or first.partition(".")[0] in _STARTED_MODULES
