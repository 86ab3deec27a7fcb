"""From messages to records: formats, types, null values, and one bad message among good ones."""

import json
from dataclasses import dataclass

import cloudpickle
import msgspec
import pyarrow
import pytest
from confluent_kafka import Message

from bicycle_runtime.connectors.errors import CONNECTOR_OPTION_WRONG, CONNECTOR_PAYLOAD_WRONG
from bicycle_runtime.connectors.kafka.formats import MessageDecoder, key_format, value_format
from bicycle_runtime.contract import ConnectorSpec
from bicycle_runtime.formats.registry import make_codec
from bicycle_runtime.frames.frame import MISSING, Frame
from tests.raising import raises

AVRO_ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


@dataclass
class Order:
    id: int


class Doubling:
    """A schema of a job: refuses one word."""

    def decode(self, data):
        if data == b"bad":
            raise LookupError("no such schema")
        return data * 2


def spec(record_type=None, **payloads):
    return ConnectorSpec(
        vertex_id="v", connector_type="kafka", properties={}, payloads=payloads,
        record_type=record_type,
    )  # fmt: skip


def messages(*raws, **fields):
    return [
        Message(
            topic="t", partition=0, offset=10 + i, value=raw, timestamp=(1, 1_000 + i), **fields
        )
        for i, raw in enumerate(raws)
    ]


def decoded(record_type, raws, *, name=None, keys="bytes", payloads=None, **fields):
    source = spec(record_type, **(payloads or {}))
    decoder = MessageDecoder(value_format(source, name), key_format(source, keys))
    travelled = cloudpickle.loads(cloudpickle.dumps((decoder.values, decoder.keys)))
    return MessageDecoder(*travelled).batch(messages(*raws, **fields), 99)


@pytest.mark.parametrize(
    ("record_type", "raw", "value"),
    [
        (str, "grüß".encode(), "grüß"),
        (bytes, b"\xff", b"\xff"),
        (Order, b'{"id":1}', Order(1)),
        (int, b"7", 7),
        (None, b'{"a":[1]}', {"a": [1]}),
        (str | None, b"x", "x"),
        (list[str], b'["a"]', ["a"]),
    ],
)
def test_the_record_type_chooses_the_format(record_type, raw, value):
    batch = decoded(record_type, [raw, raw])

    assert batch.values == [value, value]
    assert list(batch.offsets) == [10, 11]
    assert list(batch.timestamps) == [1_000, 1_001]
    assert batch.next_offset == 99


def test_message_pack_is_decoded_as_the_declared_type():
    raw = msgspec.msgpack.encode(Order(3))

    assert decoded(Order, [raw], name="msgpack").values == [Order(3)]


def test_a_schema_of_the_job_decodes_and_what_it_raises_makes_a_bad_record():
    batch = decoded(
        Order, [b"a", b"bad", b"b"], name="schema", payloads={"value_schema": Doubling()}
    )

    assert batch.values == [b"aa", b"bb"]
    assert [(bad.offset, bad.raw) for bad in batch.failures] == [(11, b"bad")]
    assert "LookupError: no such schema" in batch.failures[0].reason


@pytest.mark.parametrize(
    ("record_type", "bad"), [(str, b"\xff\xfe"), (Order, b'{"id":"x"}'), (None, b"{")]
)
def test_one_bad_message_costs_no_other(record_type, bad):
    good = b'{"id":1}'

    batch = decoded(record_type, [good, bad, good], key=b"k", headers=[("h", b"1"), ("i", None)])

    assert len(batch.values) == 2
    assert list(batch.offsets) == [10, 12]
    assert list(batch.timestamps) == [1_000, 1_002]
    assert [len(column) for column in (batch.keys, batch.headers)] == [2, 2]
    [failure] = batch.failures
    assert (failure.offset, failure.raw, failure.key) == (11, bad, b"k")
    assert (failure.headers, failure.timestamp_ms) == ((("h", b"1"), ("i", None)), 1_001)


