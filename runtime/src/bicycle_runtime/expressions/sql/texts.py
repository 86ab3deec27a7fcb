"""Texts and bytes: rows of the table of SQL functions.

A text is a sequence of Unicode code points; positions count from 1. Texts are ordered by their
bytes in UTF-8.
"""

from __future__ import annotations

import base64
import hashlib
import operator
import re
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import quote, unquote

import pyarrow
import pyarrow.compute as pc

from bicycle_runtime.expressions.sql.functions import as_lists, each, function

_SPACE = pyarrow.scalar(" ")
_SIZE_MAX = 1 << 20  # Of a text that lpad, rpad and repeat create.


def _constant(compute: Callable[..., Any], by_row: Any = None) -> Callable[..., Any]:
    """Return a function that computes columns, at once for all rows if it can."""
    slow = partial(_by_constants, compute) if by_row is None else each(by_row)

    def computed(column: Any, *given: Any) -> Any:
        if all(isinstance(one, pyarrow.Scalar) and one.is_valid for one in given):
            return compute(column, *(one.as_py() for one in given))
        return slow(column, *given)

    return computed


def _by_constants(compute: Callable[..., Any], *columns: Any) -> list[Any]:
    values, *given = as_lists(*columns)
    found: list[Any] = [None] * len(values)
    rows: dict[tuple[Any, ...], list[int]] = {}
    for at, key in enumerate(zip(*given, strict=True)):
        if None not in key:
            rows.setdefault(key, []).append(at)
    for key, several in rows.items():
        results = compute(pyarrow.array([values[at] for at in several], pyarrow.string()), *key)
        for at, result in zip(several, results.to_pylist(), strict=True):
            found[at] = result
    return found


# --- patterns ------------------------------------------------------------------------------------


def _like(column: Any, text: str, *, ignore_case: bool = False) -> Any:
    if "\\" not in text:
        return pc.match_like(column, text, ignore_case=ignore_case)
    # Arrow's fast paths for % at the start or end of a pattern keep its escapes.
    parts = re.findall(r"\\[\s\S]|[\s\S]", text)
    words = [{"%": ".*", "_": "."}.get(part) or re.escape(part[-1]) for part in parts]
    return pc.match_substring_regex(column, rf"(?s)\A{''.join(words)}\z", ignore_case=ignore_case)


def _replace_matches(column: Any, pattern: str, by: str, options: str = "") -> Any:
    if set(options) - {"g", "i"}:
        raise ValueError(f"the options of regexp_replace are 'g' and 'i', got {options!r}")
    pattern = f"(?i:{pattern})" if "i" in options else pattern
    if "g" not in options:  # One match: from the start of the text to the end of the first one.
        pattern, by = rf"\A((?s:.*?))({pattern})", r"\1" + re.sub(r"\\(\\|\d)", _later_group, by)
    return pc.replace_substring_regex(column, pattern, by)


def _later_group(found: re.Match[str]) -> str:
    if found[1] in ("8", "9"):
        raise ValueError(f"regexp_replace without 'g' has groups 0 to 7, got {found[0]}")
    return found[0] if found[1] == "\\" else f"\\{int(found[1]) + 2}"


def _extract_match(column: Any, pattern: str, group: int = 0) -> Any:
    if not 0 <= group <= 9:
        raise ValueError(f"the group of regexp_extract must be 0 to 9, got {group}")
    # A text without a match has no groups: it is replaced by an empty text.
    whole = rf"\A(?:(?s:.*?)({'' if group == 0 else '?:'}{pattern})(?s:.*)|(?s:.*))"
    return pc.replace_substring_regex(column, whole, rf"\{group or 1}")


# --- parts of texts ------------------------------------------------------------------------------


def _substring(value: str, start: int, length: int | None = None) -> str:
    if length is not None and length < 0:
        raise ValueError(f"the length of a substring must not be negative, got {length}")
    end = None if length is None else max(0, start - 1 + length)
    return value[max(0, start - 1) : end]


