import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.operators.metrics import BOUNDS_US, Durations, OperatorCounts


def of(*durations_ns):
    times = Durations()
    for duration_ns in durations_ns:
        times.take(duration_ns)
    return times


@pytest.mark.parametrize(("duration_ns", "bound_ms"), [(0, 0.001), (1_000, 0.001), (1_001, 0.002)])
def test_what_equals_a_bound_is_in_its_bucket(duration_ns, bound_ms):
    assert of(duration_ns).quantile_ms(1.0) == bound_ms


def test_what_exceeds_every_bound_is_counted_and_told_as_the_last_one():
    times = of(10**15)

    assert (times.count, times.buckets) == (1, {len(BOUNDS_US): 1})
    assert times.quantile_ms(0.5) == BOUNDS_US[-1] / 1_000


def test_records_of_a_batch_count_with_its_mean():
    times = Durations()
    times.take(4_000_000, 1_000)

    assert (times.count, times.quantile_ms(0.99), times.seconds) == (1_000, 0.005, 0.004)


@given(st.lists(st.integers(0, 10**12)), st.lists(st.integers(0, 10**12)))
def test_two_histograms_add_up_to_that_of_all(some, others):
    total, whole = of(*some), of(*some, *others)
    total.add(of(*others))

    assert total.buckets == whole.buckets
    assert total.seconds == pytest.approx(whole.seconds)


def test_counts_of_a_task_come_through_messages_with_their_durations():
    counts = OperatorCounts(records_in=1, busy_ms=2.5, times=of(3_000_000))
    data = msgspec.msgpack.encode(counts)

    assert msgspec.msgpack.decode(data, type=OperatorCounts) == counts


def test_what_an_older_task_has_not_measured_adds_nothing():
    total = OperatorCounts(busy_ms=1.0)
    total.add(msgspec.json.decode(b"{}", type=OperatorCounts))

    assert (total.busy_ms, total.times.count) == (1.0, 0)