@pytest.mark.parametrize("record_type", [str, bytes, Order])
def test_a_null_value_is_a_bad_record_unless_the_type_allows_none(record_type):
    raw = b'{"id":1}'
    refused = decoded(record_type, [raw, None])
    accepted = decoded(record_type | None, [raw, None])

    assert [bad.offset for bad in refused.failures] == [11]
    assert len(refused.values) == 1
    assert accepted.values[1] is None
    assert not accepted.failures


def test_a_schema_is_not_asked_about_null_values():
    batch = decoded(None, [None, b"a"], name="schema", payloads={"value_schema": Doubling()})

    assert batch.values == [None, b"aa"]


class Columns(Doubling):
    """A codec of two bytes, whose batches are columns."""

    gives_fields = True

    def encode(self, value):
        return bytes(value.values())

    def decode(self, data):
        return {"low": data[0], "high": data[1]}

    def decode_batch(self, several):
        columns = {"low": [data[0] for data in several], "high": [data[1] for data in several]}
        return Frame.of_arrow(pyarrow.RecordBatch.from_pydict(columns))


def test_a_codec_may_decode_a_batch_to_columns():
    batch = by_field(None, [b"ab", b"cd"], name="schema", value_schema=Columns())

    assert isinstance(batch.values, Frame)
    assert batch.values.field("high").numbers.tolist() == [98, 100]
    assert list(batch.values) == [{"low": 97, "high": 98}, {"low": 99, "high": 100}]


@pytest.mark.parametrize("bad", [b"a", None])
def test_a_batch_that_a_codec_cannot_decode_as_a_whole_is_decoded_by_value(bad):
    batch = by_field(dict, [b"ab", bad], name="schema", value_schema=Columns())

    assert list(batch.values) == [{"low": 97, "high": 98}]
    assert [failure.offset for failure in batch.failures] == [11]


@pytest.mark.parametrize("schema", [Columns(), Doubling()])
def test_only_a_codec_of_batches_gives_fields(schema):
    source = spec(None, value_schema=schema)
    decoder = MessageDecoder(value_format(source, "schema"), key_format(source, "bytes"))

    assert decoder.give_fields() is isinstance(schema, Columns)


def by_field(record_type, raws, *, name=None, **payloads):
    source = spec(record_type, **payloads)
    decoder = MessageDecoder(value_format(source, name), key_format(source, "bytes"))
    decoder.give_fields()
    return decoder.batch(messages(*raws), 99)


def test_records_of_json_are_given_by_field_and_made_only_when_somebody_asks(monkeypatch):
    batch = by_field(Order, [b'{"id":1}', b'{"id":2}'])

    assert isinstance(batch.values, Frame)
    with monkeypatch.context() as patched:
        patched.setattr(Frame, "records", None)
        assert batch.values.field("id").items == [1, 2]
    assert list(batch.values) == [Order(1), Order(2)]
    assert (list(batch.offsets), list(batch.timestamps)) == ([10, 11], [1_000, 1_001])


@pytest.mark.parametrize("bad", [b"{", b'{"id":"1"}', b"{}", b"\xff", None])
def test_a_bad_message_among_fields_costs_no_other(bad):
    batch = by_field(Order, [b'{"id":1}', bad, b'{"id":3}'])

    assert batch.values == [Order(1), Order(3)]
    assert [failure.offset for failure in batch.failures] == [11]


@pytest.mark.parametrize(
    ("record_type", "raw", "name"),
    [
        (str, b"x", None),
        (Order, b"\x81\xa2id\x07", "msgpack"),
    ],
)
def test_what_has_no_fields_in_json_is_given_as_records(record_type, raw, name):
    assert isinstance(by_field(record_type, [raw], name=name).values, list)


