"""Values in plain fields of Avro and Protobuf: numbers in ms, and texts."""

import datetime
import decimal
import math
import uuid
from dataclasses import make_dataclass

import pytest

from bicycle_runtime.formats.registry import make_codec

AT = datetime.datetime(1969, 7, 20, 20, 17, 40, 123000, tzinfo=datetime.UTC)
NAIVE = AT.replace(tzinfo=None)
SPAN = datetime.timedelta(seconds=1.5)
KEY = uuid.UUID(int=7)
AVRO = {"number": "long", "text": "string", "real": "double", "single": "float", "raw": "bytes"}


def codecs(plain_message, name, kind):
    """Return codecs of Avro and Protobuf for a record of one field, and for dicts of it."""
    record = make_dataclass("Plain", [(name, kind)])
    field = {"name": name, "type": AVRO[name]}
    schema = {"type": "record", "name": "Plain", "fields": [field]}
    yield (
        record,
        make_codec("avro", record, {"schema": schema}),
        make_codec("avro", None, {"schema": schema}),
    )
    options = {"message": plain_message}
    yield record, make_codec("protobuf", record, options), make_codec("protobuf", None, options)


@pytest.mark.parametrize(
    ("name", "value", "plain"),
    [
        ("number", AT, -14_182_939_877),
        ("number", SPAN, 1_500),
        ("number", datetime.time(0, 1, 0, 1_999), 60_001),
        ("real", AT, -14_182_939_877.0),
        ("text", AT, "1969-07-20T20:17:40.123000Z"),
        ("text", SPAN, "PT1.5S"),
        ("text", datetime.date(2026, 1, 2), "2026-01-02"),
        ("text", datetime.time(1, 2), "01:02:00"),
        ("text", decimal.Decimal("1.50"), "1.50"),
        ("text", KEY, str(KEY)),
        ("raw", bytearray(b"\xff"), b"\xff"),
    ],
)
def test_a_plain_field_has_times_in_ms_or_as_text(plain_message, name, value, plain):
    for record, typed, plain_codec in codecs(plain_message, name, type(value)):
        data = typed.encode(record(value))

        assert plain_codec.decode(data)[name] == plain
        found = getattr(typed.decode(data), name)
        whole = value.replace(microsecond=1_000) if plain == 60_001 else value
        assert (found, type(found)) == (whole, type(value))


def test_a_time_without_a_zone_is_in_utc(plain_message):
    for record, typed, _ in codecs(plain_message, "number", datetime.datetime):
        assert typed.decode(typed.encode(record(NAIVE))) == record(AT)
    codec = make_codec(
        "protobuf", make_dataclass("At", [("at", datetime.datetime)]), {"message": plain_message}
    )
    assert codec.decode(codec.encode({"at": NAIVE})).at == AT


def test_a_time_in_a_union_takes_its_logical_type_before_a_number():
    micros = {"type": "long", "logicalType": "timestamp-micros"}
    codec = make_codec("avro", None, {"schema": ["null", "long", micros, "string"]})

    values = [AT, 5, None, "x"]
    assert [codec.decode(codec.encode(value)) for value in values] == values
    assert codec.decode(codec.encode(SPAN)) == 1_500


@pytest.mark.parametrize("value", [1e39, -1e39, 2**200])
def test_a_number_that_a_float_of_four_bytes_cannot_hold_is_refused(plain_message, value):
    for record, typed, _ in codecs(plain_message, "single", float):
        with pytest.raises(ValueError, match="float of 4 bytes"):
            typed.encode(record(value))
    codec = make_codec("protobuf", None, {"message": plain_message})
    with pytest.raises(ValueError, match="float of 4 bytes"):
        codec.encode({"nested": [{"singles": [1.0, value]}]})


def test_infinite_numbers_and_nan_are_written(plain_message):
    for record, typed, _ in codecs(plain_message, "single", float):
        for value in (math.inf, -math.inf, 0.5):
            assert typed.decode(typed.encode(record(value))) == record(value)
        assert math.isnan(typed.decode(typed.encode(record(math.nan))).single)


@pytest.mark.parametrize("word", ["timestamp", "local-timestamp"])
def test_avro_has_times_in_nanoseconds(word):
    schema = {"type": "long", "logicalType": f"{word}-nanos"}
    plain, timed = (
        make_codec("avro", None, {"schema": "long"}),
        make_codec("avro", datetime.datetime, {"schema": schema}),
    )
    east = AT.astimezone(datetime.timezone(datetime.timedelta(hours=2)))
    local = NAIVE + datetime.timedelta(hours=2) if word.startswith("local") else AT

    found = timed.decode(timed.encode(east))

    assert (found, found.tzinfo) == (local, local.tzinfo)
    assert plain.decode(timed.encode(NAIVE)) == -14_182_939_877_000_000
    assert timed.encode(-14_182_939_877) == timed.encode(NAIVE)
    micro = datetime.timedelta(microseconds=1)
    before = NAIVE - micro if word.startswith("local") else AT - micro
    assert timed.decode(plain.encode(-14_182_939_877_000_001)) == before
    with pytest.raises(ValueError):
        timed.encode(datetime.datetime(2300, 1, 1, tzinfo=datetime.UTC))
