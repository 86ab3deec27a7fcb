"""The problems of a text's tables, with their location and likely intention.

Checks follow the declared types (``msgspec.inspect``), and continue after a problem, so that all
of them are reported at once. A table without problems becomes its struct.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import inspect

from bicycle_runtime.base.thread_safe_types import prepare_type
from bicycle_runtime.endpoints.positions import FilePosition, KeyPath, Position, TextPositions
from bicycle_runtime.endpoints.value_checks import (
    WRONG,
    aliases_of,
    fits,
    names_of,
    number_of,
    option_amount,
    plain_type,
    without_problems,
)
from bicycle_runtime.endpoints.values import duration_ms
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.former_names import note_former_name
from bicycle_sdk.option_values import decimal_digits
from bicycle_sdk.quantities import amount
from bicycle_sdk.secrets import Secret

S = TypeVar("S", bound=msgspec.Struct)
_TIMES = "a time such as 250ms, 10s, 5m, 1h"
_SIZES = "a whole number of bytes, or a size such as 64KiB, 128MiB"
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
_SHOWN_BOUND_MAX = 1_000_000
_TIME_MAX_MS = 100 * 366 * 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A problem, and its location."""

    path: KeyPath
    text: str
    line: int
    column: int
    file: str = ""


class Checks:
    """The problems of one document.

    Args:
        document: The document to check.
        invalid: Returns the error for all problems, with the facts ``file``, ``count_text``,
            ``listing`` and ``problems``.
    """

    def __init__(self, document: TextPositions, invalid: Callable[..., BicycleError]) -> None:
        self.document = document
        self._invalid = invalid
        self.problems: list[Problem] = []
        self._aliases: dict[KeyPath, KeyPath] = {}
        self._moved: dict[KeyPath, KeyPath] = {}

    def note(self, path: KeyPath, text: str, *, at_key: bool = False) -> None:
        """Take note of a problem at a path."""
        path = self.written(path)
        find = self.document.key_position if at_key else self.document.value_position
        self._add(path, text, find(self._moved.get(path, path)))

    def note_position(self, position: Position, text: str) -> None:
        """Take note of a problem at a position."""
        self._add((), text, position)

    def missing(self, path: KeyPath, text: str) -> None:
        """Note a missing key, at the start of its table.

        A key that is present but wrong was noted before.
        """
        if not self.is_wrong(path):
            path = self.written(path)
            self._add(path, text, self.document.key_position(path[:-1]))

    def is_wrong(self, path: KeyPath) -> bool:
        """Return whether there is a problem at a path or below it."""
        path = self.written(path)
        return any(each.path[: len(path)] == path for each in self.problems)

    def locate(self, path: KeyPath, written: KeyPath) -> None:
        """Take note that a value is at another path in the document."""
        self._moved[path] = written

    def written(self, path: KeyPath) -> KeyPath:
        """Return a path with the aliases that the document uses."""
        for length in range(1, len(path) + 1):
            if path[:length] in self._aliases:
                return self.written((*self._aliases[path[:length]], *path[length:]))
        return path

    def label(self, path: KeyPath) -> str:
        """Return a path as people read it, with the aliases that the document uses."""
        return label_of(self.written(path))

    def raise_problems(self) -> None:
        """Raise all problems, in the order of the text, as one error.

        Raises:
            BicycleError: there are some.
        """
        if not self.problems:
            return
        is_cut = len(self.problems) >= _PROBLEMS_MAX
        found = sorted(self.problems, key=lambda each: (each.file, each.line, each.column))
        file = self.document.file
        lines = [f"  {each.file or file}:{each.line}:{each.column}: {each.text}" for each in found]
        raise self._invalid(
            file=file,
            count_text=f"{amount(len(found), 'problem')}{' or more' if is_cut else ''}",
            listing="\n".join(lines),
            problems=[
                {
                    "line": each.line,
                    "column": each.column,
                    "key": label_of(each.path),
                    "text": each.text,
                    **({"file": each.file} if each.file else {}),
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
        kept = without_problems(data, info, path, touched)
        return None if kept is WRONG else msgspec.convert(kept, prepare_type(kind), strict=False)

    def word(self, value: Any, known: Collection[str], path: KeyPath, *, what: str) -> str | None:
        """Check one word of a closed set; messages call it ``what``.

        A collection may contain former words that it does not list.
        """
        if isinstance(value, str) and value in known:
            return value
        words = sorted(known)
        self.note(path, f"unsupported {what}: {_shorten(value)}; {_one_of(str(value), words)}")
        return None

    def unknown(
        self, key: str, known: Iterable[str], path: KeyPath, *, aliases: Iterable[str] = ()
    ) -> None:
        """Note an unknown key; ``aliases`` may be meant, but are not listed."""
        text = f"unknown key {label_of((*path, key))}; {_one_of(key, sorted(known), aliases)}"
        self.note((*path, key), text, at_key=True)

    def _add(self, path: KeyPath, text: str, position: Position) -> None:
        file = position.file if isinstance(position, FilePosition) else ""
        found = Problem(path=path, text=text, line=position.line, column=position.column, file=file)
        self.problems.append(found)
        if len(self.problems) >= _PROBLEMS_MAX:
            self.raise_problems()

    def _struct(self, data: Any, info: Any, path: KeyPath, of: str) -> None:
        if not isinstance(data, dict):
            self.note(path, f"{label_of(path)} is {_shorten(data)}; expected a table of keys")
            return
        fields = {each.encode_name: each for each in info.fields}
        given = self._find_keys(data, info, path)
        for name, each in fields.items():
            key = given.get(name)
            if key is not None and not (data[key] is None and not each.required):
                self._value(data[key], each.type, (*path, key))
            elif each.required:
                suffix = f" for {of}" if of else ""
                first, others = names_of(info, name)
                label = label_of((*path, first))
                self.missing((*path, name), f"{label} must be set{suffix}{others}")

    def _find_keys(self, data: dict[str, Any], info: Any, path: KeyPath) -> dict[str, str]:
        """Return the keys of a table by their names; note unknown keys and duplicates."""
        names, aliases = {each.encode_name for each in info.fields}, aliases_of(info)
        found: dict[str, str] = {}
        for key in data:
            name = aliases.get(key, key)
            if name not in names:
                self.unknown(key, names, path, aliases=aliases)
            elif name in found:
                text = f"{found[name]} and {key} are the same key; use only one"
                self._add((*path, key), text, self.document.key_position((*path, key)))
            else:
                found[name] = key
                if key != name:
                    self._aliases[(*path, name)] = (*path, key)
                if key in getattr(info.cls, "former_names", ()):
                    position = self.document.key_position((*path, key))
                    file = getattr(self.document, "file", "")
                    note_former_name(key, name, f"{file}:{position.line}:{position.column}")
        return found

    def _value(self, data: Any, info: Any, path: KeyPath) -> None:
        if isinstance(info, inspect.Metadata):
            self._check_meaning(data, info, path)
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

    def _check_meaning(self, data: Any, info: Any, path: KeyPath) -> None:
        """Check against a type with a meaning: a duration, a size, a secret."""
        extra = info.extra or {}
        kind = extra.get("kind")
        if extra.get("is_option"):
            self._quantity(data, path, extra)
        elif kind == "duration":
            self._duration(data, path, is_signed=extra.get("is_signed", False))
        elif kind == "type":
            self._type_word(data, extra["words"], path)
        else:
            self._value(data, info.type, path)
            if kind == "secret" and isinstance(data, str):
                check_secret(self, data, path)

    def _type_word(self, data: Any, words: tuple[str, ...], path: KeyPath) -> None:
        """Check the name of a type; ``decimal(12,2)`` is one with any numbers that fit."""
        word = str(data).removesuffix("?") if "decimal?" in words else str(data)
        if data not in words and decimal_digits(word) is None:
            known = _one_of(word, [*words, "decimal(12,2)"])
            self.note(path, f"unsupported {label_of(path)}: {_shorten(data)}; {known}")

    def _union(self, data: Any, info: Any, path: KeyPath) -> None:
        """Check against the member that the data looks like."""
        members = [each for each in info.types if not isinstance(each, inspect.NoneType)]
        tables = [each for each in members if isinstance(plain_type(each), inspect.StructType)]
        lists = [each for each in members if isinstance(plain_type(each), inspect.ListType)]
        chosen = [each for each in members if each not in tables and each not in lists]
        if isinstance(data, dict):
            chosen = tables or [e for e in members if isinstance(plain_type(e), inspect.DictType)]
        elif isinstance(data, list):
            chosen = lists
        elif len(chosen) > 1:
            chosen = [each for each in chosen if fits(data, plain_type(each))][:1]
        if len(chosen) == 1:
            self._value(data, chosen[0], path)
        else:
            expected = " or ".join(_describe_type(plain_type(each)) for each in members)
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

    def _quantity(self, data: Any, path: KeyPath, extra: Mapping[str, Any]) -> None:
        """Check the duration or size of an option, and its bounds."""
        low, high, is_time = extra["low"], extra["high"], extra["kind"] == "duration"
        try:
            quantity = option_amount(str(path[-1]), data, extra["kind"])
        except (ValueError, OverflowError):
            expected = _TIMES if is_time else _SIZES
            self.note(path, f"{label_of(path)} is {_shorten(data)}; expected {expected}")
            return
        unit = "ms" if is_time else ""
        if low is not None and quantity < low:
            self.note(path, f"{label_of(path)} is {data}; expected {low}{unit} or more")
        elif high is not None and quantity > high:
            self.note(path, f"{label_of(path)} is {data}; expected at most {high}{unit}")

    def _scalar(self, data: Any, info: Any, path: KeyPath) -> None:
        if not fits(data, info):
            text = f"{label_of(path)} is {_shorten(data)}; expected {_describe_type(info)}"
            self.note(path, text)
        elif isinstance(info, inspect.StrType):
            if info.min_length and not data:
                self.note(path, f"{label_of(path)} must be set: it is empty")
        elif isinstance(info, (inspect.IntType, inspect.FloatType)):
            self._bounds(data, info, path)

    def _bounds(self, data: Any, info: Any, path: KeyPath) -> None:
        number, low, high = number_of(data, info), info.ge, info.le
        expected = f"{low}..{high}" if high is not None else f"{low} or more"
        if high is not None and high > _SHOWN_BOUND_MAX and low is not None and number < low:
            expected = f"{low} or more"
        elif low is None and high is not None:
            expected = f"at most {high}"
        elif low is not None and high is None and number > _WHOLE_MAX:
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


def _one_of(word: str, known: list[str], aliases: Iterable[str] = ()) -> str:
    near = likely(word, [*known, *aliases])
    hint = f"did you mean {near!r}? " if near else ""
    more = f" and {len(known) - _LISTED_MAX} more" if len(known) > _LISTED_MAX else ""
    return f"{hint}known: {', '.join(known[:_LISTED_MAX])}{more}"


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
