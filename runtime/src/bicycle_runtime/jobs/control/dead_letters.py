"""Dead letters of a job: records that its functions refused, as it published them.

A letter is a line of a file beside the job's checkpoints, and is identified by file and line, which
do not change. Nothing is unpickled here: the value of a letter is returned only on request, and as
its bytes.
"""

from __future__ import annotations

import base64
import heapq
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.base.storage_urls import open_storage
from bicycle_runtime.base.stored import STORED_VERSION, VERSION_FIELD, decode_stored, refuse_newer
from bicycle_runtime.jobs.control.job_queries import job_status
from bicycle_runtime.jobs.errors import DEAD_LETTER_UNKNOWN
from bicycle_runtime.jobs.home import Home

_LINE_BYTES_MAX = 64 << 20
_LETTERS_MAX = 10_000


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """One letter without its value.

    ``id`` is file and line; ``operator`` refused the record that came from ``offset`` of ``shard``
    of ``source`` (with ``end_offset``: from somewhere between). ``encoding`` is the form of the
    value: ``pickle``, ``raw`` bytes of the source, or ``repr``, as Python showed it. ``time_ms`` is
    when the epoch wrote it, in ms since 1970. ``replayed_epoch`` is the epoch of its replay,
    ``replay_of`` its former letter.
    """

    id: str
    operator: str
    operator_name: str
    plugin: str
    plugin_version: str
    exception: str
    message: str
    location: str
    traceback: str
    key: str
    attempt: int
    encoding: str
    value_bytes: int
    time_ms: int
    source: str | None = None
    shard: str | None = None
    offset: int | None = None
    end_offset: int | None = None
    event_time_ms: int | None = None
    replay_of: str | None = None
    replayed_epoch: int | None = None


class LetterMark(msgspec.Struct, frozen=True):
    """The sealed record of a replayed letter; ``request`` is the replay's request."""

    letter: str
    epoch: int
    request: str = ""


class Letter(DeadLetter, frozen=True, kw_only=True):
    """One letter in detail, with its value.

    ``value`` is text, but for a pickle, which is Base64; ``source_message`` is the source's
    metadata of the record.
    """

    value: str | msgspec.UnsetType = msgspec.UNSET
    source_message: Any = msgspec.UNSET


def dead_letters_folder(home: Home, job: str) -> Path:
    """Return the folder of a job's dead letters, which may be absent.

    Raises:
        JOB_NOT_FOUND: there is no such job.
    """
    checkpoint = job_status(home, job).checkpoint
    storage = open_storage(checkpoint) if checkpoint else None
    if isinstance(storage, LocalStorage):
        return Path(storage.url) / "dead_letters"
    return home.folder(job).path / "dead_letters"


def dead_letters(
    home: Home, job: str, *, operator: str | None = None, after: str | None = None, limit: int = 50
) -> tuple[list[DeadLetter], str | None]:
    """Return dead letters, the newest file first, in a file the last line first.

    Args:
        home: Where jobs are kept.
        job: The job's id.
        operator: Only of the operator with this uid.
        after: Only letters behind the letter of this id.
        limit: How many at most, 1 to 10,000.

    Returns:
        The letters, and the id after which to continue; None when there are no more.

    Raises:
        JOB_NOT_FOUND: there is no such job.
        DEAD_LETTER_UNKNOWN: ``after`` is no id of a letter.
    """
    folder = dead_letters_folder(home, job)
    count = min(limit, _LETTERS_MAX)
    before = None if after is None else _position(after, job)
    marks = replayed_letters(folder)
    found: list[DeadLetter] = []
    for path in sorted(_files(folder), reverse=True):
        if before is not None and path.name > before[0]:
            continue
        end = before[1] if before is not None and path.name == before[0] else None
        wanted = (
            (number, plain)
            for number, plain in _lines(path)
            if (end is None or number < end) and operator in (None, plain.get("operator"))
        )
        # The last lines of a file, without all of it in memory.
        last = heapq.nlargest(count + 1 - len(found), wanted, key=lambda pair: pair[0])
        found += [_letter(path, number, plain, marks) for number, plain in last]
        if len(found) > count:
            return found[:count], found[count - 1].id
    return found, None


