"""The problems of a pipeline's table, with their location and likely intention.

Checks follow the declared types (``msgspec.inspect``), and continue behind a problem, so that all
of them are reported at once. A table without problems becomes its struct.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import inspect

from bicycle_runtime.pipelines.documents import Document, KeyPath, Position
from bicycle_runtime.pipelines.errors import PIPELINE_INVALID
from bicycle_runtime.pipelines.values import duration_ms
from bicycle_sdk.kafka.base import is_secret_property
from bicycle_sdk.quantities import amount
from bicycle_sdk.secrets import Secret

__all__ = [
    "Checks",
    "Problem",
    "check_address",
    "check_secret",
    "check_secrets",
    "label_of",
    "likely",
]

S = TypeVar("S", bound=msgspec.Struct)
_TIMES = "a time such as 250ms, 10s, 5m, 1h"
_SHOWN_MAX = 60
# A check ends with so many problems. Words are compared only where that is quick.
_PROBLEMS_MAX = 100
_WORD_MAX = 200
_COMPARED_MAX = 1_000
_LISTED_MAX = 100
# Names that other systems have for words of ours.
_OTHER_NAMES: Mapping[str, str] = {
    "average": "avg", "mean": "avg", "total": "sum", "maximum": "max", "minimum": "min",
    "unique": "distinct", "count_distinct": "distinct", "size": "count", "stdout": "console",
    "postgresql": "postgres", "deduplicate": "dedup", "group_by": "key_by", "select": "map",
    "where": "filter", "hopping": "sliding", "hop": "sliding", "tumble": "tumbling",
}  # fmt: skip
_WHOLE_MAX = 2**63 - 1
_TIME_MAX_MS = 100 * 366 * 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A problem, and its location."""

    path: KeyPath
    text: str
    line: int
    column: int


