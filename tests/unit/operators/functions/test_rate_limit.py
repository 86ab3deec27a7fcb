"""A token bucket in real time, as workers have it."""

from time import monotonic

from bicycle_runtime.operators.functions.rate_limit import TokenBucket


def test_records_wait_in_real_time_where_nobody_gives_a_clock():
    bucket = TokenBucket(100, 5)
    began = monotonic()
    passed = 0
    while passed < 15:
        passed += bucket.take(15 - passed)

    assert passed == 15
    # Five at once, then ten at 10 ms each. The machine may be slow, never early.
    assert monotonic() - began >= 0.095
