import sys
from collections import Counter

import msgspec
import pytest

BENCHES = ("bench_kafka_throughput", "bench_kafka_latency")


@pytest.fixture(scope="module")
def topics(load):
    return load("kafka_topics")


@pytest.fixture(scope="module")
def throughput(load):
    return load("bench_kafka_throughput")


@pytest.mark.parametrize("name", BENCHES)
def test_a_benchmark_tells_its_options_and_starts_nothing(load, name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [name, "--help"])

    with pytest.raises(SystemExit) as end:
        load(name).main()

    told = capsys.readouterr().out
    assert end.value.code == 0
    assert {"--quick", "--repeats", "--write-docs", "--no-peers"} <= set(
        told.replace(",", " ").split()
    )


class Sent:
    """A message as a consumer gives it."""

    def __init__(self, key, value, at_ms):
        self._key, self._value, self._at_ms = key, msgspec.json.encode(value), at_ms

    def key(self):
        return self._key

    def value(self):
        return self._value

    def timestamp(self):
        return 2, self._at_ms


class GivenEvents:
    """Two events of one user and one of another, in place of drawn ones."""

    count = 3

    def __init__(self, folder):
        self._folder = folder
        lines = [
            '{"id":1,"user":"ada","cents":5,"quantity":2,"at":9}',
            '{"id":2,"user":"bob","cents":7,"quantity":1,"at":9}',
            '{"id":3,"user":"ada","cents":1,"quantity":4,"at":9}',
        ]
        (folder / "events.jsonl").write_text("\n".join(lines) + "\n")

    def folder(self):
        return self._folder


@pytest.fixture
def check(topics, tmp_path, monkeypatch):
    """Checks pairs of key and record, appended one per millisecond."""

    def run(name, records):
        sent = [Sent(key, value, at_ms) for at_ms, (key, value) in enumerate(records, start=1)]
        place = topics.Place(broker=None, admin=None)
        monkeypatch.setattr(topics.Place, "messages", lambda *_: iter([sent[:1], sent[1:]]))
        return getattr(place, name)("topic", GivenEvents(tmp_path))

    return run


def order(number, user, total, key=None):
    return (key or user).encode(), {"id": number, "user": user, "total": total, "at": 9}


ORDERS = [order(1, "ada", 10), order(2, "bob", 7), order(3, "ada", 4)]


def test_orders_are_right_in_any_order_and_tell_when_they_were_written(check):
    assert check("check_orders", ORDERS[::-1]).counts == Counter({1: 1, 2: 1, 3: 1})


@pytest.mark.parametrize(
    "orders",
    [
        ORDERS[:-1],
        [*ORDERS, ORDERS[0]],
        [*ORDERS[:-1], order(3, "ada", 5)],
        [*ORDERS[:-1], order(4, "ada", 4)],
        [*ORDERS[:-1], order(3, "ada", 4, key="bob")],
    ],
    ids=["missing", "twice", "wrong total", "unknown", "wrong key"],
)
def test_orders_that_are_wrong_are_found(check, load, orders):
    with pytest.raises(load("measuring").WrongOutputError):
        check("check_orders", orders)


def counted(user, count, key=None):
    return (key or user).encode(), {"user": user, "count": count}


COUNTS = [counted("ada", 1), counted("bob", 1), counted("ada", 2)]


def test_counts_that_are_1_to_n_are_right(check):
    assert check("check_counts", COUNTS).counts.total() == 3


@pytest.mark.parametrize(
    "counts",
    [
        COUNTS[:-1],
        COUNTS[::-1],
        [*COUNTS, counted("ada", 2)],
        [*COUNTS, counted("bob", 2)],
        [*COUNTS[:-1], counted("ada", 2, key="bob")],
    ],
    ids=["missing", "out of order", "twice", "too many", "wrong key"],
)
def test_counts_that_are_wrong_are_found(check, load, counts):
    with pytest.raises(load("measuring").WrongOutputError):
        check("check_counts", counts)


def test_the_pace_of_an_output_is_that_behind_its_first_third(topics):
    output = topics.Output(Counter({1_000: 30, 2_000: 10, 3_000: 20, 4_000: 30}))

    assert output.whole_rate == 60 / 3
    assert output.steady_rate == 60 / 3
    assert topics.Output(Counter({1_000: 10, 2_000: 20, 3_000: 60})).steady_rate == 60


def test_an_output_without_duration_has_no_pace(topics, load):
    with pytest.raises(load("measuring").WrongOutputError):
        _ = topics.Output(Counter({1_000: 5})).whole_rate


def test_reading_that_gives_another_number_of_messages_has_no_pace(throughput, load):
    assert throughput.pace(iter([0, 10, 20]), 30) > 0
    for sizes in ([10, 10], [10, 30]):
        with pytest.raises(load("measuring").WrongOutputError):
            throughput.pace(iter(sizes), 30)


class Returned:
    """A message that came back, without error."""

    def __init__(self, value):
        self._value = value

    def value(self):
        return self._value

    def error(self):
        return None


class LoopProducer:
    """Puts messages where the consumer finds them: as often as told, once otherwise."""

    def __init__(self, times):
        self._times = times
        self.waiting = []

    def produce(self, _topic, value, _key):
        number = msgspec.json.decode(value)["id"]
        self.waiting += [Returned(value.encode())] * self._times.get(number, 1)

    def poll(self, _wait_s):
        return 0


class LoopConsumer:
    """Gives what the producer got."""

    def __init__(self, producer):
        self._producer = producer

    def poll(self, _wait_s):
        return self._producer.waiting.pop(0) if self._producer.waiting else None

    def consume(self, _count, _wait_s):
        found, self._producer.waiting = self._producer.waiting, []
        return found


@pytest.mark.parametrize(
    ("times", "lost", "twice"), [({}, 0, 0), ({5: 0, 6: 0}, 2, 0), ({5: 2, 7: 2}, 0, 2)]
)
def test_the_probe_sends_what_is_due_and_counts_what_is_lost_or_twice(load, times, lost, twice):
    producer = LoopProducer(times)
    probe = load("kafka_probe").Probe(producer, LoopConsumer(producer), "events", late_s=0.01)

    probe.open()
    opened = probe.sent_count
    probe.run(1_000, 0.05)

    assert probe.sent_count == opened + 50
    assert (probe.lost_count, probe.twice_count) == (lost, twice)
    assert len(probe.latencies_ms) == probe.sent_count - lost
    assert all(latency_ms >= 0 for latency_ms in probe.latencies_ms.values())
