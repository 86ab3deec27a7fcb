"""From records to messages and through checkpoint storage: formats, limits, damage. No broker."""

import json
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.connectors.errors import (
    CONNECTOR_OPTION_WRONG,
    CONNECTOR_PAYLOAD_WRONG,
    STAGED_FILE_DAMAGED,
)
from bicycle_runtime.connectors.kafka.encoding import (
    MessageEncoder,
    MessagePlan,
    TopicLimits,
    UnencodableError,
    input_of,
)
from bicycle_runtime.connectors.kafka.errors import KAFKA_PROPERTY_WRONG, STAGED_MESSAGES_UNREADABLE
from bicycle_runtime.connectors.kafka.marker import Marker, marker_topic_name
from bicycle_runtime.connectors.kafka.staged_messages import pack_messages, staged_messages
from bicycle_runtime.connectors.registry import create_sink
from bicycle_runtime.connectors.staging import StagedWriter
from bicycle_runtime.contract import ConnectorSpec, Guarantee, WriterTask
from bicycle_runtime.endpoints.field_functions import FieldText
from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.frames.record_forms import RecordForm
from bicycle_runtime.frames.vectors import Vector
from bicycle_sdk.clock import ManualClock
from bicycle_sdk.kafka import KafkaSinkBuilder
from tests.raising import raises

NOW_MS = 1_700_000_000_000
message_bytes = st.none() | st.binary(max_size=20)


@dataclass
class Count:
    word: str
    count: int


def in_columns(form, **columns):
    """Return records that lie as columns, and cannot be made."""
    count = len(next(iter(columns.values())))
    vectors = [Vector(count, list(column)) for column in columns.values()]
    names = tuple(columns) if form is not None else (None,)
    return Frame.of(RecordForm(form, names), vectors, count)


def encoder(value_format="json", key_format="auto", *, limits=None, schemas=None, **functions):
    plan = MessagePlan(
        value_format=value_format, key_format=key_format, functions=functions,
        schemas=schemas or {}, limits=limits or TopicLimits(),
    )  # fmt: skip
    return MessageEncoder(plan, ManualClock(start_ms=NOW_MS))


def values(made, records):
    return [message["value"] for message in made.encode(records)]


@pytest.mark.parametrize(
    ("name", "records", "expected"),
    [
        ("json", [Count("ada", 1), {"a": None}], [b'{"word":"ada","count":1}', b'{"a":null}']),
        ("string", ["ada", "böb"], [b"ada", "böb".encode()]),
        ("bytes", [b"\x00", bytearray(b"ab")], [b"\x00", b"ab"]),
        ("msgpack", [[1, 2]], [b"\x92\x01\x02"]),
        ("auto", ["ada", b"\x00", {"n": 1}], [b"ada", b"\x00", b'{"n":1}']),
    ],
)  # fmt: skip
def test_each_format_gives_its_bytes_and_none_is_a_tombstone_in_all(name, records, expected):
    made = encoder(name)

    assert values(made, records) == expected
    assert values(made, [*records, None]) == [*expected, None]
    assert [made.encode_one(record)["value"] for record in [*records, None]] == [*expected, None]


@given(st.lists(st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=5)))
def test_a_batch_is_encoded_as_its_records_are_one_by_one(records):
    made = encoder("json", key=lambda record: record, headers=lambda record: {"h": b"1"})

    assert made.encode(records) == [made.encode_one(record) for record in records]


@pytest.mark.parametrize(("name", "record"), [("string", 5), ("bytes", "ada"), ("json", object())])
def test_a_value_that_the_format_lacks_is_refused_with_its_type(name, record):
    made = encoder(name)

    with pytest.raises((TypeError, ValueError, UnencodableError)):
        made.encode([record])
    with pytest.raises(UnencodableError, match=type(record).__name__):
        made.encode_one(record)


def test_a_schema_encodes_and_must_give_bytes():
    class Upper:
        def encode(self, value):
            return value.upper().encode() if value != "text" else value

    made = encoder("schema", schemas={"value": Upper()})

    assert values(made, ["ada", None]) == [b"ADA", None]
    with pytest.raises(TypeError):
        made.encode(["text"])


