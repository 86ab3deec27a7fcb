"""Result tables: rows with named and typed columns, drawn as text or as HTML."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from html import escape
from typing import Any

__all__ = ["ResultTable", "text_table", "value_text"]

_GAP = "  "
_WORDS = {None: "NULL", True: "true", False: "false"}
_NUMBERS = ("BIGINT", "DOUBLE", "DECIMAL")


class ResultTable(list[dict[str, Any]]):
    """The rows of a query, which a terminal and a notebook show as a table.

    It is a list of dictionaries, so that it compares and iterates like the records of a stream.

    Args:
        rows: The rows, by the names of their columns.
        columns: The SQL type of each column, by name.

    Example:
        >>> ResultTable([{"n": 12, "who": "ada"}, {"n": 7, "who": None}],
        ...             columns={"n": "BIGINT", "who": "VARCHAR"})
             n  who
        BIGINT  VARCHAR
            12  ada
             7  NULL
        (2 rows)
    """

    def __init__(self, rows: Iterable[dict[str, Any]], *, columns: Mapping[str, str]) -> None:
        super().__init__(rows)
        self.columns = dict(columns)

    @property
    def headings(self) -> list[str]:
        """The name and the type of each column, in two lines."""
        return [f"{name}\n{kind}" for name, kind in self.columns.items()]

    @property
    def texts(self) -> list[list[str]]:
        """The texts of the rows."""
        return [[value_text(row.get(name)) for name in self.columns] for row in self]

    @property
    def widths(self) -> list[int]:
        """The widths of the columns, in characters."""
        lines = [*zip(*(each.split("\n") for each in self.headings), strict=True), *self.texts]
        return [max(map(len, column)) for column in zip(*lines, strict=True)]

    @property
    def are_numbers(self) -> list[bool]:
        """True for each column of numbers, which are aligned to the right."""
        return [kind.startswith(_NUMBERS) for kind in self.columns.values()]

    def __repr__(self) -> str:
        lines = text_table(self.headings, self.texts, are_numbers=self.are_numbers)
        return "\n".join([*lines, f"({len(self)} row{'' if len(self) == 1 else 's'})"])

    def _repr_html_(self) -> str:
        """Return the table as HTML for a notebook; all texts are escaped."""
        heads = "".join(
            f"<th>{escape(name)}<br><small>{escape(kind)}</small></th>"
            for name, kind in self.columns.items()
        )
        styles = [' style="text-align: right"' if each else "" for each in self.are_numbers]
        rows = "".join(
            "<tr>"
            + "".join(
                f"<td{style}>{_html_text(row.get(name))}</td>"
                for name, style in zip(self.columns, styles, strict=True)
            )
            + "</tr>"
            for row in self
        )
        return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def _html_text(value: Any) -> str:
    return "<em>NULL</em>" if value is None else escape(value_text(value))


def value_text(value: Any) -> str:
    r"""Return a value as text in one line, without control characters.

    Example:
        >>> value_text(None), value_text(True), value_text("a\nb"), value_text(Decimal("1E+2"))
        ('NULL', 'true', 'a\\nb', '100')
        >>> value_text(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)), value_text([1, None])
        ('2026-01-02 03:04:05', '[1, null]')
    """
    text = _plain_text(value)
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def _plain_text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return _WORDS[value]
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime):
        moment = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return moment.isoformat(" ", "milliseconds" if moment.microsecond else "seconds")
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, ensure_ascii=False, default=value_text)
    return str(value)


def text_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    are_numbers: Sequence[bool] = (),
    widths: Sequence[int] = (),
) -> list[str]:
    """Return the lines of a table in plain columns; a heading may have several lines.

    Args:
        headings: Names of the columns.
        rows: Their texts.
        are_numbers: Whether each column is aligned to the right; default: none is.
        widths: The least width of each column in characters; default: that of its texts.
    """
    heads = list(zip(*(heading.split("\n") for heading in headings), strict=True))
    lines = [*heads, *rows]
    widths = [
        max(width, *map(len, column))
        for width, *column in zip(widths or [0] * len(headings), *lines, strict=True)
    ]
    signs = [">" if each else "<" for each in are_numbers] or ["<"] * len(widths)
    return [
        _GAP.join(
            f"{text:{sign}{width}}" for text, sign, width in zip(line, signs, widths, strict=True)
        ).rstrip()
        for line in lines
    ]
