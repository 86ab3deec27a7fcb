"""A number in the place of a time is in ms, in every format, and parts of a ms are rounded down."""

import datetime
import pickle
import subprocess
import sys
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.formats.registry import make_codec
from bicycle_runtime.formats.typed_values import TypedConverter, json_decoder
from bicycle_runtime.records.times import duration_of, moment_of, time_of, time_of_day_of
from bicycle_sdk.time import as_ms

MS = 1_772_368_200_123
AT = datetime.datetime(2026, 3, 1, 12, 30, 0, 123_000, tzinfo=datetime.UTC)
NOON = datetime.time(12)
NOON_MS = 12 * 3_600_000


@dataclass
class Span:
    at: datetime.datetime | None
    hour: datetime.time
    length: datetime.timedelta


SPAN = Span(AT, NOON, datetime.timedelta(milliseconds=1_500))


def travelled(name, record_type=None, **options):
    return pickle.loads(pickle.dumps(make_codec(name, record_type, options)))


@given(ms=st.floats(-6e13, 1e14))
def test_a_part_of_a_ms_is_rounded_down_for_a_window_and_for_a_column(ms):
    whole = as_ms(ms)

    assert whole <= ms < whole + 1
    assert time_of(ms) == time_of(repr(ms)) == time_of(moment_of(ms)) == whole


@pytest.mark.parametrize(
    "value", [1e300, float("nan"), True, "soon", "2026-01-01T00:00", b"1", 1e17]
)
def test_what_is_no_time_is_refused(value):
    with pytest.raises(ValueError, match=r"time"):
        moment_of(value)


@pytest.mark.parametrize("value", [-1, 86_400_000, AT, "25:00"])
def test_a_time_of_day_is_within_a_day(value):
    with pytest.raises(ValueError, match=r"time"):
        time_of_day_of(value)


def test_a_duration_has_no_bound_but_that_of_python():
    assert duration_of("-2.5") == datetime.timedelta(milliseconds=-3)
    with pytest.raises(ValueError, match="too long"):
        duration_of(2**61)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("json", b'{"at": %d, "hour": %d, "length": 1500.9}' % (MS, NOON_MS)),
        ("json", b'{"at": %d.5, "hour": "12:00:00", "length": "PT1.5S"}' % MS),
        ("csv", b"%d,%d,1500" % (MS, NOON_MS)),
        ("csv", b" %d.9 ,12:00:00,1500.5" % MS),
        ("msgpack", msgspec.msgpack.encode({"at": MS, "hour": NOON_MS, "length": 1_500})),
    ],
)
def test_numbers_are_ms_in_each_format(name, data):
    assert travelled(name, Span).decode(data) == SPAN


@pytest.mark.parametrize(
    "data",
    [
        b'{"at": true, "hour": 0, "length": 0}',
        b'{"at": 1e18, "hour": 0, "length": 0}',
        b'{"at": 0, "hour": -1, "length": 0}',
        b'{"at": 0, "hour": 0}',
        b'{"at": [1], "hour": 0, "length": 0}',
    ],
)
def test_what_is_no_time_is_a_bad_record(data):
    with pytest.raises(msgspec.ValidationError):
        json_decoder(Span).decode(data)


class Pair(NamedTuple):
    name: str
    at: datetime.datetime


class Keys(TypedDict, total=False):
    at: datetime.datetime
    number: datetime.datetime | int


class Made(msgspec.Struct, tag="made", rename="camel"):
    made_at: datetime.datetime
    price: Decimal = Decimal(0)


class Sold(msgspec.Struct, tag="sold"):
    madeAt: int


@dataclass
class Tree:
    at: datetime.datetime
    children: list["Tree"]


@pytest.mark.parametrize(
    ("record_type", "data", "expected"),
    [
        (Pair, b'["a", 5]', Pair("a", moment_of(5))),
        (tuple[int, datetime.datetime], b"[5, 5]", (5, moment_of(5))),
        (dict[int, datetime.datetime], b'{"5": 5}', {5: moment_of(5)}),
        (set[datetime.datetime], b"[5]", {moment_of(5)}),
        (list[Keys], b'[{"at": 5}, {"number": 5}]', [{"at": moment_of(5)}, {"number": 5}]),
        (Made | Sold, b'{"type": "made", "madeAt": 5}', Made(moment_of(5))),
        (Made | Sold, b'{"type": "sold", "madeAt": 5}', Sold(5)),
        (
            Made,
            b'{"type": "made", "madeAt": 5, "price": 0.1234567890123456789012}',
            Made(moment_of(5), Decimal("0.1234567890123456789012")),
        ),
        (
            Tree,
            b'{"at": 1, "children": [{"at": 2, "children": []}]}',
            Tree(moment_of(1), [Tree(moment_of(2), [])]),
        ),
    ],
)
def test_times_within_other_types_are_found(record_type, data, expected):
    assert json_decoder(record_type).decode(data) == expected
    assert json_decoder(record_type).decode_lines(data + b"\n" + data) == [expected, expected]


