"""Messages: payloads as bytes, text and JSON, and moments as they are printed."""

import json
from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bicycle_runtime.formats.registry import make_codec
from bicycle_sdk.time import TIME_MS_MAX
from bicycle_streams import (
    Message,
    MessageHeader,
    PayloadEncodingError,
    Receipt,
    StreamError,
    StreamKey,
    Timestamp,
)
from bicycle_streams.lines import parse_line
from bicycle_streams.texts import message_json, message_text


def message(payload):
    return Message(StreamKey("a"), 2, 7, 1_000, payload)


def test_a_payload_is_read_as_bytes_text_and_json():
    read = message(b'{"a": [1, "\xc3\xa9"]}')

    assert read.as_bytes() == b'{"a": [1, "\xc3\xa9"]}'
    assert read.as_str() == '{"a": [1, "é"]}'
    assert read.json() == {"a": [1, "é"]}
    assert (read.size, read.is_empty) == (16, False)


@dataclass
class Order:
    id: int
    name: str


@pytest.mark.parametrize("name", ["json", "msgpack", "csv"])
def test_a_payload_is_read_by_the_name_of_its_format(name):
    codec = make_codec(name, Order)

    assert message(codec.encode(Order(7, "ä, b"))).decode(codec) == Order(7, "ä, b")
    with pytest.raises(PayloadEncodingError, match="message 7 of stream 'a'"):
        message(b"\xc1").decode(codec)


def test_an_empty_payload_is_empty():
    assert (message(b"").size, message(b"").is_empty) == (0, True)


@pytest.mark.parametrize(
    ("payload", "call", "expected"),
    [
        (b"\xff", Message.as_str, "UTF-8"),
        (b"\xff", Message.json, "JSON"),
        (b"{", Message.json, "JSON"),
    ],
)
def test_a_payload_that_is_something_else_is_told(payload, call, expected):
    with pytest.raises(PayloadEncodingError) as caught:
        call(message(payload))

    facts = caught.value.facts
    assert (facts["expected"], facts["key"], facts["sequence"]) == (expected, "a", 7)


def test_header_and_receipt_have_the_same_four_fields():
    header = message(b"x").header

    assert header == MessageHeader(StreamKey("a"), 2, 7, 1_000)
    assert Receipt.__struct_fields__ == MessageHeader.__struct_fields__
    assert str(header.timestamp) == str(message(b"").timestamp) == "1970-01-01T00:00:01.000"


@given(st.integers(-(1 << 63), (1 << 64) - 1))
@example(-1)
@example(253_402_300_800_000)
@example(TIME_MS_MAX - 1)
@example(-TIME_MS_MAX)
def test_a_moment_survives_its_text(value):
    text = str(Timestamp(value))

    assert Timestamp.parse(text) == value
    line = f"[{text} | a] x"
    if abs(value) < TIME_MS_MAX:
        assert parse_line(line, "stdio://")[0].timestamp_ms == value
    else:
        with pytest.raises(StreamError, match="invalid head"):
            parse_line(line, "stdio://")


def test_a_year_that_calendars_have_no_room_for_has_a_sign_and_six_digits():
    assert str(Timestamp(253_402_300_800_000)) == "+010000-01-01T00:00:00.000"
    assert str(Timestamp(-62_198_755_200_001)) == "-000002-12-31T23:59:59.999"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1970-01-01T00:00:00.500Z", 500),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01 00:00:01", 1_000),
    ],
)
def test_moments_are_read_in_every_form_of_iso_8601(text, value):
    assert Timestamp.parse(text) == value


def test_what_is_no_moment_is_told():
    with pytest.raises(StreamError, match="'Jan 1, 2022' is not a valid time") as caught:
        Timestamp.parse("Jan 1, 2022")
    assert "2026-03-01T12:00" in caught.value.remedy


@pytest.mark.parametrize(
    "payload", [b"1e999", b'{"a": [-1e999]}', b"NaN", b"Infinity", b'["\\uD800"]', b'"\\udfff"']
)
def test_what_json_has_not_for_everybody_stays_the_text_that_it_was(payload):
    shown = message_text(message(payload), "ndjson").encode()

    assert json.loads(shown, parse_constant=pytest.fail)["payload"] == payload.decode()


def test_a_line_of_ndjson_shows_key_and_headers_where_there_are_any():
    plain = message(b"1")
    keyed = Message(StreamKey("a"), 2, 7, 1_000, b"1", b"k", (("trace", b"7"), ("trace", b"\xff")))
    headers = [{"name": "trace", "value": "7"}, {"name": "trace", "value_base64": "/w=="}]

    assert message_json(plain).keys() == {"header", "payload"}
    assert message_json(keyed) == {
        **message_json(plain), "message_key": "k", "headers": headers,
    }  # fmt: skip
    assert json.loads(message_text(keyed, "ndjson", header_only=True)).keys() == {
        "header", "message_key", "headers",
    }  # fmt: skip
    valueless = Message(StreamKey("a"), 2, 7, 1_000, b"1", None, (("a", None), ("b", b"")))
    assert message_json(valueless)["headers"] == [{"name": "a"}, {"name": "b", "value": ""}]
    binary = Message(StreamKey("a"), 2, 7, 1_000, b"1", b"\xff")
    assert message_json(binary)["message_key_base64"] == "/w=="
