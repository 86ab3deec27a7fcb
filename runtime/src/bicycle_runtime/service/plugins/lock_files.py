"""A lock file: one version of each library, with the hashes of its wheels.

It is a requirements file as ``uv pip compile --generate-hashes`` and pip-tools write it. Options,
files and addresses in it are rejected, because with them the sender could select the source of the
packages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement
from packaging.utils import canonicalize_name

from bicycle_runtime.extraction.packing import read_requirement
from bicycle_runtime.service.plugins.errors import LOCK_REFUSED

LOCK_BYTES_MAX = 4 << 20
_COMMENT = re.compile(r"(^|\s)#.*$")
_HASH = re.compile(r"\s--hash[=\s]\s*(\S+)")
_SHA = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedLibrary:
    """A locked library; ``line`` is its entry for an installer."""

    name: str
    line: str


def read_lock(data: bytes) -> list[LockedLibrary]:
    """Return the libraries of a lock file.

    Raises:
        LOCK_REFUSED: with the first line that is something else.
    """
    if len(data) > LOCK_BYTES_MAX:
        raise LOCK_REFUSED(line=1, problem=f"it has more than {LOCK_BYTES_MAX} bytes")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise LOCK_REFUSED(line=1, problem="it is not UTF-8 text") from error
    return [_library(number, line) for number, line in _lines(text)]


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the logical lines, with the number of their first line."""
    begun, first = "", 0
    for number, raw in enumerate(text.splitlines(), start=1):
        line = _COMMENT.sub("", raw).rstrip()
        first = first or number
        if line.endswith("\\"):
            begun += line[:-1] + " "
            continue
        if whole := (begun + line).strip():
            yield first, whole
        begun, first = "", 0
    if begun.strip():
        yield first, begun.strip()


def _library(number: int, line: str) -> LockedLibrary:
    hashes = _HASH.findall(line)
    rest = _HASH.sub("", line).strip()
    if rest.startswith("-") or " -" in rest:
        raise LOCK_REFUSED(line=number, problem=f"options are not supported: {rest[:100]!r}")
    try:
        requirement = read_requirement(rest)
    except InvalidRequirement as error:
        raise LOCK_REFUSED(line=number, problem=f"{rest[:100]!r} is not a requirement") from error
    operator_ids = list(requirement.specifier)
    is_pinned = (
        len(operator_ids) == 1
        and operator_ids[0].operator == "=="
        and "*" not in operator_ids[0].version
    )
    if requirement.url is not None or not is_pinned:
        raise LOCK_REFUSED(line=number, problem=f"{rest[:100]!r} is not NAME==VERSION")
    if not hashes:
        raise LOCK_REFUSED(line=number, problem=f"{rest[:100]!r} has no --hash")
    for each in hashes:
        if not _SHA.fullmatch(each):
            raise LOCK_REFUSED(line=number, problem=f"{each[:100]!r} is not a SHA-256 hash")
    words = [str(requirement), *(f"--hash={each}" for each in sorted(hashes))]
    return LockedLibrary(name=canonicalize_name(requirement.name), line=" ".join(words))
