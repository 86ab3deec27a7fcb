"""Lanes: what came from the consumer and was not asked for yet, and where reading may go on."""

from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.connectors.kafka.consuming import Lane

OFFSETS = st.sets(st.integers(0, 60), max_size=30).map(sorted)


def messages(offsets):
    return [Message(topic="t", partition=0, offset=offset, value=b"x") for offset in offsets]


def taken(lane, end):
    return [message.offset() for message in lane.take(end)]


@given(OFFSETS, st.integers(0, 60), st.lists(st.integers(0, 70), max_size=5).map(sorted))
def test_ranges_in_turn_get_what_is_in_them_and_nothing_before_the_start(offsets, start, ends):
    lane = Lane(start=start, reached=start)
    half = len(offsets) // 2
    for part in (offsets[:half], offsets[half:]):
        if part:
            lane.add(messages(part))

    found = [taken(lane, end) for end in [*ends, 100]]

    bounds = [start, *ends, 100]
    for got, low, high in zip(found, bounds, bounds[1:], strict=False):
        assert got == [offset for offset in offsets if max(low, start) <= offset < high]
    assert lane.reached == max([start, *(offset + 1 for offset in offsets)])


@given(OFFSETS.filter(len), st.data())
def test_what_is_given_back_comes_again(offsets, data):
    lane = Lane(start=0, reached=0)
    lane.add(messages(offsets))
    used = data.draw(st.integers(0, len(offsets)))

    lane.give_back(lane.take(100)[used:])

    assert taken(lane, 100) == offsets[used:]


@given(OFFSETS.filter(len), st.integers(0, 70))
def test_what_is_skipped_does_not_come(offsets, start):
    lane = Lane(start=0, reached=0)
    lane.add(messages(offsets))

    lane.skip(start)

    assert lane.start == start
    assert taken(lane, 100) == [offset for offset in offsets if offset >= start]


def test_a_lane_that_nobody_asks_for_is_full_at_some_point():
    lane = Lane(start=0, reached=0)
    lane.add(messages(range(20_000)))
    assert not lane.is_full()

    lane.add(messages(range(20_000, 20_001)))
    assert lane.is_full()