class Checks:
    """The problems of one document.

    Args:
        document: The document to check.
    """

    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[Problem] = []

    def note(self, path: KeyPath, text: str, *, at_key: bool = False) -> None:
        """Take note of a problem at a path."""
        find = self.document.key_position if at_key else self.document.value_position
        position = find(path)
        self._add(path, text, position)

    def missing(self, path: KeyPath, text: str) -> None:
        """Note a missing key, at the start of its table.

        A key that is present but wrong was noted before.
        """
        if not self.is_wrong(path):
            self._add(path, text, self.document.key_position(path[:-1]))

    def is_wrong(self, path: KeyPath) -> bool:
        """Return whether there is a problem at a path or below it."""
        return any(each.path[: len(path)] == path for each in self.problems)

    def raise_problems(self) -> None:
        """Raise all problems, in the order of the text, as one error.

        Raises:
            PIPELINE_INVALID: there are some.
        """
        if not self.problems:
            return
        is_cut = len(self.problems) >= _PROBLEMS_MAX
        found = sorted(self.problems, key=lambda each: (each.line, each.column))
        file = self.document.file
        lines = [f"  {file}:{each.line}:{each.column}: {each.text}" for each in found]
        raise PIPELINE_INVALID(
            file=file,
            count_text=f"{amount(len(found), 'problem')}{' or more' if is_cut else ''}",
            listing="\n".join(lines),
            problems=[
                {
                    "line": each.line,
                    "column": each.column,
                    "key": label_of(each.path),
                    "text": each.text,
                }
                for each in found
            ],
        )

    def table(self, data: Any, kind: type[S], path: KeyPath, *, of: str = "") -> S | None:
        """Check a table and return it as its struct, without the keys that are wrong.

        So errors between the others are reported, too; None if a key is missing.

        Args:
            data: The data of the file.
            kind: The expected type.
            path: Its place.
            of: Its owner, as in messages: ``file source``.
        """
        before, info = len(self.problems), inspect.type_info(kind)
        self._struct(data, info, path, of)
        found = [each.path for each in self.problems[before:]]
        touched = {at[:length] for at in found for length in range(len(at) + 1)}
        kept = _without(data, info, path, touched)
        return None if kept is _WRONG else msgspec.convert(kept, kind, strict=False)

    def word(self, value: Any, known: Iterable[str], path: KeyPath, *, what: str) -> str | None:
        """Check one word of a closed set; messages call it ``what``."""
        words = sorted(known)
        if isinstance(value, str) and value in words:
            return value
        self.note(path, f"unsupported {what}: {_shorten(value)}; {_one_of(str(value), words)}")
        return None

    def unknown(self, key: str, known: Iterable[str], path: KeyPath) -> None:
        """Note an unknown key."""
        text = f"unknown key {label_of((*path, key))}; {_one_of(key, sorted(known))}"
        self.note((*path, key), text, at_key=True)

    def _add(self, path: KeyPath, text: str, position: Position) -> None:
        found = Problem(path=path, text=text, line=position.line, column=position.column)
        self.problems.append(found)
        if len(self.problems) >= _PROBLEMS_MAX:
            self.raise_problems()

    def _struct(self, data: Any, info: Any, path: KeyPath, of: str) -> None:
        if not isinstance(data, dict):
            self.note(path, f"{label_of(path)} is {_shorten(data)}; expected a table of keys")
            return
        fields = {each.encode_name: each for each in info.fields}
        for key in data:
            if key not in fields:
                self.unknown(key, fields, path)
        for name, each in fields.items():
            if name in data and not (data[name] is None and not each.required):
                self._value(data[name], each.type, (*path, name))
            elif each.required:
                suffix = f" for {of}" if of else ""
                self.missing((*path, name), f"{label_of((*path, name))} must be set{suffix}")

    def _value(self, data: Any, info: Any, path: KeyPath) -> None:
        if isinstance(info, inspect.Metadata):
            extra = info.extra or {}
            if extra.get("kind") == "duration":
                self._duration(data, path, is_signed=extra.get("is_signed", False))
                return
            self._value(data, info.type, path)
        elif isinstance(info, inspect.UnionType):
            self._union(data, info, path)
        elif isinstance(info, inspect.StructType):
            self._struct(data, info, path, "")
        elif isinstance(info, inspect.ListType):
            self._list(data, info, path)
        elif isinstance(info, inspect.DictType):
            self._dict(data, info, path)
        elif isinstance(info, inspect.LiteralType):
            if data not in info.values:
                words = [str(value) for value in info.values]
                self.note(
                    path,
                    f"unsupported {label_of(path)}: {_shorten(data)}; {_one_of(str(data), words)}",
                )
        elif not isinstance(info, inspect.AnyType):
            self._scalar(data, info, path)

    def _union(self, data: Any, info: Any, path: KeyPath) -> None:
        """Check against the member that the data looks like."""
        members = [each for each in info.types if not isinstance(each, inspect.NoneType)]
        tables = [each for each in members if isinstance(_plain(each), inspect.StructType)]
        lists = [each for each in members if isinstance(_plain(each), inspect.ListType)]
        chosen = [each for each in members if each not in tables and each not in lists]
        if isinstance(data, dict):
            chosen = tables or [e for e in members if isinstance(_plain(e), inspect.DictType)]
        elif isinstance(data, list):
            chosen = lists
        elif len(chosen) > 1:
            chosen = [each for each in chosen if _fits(data, _plain(each))][:1]
        if len(chosen) == 1:
            self._value(data, chosen[0], path)
        else:
            expected = " or ".join(_describe_type(_plain(each)) for each in members)
            self.note(path, f"{label_of(path)} is {_shorten(data)}; expected {expected}")

    def _list(self, data: Any, info: Any, path: KeyPath) -> None:
        if not isinstance(data, list):
            self.note(path, f"{label_of(path)} is {_shorten(data)}; expected a list")
            return
        if info.min_length is not None and len(data) < info.min_length:
            self.note(path, f"{label_of(path)} is empty")
        for index, item in enumerate(data):
            self._value(item, info.item_type, (*path, index))

    def _dict(self, data: Any, info: Any, path: KeyPath) -> None:
        if not isinstance(data, dict):
            self.note(path, f"{label_of(path)} is {_shorten(data)}; expected a table of keys")
            return
        if info.min_length is not None and len(data) < info.min_length:
            self.note(path, f"{label_of(path)} is empty")
        for key, item in data.items():
            self._value(item, info.value_type, (*path, key))

    def _duration(self, data: Any, path: KeyPath, *, is_signed: bool) -> None:
        try:
            if isinstance(data, bool) or not isinstance(data, (str, int, float)):
                raise ValueError
            ms = duration_ms(data)
            if (ms < 0 and not is_signed) or abs(ms) > _TIME_MAX_MS:
                raise ValueError
        except (ValueError, OverflowError):
            self.note(path, f"{label_of(path)} is {_shorten(data)}; expected {_TIMES}")

    def _scalar(self, data: Any, info: Any, path: KeyPath) -> None:
        if not _fits(data, info):
            text = f"{label_of(path)} is {_shorten(data)}; expected {_describe_type(info)}"
            self.note(path, text)
        elif isinstance(info, inspect.StrType):
            if info.min_length and not data:
                self.note(path, f"{label_of(path)} must be set: it is empty")
        elif isinstance(info, (inspect.IntType, inspect.FloatType)):
            self._bounds(data, info, path)

    def _bounds(self, data: Any, info: Any, path: KeyPath) -> None:
        number, low, high = _number(data, info), info.ge, info.le
        expected = f"{low}..{high}" if high is not None else f"{low} or more"
        if low is not None and high is None and number > _WHOLE_MAX:
            expected = f"at most {_WHOLE_MAX}"
        elif (low is None or number >= low) and (high is None or number <= high):
            return
        self.note(path, f"{label_of(path)} is {_shorten(data)}; expected {expected}")


