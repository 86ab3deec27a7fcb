"""Codecs of our formats: what is written is read again, and what does not fit is told."""

import csv
import datetime
import decimal
import pickle
import re
import subprocess
import sys
import uuid
from dataclasses import dataclass, field
from typing import NamedTuple, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.formats.errors import FORMAT_UNUSABLE
from bicycle_runtime.formats.registry import OWN_FORMATS, make_codec
from tests.raising import raises

PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Visit { int64 id = 1; google.protobuf.Timestamp at = 2; Visit next = 3; }
message Item { string sku = 1; int64 count = 2; }
message Order {
  enum Kind { NEW = 0; PAID = 1; }
  int64 id = 1;
  repeated Item items = 2;
  map<string, int32> stock = 3;
  optional string note = 4;
  bytes raw = 5;
  Item first = 6;
  map<string, Item> named = 7;
  Kind kind = 8;
  oneof way { string post = 9; bool shop = 10; }
}
"""


@dataclass
class Item:
    sku: str
    count: int = 0


@dataclass
class Visit:
    id: int
    at: datetime.datetime | None = None


@dataclass
class Order:
    id: int
    items: list[Item]
    note: str | None = None
    raw: bytes = b""
    named: dict[str, Item] = field(default_factory=dict)


@dataclass(frozen=True)
class Event:
    id: int
    at: datetime.datetime
    price: decimal.Decimal
    key: uuid.UUID
    raw: bytes
    tags: tuple[str, ...]
    item: Item | None = None


ITEM = {
    "type": "record",
    "name": "Item",
    "fields": [{"name": "sku", "type": "string"}, {"name": "count", "type": "int", "default": 1}],
}
EVENT = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "raw", "type": "bytes"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {
            "name": "item",
            "type": ["null", ITEM],
        },
    ],
}


class Row(NamedTuple):
    id: int
    price: float | None
    name: str | None = None


class Point(TypedDict):
    x: int
    y: float


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """The module that protoc makes of the messages."""
    folder = tmp_path_factory.mktemp("proto")
    (folder / "shop.proto").write_text(PROTO, encoding="utf-8")
    words = (f"-I{folder}", f"--python_out={folder}", str(folder / "shop.proto"))
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *words], check=True)
    sys.path.insert(0, str(folder))
    import shop_pb2

    yield shop_pb2
    sys.path.remove(str(folder))
    del sys.modules["shop_pb2"]


def travelled(name, record_type=None, **options):
    return pickle.loads(pickle.dumps(make_codec(name, record_type, options)))


def event():
    return Event(
        id=-(2**62),
        at=datetime.datetime(2026, 11, 25, 10, 0, 0, 123456, tzinfo=datetime.UTC),
        price=decimal.Decimal("12.50"),
        key=uuid.UUID(int=7),
        raw=b"\x00\xff",
        tags=("a", "ü"),
        item=Item("x", 3),
    )


@pytest.mark.parametrize(
    ("name", "record_type", "options", "value"),
    [
        ("json", None, {}, {"a": [1, None]}),
        ("json", Item, {}, Item("x", 2)),
        ("msgpack", Item, {}, Item("x", 2)),
        ("msgpack", None, {}, {"a": b"\xff"}),
        ("string", str, {}, "grüß"),
        ("bytes", None, {}, b"\xff"),
        ("csv", Item, {}, Item('a,"b"\nc', 2)),
        ("csv", Item, {}, Item("a\rb", 2)),
        ("csv", None, {"fields": ["a", "b"]}, {"a": "1", "b": "\r"}),
        ("csv", Row, {}, Row(1, None, "n")),
        ("csv", Row, {"delimiter": ";"}, Row(1, 2.5, "a,b")),
        ("csv", Point, {"fields": ["y", "x"]}, {"x": 1, "y": 2.5}),
        ("csv", tuple[int, str], {}, (1, "a b")),
        ("csv", None, {"fields": ["a", "b"]}, {"a": "1", "b": ""}),
        ("avro", Event, {"schema": EVENT}, event()),
        ("avro", None, {"schema": "long"}, 2**40),
        ("avro", int, {"schema": {"type": "long"}}, -1),
    ],
)
def test_what_is_written_is_read_again_where_the_codec_has_travelled(
    name, record_type, options, value
):
    codec = travelled(name, record_type, **options)

    found = codec.decode(codec.encode(value))

    assert (found, type(found)) == (value, type(value))


@given(
    st.builds(
        Event,
        id=st.integers(-(2**63), 2**63 - 1),
        at=st.datetimes(
            datetime.datetime(1970, 1, 2),  # noqa: DTZ001 - hypothesis adds the zone.
            datetime.datetime(2200, 1, 1),  # noqa: DTZ001 - likewise.
            timezones=st.just(datetime.UTC),
        ),
        price=st.decimals(-9_999_999, 9_999_999, places=2),
        key=st.uuids(),
        raw=st.binary(),
        tags=st.lists(st.text()).map(tuple),
        item=st.none() | st.builds(Item, sku=st.text(), count=st.integers(-(2**31), 2**31 - 1)),
    )
)  # fmt: skip
def test_any_record_of_an_avro_schema_is_read_as_it_was_written(value):
    codec = make_codec("avro", Event, {"schema": EVENT})

    assert codec.decode(codec.encode(value)) == value


def test_protobuf_gives_dicts_records_or_messages(shop):
    plain = {
        "id": 2**60, "items": [{"sku": "a", "count": 2}], "stock": {"x": 1}, "raw": b"\xff",
        "first": {"sku": "b", "count": 0}, "named": {"k": {"sku": "c", "count": 5}}, "kind": 1,
        "shop": True,
    }  # fmt: skip
    order = Order(7, [Item("a", 2)], None, b"\xff", {"k": Item("c", 5)})
    message = shop.Order(id=7, note="", post="no")

    dicts = travelled("protobuf", message="shop_pb2:Order")
    records = travelled("protobuf", Order, message="shop_pb2:Order")
    messages = travelled("protobuf", shop.Order, message="shop_pb2:Order")

    assert dicts.decode(dicts.encode(plain)) == plain
    assert records.decode(records.encode(order)) == order
    assert messages.decode(messages.encode(message)) == message
    assert dicts.decode(message.SerializeToString()) == {
        "id": 7, "items": [], "stock": {}, "note": "", "raw": b"", "named": {}, "kind": 0,
        "post": "no",
    }  # fmt: skip


def test_equal_protobuf_records_have_equal_bytes(shop):
    codec = make_codec("protobuf", None, {"message": "shop_pb2:Order"})
    one = {"stock": {str(n): n for n in range(50)}}
    other = {"stock": {str(n): n for n in reversed(range(50))}}

    assert codec.encode(one) == codec.encode(other)


@pytest.mark.parametrize(
    ("name", "record_type", "options", "data"),
    [
        ("json", Item, {}, b'{"sku": 1}'),
        ("json", None, {}, b"{"),
        ("msgpack", Item, {}, b"\x01"),
        ("string", None, {}, b"\xff"),
        ("csv", Item, {}, b"a"),
        ("csv", Item, {}, b"a,b"),
        ("csv", Item, {}, b"a,1\nb,2"),
        ("csv", Item, {}, b""),
        ("csv", Item, {}, b"\xff,1"),
        ("avro", None, {"schema": EVENT}, b""),
        ("avro", None, {"schema": "long"}, b"\x02\x02"),
        ("avro", str, {"schema": "long"}, b"\x02"),
        ("avro", None, {"schema": "string"}, b"\x04\xff\xff"),
    ],
)
def test_bytes_that_are_no_value_are_refused(name, record_type, options, data):
    with pytest.raises(ValueError):
        make_codec(name, record_type, options).decode(data)


def test_a_large_cell_of_csv_is_read_whatever_limit_the_process_has():
    item = Item("x" * 200_000, 1)
    codec = pickle.loads(pickle.dumps(make_codec("csv", Item)))
    limit = csv.field_size_limit(100)
    try:
        assert codec.decode(codec.encode(item)) == item
    finally:
        csv.field_size_limit(limit)


def test_bytes_that_are_no_message_are_refused(shop):
    options = {"message": "shop_pb2:Order"}
    with pytest.raises(ValueError, match="not a message Order"):
        make_codec("protobuf", None, options).decode(b"\xff\xff")
    with pytest.raises(ValueError):
        make_codec("protobuf", Item, options).decode(shop.Order(id=1).SerializeToString())


OPTION, DESCRIPTOR = (
    f"google.protobuf.descriptor_pb2:{name}" for name in ("UninterpretedOption", "DescriptorProto")
)


@pytest.mark.parametrize(
    ("message", "data", "problem"),
    [
        (DESCRIPTOR, b"\x08\x01", "field 'name' of message DescriptorProto has a value of another"),
        (DESCRIPTOR, b"\x1a\x02\x08\x01", "field 'name' of message DescriptorProto has a value of"),
        (DESCRIPTOR, b"\x0a\x02\xff\xfe", "field 'name' is not UTF-8"),
        (DESCRIPTOR, b"\x52\x02\xff\xfe", "field 'reserved_name' is not UTF-8"),
        (DESCRIPTOR, b"\x08" + b"\xff" * 20, "not a message"),
        (DESCRIPTOR, b"\x0a\xff\xff\xff\xff\x07a", "not a message"),
        (OPTION, b"\x12\x02\x0a\x00", "required field 'name[0].is_extension'"),
    ],
)
def test_a_message_with_other_fields_than_its_class_is_refused(message, data, problem):
    codec = make_codec("protobuf", None, {"message": message})

    with pytest.raises(ValueError, match=re.escape(problem)):
        codec.decode(data)


def test_a_message_object_with_a_value_of_another_kind_is_refused(shop):
    codec = make_codec("protobuf", shop.Order, {"message": "shop_pb2:Order"})

    with pytest.raises(ValueError, match="field 'id' of message Order"):
        codec.decode(b"\x0a\x03abc")


def test_numbers_that_a_closed_enum_lacks_and_unknown_fields_are_ignored():
    codec = make_codec("protobuf", None, {"message": "google.protobuf.descriptor_pb2:FieldOptions"})

    assert codec.decode(b"\x08\x77\xa2\x06\x03abc") == codec.decode(b"")


@pytest.mark.parametrize("seconds", [2**62, 8 * 10**13, -8 * 10**13])
def test_a_time_that_python_cannot_represent_is_refused(shop, seconds):
    codec = make_codec("protobuf", Visit, {"message": "shop_pb2:Visit"})
    with pytest.raises(ValueError, match="out of bounds"):
        codec.decode(shop.Visit(at={"seconds": seconds}).SerializeToString())


def test_messages_within_many_messages_are_read(shop):
    codec = make_codec("protobuf", None, {"message": "shop_pb2:Visit"})
    message = shop.Visit(id=1)
    for _ in range(90):
        message = shop.Visit(next=message)
    data = message.SerializeToString()
    found = codec.decode(data)
    while "next" in found:
        found = found["next"]
    assert found["id"] == 1


@pytest.mark.parametrize(
    ("name", "record_type", "options", "value"),
    [
        ("string", None, {}, 3),
        ("bytes", None, {}, "text"),
        ("json", None, {}, object()),
        ("csv", Item, {}, {"sku": "a", "colour": "red"}),
        ("csv", Item, {}, ("a", 1, 2)),
        ("csv", None, {"fields": ["a"]}, {"a": object()}),
        ("avro", None, {"schema": EVENT}, {"id": 1}),
        ("avro", None, {"schema": "long"}, "text"),
        ("avro", None, {"schema": "int"}, 2**40),
        ("avro", None, {"schema": EVENT}, 7),
        ("avro", None, {"schema": ITEM}, {"sku": "a", "count": 1, "colour": "red"}),
    ],
)
def test_values_without_a_form_are_refused(name, record_type, options, value):
    with pytest.raises((ValueError, TypeError, OverflowError)):
        make_codec(name, record_type, options).encode(value)


def test_records_that_are_no_messages_are_refused(shop):
    codec = make_codec("protobuf", None, {"message": "shop_pb2:Order"})
    for value in ({"id": "x"}, {"colour": 1}, {"id": 2**64}, {"items": [{"weight": 1}]}, 3):
        with pytest.raises(ValueError):
            codec.encode(value)


@pytest.mark.parametrize(
    ("name", "record_type", "options"),
    [
        *((name, None, {"colour": 1}) for name in OWN_FORMATS),
        ("string", int, {}),
        ("bytes", str, {}),
        ("csv", None, {}),
        ("csv", int, {}),
        ("avro", None, {}),
        ("avro", None, {"schema": {"type": "nothing"}}),
        ("avro", None, {"schema": {"type": "record"}}),
        ("protobuf", None, {}),
        ("protobuf", None, {"message": "builtins:int"}),
        ("protobuf", None, {"message": "builtins:absent"}),
        ("json", set[int] | list[int], {}),
    ],
)
def test_what_a_format_cannot_be_made_of_is_refused_before_a_value_comes(
    name, record_type, options
):
    with raises(FORMAT_UNUSABLE) as caught:
        make_codec(name, record_type, options)

    assert caught.value.facts["name"] == name
