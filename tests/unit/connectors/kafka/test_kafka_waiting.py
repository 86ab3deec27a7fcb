"""How long unread messages have been waiting."""

from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.connectors.kafka.source import WaitingTimes
from bicycle_runtime.contract import Lag, total_lag
from bicycle_sdk.clock import ManualClock


def test_the_age_is_that_of_the_first_unread_message():
    clock = ManualClock()
    waiting = WaitingTimes(clock)
    waiting.see("t/0", 10)
    clock.advance(1_000)
    waiting.see("t/0", 30)
    clock.advance(500)

    assert waiting.lag("t/0", position=5, end=30) == Lag(record_count=25, age_ms=1_500)
    assert waiting.lag("t/0", position=10, end=30) == Lag(record_count=20, age_ms=500)
    assert waiting.lag("t/0", position=30, end=30) == Lag(record_count=0, age_ms=0)
    assert waiting.lag("t/1", position=0, end=0) == Lag(record_count=0, age_ms=0)


def test_messages_that_come_while_all_is_read_do_not_inherit_an_age():
    clock = ManualClock()
    waiting = WaitingTimes(clock)
    waiting.see("t/0", 10)
    clock.advance(60_000)
    waiting.lag("t/0", position=10, end=10)
    waiting.see("t/0", 11)

    assert waiting.lag("t/0", position=10, end=11) == Lag(record_count=1, age_ms=0)


def test_a_partition_that_was_made_anew_begins_anew():
    clock = ManualClock()
    waiting = WaitingTimes(clock)
    waiting.see("t/0", 1_000)
    clock.advance(60_000)
    waiting.see("t/0", 3)
    clock.advance(10)

    assert waiting.lag("t/0", position=0, end=3) == Lag(record_count=3, age_ms=10)


@given(st.lists(st.integers(1, 1_000), min_size=1, max_size=3_000), st.data())
def test_however_much_was_seen_no_age_is_too_small(grown, data):
    clock = ManualClock()
    waiting, ends, end = WaitingTimes(clock), [], 0
    for count in grown:
        end += count
        clock.advance(1_000)
        waiting.see("t/0", end)
        ends.append((end, clock.now_ms()))
    position = data.draw(st.integers(0, end - 1))

    known_since = next(at for seen, at in ends if seen > position)
    exact_ms = clock.now_ms() - known_since
    found = waiting.lag("t/0", position=position, end=end)

    assert found.record_count == end - position
    # Merging keeps at least 256 of the times, so an age grows by few of the steps between two.
    assert exact_ms <= found.age_ms <= exact_ms + 1_000 * (len(grown) // 256) * 2


def test_lags_are_added_and_the_greatest_age_counts():
    lags = [Lag(record_count=2, age_ms=70), Lag(record_count=3, age_ms=10), Lag(byte_count=9)]

    assert total_lag(lags) == Lag(record_count=5, byte_count=9, age_ms=70)
    assert total_lag([]) == Lag()
