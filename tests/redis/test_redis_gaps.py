"""Messages of Redis that are gone before they were read, and entries that are no messages."""

import json

import pytest

from bicycle_runtime.connectors.errors import (
    STREAM_KEY_WRONG,
    STREAMS_LOST,
    STREAMS_REPLACED,
    STREAMS_UNREACHABLE,
)
from bicycle_runtime.connectors.stream_clients.redis import RedisStreamSource
from bicycle_runtime.contract import Budget, ConnectorSpec
from bicycle_runtime.testing import Harness
from bicycle_runtime.testing.connectors.running import services_in
from bicycle_sdk import dead_letter
from bicycle_sdk.clock import ManualClock
from tests.raising import raises

LOSSES = (STREAMS_LOST.code, STREAMS_REPLACED.code)


class Reading:
    """One source of the stream ``in``: epochs, one after another, and restarts from the last."""

    def __init__(self, server, tmp_path, **properties):
        settings = {"address": f"{server.uri}/in", "retry_timeout_ms": 1_000, **properties}
        self._spec = ConnectorSpec(vertex_id="in", connector_type="redis", properties=settings)
        self.clock = ManualClock()
        self._services = services_in(tmp_path, clock=self.clock)
        self.offsets, self.state = {}, {}
        self.restart()

    def restart(self):
        """Begin again where the last epoch was sealed."""
        self.source = RedisStreamSource(self._spec)
        self.source.start(self._services, self.offsets, json.loads(json.dumps(self.state)))

    def epoch(self, count=1_000):
        """Return what one epoch reads, as values and bad records, and seal it."""
        self.status = self.source.poll()
        parts = self.source.plan(Budget(record_count=count, byte_count=1 << 20, parallelism=2))
        reader = self.source.reader()
        batches = [batch for part in parts for batch in reader.read(part)]
        ends = {part.shard: part.end for part in parts}
        self.state = self.source.snapshot(parts, ends)
        self.source.sealed(ends)
        self.offsets |= ends
        self.bad = [bad for batch in batches for bad in batch.failures]
        return [int(value) for batch in batches for value in batch.values]


@pytest.fixture
def reading(server, tmp_path):
    return lambda **properties: Reading(server, tmp_path, **properties)


@pytest.fixture
def client(server):
    with server.client as found:
        yield found


def add(client, numbers, **words):
    return [client.xadd("in", {"msg": str(number)}, **words) for number in numbers]


def trim(client, count):
    client.xtrim("in", maxlen=count, approximate=False)


def remove_last(client):
    [(entry, _)] = client.xrevrange("in", count=1)
    client.xdel("in", entry)


def remove_all(client):
    for entry, _ in client.xrange("in"):
        client.xdel("in", entry)


@pytest.mark.parametrize(
    ("remove", "left"),
    [(remove_last, [0, 1]), (remove_all, []), (lambda client: trim(client, 0), [])],
)
def test_a_bounded_read_ends_where_the_last_message_is_that_is_there(client, reading, remove, left):
    add(client, range(3))
    remove(client)
    bounded = reading(bounded=True)

    assert bounded.epoch() == left
    assert bounded.epoch() == []
    assert bounded.status.is_finished


@pytest.mark.parametrize("remove", [remove_last, remove_all])
def test_a_bounded_read_ends_though_its_last_messages_are_deleted_while_it_runs(
    client, reading, remove
):
    add(client, range(3))
    bounded = reading(bounded=True)
    bounded.epoch(2)
    remove(client)
    add(client, [9])

    assert bounded.epoch() == []
    bounded.epoch()
    assert bounded.status.is_finished


def test_a_job_that_follows_seals_nothing_while_its_last_message_is_deleted(server, client):
    def job(env):
        env.from_uri(f"{server.uri}/in").uid("in").collect("out")

    with Harness(job) as harness:
        add(client, range(3))
        while len(harness.results("out")) < 3:
            harness.run_epoch()
        remove_last(client)
        sealed = harness.epoch
        for _ in range(10):
            harness.run_epoch()
        assert harness.epoch == sealed
        add(client, [3])
        while len(harness.results("out")) < 4:
            harness.run_epoch()
        assert harness.results("out") == ["0", "1", "2", "3"]


def test_what_was_trimmed_before_the_first_start_is_no_loss(client, reading):
    add(client, range(5))
    trim(client, 2)

    assert reading().epoch() == [3, 4]


def test_what_was_read_may_be_trimmed_and_deleted(client, reading):
    follows = reading()
    add(client, range(5))
    assert follows.epoch() == [0, 1, 2, 3, 4]
    trim(client, 0)
    assert follows.epoch() == []
    add(client, [5, 6])
    remove_last(client)
    assert follows.epoch() == [5]
    trim(client, 0)
    add(client, [7])
    follows.restart()
    assert follows.epoch() == [7]
    remove_all(client)
    client.delete("in")
    assert follows.epoch() == []


@pytest.mark.parametrize("is_restarted", [True, False])
@pytest.mark.parametrize(("left", "lost"), [(2, 1), (0, 3)])
def test_what_was_trimmed_before_it_was_read_is_an_error(client, reading, is_restarted, left, lost):
    follows = reading()
    add(client, range(5))
    assert follows.epoch(2) == [0, 1]
    trim(client, left)
    if is_restarted:
        follows.restart()

    with raises(STREAMS_LOST) as caught:
        follows.epoch()
    assert caught.value.facts["expected"] - caught.value.facts["found"] == lost
    follows.restart()
    with raises(STREAMS_LOST):
        follows.epoch()