def _substring_of(column: Any, start: Any, length: Any = None) -> Any:
    bounds = [one for one in (start, length) if one is not None]
    if all(isinstance(one, pyarrow.Scalar) and one.is_valid for one in bounds):
        first, *rest = (one.as_py() for one in bounds)
        if not rest:
            return pc.utf8_slice_codeunits(column, max(0, first - 1))
        if rest[0] >= 0:
            end = max(0, first - 1 + rest[0])
            return pc.utf8_slice_codeunits(column, max(0, first - 1), end)
    return each(_substring)(column, *bounds)


def _left(value: str, count: int) -> str:
    return value[:count] if count >= 0 else value[: max(0, len(value) + count)]


def _right(value: str, count: int) -> str:
    return value[max(0, len(value) - count) :] if count >= 0 else value[-count:]


def _split_part(value: str, separator: str, at: int) -> str:
    parts = value.split(separator) if separator else [value]
    if at == 0:
        raise ValueError("parts of a text count from 1, got 0")
    index = at - 1 if at > 0 else len(parts) + at
    return parts[index] if 0 <= index < len(parts) else ""


def _pad(value: str, size: int, fill: str, *, at_start: bool) -> str:
    if size > _SIZE_MAX:
        raise ValueError(f"a text must have at most {_SIZE_MAX:,} characters, got {size:,}")
    missing = size - len(value)
    if missing <= 0:
        return value[: max(0, size)]
    if not fill:
        raise ValueError("the text to pad with is empty")
    more = (fill * (missing // len(fill) + 1))[:missing]
    return more + value if at_start else value + more


def _repeat(value: str, count: int) -> str:
    if len(value) * count > _SIZE_MAX:
        raise ValueError(f"a text must have at most {_SIZE_MAX:,} characters")
    return value * count


def _translate(value: str, old: str, new: str) -> str:
    table = {
        ord(one): new[at] if at < len(new) else None for at, one in reversed(list(enumerate(old)))
    }
    return value.translate(table)


_replace = _constant(
    lambda column, old, new: pc.replace_substring(column, old, new) if old else column,
    lambda value, old, new: value.replace(old, new) if old else value,
)


def _trim(name: str) -> Callable[..., Any]:
    by_row = getattr(str, name.replace("trim", "strip"))
    constant = _constant(getattr(pc, f"utf8_{name}"), by_row)
    return lambda column, text=_SPACE: constant(column, text)


def _concat(*columns: Any) -> Any:
    return pc.binary_join_element_wise(*columns, "", null_handling="replace", null_replacement="")


def _concat_separated(*columns: Any) -> list[str | None]:
    """Return texts joined by a separator, without NULLs."""
    return [
        None if separator is None else separator.join(text for text in texts if text is not None)
        for separator, *texts in zip(*as_lists(*columns), strict=True)
    ]


def _join(left: Any, right: Any) -> Any:
    if pyarrow.types.is_list(left.type):
        return each(operator.add)(left, right)
    return pc.binary_join_element_wise(
        left, right, "" if pyarrow.types.is_string(left.type) else b""
    )


def _levenshtein(first: str, second: str) -> int:
    row = list(range(len(second) + 1))
    for at, one in enumerate(first, 1):
        before, row[0] = row[0], at
        for index, other in enumerate(second, 1):
            costs = row[index] + 1, row[index - 1] + 1, before + (one != other)
            before, row[index] = row[index], min(costs)
    return row[-1]


def _title(value: str) -> str:
    return re.sub(r"[^\W_]+", lambda found: found[0][0].upper() + found[0][1:].lower(), value)


def _character(code: int) -> str:
    if not 0 < code < 0x110000 or 0xD800 <= code < 0xE000:
        raise ValueError(f"{code} is not the number of a character")
    return chr(code)


def _as_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _digest(name: str) -> Callable[..., Any]:
    return each(
        lambda value: hashlib.new(name, _as_bytes(value), usedforsecurity=False).hexdigest()
    )


def _hex(value: str | bytes | int) -> str:
    if isinstance(value, int):
        return format(value & ((1 << 64) - 1), "X")
    return _as_bytes(value).hex().upper()


def _format(pattern: str, *values: Any) -> str:
    parts = pattern.split("{}")
    if len(parts) != len(values) + 1:
        raise ValueError(f"{pattern!r} has {len(parts) - 1} places for {len(values)} values")
    return "".join(part + str(value) for part, value in zip(parts, [*values, ""], strict=True))


_text = partial(function, group="text")

_ONE, _TWO = "VARCHAR -> VARCHAR", "VARCHAR VARCHAR -> VARCHAR"
_TEST, _COUNT = "VARCHAR VARCHAR -> BOOLEAN", "VARCHAR -> BIGINT"
_BYTES = "VARCHAR -> VARCHAR | BLOB -> VARCHAR"
_PADDED = "VARCHAR BIGINT VARCHAR -> VARCHAR"

TEXTS = [
    _text("like", _TEST, _constant(_like), ("'Ada' LIKE 'A%'", True),
          symbol="a LIKE b"),
    _text("ilike", _TEST, _constant(partial(_like, ignore_case=True)),
          ("'Ada' ILIKE 'a_a'", True), symbol="a ILIKE b"),
    _text("concat_operator", _TWO + " | BLOB BLOB -> BLOB | T[] T[] -> T[]", _join,
          ("'a' || 'b'", "ab"), symbol="a || b"),
    _text("concat", "TEXT* -> VARCHAR", _concat, ("concat('a', NULL, 1)", "a1"), takes_nulls=True),
    _text("concat_ws", "VARCHAR TEXT* -> VARCHAR", _concat_separated,
          ("concat_ws('-', 'a', NULL, 'b')", "a-b"), takes_nulls=True),
    _text("lower lcase", _ONE, pc.utf8_lower, ("lower('ÄB')", "äb")),
    _text("upper ucase", _ONE, pc.utf8_upper, ("upper('äb')", "ÄB")),
    _text("initcap", _ONE, each(_title), ("initcap('ada lovelace')", "Ada Lovelace")),
    _text("length char_length character_length len", _COUNT + " | T[] -> BIGINT",
          lambda column: pc.utf8_length(column) if pyarrow.types.is_string(column.type)
          else pc.list_value_length(column), ("length('äb')", 2)),
    _text("octet_length strlen", "VARCHAR -> BIGINT | BLOB -> BIGINT", pc.binary_length,
          ("strlen('äb')", 3)),
    _text("bit_length", _COUNT, lambda column: pc.multiply(pc.binary_length(column), 8),
          ("bit_length('ab')", 16)),
    _text("trim btrim", "VARCHAR VARCHAR? -> VARCHAR", _trim("trim"), ("trim('  a ')", "a"),
          ("trim('xax', 'x')", "a")),
    _text("ltrim", "VARCHAR VARCHAR? -> VARCHAR", _trim("ltrim"), ("ltrim(' a ')", "a ")),
    _text("rtrim", "VARCHAR VARCHAR? -> VARCHAR", _trim("rtrim"), ("rtrim(' a ')", " a")),
    _text("substr substring", "VARCHAR BIGINT BIGINT? -> VARCHAR", _substring_of,
          ("substr('abcd', 2, 2)", "bc"), ("substring('abcd' FROM 3)", "cd")),
    _text("left", "VARCHAR BIGINT -> VARCHAR", each(_left), ("left('abc', 2)", "ab"),
          ("left('abc', -1)", "ab")),
    _text("right", "VARCHAR BIGINT -> VARCHAR", each(_right), ("right('abc', 2)", "bc")),
    _text("replace", "VARCHAR VARCHAR VARCHAR -> VARCHAR", _replace,
          ("replace('abab', 'a', 'c')", "cbcb")),
    _text("translate", "VARCHAR VARCHAR VARCHAR -> VARCHAR", each(_translate),
          ("translate('abc', 'ac', 'x')", "xb")),
    _text("strpos position instr", "VARCHAR VARCHAR -> BIGINT",
          each(lambda value, part: value.find(part) + 1),
          ("strpos('abc', 'c')", 3), ("position('b' IN 'abc')", 2)),
    _text("starts_with prefix", _TEST, _constant(pc.starts_with, str.startswith),
          ("starts_with('/home', '/')", True)),
    _text("ends_with suffix", _TEST, _constant(pc.ends_with, str.endswith),
          ("ends_with('a.csv', '.csv')", True)),
    _text("contains", _TEST, _constant(pc.match_substring, str.__contains__),
          ("contains('abc', 'b')", True)),
    _text("lpad", _PADDED, each(lambda a, b, c: _pad(a, b, c, at_start=True)),
          ("lpad('7', 3, '0')", "007")),
    _text("rpad", _PADDED, each(lambda a, b, c: _pad(a, b, c, at_start=False)),
          ("rpad('7', 3, '.')", "7..")),
    _text("repeat", "VARCHAR BIGINT -> VARCHAR", each(_repeat), ("repeat('ab', 2)", "abab")),
    _text("reverse", _ONE, pc.utf8_reverse, ("reverse('abc')", "cba")),
    _text("ascii ord unicode", _COUNT, each(lambda value: ord(value[0]) if value else 0),
          ("ascii('A')", 65)),
    _text("chr", "BIGINT -> VARCHAR", each(_character), ("chr(65)", "A")),
    _text("split_part", "VARCHAR VARCHAR BIGINT -> VARCHAR", each(_split_part),
          ("split_part('a/b/c', '/', 2)", "b"), ("split_part('a/b', '/', 3)", "")),
    _text("regexp_matches regexp_like", _TEST, _constant(pc.match_substring_regex),
          ("regexp_matches('abc', 'b.')", True)),
    _text("regexp_full_match", _TEST,
          _constant(lambda column, text: pc.match_substring_regex(column, rf"\A(?:{text})\z")),
          ("regexp_full_match('abc', 'b.')", False)),
    _text("regexp_replace", "VARCHAR VARCHAR VARCHAR VARCHAR? -> VARCHAR",
          _constant(_replace_matches), ("regexp_replace('a1b2', '[0-9]', '#', 'g')", "a#b#")),
    _text("regexp_extract", "VARCHAR VARCHAR BIGINT? -> VARCHAR", _constant(_extract_match),
          ("regexp_extract('k=v', '(.)=(.)', 2)", "v")),
    _text("regexp_count", "VARCHAR VARCHAR -> BIGINT", _constant(pc.count_substring_regex),
          ("regexp_count('banana', 'an')", 2)),
    _text("levenshtein", "VARCHAR VARCHAR -> BIGINT", each(_levenshtein),
          ("levenshtein('kitten', 'sitting')", 3)),
    _text("md5", _BYTES, _digest("md5"), ("md5('a')", "0cc175b9c0f1b6a831c399e269772661")),
    _text("sha1", _BYTES, _digest("sha1"), ("left(sha1('a'), 8)", "86f7e437")),
    _text("sha256", _BYTES, _digest("sha256"), ("left(sha256('a'), 8)", "ca978112")),
    _text("hex to_hex", "VARCHAR -> VARCHAR | BLOB -> VARCHAR | BIGINT -> VARCHAR", each(_hex),
          ("hex('az')", "617A"), ("to_hex(255)", "FF")),
    _text("unhex from_hex", "VARCHAR -> BLOB", each(bytes.fromhex),
          ("cast(unhex('617a') AS VARCHAR)", "az")),
    _text("to_base64 base64", _BYTES,
          each(lambda value: base64.b64encode(_as_bytes(value)).decode()),
          ("to_base64('az')", "YXo=")),
    _text("from_base64", "VARCHAR -> BLOB",
          each(lambda value: base64.b64decode(value, validate=True)),
          ("cast(from_base64('YXo=') AS VARCHAR)", "az")),
    _text("encode", "VARCHAR -> BLOB", each(str.encode), ("octet_length(encode('äb'))", 3)),
    _text("decode", "BLOB -> VARCHAR", each(bytes.decode), ("decode(encode('äb'))", "äb")),
    _text("url_encode", _ONE, each(lambda value: quote(value, safe="")),
          ("url_encode('a b')", "a%20b")),
    _text("url_decode", _ONE, each(unquote), ("url_decode('a%20b')", "a b")),
    _text("format", "VARCHAR TEXT* -> VARCHAR", each(_format),
          ("format('{} of {}', 'a', 'b')", "a of b")),
]  # fmt: skip
