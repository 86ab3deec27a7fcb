"""A token bucket in real time, as workers have it."""

import asyncio
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


def test_calls_wait_for_their_tokens_side_by_side_and_a_canceled_wait_returns_its_tokens():
    bucket = TokenBucket(100, 2)

    async def reserve_all():
        waits = [asyncio.ensure_future(bucket.reserve(1)) for _ in range(8)]
        late = asyncio.ensure_future(bucket.reserve(1_000))
        await asyncio.sleep(0)
        late.cancel()
        await asyncio.gather(*waits, bucket.reserve(1))

    began = monotonic()
    asyncio.run(reserve_all())

    assert monotonic() - began >= 0.065  # Seven tokens that come at 10 ms each.
    assert bucket.take(1) == 1  # Not after ten seconds.