def test_what_was_added_and_trimmed_while_the_job_was_down_is_an_error(client, reading):
    follows = reading()
    add(client, range(5))
    follows.epoch()
    add(client, range(5, 9))
    trim(client, 3)
    follows.restart()

    with raises(STREAMS_LOST) as caught:
        follows.epoch()
    assert caught.value.facts["expected"] == 4


def test_a_job_may_go_on_without_what_was_trimmed(client, reading, caplog):
    follows = reading(on_data_loss="continue")
    add(client, range(5))
    assert follows.epoch(2) == [0, 1]
    trim(client, 1)

    with caplog.at_level("WARNING"):
        assert follows.epoch() == [4]
    assert [vars(record)["bicycle_fields"]["record_count"] for record in caplog.records] == [2]
    follows.restart()
    assert follows.epoch() == []
    add(client, [5])
    assert follows.epoch() == [5]
    assert len(caplog.records) == 1


def make_again(client, numbers):
    client.delete("in")
    for number in numbers:
        client.xadd("in", {"msg": str(number)}, id=f"1-{number}")


@pytest.mark.parametrize("is_restarted", [True, False])
def test_a_stream_that_was_made_again_with_smaller_ids_is_an_error(client, reading, is_restarted):
    follows = reading()
    add(client, range(3))
    follows.epoch()
    make_again(client, [7, 8])
    if is_restarted:
        follows.restart()

    with raises(STREAMS_REPLACED):
        follows.epoch()


def test_a_stream_that_was_made_again_can_be_read_from_its_beginning(client, reading, caplog):
    follows = reading(on_data_loss="continue")
    add(client, range(3))
    follows.epoch(2)
    make_again(client, [7, 8])

    assert follows.epoch() == [7, 8]
    follows.restart()
    assert follows.epoch() == []
    client.xadd("in", {"msg": "9"}, id="1-9")
    assert follows.epoch() == [9]


def test_a_stream_with_unread_messages_that_was_made_again_with_larger_ids_is_an_error(
    client, reading
):
    follows = reading()
    add(client, range(5))
    follows.epoch(2)
    client.delete("in")
    add(client, [7])
    follows.restart()

    with raises(STREAMS_REPLACED):
        follows.epoch()


@pytest.mark.parametrize("bounded", [True, False])
def test_a_stream_with_unread_messages_that_is_deleted_is_an_error(client, reading, bounded):
    strict, patient = reading(bounded=bounded), reading(bounded=bounded, on_data_loss="continue")
    add(client, range(5))
    for each in (strict, patient):
        assert each.epoch(2) == [0, 1]
    client.delete("in")

    with raises(STREAMS_REPLACED):
        strict.epoch()
    assert patient.epoch() == []
    assert patient.epoch() == []
    assert patient.status.is_finished is bounded


def poison(client):
    """Add messages with others among them: without the payload, and with counters too large."""
    client.xadd("in", {"msg": "0"}, id="5-0")
    client.xadd("in", {"other": "x", "more": b"\xff"}, id="5-1")
    client.xadd("in", {"msg": "2"}, id="5-65535")
    client.xadd("in", {"msg": "a"}, id="5-65536")
    client.xadd("in", {"msg": "b"}, id=f"5-{2**64 - 1}")
    client.xadd("in", {"msg": "3"}, id="6-0")


@pytest.mark.parametrize("count", [1, 2, 3, 4, 1_000])
def test_entries_that_are_no_messages_are_bad_records(client, reading, count):
    poison(client)
    bounded = reading(bounded=True)
    values, bad = [], []
    while True:
        values += bounded.epoch(count)
        bad += bounded.bad
        if bounded.status.is_finished:
            break

    assert values == [0, 2, 3]
    assert [failure.raw for failure in bad] == [
        b'{"other":"x","more":"\\\\xff"}', b'{"msg":"a"}', b'{"msg":"b"}',
    ]  # fmt: skip


def test_an_id_whose_time_is_too_large_is_a_bad_record(client, reading):
    client.xadd("in", {"msg": "0"}, id="5-0")
    client.xadd("in", {"msg": "x"}, id=f"{2**50}-0")
    client.xadd("in", {"msg": "y"}, id=f"{2**63}-7")
    bounded = reading(bounded=True)

    assert bounded.epoch() == [0]
    assert [failure.raw for failure in bounded.bad] == [b'{"msg":"x"}', b'{"msg":"y"}']
    bounded.epoch()
    assert bounded.status.is_finished


def test_entries_that_are_no_messages_become_dead_letters(server, client):
    poison(client)

    def job(env):
        source = env.from_uri(f"{server.uri}/in?bounded=true").uid("in").on_error(dead_letter())
        source.collect("out")

    with Harness(job) as harness:
        harness.run()
        assert harness.results("out") == ["0", "2", "3"]
        assert len(harness.dead_letters) == 3


def test_a_key_that_becomes_something_else_between_poll_and_read_is_an_error(client, reading):
    add(client, range(3))
    source, budget = reading().source, Budget(record_count=9, byte_count=1 << 20, parallelism=1)
    source.poll()
    [part] = source.plan(budget)
    client.set("in", "not a stream")

    assert source.plan(budget) == []
    with raises(STREAMS_UNREACHABLE, match="WRONGTYPE"):
        list(source.reader().read(part))
    with raises(STREAM_KEY_WRONG):
        source.poll()


def test_a_new_shard_is_found_after_a_second_however_few_polls_there_are(reading, client):
    add(client, [0])
    source = reading()
    assert source.epoch() == [0]
    client.xadd("in:1", {"msg": "1"})
    assert source.epoch() == []

    source.clock.advance(1_000)

    assert source.epoch() == [1]