def dead_letter(home: Home, job: str, letter: str, *, is_revealed: bool = False) -> dict[str, Any]:
    """Return one letter as plain data.

    Args:
        home: Where jobs are kept.
        job: The job's id.
        letter: Its id.
        is_revealed: Return the value, too: bytes and ``repr`` as text in ``value``, a pickle in
            Base64; and the ``source_message`` if the source has one.

    Raises:
        JOB_NOT_FOUND: there is no such job.
        DEAD_LETTER_UNKNOWN: there is no such letter.
    """
    folder = dead_letters_folder(home, job)
    plain = letter_lines(folder, [letter], job=job)[letter]
    name, number = _position(letter, job)
    found = _letter(folder / name, number, plain, replayed_letters(folder))
    shown: dict[str, Any] = msgspec.to_builtins(found)
    return {**shown, **_value(plain)} if is_revealed else shown


def named_letters(home: Home, job: str, letters: Sequence[str]) -> list[DeadLetter]:
    """Return the letters of these ids, in this order; each file is read once.

    Raises:
        JOB_NOT_FOUND: there is no such job.
        DEAD_LETTER_UNKNOWN: there is no such letter.
    """
    folder = dead_letters_folder(home, job)
    marks = replayed_letters(folder)
    found = {
        (path.name, number): _letter(path, number, plain, marks)
        for path, number, plain in _named_lines(folder, letters, job=job)
    }
    return [found[_position(letter, job)] for letter in letters]


def letter_lines(folder: Path, letters: Sequence[str], *, job: str) -> dict[str, dict[str, Any]]:
    """Return letters as they were published, by id; each file is read once.

    Raises:
        DEAD_LETTER_UNKNOWN: there is no such letter.
    """
    found = {
        (path.name, number): plain for path, number, plain in _named_lines(folder, letters, job=job)
    }
    return {letter: found[_position(letter, job)] for letter in letters}


def _named_lines(
    folder: Path, letters: Sequence[str], *, job: str
) -> Iterator[tuple[Path, int, dict[str, Any]]]:
    wanted: dict[str, set[int]] = {}
    for letter in letters:
        name, number = _position(letter, job)
        wanted.setdefault(name, set()).add(number)
    files = {path.name: path for path in _files(folder)}
    for name, numbers in wanted.items():
        for number, plain in _lines(files[name]) if name in files else ():
            if number in numbers:
                numbers.remove(number)
                yield files[name], number, plain
            if not numbers:
                break
        if numbers:
            raise DEAD_LETTER_UNKNOWN(job=job, letter=f"{name}:{min(numbers)}"[:200])


def replayed_letters(folder: Path) -> dict[str, LetterMark]:
    """Return the sealed and published marks of replayed letters, by letter."""
    marks: dict[str, LetterMark] = {}
    for path in _files(folder / "replayed"):
        for line in path.read_bytes().splitlines():
            mark = decode_stored(line, LetterMark, path=str(path))
            marks[mark.letter] = mark
    return marks


def _position(letter: str, job: str) -> tuple[str, int]:
    name, _, line = letter.rpartition(":")
    if not name or "/" in name or not (line.isascii() and line.isdecimal()):
        raise DEAD_LETTER_UNKNOWN(job=job, letter=letter[:200])
    return name, int(line)


def _files(folder: Path) -> list[Path]:
    """Return the published files, without hidden ones that are being written."""
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if path.is_file() and path.suffix == ".jsonl"]


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with path.open("rb") as stream:
        number = 0
        while line := stream.readline(_LINE_BYTES_MAX):
            number += 1
            plain = json.loads(line)
            refuse_newer(plain.get(VERSION_FIELD, STORED_VERSION), path=f"{path}:{number}")
            yield number, plain


def _letter(
    path: Path, number: int, plain: dict[str, Any], marks: Mapping[str, LetterMark]
) -> DeadLetter:  # fmt: skip
    fields = {field: plain[field] for field in DeadLetter.__struct_fields__ if field in plain}
    letter = f"{path.name}:{number}"
    mark = marks.get(letter)
    # A file has the letters of one epoch, and does not change.
    time_ms = path.stat().st_mtime_ns // 1_000_000
    size = len(base64.b64decode(plain["value"]))
    fields |= {"id": letter, "value_bytes": size, "time_ms": time_ms}
    return DeadLetter(**{**fields, "replayed_epoch": None if mark is None else mark.epoch})


def _value(plain: dict[str, Any]) -> dict[str, Any]:
    value = plain["value"]
    if plain["encoding"] != "pickle":
        value = base64.b64decode(value).decode("utf-8", "backslashreplace")
    return {"value": value, "source_message": plain.get("source_message")}