def timed(limits=None, **functions):
    plan = MessagePlan(
        value_format="string", key_format="auto", functions=functions,
        limits=limits or TopicLimits(), has_event_times=True,
    )  # fmt: skip
    return MessageEncoder(plan, ManualClock(start_ms=NOW_MS))


def test_event_times_become_the_times_of_messages():
    made = timed()

    assert [m["timestamp"] for m in made.encode(["a", "b", "c"], [5, None, 7])] == [5, None, 7]
    assert made.encode_one("a", 5)["timestamp"] == 5
    assert "timestamp" not in made.encode(["a"], None)[0]
    assert "timestamp" not in encoder("string").encode(["a"], [5])[0]


@pytest.mark.parametrize(
    ("limits", "time_ms"),
    [
        (TopicLimits(), 0),
        (TopicLimits(), -5),
        (TopicLimits(timestamp_after_ms_max=10), NOW_MS + 11),
        (TopicLimits(timestamp_before_ms_max=10), NOW_MS - 11),
        (TopicLimits(retention_ms=10), NOW_MS - 11),
    ],
)
def test_an_event_time_that_the_topic_does_not_take_is_refused(limits, time_ms):
    made = timed(limits)
    made.encode(["a", "b"], [NOW_MS, None])

    with pytest.raises(UnencodableError):
        made.encode(["a", "b"], [NOW_MS, time_ms])
    with pytest.raises(UnencodableError):
        made.encode_one("b", time_ms)


@pytest.mark.parametrize(
    ("properties", "payloads", "takes_times"),
    [
        ({}, {}, True),
        ({"message_time": "written"}, {}, False),
        ({}, {"timestamp": lambda _: 5}, False),
    ],
)
def test_a_sink_asks_for_event_times_unless_it_has_others(properties, payloads, takes_times):
    sink = create_sink(sink_spec(payloads=payloads, **properties))

    assert sink.takes_times is takes_times
    assert sink.writer().plan.messages.has_event_times is takes_times


@pytest.mark.parametrize(
    ("limits", "functions", "record"),
    [
        (TopicLimits(message_bytes_max=1_000), {}, "x" * 900),
        (TopicLimits(message_bytes_max=1_000), {"key": lambda _: "k" * 900}, "x"),
        (TopicLimits(message_bytes_max=1_000), {"headers": lambda _: {"h": b"x" * 900}}, "x"),
        (TopicLimits(is_compacted=True), {"key": lambda _: None}, "x"),
        (TopicLimits(partition_count=3), {"partition": lambda _: 3}, "x"),
        (TopicLimits(partition_count=3), {"partition": lambda _: -1}, "x"),
        (TopicLimits(timestamp_after_ms_max=10), {"timestamp": lambda _: NOW_MS + 11}, "x"),
        (TopicLimits(timestamp_before_ms_max=10), {"timestamp": lambda _: NOW_MS - 11}, "x"),
        (TopicLimits(), {"timestamp": lambda _: "noon"}, "x"),
        (TopicLimits(), {"timestamp": lambda _: 1 << 63}, "x"),
        (TopicLimits(), {"headers": lambda _: [("h", 5)]}, "x"),
        (TopicLimits(), {"headers": lambda _: ["ab"]}, "x"),
        (TopicLimits(), {"headers": lambda _: {"\ud800": b""}}, "x"),
    ],
)
def test_what_a_broker_would_refuse_is_refused_before_the_seal(limits, functions, record):
    made = encoder("string", limits=limits, **functions)

    with pytest.raises(UnencodableError):
        made.encode_one(record)
    with pytest.raises(UnencodableError):
        made.encode(["fine", record])


def test_what_is_just_within_the_limits_passes():
    limits = TopicLimits(
        message_bytes_max=1_000, partition_count=3, timestamp_after_ms_max=10,
        timestamp_before_ms_max=10, is_compacted=True,
    )  # fmt: skip
    made = encoder(
        "string", limits=limits, key=lambda _: "k", partition=lambda _: 2,
        timestamp=lambda _: NOW_MS + 10,
    )  # fmt: skip

    assert made.encode(["x" * 700]) == [
        {"key": b"k", "value": b"x" * 700, "timestamp": NOW_MS + 10, "partition": 2}
    ]