@pytest.mark.parametrize("record_type", [None, dict, dict[str, int]])
@pytest.mark.parametrize(
    "raws",
    [
        [b'{"id":1}', b'{"id":2}'],
        [b'{"id":1}', b'{"more":2}', b"{}"],
        [b"{}", b'{"id":1}'],
    ],
)
def test_dicts_are_given_by_field_whatever_fields_they_have(record_type, raws):
    values = by_field(record_type, raws).values

    assert isinstance(values, Frame)
    expected = [json.loads(raw) for raw in raws]
    assert values.find("id").items == [document.get("id", MISSING) for document in expected]
    assert list(values) == expected


def test_bad_messages_and_tombstones_among_dicts_are_told_apart():
    batch = by_field(None, [b'{"id":1}', b"{", None, b"[3]"])

    assert batch.values == [{"id": 1}, None, [3]]
    assert [failure.offset for failure in batch.failures] == [11]


def test_keys_are_decoded_by_their_own_format_and_a_bad_key_makes_a_bad_record():
    good = decoded(str, [b"v"], keys="json", key=b'{"k":1}')
    bad = decoded(str, [b"v"], keys="json", key=b"{")
    absent = decoded(str, [b"v"], keys="string")

    assert list(good.keys) == [{"k": 1}]
    assert (bad.values, [failure.key for failure in bad.failures]) == ([], [b"{"])
    assert list(absent.keys) == [None]


@pytest.mark.parametrize(("record_type", "name"), [(Order, "string"), (str, "bytes")])
def test_a_format_that_contradicts_the_type_is_refused(record_type, name):
    with raises(CONNECTOR_OPTION_WRONG) as caught:
        value_format(spec(record_type), name)

    assert caught.value.facts["name"] == "value_format"


@pytest.mark.parametrize("payloads", [{}, {"value_schema": "no decode here"}])
def test_a_schema_that_is_missing_or_cannot_decode_is_refused(payloads):
    with raises(CONNECTOR_PAYLOAD_WRONG) as caught:
        value_format(spec(None, **payloads), "schema")

    assert caught.value.facts["role"] == "value_schema"


def test_a_type_that_cannot_be_decoded_is_refused():
    with raises(CONNECTOR_PAYLOAD_WRONG) as caught:
        value_format(spec(set[int] | list[int]), None)

    assert caught.value.facts["role"] == "output_type"


@pytest.mark.parametrize(
    ("name", "options", "raw"),
    [
        ("csv", {}, b"7"),
        ("avro", {"schema": AVRO_ORDER}, b"\x0e"),
        ("msgpack", {}, b"\x81\xa2id\x07"),
    ],
)
def test_a_named_format_reads_what_it_writes_and_names_the_bad_message(name, options, raw):
    source = ConnectorSpec(
        vertex_id="v",
        connector_type="kafka",
        properties={},
        payloads={},
        record_type=Order,
    )
    decoder = MessageDecoder(value_format(source, name, options), key_format(source, "bytes"))
    values, keys = cloudpickle.loads(cloudpickle.dumps((decoder.values, decoder.keys)))

    batch = MessageDecoder(values, keys).batch(messages(raw, b"\xc1", raw, None), 99)

    assert list(batch.values) == [Order(7), Order(7)]
    assert [failure.offset for failure in batch.failures] == [11, 13]
    assert name in batch.failures[0].reason
    assert make_codec(name, Order, options).encode(Order(7)) == raw


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("xml", None, "unknown format 'xml'"),
        ("avro", None, "schema"),
        ("csv", {"colour": 1}, "colour"),
        ("csv", "fields", "value_format_options"),
        ("json", {"colour": 1}, "colour"),
    ],
)
def test_a_format_that_cannot_be_used_names_the_vertex_and_the_option(name, options, problem):
    with raises(CONNECTOR_OPTION_WRONG) as caught:
        value_format(spec(Order), name, options)

    facts = caught.value.facts
    assert (facts["vertex"], facts["name"]) == ("v", "value_format")
    assert problem in facts["problem"]
