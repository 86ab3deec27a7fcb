"""Records of SQL tests in the format of sqllogictest, and compared results.

Beside the records of the format, ``epoch`` has rows that arrive in one epoch, ``watermark``
advances or compares event time, and ``changes`` has the rows that a view or table got since its
last ``changes``. The SQL of a record keeps its offset in the file, so that problems have positions.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Any

from bicycle_runtime.endpoints.checking import likely
from bicycle_runtime.endpoints.positions import Position
from bicycle_runtime.tables.errors import SQL_TEST_INVALID
from bicycle_runtime.tables.texts import SqlText
from bicycle_sdk.result_tables import value_text

_SORT = r"( (nosort|rowsort|valuesort))?"
_SORT_TEXT = "[nosort|rowsort|valuesort]"
# Record: whether it has SQL, the form of its first line, and this form for people.
_FORMS = {
    "statement": (True, r"statement (ok|error( .*)?)", "statement ok, or statement error REGEX"),
    "query": (
        True, rf"query (error( .*)?|[BDIPRT?]+(?!\S){_SORT}( \S+)?)",
        f"query TYPES {_SORT_TEXT} [LABEL] with one of T, I, R, B, D, P or ? for each column, or "
        "query error REGEX",
    ),
    "epoch": (True, "epoch", "epoch"),
    "watermark": (False, r"watermark \S.*", "watermark TIME, watermark end, or watermark NAME"),
    "changes": (False, rf"changes \S+{_SORT}", f"changes NAME {_SORT_TEXT}"),
    "hash-threshold": (False, r"hash-threshold \d+", "hash-threshold NUMBER"),
    "halt": (False, "halt", "halt"),
}  # fmt: skip
_HASH = re.compile(r"\d+ values hashing to [0-9a-f]{32}")
_HINT = "see `bicycle sql test --help` for the records"
ENGINE = "bicycle"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogicRecord:
    """A record of a file.

    ``header`` is its first line; ``begin`` and ``end`` are the offsets of its SQL; ``expected`` has
    the lines after ``----``, or is None without this line. ``is_ordered`` queries end in ORDER BY.
    """

    header: str
    line: int
    begin: int
    end: int
    expected: list[str] | None
    is_ordered: bool = False

    @property
    def words(self) -> list[str]:
        """The words of the first line."""
        return self.header.split()

    @property
    def kind(self) -> str:
        """The first word."""
        return self.words[0]

    @property
    def error(self) -> str | None:
        """The pattern of the error that is expected, or None."""
        if self.kind not in ("statement", "query") or self.words[1] != "error":
            return None
        return self.header.partition(" error")[2].strip() or re.escape(
            "\n".join(self.expected or ())
        )

    @property
    def sort_mode(self) -> str:
        """The order of rows: by default sorted, unless the query orders them."""
        default = "nosort" if self.is_ordered else "rowsort"
        return next((word for word in self.words[2:3] if word.endswith("sort")), default)

    @property
    def label(self) -> str | None:
        """The label of a query: queries with one label have one result."""
        rest = [word for word in self.words[2:] if not word.endswith("sort")]
        return rest[0] if rest and self.kind == "query" and self.error is None else None


class LogicText(SqlText):
    """A file of tests, perhaps after the SQL file beside it.

    Args:
        file: The name of the file.
        before: The text of the SQL file.
        text: The text of the test file.
    """

    def __init__(self, file: str, before: str, text: str) -> None:
        # Each line has a space at its end, for the semicolon of its statement.
        parts = ["".join(f"{line} \n" for line in part.splitlines()) for part in (before, text)]
        super().__init__("".join(parts), file)
        self._files = []  # Positions are those of the test file.
        self.default_kind = "file"
        self.whole, self.begin = self.text, len(parts[0])
        self.lines_before = len(before.splitlines())

    def position(self, at: int) -> Position:
        """Return line and column in the test file."""
        line, column = SqlText.position(self, at)
        return Position(max(line - self.lines_before, 1), column)

    def only(self, spans: Iterable[tuple[int, int]]) -> LogicText:
        """Return this text with blanks around some statements, at their offsets."""
        characters = [each if each == "\n" else " " for each in self.whole]
        for begin, end in spans:
            characters[begin:end] = self.whole[begin:end]
            characters[end] = ";"
        found = LogicText(self.file, "", "")
        found.__dict__.update(self.__dict__)
        found.text, found.keys, found.values = "".join(characters), {}, {}
        return found


def read_text(path: Path) -> str:
    """Return the content of a file.

    Raises:
        SQL_TEST_INVALID: it cannot be read.
    """
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = f"it cannot be read: {getattr(error, 'strerror', None) or error}"
        raise SQL_TEST_INVALID(file=path, line=1, problem=problem, hint="check the path") from error


def read_records(text: LogicText, engine: str = ENGINE) -> list[LogicRecord]:
    """Return the records of a file for an engine, up to ``halt``.

    Raises:
        SQL_TEST_INVALID: a record is not valid.
    """
    lines = text.whole[text.begin :].split("\n")[:-1]
    starts = [text.begin]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    found: list[LogicRecord] = []
    index, is_skipped = 0, False
    while index < len(lines):
        at, header = index, " ".join(lines[index].split())
        index += 1
        if not header or header.startswith("#"):
            continue
        word, _, rest = header.partition(" ")
        if word in ("skipif", "onlyif"):
            is_skipped |= (rest.partition(" ")[0] == engine) == (word == "skipif")
            continue
        begin = index
        while index < len(lines) and lines[index].strip() not in ("", "----"):
            index += 1
        expected, end = None, index
        if index < len(lines) and lines[index].strip() == "----":
            while index < len(lines) and lines[index].strip():
                index += 1
            expected = [line.strip() for line in lines[end + 1 : index]]
        record = LogicRecord(
            header=header, line=at + 1, begin=starts[begin], expected=expected,
            end=starts[end] - 1 if end > begin else starts[begin],
            is_ordered=word == "query" and _is_ordered(" ".join(lines[begin:end])),
        )  # fmt: skip
        problem = _problem_of(record)
        if problem:
            raise SQL_TEST_INVALID(file=text.file, line=record.line, problem=problem, hint=_HINT)
        if not is_skipped and record.kind == "halt":
            break
        found += [] if is_skipped else [record]
        is_skipped = False
    return found


def _is_ordered(query: str) -> bool:
    """Return whether ORDER BY is outside of parentheses and texts in quotes."""
    rest = re.sub(r"'[^']*'|\"[^\"]*\"|--.*", "", query)
    while (inner := re.sub(r"\([^()]*\)", "", rest)) != rest:
        rest = inner
    return re.search(r"\bORDER\s+BY\b", rest, re.IGNORECASE) is not None


def _problem_of(record: LogicRecord) -> str | None:
    """Return the problem of the form of a record, or None."""
    kind = record.kind
    if kind not in _FORMS:
        near = likely(kind, _FORMS)
        hint = f"did you mean {near!r}? " if near else ""
        return (
            f"there is no record {kind!r}; {hint}known: {', '.join([*_FORMS, 'skipif', 'onlyif'])}"
        )
    takes_sql, form, shown = _FORMS[kind]
    if not re.fullmatch(form, record.header):
        return f"expected {shown}; got {record.header!r}"
    if takes_sql != (record.end > record.begin):
        return f"{kind} needs SQL in the next line" if takes_sql else f"{kind} takes no SQL"
    if kind in ("query", "changes") and record.error is None and record.expected is None:
        return f"{kind} needs ---- and the expected rows"
    try:
        re.compile(record.error or "")
    except re.error as error:
        return f"{record.error!r} is not a regular expression: {error}"
    return None


# --- results -------------------------------------------------------------------------------------


def shown_value(value: Any) -> str:
    """Return a value as results show it."""
    if isinstance(value, list):
        return f"[{', '.join(map(shown_value, value))}]"
    return value_text(value) or "(empty)"


def result_lines(rows: Sequence[list[str]], mode: str) -> list[str]:
    """Return rows as lines in a sort mode; blanks in values count as one."""
    if mode == "valuesort":
        return sorted(" ".join(value.split()) for row in rows for value in row)
    lines = [" ".join(" ".join(row).split()) for row in rows]
    return sorted(lines) if mode == "rowsort" else lines


def hash_text(rows: Sequence[list[str]], mode: str) -> str:
    """Return the hash of a result, as sqllogictest writes it."""
    values = [value for row in (sorted(rows) if mode == "rowsort" else rows) for value in row]
    values = sorted(values) if mode == "valuesort" else values
    digest = hashlib.md5("".join(f"{value}\n" for value in values).encode(), usedforsecurity=False)
    return f"{len(values)} values hashing to {digest.hexdigest()}"


def difference(
    record: LogicRecord, rows: Sequence[list[str]], *, hash_threshold: int = 0
) -> str | None:
    """Return how rows differ from the expected ones, or None.

    Args:
        record: Has the expected lines: one for each row, or one for each value.
        rows: The result.
        hash_threshold: Larger results are shown as a hash; 0 for none.
    """
    mode, width = record.sort_mode, len(rows[0]) if rows else 0
    if record.kind == "query" and rows and width != len(record.words[1]):
        return f"expected {len(record.words[1])} columns, got {width}"
    expected = [" ".join(line.split()) for line in record.expected or ()]
    if mode != "valuesort" and width > 1 and len(expected) == width * len(rows):
        expected = [" ".join(expected[at : at + width]) for at in range(0, len(expected), width)]
    is_hashed = len(expected) == 1 and _HASH.fullmatch(expected[0]) is not None
    found = [hash_text(rows, mode)] if is_hashed else result_lines(rows, mode)
    expected = expected if mode == "nosort" else sorted(expected)
    if found == expected:
        return None
    if 0 < hash_threshold < width * len(rows):
        found = [hash_text(rows, mode)]
    lines = [*unified_diff(expected, found, n=2, lineterm="")][2:]
    return "\n".join(["result differs", *(line for line in lines if not line.startswith("@@"))])
