"""The columns of ``bicycle stream top``: their texts, and their sort keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bicycle_sdk.quantities import byte_text, count_text, duration_text
from bicycle_streams.texts import payload_text
from bicycle_streams.tools.rates import Figures

_LATEST_WIDTH = 40


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its heading, the text of a stream in it, and its sort key."""

    heading: str
    text: Callable[[Figures], str]
    value: Callable[[Figures], Any]
    is_descending: bool = True


def _count_column(value: Callable[[Figures], int | None]) -> Callable[[Figures], str]:
    def text(figures: Figures) -> str:
        found = value(figures)
        return "" if found is None else count_text(found)

    return text


def _number(heading: str, value: Callable[[Figures], int | None]) -> Column:
    return Column(heading, _count_column(value), value)


def _size(heading: str, value: Callable[[Figures], int]) -> Column:
    return Column(heading, lambda figures: byte_text(value(figures)), value)


def _latest_text(figures: Figures) -> str:
    """Return sequence and payload of the latest message, as much as a column holds."""
    if figures.latest is None:
        return ""
    text = f"{figures.latest.sequence} {payload_text(figures.latest.payload)}"
    return text if len(text) <= _LATEST_WIDTH else text[: _LATEST_WIDTH - 1] + "…"


COLUMNS: Sequence[Column] = (
    Column("stream", lambda f: f.key, lambda f: (f.key, f.location), is_descending=False),
    _number("msg/s", lambda f: f.messages.second),
    _number("msg/min", lambda f: f.messages.minute),
    _number("msg/h", lambda f: f.messages.hour),
    _size("B/s", lambda f: f.sizes.second),
    _size("B/min", lambda f: f.sizes.minute),
    _size("B/h", lambda f: f.sizes.hour),
    Column(
        "age",
        lambda f: "" if f.age_ms is None else duration_text(f.age_ms),
        lambda f: f.age_ms,
        is_descending=False,
    ),
    _number("shards", lambda f: None if f.info is None else len(f.info.shards)),
    _number("lag", lambda f: f.lag),
    _number("producers", lambda f: f.producer_count),
    _number("consumers", lambda f: f.consumer_count),
    Column(
        "marks",
        lambda f: " ".join(f.marks) if f.error is None else f.error.code,
        lambda f: " ".join(f.marks),
    ),
    Column("latest", _latest_text, lambda f: f.latest_ms),
    Column("location", lambda f: f.location, lambda f: (f.location, f.key), is_descending=False),
)
HEADINGS = [column.heading for column in COLUMNS]
SPARE_HEADINGS = (
    "location",
    "latest",
    "producers",
    "shards",
    "B/h",
    "msg/h",
    "consumers",
    "B/min",
    "msg/min",
)


def sort_streams(
    figures: Sequence[Figures], sort: str, containing: str, *, is_reversed: bool = False
) -> list[Figures]:
    """Return the streams whose names contain a text, sorted by one column.

    Numbers begin with the largest, names and ages with the smallest, unless that is reversed.
    """
    column = COLUMNS[HEADINGS.index(sort)]
    found = [each for each in figures if containing in each.name]
    known = [each for each in found if column.value(each) is not None]
    known.sort(key=column.value, reverse=column.is_descending != is_reversed)
    return known + [each for each in found if column.value(each) is None]
