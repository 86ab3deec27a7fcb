"""A token bucket: never too much in any span of time, and no needless wait."""

from hypothesis import example, given
from hypothesis import strategies as st

from bicycle_runtime.operators.functions.rate_limit import TokenBucket


class Time:
    """A clock of seconds that waiting moves on."""

    def __init__(self):
        self.now_s = 0.0
        self.waited_s = 0.0

    def now(self):
        return self.now_s

    def wait(self, duration_s):
        assert duration_s > 0
        self.now_s += duration_s
        self.waited_s += duration_s


RATES = st.floats(0.01, 100_000)
STEPS = st.lists(st.tuples(st.floats(0, 20), st.integers(1, 300)), min_size=1, max_size=12)


@given(per_second=RATES, burst=st.integers(1, 200), steps=STEPS)
@example(per_second=97504.23834411702, burst=37, steps=[(20, 263)] * 8)  # Waits too short to tell.
def test_no_span_of_time_lets_more_through_than_burst_and_rate(per_second, burst, steps):
    time = Time()
    bucket = TokenBucket(per_second, burst, now=time.now, wait=time.wait)
    passed = []  # when, and how many
    for pause_s, wanted in steps:
        time.now_s += pause_s
        left = wanted
        while left:
            count = bucket.take(left)
            assert 1 <= count <= min(left, burst)
            passed.append((time.now_s, count))
            left -= count
    for first, (began_s, _) in enumerate(passed):
        total = 0
        for at_s, count in passed[first:]:
            total += count
            assert total <= burst + per_second * (at_s - began_s) + 1e-6 * total + 1e-6


@given(per_second=RATES, burst=st.integers(1, 200), count=st.integers(1, 2_000))
def test_records_wait_no_longer_than_their_tokens_take(per_second, burst, count):
    time = Time()
    bucket = TokenBucket(per_second, burst, now=time.now, wait=time.wait)
    left = count
    while left:
        left -= bucket.take(left)

    needed_s = max(count - burst, 0) / per_second
    assert abs(time.waited_s - needed_s) <= 1e-6 * (1 + needed_s)
