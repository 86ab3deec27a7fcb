"""JSON values and arrays: rows of the table of SQL functions.

A JSON value is JSON text. A path is a key, an index, or a text such as ``$.user.tags[0]``; an index
counts from 0, or from the end if it is negative. A path to nothing leads to NULL.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import msgspec
import pyarrow.compute as pc

from bicycle_runtime.expressions.sql.functions import as_lists, each, function

_ITEMS_MAX = 1 << 20
_STEP = re.compile(
    r"""\.("(?:[^"\\]|\\.)*"|[^.\["]+)|\[(?:#(?=-[1-9]))?(-?\d+)\]"""
    r"""|\[("(?:[^"\\]|\\.)*"|'[^']*')\]"""
)
_EXACT = msgspec.json.Encoder(enc_hook=str, decimal_format="number")
_encode, _decode = msgspec.json.encode, msgspec.json.decode


# --- JSON ----------------------------------------------------------------------------------------


@lru_cache(maxsize=1_000)
def path_steps(text: str) -> tuple[str | int, ...]:
    """Return the keys and indexes of a path; a text without a leading ``$`` is a key.

    Raises:
        ValueError: the path has anything but keys and indexes.

    Example:
        >>> path_steps("$.user.tags[0]"), path_steps("user")
        (('user', 'tags', 0), ('user',))
    """
    if text.startswith("/"):  # DuckDB has JSON pointers.
        raise ValueError(f"the path {text} begins with a slash; write a path such as $.key")
    if not text.startswith("$"):
        return (text,)
    steps: list[str | int] = []
    at = 1
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None or found[1] == "*":
            raise ValueError(f"the path {text} may contain only keys and numbers")
        key, index, quoted = found.groups()
        steps.append(int(index) if index else _unquote(key or quoted))
        at = found.end()
    return tuple(steps)


def path_text(steps: Sequence[str | int]) -> str:
    """Return a path as text.

    Example:
        >>> path_text(["user", "a b", 0]), path_steps('$."user"."a b"[0]')
        ('$."user"."a b"[0]', ('user', 'a b', 0))
    """
    parts = (f"[{one}]" if isinstance(one, int) else f".{_encode(one).decode()}" for one in steps)
    return f"${''.join(parts)}"


def _unquote(word: str) -> str:
    if word[0] == '"':
        return str(_decode(word))
    return word[1:-1] if word[0] == "'" else word


def value_at(value: Any, path: str | int) -> Any:
    """Return the value at a path of a decoded JSON value, else None."""
    for step in (path,) if isinstance(path, int) else path_steps(path):
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return None
    return value


def text_of(value: Any) -> str | None:
    """Return a value of JSON as SQL text: texts without quotes, others as JSON."""
    return value if value is None or isinstance(value, str) else _encode(value).decode()


def json_of(value: Any) -> str | None:
    """Return a value as JSON text, None for JSON's null."""
    return None if value is None else _encode(value).decode()


def json_value(value: Any) -> Any:
    """Return the value of a JSON text, or of each JSON text in a list."""
    if isinstance(value, list):
        return list(map(json_value, value))
    return None if value is None else _decode(value)


def json_texts(value: Any, depth: int) -> Any:
    """Return the JSON text of a value, or of each item of lists of a depth."""
    if value is None or not depth:
        return json_of(value)
    return [json_texts(one, depth - 1) for one in items_of(value)]


def items_of(value: Any) -> list[Any]:
    """Return a value that is a list.

    Raises:
        TypeError: it is not.
    """
    if not isinstance(value, list):
        raise TypeError(f"expected an array, got {type(value).__name__}")
    return value


def _parse(text: str) -> Any:
    return _decode(text.encode())


def _kind(text: str) -> str:
    value = _parse(text)
    for kind, word in _KINDS:
        if isinstance(value, kind):
            return word
    return "NULL"


_KINDS = (
    (bool, "BOOLEAN"), (int, "BIGINT"), (float, "DOUBLE"), (str, "VARCHAR"), (list, "ARRAY"),
    (dict, "OBJECT"),
)  # fmt: skip


def _is_json(text: str) -> bool:
    try:
        _parse(text)
    except ValueError:
        return False
    return True


def _keys(text: str) -> list[str]:
    value = _parse(text)
    return list(value) if isinstance(value, dict) else []


def _size(text: str) -> int:
    value = _parse(text)
    return len(value) if isinstance(value, list) else 0


def _json_items(text: str) -> list[str | None] | None:
    value = _parse(text)
    return [json_of(item) for item in value] if isinstance(value, list) else None


def _has(whole: Any, part: Any) -> bool:
    if isinstance(whole, dict) and isinstance(part, dict):
        return all(key in whole and _has(whole[key], value) for key, value in part.items())
    if isinstance(whole, list):
        wanted = part if isinstance(part, list) else [part]
        return all(any(_has(item, one) for item in whole) for one in wanted)
    return type(whole) is type(part) and bool(whole == part)


_json = partial(function, group="json")

_PATH = "JSON VARCHAR -> {0} | JSON BIGINT -> {0} | VARCHAR VARCHAR -> {0} | VARCHAR BIGINT -> {0}"
_DOCUMENT = """'{"a": [1, "x"], "b": null}'"""

JSON_VALUES = [
    _json("json_get json_extract json_query", _PATH.format("JSON"),
          each(lambda text, path: json_of(value_at(_parse(text), path))),
          (f"{_DOCUMENT} -> '$.a'", '[1,"x"]'), symbol="a -> path"),
    _json("json_get_text json_extract_string json_value json_extract_path_text",
          _PATH.format("VARCHAR"),
          each(lambda text, path: text_of(value_at(_parse(text), path))),
          (f"{_DOCUMENT} ->> '$.a[1]'", "x"), symbol="a ->> path"),
    _json("json_exists", _PATH.format("BOOLEAN"),
          each(lambda text, path: value_at(_parse(text), path) is not None),
          (f"json_exists({_DOCUMENT}, '$.c')", False)),
    _json("json_array_length", "JSON -> BIGINT | VARCHAR -> BIGINT", each(_size),
          ("json_array_length('[1, 2]')", 2)),
    _json("json_type json_typeof", "JSON -> VARCHAR | VARCHAR -> VARCHAR", each(_kind),
          ("json_type('[1]')", "ARRAY")),
    _json("json_valid", "JSON -> BOOLEAN | VARCHAR -> BOOLEAN", each(_is_json),
          ("json_valid('{')", False)),
    _json("json_keys", "JSON -> VARCHAR[] | VARCHAR -> VARCHAR[]", each(_keys),
          (f"array_to_string(json_keys({_DOCUMENT}), ',')", "a,b")),
    _json("json_items", "JSON -> JSON[] | VARCHAR -> JSON[]", each(_json_items),
          ("array_length(json_items('[1, 2]'))", 2)),
    _json("json_contains", "JSON JSON -> BOOLEAN | VARCHAR VARCHAR -> BOOLEAN",
          each(lambda text, part: _has(_parse(text), _parse(part))),
          ("""json_contains('{"a": [1, 2]}', '{"a": [2]}')""", True)),
    _json("to_json", "ANY -> JSON", each(lambda value: _EXACT.encode(value).decode()),
          ("to_json('a')", '"a"')),
    _json("parse_json", "VARCHAR -> JSON", each(lambda text: json_of(_parse(text))),
          ("parse_json('[1, 2]')", "[1,2]")),
]  # fmt: skip


# --- arrays --------------------------------------------------------------------------------------


def _element(items: list[Any], at: int) -> Any:
    index = at - 1 if at > 0 else len(items) + at
    return items[index] if at and 0 <= index < len(items) else None


def _slice(items: list[Any], first: int, last: int) -> list[Any]:
    start, end = (one if one >= 0 else len(items) + one + 1 for one in (first, last))
    return items[max(0, start - 1) : max(0, end)]


def _distinct(items: list[Any]) -> list[Any]:
    return list(dict.fromkeys(_drop_nulls(items)))


def _sort(items: list[Any]) -> list[Any]:
    """Return items in ascending order, NULLs last."""
    known = sorted(_drop_nulls(items))
    return known + [None] * (len(items) - len(known))


def _drop_nulls(items: list[Any]) -> list[Any]:
    return [item for item in items if item is not None]


def _total(items: list[Any]) -> Any:
    known = _drop_nulls(items)
    return sum(known) if known else None


def _make(*columns: Any) -> list[Any]:
    return list(map(list, zip(*as_lists(*columns), strict=True)))


def _append(items: Any, item: Any) -> list[Any]:
    return [[*(several or []), one] for several, one in zip(*as_lists(items, item), strict=True)]


def _prepend(item: Any, items: Any) -> list[Any]:
    return [[one, *(several or [])] for one, several in zip(*as_lists(item, items), strict=True)]


def _concat(first: Any, second: Any) -> list[Any]:
    """Return the items of two arrays; NULL counts as an empty array."""
    return [(a or []) + (b or []) for a, b in zip(*as_lists(first, second), strict=True)]


def _series(start: int, stop: int, step: int = 1) -> list[int]:
    found = range(start, stop, step)
    if len(found) > _ITEMS_MAX:
        raise ValueError(f"an array must have at most {_ITEMS_MAX:,} items, got {len(found):,}")
    return list(found)


def _inclusive(start: int, stop: int, step: int = 1) -> list[int]:
    return _series(start, stop + (1 if step > 0 else -1), step)


_array = partial(function, group="array")

ARRAYS = [
    _array("array list_value make_array", "T* -> T[]", _make,
           ("array_length(ARRAY[1, NULL])", 2), symbol="ARRAY[a, …]", takes_nulls=True),
    _array("array_element list_element array_extract list_extract", "T[] BIGINT -> T",
           each(_element), ("(ARRAY['a', 'b'])[2]", "b"), symbol="a[n]"),
    _array("array_length cardinality list_length", "T[] -> BIGINT", pc.list_value_length,
           ("cardinality(ARRAY[1, 2])", 2)),
    _array("array_contains list_contains array_has list_has", "T[] T -> BOOLEAN",
           each(lambda items, item: item in items), ("array_contains(ARRAY[1, 2], 2)", True)),
    _array("array_position list_position", "T[] T -> BIGINT",
           each(lambda items, item: items.index(item) + 1 if item in items else None),
           ("array_position(ARRAY['a', 'b'], 'b')", 2)),
    _array("array_has_any list_has_any", "T[] T[] -> BOOLEAN",
           each(lambda a, b: any(item in b for item in _drop_nulls(a))),
           ("array_has_any(ARRAY[1, 2], ARRAY[2])", True)),
    _array("array_has_all list_has_all", "T[] T[] -> BOOLEAN",
           each(lambda a, b: all(item in a for item in _drop_nulls(b))),
           ("array_has_all(ARRAY[1, 2], ARRAY[2])", True)),
    _array("array_slice list_slice", "T[] BIGINT BIGINT -> T[]", each(_slice),
           ("array_to_string(array_slice(ARRAY['a', 'b', 'c'], 2, 3), '')", "bc")),
    _array("array_concat list_concat array_cat", "T[] T[] -> T[]", _concat,
           ("array_length(array_concat(ARRAY[1], ARRAY[2, 3]))", 3), takes_nulls=True),
    _array("array_append list_append", "T[] T -> T[]", _append,
           ("array_length(array_append(ARRAY[1], 2))", 2), takes_nulls=True),
    _array("array_prepend list_prepend", "T T[] -> T[]", _prepend,
           ("(array_prepend(0, ARRAY[1]))[1]", 0), takes_nulls=True),
    _array("array_distinct list_distinct", "T[] -> T[]", each(_distinct),
           ("array_length(array_distinct(ARRAY[1, 1]))", 1)),
    _array("array_sort list_sort", "T[] -> T[]", each(_sort),
           ("(array_sort(ARRAY[2, 1]))[1]", 1)),
    _array("array_reverse list_reverse", "T[] -> T[]", each(lambda items: items[::-1]),
           ("(array_reverse(ARRAY[2, 1]))[1]", 1)),
    _array("array_intersect list_intersect", "T[] T[] -> T[]",
           each(lambda a, b: [item for item in _distinct(a) if item in b]),
           ("array_length(array_intersect(ARRAY[1, 2], ARRAY[2]))", 1)),
    _array("array_min list_min", "T[] -> T",
           each(lambda items: min(_drop_nulls(items), default=None)),
           ("array_min(ARRAY[2, 1])", 1)),
    _array("array_max list_max", "T[] -> T",
           each(lambda items: max(_drop_nulls(items), default=None)),
           ("array_max(ARRAY[2, 1])", 2)),
    _array("array_sum list_sum", "BIGINT[] -> BIGINT | DOUBLE[] -> DOUBLE", each(_total),
           ("array_sum(ARRAY[2, 1])", 3)),
    _array("flatten", "T[][] -> T[]", each(lambda lists: [
        item for items in lists if items is not None for item in items]),
           ("array_length(flatten(ARRAY[ARRAY[1], ARRAY[2, 3]]))", 3)),
    _array("range", "BIGINT BIGINT BIGINT? -> BIGINT[]", each(_series),
           ("array_length(range(0, 5))", 5)),
    _array("generate_series", "BIGINT BIGINT BIGINT? -> BIGINT[]", each(_inclusive),
           ("array_length(generate_series(1, 5))", 5)),
    _array("string_split split string_to_array str_split", "VARCHAR VARCHAR -> VARCHAR[]",
           each(lambda value, separator: value.split(separator) if separator else list(value)),
          ("(string_split('a,b', ','))[2]", "b")),
    _array("array_to_string list_to_string", "VARCHAR[] VARCHAR -> VARCHAR",
          each(lambda items, separator: separator.join(_drop_nulls(items))),
           ("array_to_string(ARRAY['a', 'b'], '-')", "a-b")),
]  # fmt: skip
