"""Avro and Protobuf on columns: batches decode to what each value decodes to, or are refused."""

import math
from dataclasses import dataclass, make_dataclass

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import example, given
from hypothesis import strategies as st

from bicycle_runtime.formats.avro import AvroCodec
from bicycle_runtime.formats.contract import reads_fields
from bicycle_runtime.formats.protobuf import ProtobufCodec

INT, LONG = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
TEXT, BOOL, DOUBLE = st.text(max_size=200), st.booleans(), st.floats()
FLOAT = st.floats(width=32)
AVRO = {
    "int": (INT, int), "long": (LONG, int), "string": (TEXT, str), "boolean": (BOOL, bool),
    "double": (DOUBLE, float), "float": (FLOAT, float),
}  # fmt: skip
UNSIGNED, WIDE = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
PROTOBUF = {
    "double": DOUBLE, "float": FLOAT, "int64": LONG, "uint64": WIDE, "int32": INT, "fixed64": WIDE,
    "fixed32": UNSIGNED, "bool": BOOL, "string": TEXT, "uint32": UNSIGNED, "sfixed32": INT,
    "sfixed64": LONG, "sint32": INT, "sint64": LONG,
}  # fmt: skip


class Made:
    """The class of messages of a test; a codec names it by module and name."""

    message = None


@st.composite
def avro_cases(draw):
    words = draw(st.lists(st.sampled_from(list(AVRO)), min_size=1, max_size=5))
    unions = [draw(st.sampled_from(["", "first", "last"])) for _ in words]
    types = [
        {"": word, "first": ["null", word], "last": [word, "null"]}[union]
        for word, union in zip(words, unions, strict=True)
    ]
    values = [
        st.none() | AVRO[word][0] if union else AVRO[word][0]
        for word, union in zip(words, unions, strict=True)
    ]
    hints = [
        AVRO[word][1] | None if union else AVRO[word][1]
        for word, union in zip(words, unions, strict=True)
    ]
    names = [f"f{number}" for number in range(len(words))]
    fields = [{"name": name, "type": kind} for name, kind in zip(names, types, strict=True)]
    rows = draw(st.lists(st.tuples(*values), min_size=1, max_size=5))
    record_type = make_dataclass("Order", list(zip(names, hints, strict=True)))
    schema = {"type": "record", "name": "Order", "fields": fields}
    return schema, record_type, [dict(zip(names, row, strict=True)) for row in rows]


def shown(values):
    """Return values with their types and the signs of zeros."""
    return [repr(value) for value in values]


def assert_alike(codec, data):
    """Assert that a batch decodes to its values, or fails if it is refused or one is invalid."""
    try:
        found = codec.decode_batch(data)
    except Exception:  # noqa: BLE001 - then each value is decoded.
        return False
    assert shown(map(codec.decode, data)) == shown(found)
    return True


@given(avro_cases(), st.booleans())
def test_avro_records_are_equal_on_columns(case, is_typed):
    schema, record_type, records = case
    codec = AvroCodec(record_type if is_typed else None, {"schema": schema})
    data = [codec.encode(record) for record in records]

    assert reads_fields(codec)
    assert assert_alike(codec, data)


@given(avro_cases(), st.data())
def test_damaged_avro_is_refused_or_decoded_alike(case, data):
    schema, _, records = case
    codec = AvroCodec(None, {"schema": schema})

    assert_alike(codec, [damage(codec.encode(record), data) for record in records])


def damage(encoded, data):
    """Return bytes with one changed, cut or added."""
    place = data.draw(st.integers(0, len(encoded)))
    inserted = data.draw(st.binary(max_size=3))
    removed = data.draw(st.integers(0, 2))
    return encoded[:place] + inserted + encoded[place + removed :]


def protobuf_codec(words, record_type=None, order=None):
    """Return a codec; ``order`` is that in which the message declares its fields."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", syntax="proto3")
    message = file.message_type.add(name="Order")
    for number, word in order or enumerate(words, 12):
        kind = getattr(descriptor_pb2.FieldDescriptorProto, f"TYPE_{word.upper()}")
        message.field.add(name=f"f{number}", number=number, type=kind, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    Made.message = message_factory.GetMessageClass(pool.FindMessageTypeByName("Order"))
    return ProtobufCodec(record_type, {"message": f"{__name__}:Made.message"})


@st.composite
def protobuf_cases(draw):
    words = draw(st.lists(st.sampled_from(list(PROTOBUF)), min_size=1, max_size=6))
    fields = {f"f{number}": PROTOBUF[word] for number, word in enumerate(words, 12)}
    rows = draw(st.lists(st.fixed_dictionaries(fields), min_size=1, max_size=5))
    return words, rows, draw(st.permutations(list(enumerate(words, 12))))


@given(protobuf_cases())
@example((["int64", "int64"], [{"f12": 100, "f13": 7}], [(13, "int64"), (12, "int64")]))
def test_protobuf_messages_are_equal_on_columns(case):
    words, rows, order = case
    codec = protobuf_codec(words, order=order)
    data = [codec.encode(row) for row in rows]
    negative = any(
        word == "int32" and row[f"f{number}"] < 0
        for number, word in enumerate(words, 12)
        for row in rows
    )

    assert reads_fields(codec)
    assert assert_alike(codec, data) is not negative  # A negative int32 has two encodings.


@given(protobuf_cases(), st.data())
def test_damaged_protobuf_is_refused_or_decoded_alike(case, data):
    words, rows, order = case
    codec = protobuf_codec(words, order=order)

    assert_alike(codec, [damage(codec.encode(row), data) for row in rows])


def test_a_negative_zero_is_no_default_of_protobuf():
    codec = protobuf_codec(["double", "float"])
    [found] = codec.decode_batch([codec.encode({"f12": -0.0, "f13": 0.0})])

    assert [math.copysign(1, value) for value in found.values()] == [-1.0, 1.0]


@dataclass
class Typed:
    f12: int
    f13: str


@dataclass
class Other:
    f12: float
    f13: str


@pytest.mark.parametrize(("record_type", "is_read"), [(Typed, True), (Other, False), (int, False)])
def test_a_type_that_needs_conversions_is_decoded_by_value(record_type, is_read):
    schema = {"type": "record", "name": "R", "fields": [
        {"name": "f12", "type": "long"}, {"name": "f13", "type": "string"},
    ]}  # fmt: skip

    assert reads_fields(AvroCodec(record_type, {"schema": schema})) is is_read
    assert reads_fields(protobuf_codec(["int64", "string"], record_type)) is is_read


@pytest.mark.parametrize(
    "kind",
    [
        {"type": "long", "logicalType": "timestamp-millis"}, "bytes", ["null", "int", "string"],
        {"type": "array", "items": "int"}, {"type": "enum", "name": "E", "symbols": ["A"]}, "null",
        {"type": "record", "name": "Inner", "fields": [{"name": "a", "type": "int"}]},
    ],
)  # fmt: skip
def test_schemas_beyond_plain_fields_are_decoded_by_value(kind):
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}

    assert not reads_fields(AvroCodec(None, {"schema": schema}))
    assert not reads_fields(AvroCodec(None, {"schema": "long"}))


def test_int_beyond_32_bits_and_surplus_bytes_are_decoded_by_value():
    fields = [{"name": "a", "type": "int"}]
    codec = AvroCodec(None, {"schema": {"type": "record", "name": "R", "fields": fields}})

    for data in (b"\xff\xff\xff\xff\xff\x01", b"\x02\x00"):
        with pytest.raises(ValueError, match="do not need all bytes"):
            codec.decode_batch([data])
