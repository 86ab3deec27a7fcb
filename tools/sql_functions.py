"""The reference of SQL functions, from the table that computes them."""

from __future__ import annotations

from itertools import groupby

from bicycle_runtime.expressions.sql.functions import SqlFunction
from bicycle_runtime.expressions.sql.table import ROWS

_TITLES = {
    "comparison": "Comparisons", "logic": "Logic", "condition": "Conditions",
    "arithmetic": "Arithmetic", "mathematics": "Mathematics", "text": "Texts and bytes",
    "time": "Times", "json": "JSON", "array": "Arrays",
}  # fmt: skip


def sql_functions_reference() -> str:
    """Return a table of functions for each subject."""
    lines = [f"{len(ROWS)} functions, with {sum(len(row.names) for row in ROWS)} names.", ""]
    order = list(_TITLES)
    rows = sorted(ROWS, key=lambda row: order.index(row.group))
    for group, found in groupby(rows, key=lambda row: row.group):
        lines += [f"### {_TITLES[group]}", ""]
        lines += ["| function | arguments → result | example |", "|---|---|---|"]
        lines += [*map(_row, found), ""]
    return "\n".join(lines)


def _row(row: SqlFunction) -> str:
    names = [row.symbol] if row.symbol else []
    names += [name for name in row.names if not row.symbol or name not in _ONLY_SYMBOLS]
    shown = ", ".join(f"`{_cell(name)}`" for name in names)
    types = "<br>".join(f"{each} → {each.result}" for each in row.signatures)
    examples = "<br>".join(f"`{_cell(text)}` is {_value(value)}" for text, value in row.examples)
    return f"| {shown} | {_cell(types)} | {examples} |"


# Names that only trees use.
_ONLY_SYMBOLS = frozenset({"concat_operator", "is_in"})


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _value(value: object) -> str:
    if value is None or isinstance(value, bool):
        return "NULL" if value is None else str(value).lower()
    return f"`{_cell(repr(value))}`"
