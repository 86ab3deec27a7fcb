"""The inputs of the benchmarks and the truth about them: made once, kept below ``.build``.

Inputs are the same on every machine (seeded). Each check reads the whole output of a contender and
raises ``WrongOutputError`` at the first thing that is not as it must be.
"""

from __future__ import annotations

import math
import os
import random
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice, zip_longest
from pathlib import Path

import msgspec
from measuring import BUILD, WrongOutputError

__all__ = [
    "FAR_READING",
    "FILE_COUNT",
    "WORDS_PER_LINE",
    "Events",
    "KeyEvents",
    "Keys",
    "MeasuredWindow",
    "NamedWindow",
    "Readings",
    "Told",
    "Window",
    "Words",
    "check_counts",
    "check_measured_windows",
    "check_totals",
    "check_windows",
    "count_lines",
    "scratch",
]

FILE_COUNT = 4
WORDS_PER_LINE = 10
USER_COUNT = 100_000
_KINDS = ("view", "click", "cart", "buy")
_CHUNK_BYTES = 8 << 20
_BEGIN_MS = 1_700_000_000_000
_FAR_MS = _BEGIN_MS + 10_000_000_000
# Ends all windows before it: a system without an end of time needs it to complete the last ones.
FAR_READING = f'{{"sensor":"","at":{_FAR_MS},"value":0}}\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """Lines of ten words, drawn evenly from ``distinct`` words, in ``files`` files."""

    count: int
    distinct: int
    files: int = FILE_COUNT

    @property
    def text(self) -> str:
        """What a reader must know of it."""
        return f"{self.count:,} words, {self.distinct:,} distinct"

    def folder(self) -> Path:
        """Return the folder of the input; it is made when missing."""
        return _made(f"words-{self.count}-{self.distinct}-{self.files}", self._write)

    def truth(self) -> Counter[str]:
        """Return how often each word occurs."""
        return _counted(self.folder())

    def _write(self, folder: Path) -> None:
        source = random.Random(7)
        names = [f"word{index}" for index in range(self.distinct)]
        line_count = self.count // WORDS_PER_LINE
        for file in range(self.files):
            lines = line_count * (file + 1) // self.files - line_count * file // self.files
            with (folder / f"words-{file}.txt").open("w") as stream:
                for _ in range(lines):
                    stream.write(" ".join(source.choices(names, k=WORDS_PER_LINE)) + "\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Lines of one key each, every key once, in ``files`` files."""

    count: int
    files: int = FILE_COUNT

    def folder(self) -> Path:
        """Return the folder of the input; it is made when missing."""
        return _made(f"keys-{self.count}-{self.files}", self._write)

    def _write(self, folder: Path) -> None:
        for file in range(self.files):
            with (folder / f"keys-{file}.txt").open("w") as stream:
                keys = range(file, self.count, self.files)
                stream.writelines(f"user-{key:08}\n" for key in keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEvents:
    """Lines of one key each: every key once, and then keys drawn evenly, in ``files`` files."""

    count: int
    keys: int
    files: int = FILE_COUNT

    @property
    def text(self) -> str:
        """What a reader must know of it."""
        return f"{self.count:,} events of {self.keys:,} keys"

    def folder(self) -> Path:
        """Return the folder of the input; it is made when missing."""
        return _made(f"key-events-{self.count}-{self.keys}-{self.files}", self._write)

    def truth(self) -> Counter[str]:
        """Return how many events each key has."""
        return _counted(self.folder())

    def _write(self, folder: Path) -> None:
        for file in range(self.files):
            source = random.Random(7 + file)
            with (folder / f"events-{file}.txt").open("w") as stream:
                stream.writelines(f"user-{key:07}\n" for key in range(file, self.keys, self.files))
                stream.writelines(
                    f"user-{source.randrange(self.keys):07}\n"
                    for _ in range(self.keys + file, self.count, self.files)
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """JSON events of about 100 bytes, one per line, each of one of ``users``."""

    count: int
    files: int = FILE_COUNT
    users: int = USER_COUNT

    @property
    def text(self) -> str:
        """What a reader must know of it."""
        size = sum(file.stat().st_size for file in self.folder().iterdir())
        return f"{self.count:,} JSON events of {size / self.count:.0f} bytes"

    def folder(self) -> Path:
        """Return the folder of the input; it is made when missing."""
        users = "" if self.users == USER_COUNT else f"-{self.users}"
        return _made(f"events-{self.count}-{self.files}{users}", self._write)

    def truth(self) -> tuple[int, int]:
        """Return how many events pass the filter, and the sum of their totals."""
        return _totals(self.folder())

    def _write(self, folder: Path) -> None:
        source = random.Random(7)
        for file in range(self.files):
            first, end = self.count * file // self.files, self.count * (file + 1) // self.files
            with (folder / f"events-{file}.jsonl").open("w") as stream:
                stream.writelines(_event(index, source) for index in range(first, end))


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """JSON readings of ``keys`` sensors, one each ms and up to 5 s out of order.

    Files share the time: reading n is in file n modulo their number. The truth is told by windows
    of ``window_ms``. ``hot_percent`` of the readings are of the first sensor, the others are drawn
    evenly from all. Values are ints, or numbers with two decimals.
    """

    count: int
    keys: int
    files: int = FILE_COUNT
    window_ms: int = 10_000
    hot_percent: int = 0
    has_decimals: bool = False

    @property
    def text(self) -> str:
        """What a reader must know of it."""
        hot = f", {self.hot_percent} % of one of them" if self.hot_percent else ""
        return f"{self.count:,} readings of {self.keys:,} sensors{hot}"

    def folder(self) -> Path:
        """Return the folder of the input; it is made when missing."""
        return _made(self._name, self._write)

    def slices(self, size: int) -> Path:
        """Return a folder with the same readings in files of ``size`` that follow in time.

        For a system that takes one file after the other, in the order of their modification. The
        last file holds ``FAR_READING`` alone, which is part of no truth.
        """
        return _made(f"{self._name}-by-{size}", partial(self._write_slices, size))

    def truth(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Return number and sum of the values by sensor and start of the window."""
        return _windows(self.folder(), self.window_ms)

    @property
    def _name(self) -> str:
        hot = f"-hot{self.hot_percent}" if self.hot_percent else ""
        decimals = "-decimals" if self.has_decimals else ""
        return f"readings-{self.count}-{self.keys}-{self.files}{hot}{decimals}"

    def _write(self, folder: Path) -> None:
        for file in range(self.files):
            source = random.Random(7 + file)
            chance = random.Random(file)
            with (folder / f"readings-{file}.jsonl").open("w") as stream:
                for index in range(file, self.count, self.files):
                    at = _BEGIN_MS + index - source.randrange(5_000)
                    sensor, value = source.randrange(self.keys), source.randrange(1_000)
                    if self.hot_percent and chance.randrange(100) < self.hot_percent:
                        sensor = 0
                    shown = value / 100 if self.has_decimals else value
                    stream.write(f'{{"sensor":"sensor-{sensor:06}","at":{at},"value":{shown}}}\n')

    def _write_slices(self, size: int, folder: Path) -> None:
        with ExitStack() as stack:
            parts = [stack.enter_context(path.open()) for path in sorted(self.folder().iterdir())]
            lines = (line for several in zip_longest(*parts, fillvalue="") for line in several)
            contents = [islice(lines, size) for _ in range(0, self.count, size)]
            for number, content in enumerate([*contents, [FAR_READING]]):
                path = folder / f"slice-{number:05}.jsonl"
                with path.open("w") as stream:
                    stream.writelines(content)
                os.utime(path, (number, number))  # Some disks tell no two times apart otherwise.


def _event(index: int, source: random.Random) -> str:
    user, cents = source.randrange(100_000), source.randrange(100, 99_999)
    kind, quantity = _KINDS[index % len(_KINDS)], source.randrange(1, 9)
    return (
        f'{{"id":{10_000_000 + index},"user":"user-{user:05}","kind":"{kind}","cents":{cents},'
        f'"quantity":{quantity},"at":{_BEGIN_MS + index}}}\n'
    )


def _made(name: str, write: Callable[[Path], object]) -> Path:
    folder = BUILD / "inputs" / name
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".draft-"))
        write(draft)
        draft.rename(folder)
    return folder


@cache
def _counted(folder: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    for file in sorted(folder.iterdir()):
        with file.open() as stream:
            for line in stream:
                counts.update(line.split())
    return counts


class _Event(msgspec.Struct):
    kind: str
    cents: int
    quantity: int


class _Order(msgspec.Struct):
    id: int
    user: str
    total: int


class _Count(msgspec.Struct):
    word: str
    count: int


@cache
def _totals(folder: Path) -> tuple[int, int]:
    count = total = 0
    for event in _records(sorted(folder.iterdir()), _Event):
        if event.kind in ("cart", "buy"):
            count += 1
            total += event.cents * event.quantity
    return count, total


class _Reading(msgspec.Struct):
    sensor: str
    at: int
    value: int


class _Measured(msgspec.Struct):
    sensor: str
    at: int
    value: float


class Window(msgspec.Struct, array_like=True):
    """What most contenders write of a window: ``[key, start, end, [count, sum, average]]``."""

    key: str
    start: int
    end: int
    value: tuple[int, float, float]


class MeasuredWindow(msgspec.Struct):
    """The same as a JSON object, with a sum that is a float."""

    key: str
    start: int
    end: int
    count: int
    total: float
    average: float

    @property
    def value(self) -> tuple[int, float, float]:
        """As in ``Window``."""
        return self.count, self.total, self.average


class NamedWindow(msgspec.Struct):
    """The same with a sum that is an int."""

    key: str
    start: int
    end: int
    count: int
    total: int
    average: float

    @property
    def value(self) -> tuple[int, int, float]:
        """As in ``Window``."""
        return self.count, self.total, self.average


@cache
def _windows(folder: Path, window_ms: int) -> dict[tuple[str, int], tuple[int, int]]:
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for reading in _records(sorted(folder.iterdir()), _Reading):
        place = sys.intern(reading.sensor), reading.at // window_ms * window_ms
        count, total = found.get(place, (0, 0))
        found[place] = count + 1, total + reading.value
    return found


def check_windows(
    folder: Path, readings: Readings, kind: type[Window | NamedWindow] = Window
) -> None:
    """Check that each sensor and window is there once, with its count, sum and average.

    Raises:
        WrongOutputError: one is missing, twice or wrong.
    """
    truth = dict(readings.truth())
    for window in _records(_output_files(folder), kind):
        count, total, average = window.value
        if truth.pop((window.key, window.start), None) != (count, total):
            raise WrongOutputError(f"{folder}: {window} is wrong, or there twice")
        if window.end != window.start + readings.window_ms or average != total / count:
            raise WrongOutputError(f"{folder}: the end or the average of {window} is wrong")
    if truth:
        raise WrongOutputError(f"{folder}: {len(truth)} windows are missing")


Told = Callable[[str, int, float], tuple[str, float] | None]


def check_measured_windows(
    folder: Path, readings: Readings, told: Told, *, near: float = 0.0,
    form: type[Window | MeasuredWindow] = Window,
) -> None:  # fmt: skip
    """Check that each key and window is there once, with count, sum and average.

    Args:
        folder: What a contender wrote.
        readings: Its input, with decimals.
        told: Key and value of a reading; None when it is left out.
        near: How far an average may be off; 0 asks for exact sums.
        form: What a contender writes of a window.

    Raises:
        WrongOutputError: a window is missing, twice or wrong.
    """
    truth = dict(_measured(readings.folder(), readings.window_ms, told))
    for window in _records(_output_files(folder), form):
        expected = truth.pop((window.key, window.start), None)
        if expected is None:
            raise WrongOutputError(f"{folder}: {window} is there twice, or nobody asked for it")
        count, total = expected
        found_count, found_total, average = window.value
        apart = max(abs(found_total - total) / count, abs(average - total / count))
        if found_count != count or apart > near:
            raise WrongOutputError(f"{folder}: {window} is wrong, {count} readings sum to {total}")
    if truth:
        raise WrongOutputError(f"{folder}: {len(truth)} windows are missing")


@cache
def _measured(folder: Path, window_ms: int, told: Told) -> dict[tuple[str, int], tuple[int, float]]:
    values: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    for reading in _records(sorted(folder.iterdir()), _Measured):
        found = told(reading.sensor, reading.at, reading.value)
        if found is not None:
            key, value = found
            values[sys.intern(key), reading.at // window_ms * window_ms].append(value)
    return {place: (len(found), math.fsum(found)) for place, found in values.items()}


@contextmanager
def scratch(name: str) -> Iterator[Path]:
    """Give a fresh folder for outputs and state, and remove it afterwards."""
    folder = BUILD / "scratch"
    folder.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(dir=folder, prefix=f"{name}-"))
    try:
        yield place
    finally:
        shutil.rmtree(place)


def check_counts(folder: Path, words: Words | KeyEvents) -> None:
    """Check that each word has the counts 1 to n, once each.

    Raises:
        WrongOutputError: it has not.
    """
    number: Counter[str] = Counter()
    total: Counter[str] = Counter()
    highest: dict[str, int] = {}
    for record in _records(_output_files(folder), _Count):
        word, count = record.word, record.count
        number[word] += 1
        total[word] += count
        highest[word] = max(count, highest.get(word, 0))
    truth = words.truth()
    if number != truth:
        raise WrongOutputError(f"{folder}: {number.total()} counts, expected {truth.total()}")
    for word, expected in truth.items():
        if highest[word] != expected or total[word] != expected * (expected + 1) // 2:
            raise WrongOutputError(f"{folder}: the counts of {word!r} are not 1 to {expected}")


def check_totals(folder: Path, events: Events) -> None:
    """Check number and sum of the orders that a contender wrote.

    Raises:
        WrongOutputError: they differ from the truth.
    """
    count = total = 0
    for record in _records(_output_files(folder), _Order):
        count += 1
        total += record.total
    if (count, total) != events.truth():
        raise WrongOutputError(f"{folder}: {count}, {total}; expected {events.truth()}")


def count_lines(folder: Path) -> int:
    """Return how many lines a contender wrote."""
    return sum(file.read_bytes().count(b"\n") for file in _output_files(folder))


def _output_files(folder: Path) -> list[Path]:
    """Return the visible files; names that begin with a dot or an underline are no output."""
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(part[0] in "._" for part in path.relative_to(folder).parts)
    ]


def _records(files: list[Path], kind: type) -> Iterator:
    decoder = msgspec.json.Decoder(kind)
    for file in files:
        with file.open("rb") as stream:
            rest = b""
            while data := stream.read(_CHUNK_BYTES):
                whole, newline, tail = data.rpartition(b"\n")
                yield from decoder.decode_lines(rest + whole + newline)
                rest = tail if newline else rest + data
            yield from decoder.decode_lines(rest)
