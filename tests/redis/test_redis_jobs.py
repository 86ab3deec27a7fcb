"""Jobs between streams of Redis and files, in one process: servers that die, positions, history."""

import asyncio
import json
from functools import partial

import pytest
from redis import Redis

from bicycle_runtime.base.faults import arm_fault
from bicycle_runtime.connectors.errors import (
    CONNECTOR_OPTION_WRONG,
    STREAM_ADDRESS_WRONG,
    STREAM_KEY_WRONG,
    STREAMS_AHEAD,
    STREAMS_LOST,
    STREAMS_REFUSED,
    STREAMS_UNREACHABLE,
)
from bicycle_runtime.connectors.stream_clients.redis import RedisStreamSource
from bicycle_runtime.contract import Budget, ConnectorSpec
from bicycle_runtime.testing import Harness
from bicycle_runtime.testing.connectors.running import services_in
from bicycle_sdk.clock import SystemClock
from bicycle_streams import connect
from tests.raising import raises
from tests.sink_runs import SinkRuns
from tests.waiting import until

PLENTY = Budget(record_count=1_000, byte_count=1 << 20, parallelism=2)


def add(server, numbers, key="in"):
    with server.client as client:
        for number in numbers:
            client.xadd(key, {"msg": str(number)})


def found(server, key="out"):
    with server.client as client:
        return [fields[b"msg"].decode() for _, fields in client.xrange(key)]


def copying(server, query=""):
    def job(env):
        numbers = env.from_uri(f"{server.uri}/in{query}").uid("in")
        numbers.map(lambda text: f"{int(text) * 2}").uid("double").to_uri(f"{server.uri}/out").uid(
            "out"
        )

    return job


def run_until(harness, condition):
    def tried():
        harness.run_epoch()
        return condition()

    until(tried, "what the job writes")


@pytest.mark.core
@pytest.mark.parametrize("point", ["before_seal", "after_seal", "transaction_marked"])
def test_a_job_between_streams_counts_each_message_once_through_kills(server, point):
    """The job dies at a point, the server is killed, and what was kept goes on."""
    with Harness(copying(server), real_sinks=["out"]) as harness:
        add(server, range(10))
        run_until(harness, lambda: len(found(server)) == 10)
        harness.fail_at(point)
        add(server, range(10, 20))
        run_until(harness, lambda: harness.crash_count == 1)
        server.kill()
        server.start()
        add(server, range(20, 30))
        run_until(harness, lambda: len(found(server)) >= 30)
        harness.crash()
        add(server, [30])
        run_until(harness, lambda: "60" in found(server))

    assert found(server) == [str(2 * n) for n in range(31)]


@pytest.mark.core
def test_a_server_that_comes_back_empty_is_read_on(server):
    """The job begins before there is a stream, and its group is made, and made again."""
    with Harness(copying(server, "?group=readers"), real_sinks=["out"]) as harness:
        harness.run_epoch()
        add(server, range(3))
        run_until(harness, lambda: len(found(server)) == 3)
        run_until(harness, lambda: group_of(server) is not None)
        first = group_of(server)
        server.kill()
        server.empty()
        harness.run_epoch()
        server.start()
        add(server, range(3, 6))
        run_until(harness, lambda: len(found(server)) == 3)
        run_until(harness, lambda: (group_of(server) or b"") > first)

    assert found(server) == ["6", "8", "10"]


def group_of(server):
    """Return the last entry that the group says was read."""
    with server.client as client:
        groups = client.xinfo_groups("in") if client.exists("in") else []
    return groups[0]["last-delivered-id"] if groups else None


def source_of(server, **properties):
    settings = {"address": f"{server.uri}/in", "retry_timeout_ms": 1_000, **properties}
    return RedisStreamSource(
        ConnectorSpec(vertex_id="in", connector_type="redis", properties=settings)
    )


def read(source):
    reader = source.reader()
    parts = source.plan(PLENTY)
    values = [value for part in parts for batch in reader.read(part) for value in batch.values]
    source.sealed({part.shard: part.end for part in parts})
    return values


def test_what_was_trimmed_before_it_was_read_is_told(server, tmp_path):
    services = services_in(tmp_path, clock=SystemClock())
    add(server, range(5))
    strict, patient = source_of(server), source_of(server, on_data_loss="continue")
    for source in (strict, patient):
        source.start(services, {}, {})
        source.poll()
    [part, *_] = plan = strict.plan(PLENTY)
    with server.client as client:
        client.xtrim("in", maxlen=1, approximate=False)

    with raises(STREAMS_LOST):
        list(strict.reader().read(part))
    kept = [
        value for each in plan for batch in patient.reader().read(each) for value in batch.values
    ]
    assert kept == ["4"]


def test_a_first_start_fixes_where_later_ones_begin(server, tmp_path):
    services = services_in(tmp_path, clock=SystemClock())
    add(server, range(3))
    source = source_of(server, start="latest")
    source.start(services, {}, {})
    assert (source.poll().has_input, source.plan(PLENTY)) == (True, [])  # It is to be sealed.
    state = json.loads(json.dumps(source.snapshot([], {})))
    add(server, range(3, 5))

    again = source_of(server, start="latest")
    again.start(services, {}, state)
    assert again.poll().has_input
    assert read(again) == ["3", "4"]

    bounded = source_of(server, bounded="true")
    bounded.start(services, {}, {})
    assert bounded.poll().is_bounded
    add(server, range(5, 7))
    assert bounded.poll().has_input
    assert read(bounded) == ["0", "1", "2", "3", "4"]
    assert bounded.poll().is_finished


