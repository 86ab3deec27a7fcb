"""Calls in threads of the service: an error names what is busy, and waiting has a bound."""

import asyncio
import threading

import pytest

from bicycle_runtime.service.errors import READING_TIMED_OUT, SERVICE_BUSY
from bicycle_runtime.service.threads import Threads
from tests.raising import raises


@pytest.fixture
def gate():
    gate = threading.Event()
    yield gate
    gate.set()


def test_an_error_names_the_calls_that_keep_all_threads_busy(gate):
    threads = Threads(2, name="test")

    async def ask():
        others = [
            asyncio.ensure_future(threads.run(gate.wait, what="the graph", timeout_ms=60_000))
            for _ in range(2)
        ]
        await asyncio.sleep(0)  # Each of them asks.
        with raises(READING_TIMED_OUT) as caught:
            await threads.run(lambda: 1, what="config", timeout_ms=50)
        gate.set()
        await asyncio.gather(*others)
        return caught.value, await threads.run(lambda: 1, what="config", timeout_ms=60_000)

    error, later = asyncio.run(ask())
    threads.close()

    assert error.facts["what"] == "config"
    assert error.facts["busy"] == "all 2 threads are busy: 2 x the graph"
    assert later == 1


def test_an_error_names_the_storage_if_the_call_itself_waits(gate):
    threads = Threads(1, name="test")

    async def ask():
        with raises(READING_TIMED_OUT) as caught:
            await threads.run(gate.wait, what="config", timeout_ms=200)
        gate.set()
        return caught.value

    error = asyncio.run(ask())
    threads.close()

    assert error.facts["busy"] == "its file or storage does not respond"


def test_no_more_calls_wait_than_may(gate):
    threads = Threads(1, name="test")

    async def check(call):
        return await threads.run(call, what="a check", timeout_ms=60_000, waiting_max=2)

    async def ask():
        taken = [asyncio.ensure_future(check(gate.wait)) for _ in range(3)]
        await asyncio.sleep(0)  # Each of them asks.
        with raises(SERVICE_BUSY) as caught:
            await check(lambda: 1)
        gate.set()
        await asyncio.gather(*taken)
        return caught.value.facts["waiting"], await check(lambda: 1)

    found = asyncio.run(ask())
    threads.close()

    assert found == (2, 1)


def test_what_a_call_raises_comes_to_who_asked():
    threads = Threads(1, name="test")

    def fail():
        raise KeyError("x")

    with pytest.raises(KeyError):
        asyncio.run(threads.run(fail, what="it", timeout_ms=60_000))
    threads.close()