def test_a_function_that_raises_stop_iteration_does_not_shorten_the_batch():
    def key(record):
        if record == 2:
            raise StopIteration
        return record

    for functions in ({"key": key}, {"value": key}):
        with pytest.raises((UnencodableError, ValueError)):
            encoder("json", **functions).encode([1, 2, 3])


def rows(columns):
    """Return the messages of some columns."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def staged(tmp_path, *frames):
    """Return storage and file of some frames, each a list of messages."""
    storage = LocalStorage(str(tmp_path), is_synced=False)
    task = WriterTask(storage=storage, prefix="staged/out/1/a", epoch=1, subtask=0)
    writer = StagedWriter(task, "messages.bin", pack_messages)
    for messages in frames:
        writer.write(messages)
    [file] = writer.finish()
    return storage, file


@given(
    frames=st.lists(
        st.lists(st.fixed_dictionaries({"key": message_bytes, "value": message_bytes}), min_size=1),
        min_size=1,
    )
)
def test_what_is_staged_is_what_was_written(tmp_path_factory, frames):
    storage, file = staged(tmp_path_factory.mktemp("staged"), *frames)

    assert [rows(columns) for columns in staged_messages(storage, file)] == frames
    assert file.record_count == sum(map(len, frames))


def test_frames_larger_than_a_block_come_back_whole(tmp_path):
    frames = [[{"value": bytes([number]) * 700_000}] for number in range(5)]

    storage, file = staged(tmp_path, *frames)

    assert [rows(columns) for columns in staged_messages(storage, file)] == frames


def test_a_flipped_bit_anywhere_is_damage(tmp_path):
    storage, file = staged(tmp_path, [{"key": b"k", "value": b"value"}])
    path = storage.local_path(file.path)
    whole = path.read_bytes()

    for position in range(len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with raises(STAGED_FILE_DAMAGED):
            list(staged_messages(storage, file))


@pytest.mark.parametrize("version", [1, 3])
def test_another_version_is_refused_as_such(tmp_path, version):
    storage = LocalStorage(str(tmp_path), is_synced=False)
    task = WriterTask(storage=storage, prefix="staged/out/1/a", epoch=1, subtask=0)
    writer = StagedWriter(task, "m", lambda values: b"KM" + bytes([version, 0, 0, 0, 0, 0]))
    writer.write([1])
    [file] = writer.finish()

    with raises(STAGED_MESSAGES_UNREADABLE) as caught:
        list(staged_messages(storage, file))

    assert caught.value.facts["expected"] == 2


@given(st.text(), st.integers(0, 1 << 60))
def test_a_marker_comes_back_as_it_went(identity, epoch):
    marker = Marker(identity=identity, epoch=epoch)

    assert Marker.from_bytes(marker.to_bytes(), path="t/0") == marker


@given(st.text(min_size=1), st.text(min_size=1))
def test_two_prefixes_never_share_a_marker_topic_and_its_name_is_allowed(first, second):
    names = [marker_topic_name(prefix) for prefix in (first, second)]

    assert (names[0] == names[1]) == (first == second)
    assert all(len(name) <= 249 and name.replace(".", "").isascii() for name in names)


def sink_spec(*, record_type=None, payloads=None, **properties):
    return ConnectorSpec(
        vertex_id="out", connector_type="kafka", payloads=payloads or {}, record_type=record_type,
        properties={"brokers": "127.0.0.1:1", "topic": "t", **properties},
    )  # fmt: skip


@pytest.mark.parametrize("word", ["at-least-once", "exactly-once"])
def test_the_promise_is_that_of_the_vertex(word):
    assert create_sink(sink_spec(guarantee=word)).guarantee is Guarantee(word)


@pytest.mark.parametrize(
    ("kind", "expected"), [(str, "string"), (bytes, "bytes"), (Count, "json"), (None, "auto")]
)
def test_the_format_follows_the_declared_type(kind, expected):
    plan = create_sink(sink_spec(record_type=kind)).writer().plan

    assert plan.messages.value_format == expected


@pytest.mark.parametrize(
    "properties",
    [
        {"guarantee": "twice"},
        {"create_topic": {"partitions": 0}},
        {"create_topic": {"colour": 1}},
        {"create_topic": "yes"},
        {"transaction_timeout_ms": 1},
        {"surprise": 1},
    ],
)
def test_properties_that_make_no_sense_are_refused(properties):
    with raises(CONNECTOR_OPTION_WRONG):
        create_sink(sink_spec(**properties))


@pytest.mark.parametrize("name", ["acks", "transactional.id", "enable.idempotence"])
def test_client_properties_that_would_break_the_promise_are_refused(name):
    with raises(KAFKA_PROPERTY_WRONG) as caught:
        create_sink(sink_spec(properties={name: "0"}))

    assert caught.value.facts["name"] == name


def test_functions_must_be_plain_and_a_schema_must_encode():
    async def key(record):
        return record

    for payloads in ({"key": key}, {"partition": 5}, {"value_schema": object()}):
        with raises(CONNECTOR_PAYLOAD_WRONG):
            create_sink(sink_spec(payloads=payloads))
    with raises(CONNECTOR_PAYLOAD_WRONG):
        create_sink(sink_spec(value_format="schema"))


def test_what_builders_make_is_what_the_sink_takes():
    built = (
        KafkaSinkBuilder("127.0.0.1:1", "t")
        .key(lambda record: record)
        .create_topic(partitions=2, replication_factor=1, config={"retention.ms": "1000"})
        .property("linger.ms", 5)
        .build_connector()
    )

    sink = create_sink(
        ConnectorSpec(
            vertex_id="out",
            connector_type=built.connector_type,
            properties=json.loads(json.dumps(built.properties)),
            payloads=built.payloads,
        )
    )

    assert sink.writer().plan.client.plain["linger.ms"] == "5"


@pytest.mark.parametrize("name", ["json", "auto", "msgpack"])
@given(rows=st.lists(st.tuples(st.text() | st.none(), st.integers(0, 2**40) | st.lists(st.text()))))
def test_messages_are_the_same_from_columns_as_from_records(name, rows):
    plan = MessagePlan(value_format=name, key_format="auto", functions={"key": FieldText("t")})
    made = encoder(name, key=FieldText("t"))
    words, others = zip(*rows, strict=True) if rows else ((), ())
    columns = in_columns(dict, t=words, n=others)
    records = [{"t": word, "n": other} for word, other in rows]

    assert input_of(plan) == "frames"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Frame, "records", None)  # None of them is made.
        assert made.encode(columns) == made.encode(records)


@given(values=st.lists(st.text() | st.none() | st.integers(0, 9)))
def test_plain_values_are_the_same_messages_from_columns(values):
    made = encoder("auto")

    assert made.encode(in_columns(None, value=values)) == made.encode(values)


def test_a_record_that_is_no_message_is_found_among_columns():
    made = encoder("json", limits=TopicLimits(message_bytes_max=400), key=FieldText("t"))
    columns = in_columns(dict, t=["a", "b"], n=["x", "x" * 400])

    with raises(UnencodableError, "the message has about"):
        made.encode(columns)


@pytest.mark.parametrize(
    ("name", "functions"),
    [
        ("string", {}),
        ("json", {"value": FieldText("t")}),
        ("json", {"headers": FieldText("t")}),
        ("json", {"key": print}),
    ],
)
def test_what_is_told_by_functions_or_written_otherwise_takes_records(name, functions):
    assert (
        input_of(MessagePlan(value_format=name, key_format="auto", functions=functions))
        == "records"
    )


@dataclass
class Pair:
    t: str
    n: str


@pytest.mark.parametrize("form", [dict, tuple, Pair])
@pytest.mark.parametrize(
    "key",
    [
        lambda record: record["t"], lambda record: record.t, lambda record: record[0],
        lambda record: record.get(0, "none"), lambda record: record.get("t", "none"),
    ],
)  # fmt: skip
def test_a_key_is_told_by_columns_only_as_the_records_would(form, key):
    made = encoder("json", key=key)
    names = (0, 1) if form is tuple else ("t", "n")
    vectors = [Vector(2, ["a", "b"]), Vector(2, ["x", "y"])]
    columns = Frame.of(RecordForm(form, names), vectors, 2)
    try:
        expected = made.encode(list(columns.records))
    except (TypeError, AttributeError, KeyError) as error:
        with pytest.raises(type(error)):
            made.encode(columns)
    else:
        assert made.encode(columns) == expected
