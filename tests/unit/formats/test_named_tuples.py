"""Named tuples in Avro, Protobuf, CSV and rows of tables: by the names of their fields."""

import datetime
from dataclasses import dataclass
from typing import NamedTuple

import pytest

from bicycle_runtime.connectors.typed_rows import records_of
from bicycle_runtime.formats.registry import make_codec

AT = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)


class Point(NamedTuple):
    number: int
    text: str = "x"


class Path(NamedTuple):
    nested: list[Point]
    number: int = 7


@dataclass
class Trip:
    number: datetime.datetime
    nested: list[Point]


SCHEMA = {
    "type": "record",
    "name": "Plain",
    "fields": [
        {"name": "text", "type": "string", "default": ""},
        {"name": "number", "type": "long", "default": 0},
        {"name": "nested", "type": {"type": "array", "items": "Plain"}, "default": []},
    ],
}
RECORDS = [
    (Point, Point(3, "three")),
    (Path, Path([Point(1), Point(2, "two")], 5)),
    (Trip, Trip(AT, [Point(1)])),
    (dict[str, list[Point]], {"nested": [Point(1)]}),
]


@pytest.fixture(params=["avro", "protobuf"])
def format_options(request, plain_message):
    return request.param, {"avro": {"schema": SCHEMA}, "protobuf": {"message": plain_message}}[
        request.param
    ]


@pytest.mark.parametrize(("kind", "value"), RECORDS)
def test_a_named_tuple_is_written_and_read_by_names(format_options, kind, value):
    name, options = format_options
    codec = make_codec(name, kind, options)

    data = codec.encode(value)

    if kind is Path:
        plain = make_codec(name, None, options).decode(data)
        assert [each["text"] for each in plain["nested"]] == ["x", "two"]
    if kind in (Point, Path, Trip):
        assert codec.decode(data) == value


def test_a_named_tuple_of_a_stream_without_a_type_is_written(format_options):
    name, options = format_options
    codec = make_codec(name, None, options)

    assert codec.decode(codec.encode(Point(3, "a")))["text"] == "a"


class Found(NamedTuple):
    at: datetime.datetime
    point: Point
    pairs: list[tuple[int, str]]
    note: str | None = "none"


def test_rows_of_tables_have_tuples_at_any_depth():
    row = {
        "at": 1_500, "point": {"text": "a", "number": 1},
        "pairs": [{"field_1": 1, "field_2": "b"}],
    }  # fmt: skip
    bad = {**row, "pairs": [{"a": 1, "b": "c"}]}

    found = records_of([row, bad], Found, [0, 1], 2)

    at = datetime.datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=datetime.UTC)
    assert found.values == [Found(at, Point(1, "a"), [(1, "b")])]
    assert [failure.offset for failure in found.failures] == [1]