def test_a_server_that_is_away_holds_the_source_up_and_ends_a_task(server, tmp_path):
    services = services_in(tmp_path, clock=SystemClock())
    add(server, range(3))
    source = source_of(server)
    source.start(services, {}, {})
    source.poll()
    [part, *_] = source.plan(PLENTY)
    server.kill()

    assert not source.poll().is_reachable
    with raises(STREAMS_UNREACHABLE):
        list(source.reader().read(part))
    server.start()
    assert source.poll().has_input


def make(client, kind):
    match kind:
        case "string":
            client.set("in", "a text")
        case "list":
            client.rpush("in", "a text")
        case "hash":
            client.hset("in", "msg", "a text")
        case "zset":
            client.zadd("in", {"a text": 1})


@pytest.mark.parametrize("kind", ["string", "list", "hash", "zset"])
def test_a_key_that_is_no_stream_is_no_empty_one(server, tmp_path, kind):
    with server.client as client:
        make(client, kind)
    source = source_of(server)
    source.start(services_in(tmp_path, clock=SystemClock()), {}, {})

    with raises(STREAM_KEY_WRONG) as caught:
        source.poll()

    assert (caught.value.facts["key"], caught.value.facts["found"]) == ("in", kind)
    with server.client as client:
        client.delete("in")
    assert source.poll().is_reachable


@pytest.fixture
def sink(server, tmp_path):
    runs = SinkRuns("redis", tmp_path, address=f"{server.uri}/out")
    yield runs.start
    server.start()
    runs.stop()


def test_an_older_epoch_is_refused_or_written_again(server, sink):
    run = sink()
    run.run_epoch([["a"]])
    older = dict(run.state)
    run.run_epoch([["b"]])

    with raises(STREAMS_AHEAD):
        sink(state=older, epoch=run.epoch - 1)
    again = sink(state=older, epoch=run.epoch - 1, on_rewind="publish_again")
    again.run_epoch([["c"]])

    assert found(server) == ["a", "b", "c"]


def test_a_key_that_became_something_else_ends_the_job_and_nothing_is_lost(server, sink):
    run = sink()
    with server.client as client:
        client.set("out", "a text")
    with raises(STREAMS_REFUSED):
        run.run_epoch([["a"]])
    with server.client as client:
        client.delete("out")
    run.restart()

    assert found(server) == ["a"]


@pytest.mark.parametrize("is_first", [True, False])
def test_a_key_that_becomes_something_else_within_a_transaction_loses_nothing(
    server, sink, is_first
):
    run = sink()
    if not is_first:
        run.run_epoch([["a"]])

    def replace():
        with server.client as client:
            client.set("out", "a text")

    arm_fault("transaction_marked", act=replace)
    with raises(STREAMS_REFUSED):
        run.run_epoch([["b"]])
    with server.client as client:
        client.delete("out")
    run.restart()

    assert found(server) == ["b"]


def test_nobody_where_the_server_should_be_is_told(server, sink):
    server.kill()

    with raises(STREAMS_UNREACHABLE):
        sink()


@pytest.mark.parametrize(
    "address",
    [
        "redis://h",
        "redis://h/",
        "redis://h/a,b",
        "redis://h:x/a",
        "redis://h:77777/a",
        "redis://ada@h/a",
        "redis://::1/a",
        "kafka://h/a",
        "redis://h/SEA_STREAMER_WILDCARD",
    ],
)
def test_an_address_that_is_none_is_told_before_anything_starts(sink, address):
    with raises(STREAM_ADDRESS_WRONG):
        sink(address=address)


@pytest.mark.parametrize("password", ["swordfish", {"secret": {"env": ""}}, {"secret": "PASSWORD"}])
def test_a_password_that_is_no_reference_is_told_and_not_shown(server, sink, password):
    for start in (sink, partial(source_of, server)):
        with raises(CONNECTOR_OPTION_WRONG) as caught:
            start(password=password)
        assert caught.value.facts["name"] == "password"
        assert "swordfish" not in str(caught.value)


def test_a_password_is_read_where_its_reference_says(server, sink, tmp_path, monkeypatch):
    monkeypatch.setenv("REDIS_PASSWORD", "swordfish")
    with server.client as client:
        client.config_set("requirepass", "swordfish")
    try:
        with raises(STREAMS_UNREACHABLE):
            sink()
        sink(password={"secret": {"env": "REDIS_PASSWORD"}}).run_epoch([["a"]])
        source = source_of(server, password={"secret": {"env": "REDIS_PASSWORD"}})
        source.start(services_in(tmp_path, clock=SystemClock()), {}, {})
        assert source.poll().is_reachable
    finally:
        with Redis(port=server.port, password="swordfish") as client:
            client.config_set("requirepass", "")

    assert found(server) == ["a"]


def test_what_a_job_wrote_into_a_file_is_read_by_programs_and_jobs(server, tmp_path):
    address = f"file://{tmp_path}/events.ss/doubled"
    add(server, range(5))

    def writing(env):
        env.from_uri(f"{server.uri}/in?bounded=true").uid("in").to_uri(address).uid("out")

    def reading(env):
        env.from_uri(f"{address}?bounded=true").uid("in").map(int).uid("n").collect("found")

    async def programs():
        async with connect(f"file://{tmp_path}/events.ss") as streamer:
            consumer = await streamer.create_consumer("doubled", start="earliest", is_live=False)
            return [int(message.payload) async for message in consumer]

    with Harness(writing, real_sinks=["out"]) as harness:
        harness.run()
    with Harness(reading) as harness:
        harness.run()
        read_by_job = harness.results("found")

    assert read_by_job == asyncio.run(programs()) == list(range(5))