def test_a_type_without_times_is_decoded_by_the_library_alone():
    assert type(json_decoder(dict[str, int])) is msgspec.json.Decoder
    assert TypedConverter(list[int], is_text=True)(["1"]) == [1]


AVRO = {
    "type": "record",
    "name": "Span",
    "fields": [
        {"name": "ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "us", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "hour", "type": {"type": "long", "logicalType": "time-micros"}},
        {
            "name": "many",
            "type": {
                "type": "map",
                "values": {
                    "type": "array",
                    "items": {"type": "long", "logicalType": "timestamp-micros"},
                },
            },
        },
        {"name": "next", "type": ["null", "Span"], "default": None},
        {"name": "plain", "type": "long", "default": 0},
    ],
}


@pytest.mark.parametrize("at", [MS, MS + 0.5, AT])
def test_numbers_written_as_avro_are_ms_in_each_unit(at):
    codec = travelled("avro", None, schema=AVRO)
    inner = {"ms": at, "us": at, "local": at, "hour": NOON_MS, "many": {"a": [at]}, "plain": MS}

    found = codec.decode(codec.encode({**inner, "next": {**inner, "next": None}}))

    for each in (found, found["next"]):
        assert (each["ms"], each["us"], each["many"]) == (AT, AT, {"a": [AT]})
        assert (each["local"], each["hour"]) == (AT.replace(tzinfo=None), NOON)
        assert each["plain"] == MS


def test_a_datetime_without_zone_is_utc_in_avro_whatever_the_zone_of_the_machine(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    codec = travelled("avro", None, schema={"type": "long", "logicalType": "timestamp-micros"})

    assert codec.decode(codec.encode(AT.replace(tzinfo=None))) == AT


def test_an_avro_long_is_ms_for_a_declared_time():
    schema = {"type": "record", "name": "R", "fields": [{"name": "at", "type": "long"}]}

    @dataclass
    class Record:
        at: datetime.datetime

    data = travelled("avro", None, schema=schema).encode({"at": MS})
    codec = make_codec("avro", Record, {"schema": schema})

    assert codec.decode(data) == Record(AT)


PROTO = """
syntax = "proto3";
package span;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
message Span {
  google.protobuf.Timestamp at = 1;
  int64 ms = 2;
  google.protobuf.Duration length = 3;
  int64 length_ms = 4;
  string text = 5;
  repeated google.protobuf.Timestamp many = 6;
}
"""


@dataclass
class Times:
    at: datetime.datetime | None = None
    ms: datetime.datetime | None = None
    length: datetime.timedelta | None = None
    length_ms: datetime.timedelta | None = None
    text: datetime.datetime | None = None
    many: list[datetime.datetime] | None = None


@pytest.fixture(scope="module")
def span_pb2(tmp_path_factory):
    """The module that protoc makes of the message."""
    folder = tmp_path_factory.mktemp("proto")
    (folder / "span.proto").write_text(PROTO, encoding="utf-8")
    words = (f"-I{folder}", f"--python_out={folder}", str(folder / "span.proto"))
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *words], check=True)
    sys.path.insert(0, str(folder))
    import span_pb2

    yield span_pb2
    sys.path.remove(str(folder))
    del sys.modules["span_pb2"]


@pytest.mark.parametrize("at", [AT, AT - datetime.timedelta(days=40_000, microseconds=1)])
@pytest.mark.parametrize("length_ms", [1_500, -1_500])
def test_protobuf_has_times_as_messages_or_as_ms(span_pb2, at, length_ms):
    length = datetime.timedelta(milliseconds=length_ms)
    codec = travelled("protobuf", Times, message="span_pb2:Span")
    data = codec.encode(Times(at, at, length, length, at, [at]))

    message = span_pb2.Span.FromString(data)
    assert message.at.ToDatetime(datetime.UTC) == message.many[0].ToDatetime(datetime.UTC) == at
    assert (message.ms, message.length_ms) == (as_ms(at), length_ms)
    assert message.length.ToTimedelta() == length
    assert codec.decode(data) == Times(at, moment_of(as_ms(at)), length, length, at, [at])


def test_numbers_written_as_messages_of_protobuf_are_ms(span_pb2):
    data = travelled("protobuf", None, message="span_pb2:Span").encode(
        {"at": MS + 0.5, "length": 1_500, "many": [MS]}
    )

    message = span_pb2.Span.FromString(data)
    assert message.at.ToMilliseconds() == message.many[0].ToMilliseconds() == MS
    assert message.length.ToMilliseconds() == 1_500
