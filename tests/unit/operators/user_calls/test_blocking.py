"""A call that keeps the event loop is found, with operator and line; nothing else is."""

import asyncio
import threading
import time

import pytest

from bicycle_runtime.operators.heartbeats import LAST_POSITION
from bicycle_runtime.operators.user_calls.blocking import NONE, LoopWatch
from tests.waiting import PATIENCE_S

LIMIT_MS = 60
LIMIT_S = LIMIT_MS / 1000


@pytest.fixture
def watch():
    watch = LoopWatch()
    watch.start(LIMIT_MS)
    yield watch
    watch.stop()


@pytest.fixture
def loop():
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def hold_thread(watch):
    """Keep the thread until the watch has found it, as a call without ``await`` would."""
    deadline = time.perf_counter() + 30
    while not watch._found and time.perf_counter() < deadline:
        time.sleep(LIMIT_S / 10)


def run(watch, loop, coroutine, *, operator="lookup", done=()):
    LAST_POSITION.enter(operator)
    with watch.watching(loop, done):
        loop.run_until_complete(coroutine)
    return watch.take(operator)


async def blocking(watch):
    hold_thread(watch)


def test_a_call_that_keeps_the_loop_is_found_with_its_line(watch, loop):
    found = run(watch, loop, blocking(watch))

    file, _, rest = found.location.rpartition(":")
    assert file == __file__
    assert rest.endswith("in hold_thread")
    assert found.count == 1
    assert found.longest_ms >= LIMIT_MS


def test_a_call_deep_in_a_library_is_told_as_the_users_line(watch, loop):
    async def waits():
        threading.Event().wait(LIMIT_S * 4)

    found = run(watch, loop, waits())

    assert found.location.startswith(f"{__file__}:")
    assert found.location.endswith("waits")


def test_a_call_that_awaits_is_not_found(watch, loop):
    assert run(watch, loop, asyncio.sleep(LIMIT_S * 4)) == NONE


def test_calls_one_after_another_that_go_on_are_not_found(watch, loop):
    done = []

    async def steps():
        while len(done) < 12:
            time.sleep(LIMIT_S / 3)
            done.append(None)

    assert run(watch, loop, steps(), done=done) == NONE


def test_calls_in_flight_that_never_let_others_run_are_found(watch, loop):
    async def steps():
        for _ in range(12):
            time.sleep(LIMIT_S / 3)

    assert run(watch, loop, steps()).count == 1


def test_every_time_counts_and_the_first_is_logged(watch, loop, caplog):
    counts = [run(watch, loop, blocking(watch)).count for _ in range(2)]
    other = run(watch, loop, blocking(watch), operator="other")

    assert (counts, other.count) == ([1, 1], 1)
    assert [record.message for record in caplog.records] == ["event_loop_blocked"] * 2
    assert [record.bicycle_fields["operator"] for record in caplog.records] == ["lookup", "other"]


def test_what_was_found_is_given_once(watch, loop):
    assert run(watch, loop, blocking(watch)) != NONE
    assert watch.take("lookup") == NONE


def test_a_watch_has_a_thread_only_between_the_first_run_and_its_stop(watch, loop):
    assert watch._thread is None
    run(watch, loop, asyncio.sleep(0))
    first = watch._thread
    watch.stop()
    first.join(timeout=PATIENCE_S)

    assert not first.is_alive()
    assert run(watch, loop, blocking(watch)).count == 1