def label_of(path: KeyPath) -> str:
    """Return a path as people read it.

    Example:
        >>> label_of(("vertices", 0, "config", "function"))
        'vertices[0].config.function'
    """
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def likely(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that was probably meant, or None.

    Example:
        >>> likely("tumblng", ["tumbling", "sliding"])
        'tumbling'
        >>> likely("mean", ["avg", "min"])
        'avg'
    """
    words = list(islice(known, _COMPARED_MAX + 1))
    meant = _OTHER_NAMES.get(word.lower())
    if meant in words:
        return meant
    if len(word) > _WORD_MAX or len(words) > _COMPARED_MAX:
        return None
    found = difflib.get_close_matches(word, words, n=1)
    return found[0] if found else None


def _one_of(word: str, known: list[str]) -> str:
    near = likely(word, known)
    hint = f"did you mean {near!r}? " if near else ""
    more = f" and {len(known) - _LISTED_MAX} more" if len(known) > _LISTED_MAX else ""
    return f"{hint}known: {', '.join(known[:_LISTED_MAX])}{more}"


_WRONG = object()


def _without(data: Any, info: Any, path: KeyPath, touched: Container[KeyPath]) -> Any:
    """Return data without wrong or empty keys, or ``_WRONG`` if no data remain.

    Args:
        data: The data at the path.
        info: The expected type.
        path: The path.
        touched: Paths of errors, and all above them.
    """
    members = _members(info)
    plain = next((each for each in members if isinstance(each, inspect.StructType)), None)
    items = next((each for each in members if isinstance(each, inspect.ListType)), None)
    if items is not None and isinstance(data, list) and path not in touched:
        kind = items.item_type
        return [_without(item, kind, (*path, at), touched) for at, item in enumerate(data)]
    if plain is None or not isinstance(data, dict):
        return _WRONG if path in touched else data
    found = {}
    for each in plain.fields:
        name = each.encode_name
        kept = _without(data.get(name), each.type, (*path, name), touched)
        if kept is not _WRONG and kept is not None:
            found[name] = kept
        elif each.required:
            return _WRONG
    return found


def _members(info: Any) -> list[Any]:
    """Return the types that a value may be of."""
    plain = _plain(info)
    return list(map(_plain, plain.types)) if isinstance(plain, inspect.UnionType) else [plain]


def _plain(info: Any) -> Any:
    return info.type if isinstance(info, inspect.Metadata) else info


def _fits(data: Any, info: Any) -> bool:
    """Return whether a value is of a plain type; numbers may be written as text."""
    if isinstance(info, inspect.UnionType):
        return any(_fits(data, _plain(each)) for each in info.types)
    if isinstance(info, inspect.BoolType):
        return isinstance(data, bool) or data in ("true", "false")
    if isinstance(info, (inspect.IntType, inspect.FloatType)):
        return _number(data, info) is not None
    if isinstance(info, (inspect.StrType, inspect.LiteralType)):
        return isinstance(data, str)
    return isinstance(info, inspect.NoneType) and data is None


def _number(data: Any, info: Any) -> Any:
    """Return a number, which may be written as text; None for anything else."""
    kind: type[int] | type[float] = int if isinstance(info, inspect.IntType) else float
    if isinstance(data, bool) or not isinstance(data, (str, int, kind)):
        return None
    try:
        found = kind(data)
        msgspec.convert(data, kind, strict=False)  # Takes fewer texts: no 1_000.
        return found if math.isfinite(found) else None
    except (ValueError, OverflowError):
        return None


_NAMES: Mapping[type, str] = {
    inspect.BoolType: "true or false",
    inspect.IntType: "a whole number",
    inspect.FloatType: "a number",
    inspect.StrType: "a text",
    inspect.ListType: "a list",
    inspect.DictType: "a table of keys",
    inspect.StructType: "a table of keys",
    inspect.NoneType: "nothing",
}


def _describe_type(info: Any) -> str:
    if isinstance(info, inspect.LiteralType):
        return ", ".join(map(str, info.values))
    if isinstance(info, inspect.UnionType):
        return _TIMES
    return _NAMES.get(type(info), "something else")


def _shorten(value: Any) -> str:
    text = value if isinstance(value, str) and value else repr(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


def check_secret(checks: Checks, text: str, path: KeyPath) -> None:
    """Note a secret in the file itself; the message does not repeat it."""
    try:
        Secret.parse(text)
    except ValueError:
        label = label_of(path)
        checks.note(path, f"{label} is a secret; set its location: env:NAME or file:PATH")


def check_address(checks: Checks, url: str, path: KeyPath) -> None:
    """Take note of an address with a password in it; the message does not repeat it."""
    try:
        has_password = urlsplit(url).password is not None
    except ValueError:  # Opening it raises the error.
        has_password = False
    if has_password:
        label = label_of(path)
        checks.note(
            path, f"{label} contains a password; set it separately, as env:NAME or file:PATH"
        )


def check_secrets(checks: Checks, properties: Mapping[str, Any], path: KeyPath) -> None:
    """Take note of secrets of a client of Kafka that are in the file itself."""
    for name, value in properties.items():
        if is_secret_property(name):
            check_secret(checks, str(value), (*path, name))
