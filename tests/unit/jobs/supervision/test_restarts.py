"""The restart strategy: how often, and how long apart."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bicycle_runtime.base.errors import STORAGE_ACCESS_DENIED, STORAGE_FULL, STORAGE_MISSING
from bicycle_runtime.engine.errors import EpochMixedError
from bicycle_runtime.jobs.status import RestartNote
from bicycle_runtime.jobs.supervision.restarts import (
    _RESTARTABLE,
    Restarts,
    fails_again,
    may_pass,
    position_of,
)
from bicycle_runtime.operators.errors import (
    RECORD_UNDECODABLE,
    FunctionFailedError,
    FunctionHookError,
)
from bicycle_sdk.graph import RestartKind, RestartStrategy


def strategy(kind: RestartKind) -> RestartStrategy:
    return RestartStrategy(kind=kind, max_attempts=3, delay_ms=100)


@pytest.mark.parametrize(
    ("kind", "delays"),
    [
        (RestartKind.NONE, [None]),
        (RestartKind.FIXED_DELAY, [0, 100, 100, None]),
        (RestartKind.EXPONENTIAL_BACKOFF, [0, 100, 200, None]),
    ],
)
def test_a_job_without_progress_is_restarted_as_often_as_its_strategy_says(kind, delays):
    restarts = Restarts(strategy(kind))

    assert delays == [restarts.delay_ms(epoch=7) for _ in delays]


def test_the_number_of_attempts_can_be_given_for_a_run():
    restarts = Restarts(strategy(RestartKind.FIXED_DELAY), 1)

    assert [restarts.delay_ms(epoch=0) for _ in range(2)] == [0, None]


def test_a_sealed_epoch_refills_the_attempts():
    restarts = Restarts(strategy(RestartKind.EXPONENTIAL_BACKOFF))
    before = [restarts.delay_ms(epoch=1) for _ in range(4)]

    assert before == [0, 100, 200, None]
    assert restarts.delay_ms(epoch=2) == 0


def test_growing_delays_have_a_maximum_and_large_numbers_of_attempts_cost_nothing():
    restarts = Restarts(
        RestartStrategy(kind=RestartKind.EXPONENTIAL_BACKOFF, max_attempts=1_000_000, delay_ms=100),
        delay_max_ms=1_000,
    )
    delays = [restarts.delay_ms(epoch=1) for _ in range(6)]
    restarts.resume([note(attempt=999_998)])

    assert delays == [0, 100, 200, 400, 800, 1_000]
    assert restarts.delay_ms(epoch=1) == 1_000


def test_the_maximum_is_never_below_the_first_delay():
    restarts = Restarts(strategy(RestartKind.EXPONENTIAL_BACKOFF), delay_max_ms=1)

    assert [restarts.delay_ms(epoch=1) for _ in range(3)] == [0, 100, 100]


@given(st.integers(), st.integers(1, 20))
def test_chance_makes_a_growing_delay_shorter_by_a_tenth_at_most(seed, count):
    plain = Restarts(strategy(RestartKind.EXPONENTIAL_BACKOFF), count)
    spread = Restarts(strategy(RestartKind.EXPONENTIAL_BACKOFF), count, source=random.Random(seed))
    for _ in range(count):
        most, delay_ms = plain.delay_ms(epoch=1), spread.delay_ms(epoch=1)
        assert most * 0.9 - 1 <= delay_ms <= most


def test_another_process_goes_on_counting_where_the_history_ends():
    first = Restarts(strategy(RestartKind.FIXED_DELAY))
    first.delay_ms(epoch=7)
    second = Restarts.planned(first.plan())
    second.resume([note(attempt=first.used_count)])

    assert [second.delay_ms(epoch=7) for _ in range(3)] == [100, 100, None]
    assert second.delay_ms(epoch=8) == 0


def note(*, attempt, position=None):
    return RestartNote(
        time_ms=1, code="BIC-1803", message="lost", epoch=7, attempt=attempt, position=position
    )


def test_the_delay_can_be_given_for_a_run():
    restarts = Restarts(strategy(RestartKind.FIXED_DELAY), delay_ms=7)

    assert [restarts.delay_ms(epoch=0) for _ in range(4)] == [0, 7, 7, None]
    assert restarts.plan().delay_ms == 7


def test_attempts_that_are_asked_for_take_the_place_of_none_at_all():
    restarts = Restarts(strategy(RestartKind.NONE), 2)

    assert [restarts.delay_ms(epoch=0) for _ in range(3)] == [0, 5_000, None]
    assert Restarts(strategy(RestartKind.NONE), 0).delay_ms(epoch=0) is None


@given(st.lists(st.sampled_from(["a", "b", None]), max_size=40), st.integers(1, 4))
def test_no_progress_refills_the_attempts_at_one_record(places, attempts):
    """Every failure has an epoch of its own; a record has its attempts once, over restarts too."""
    plan = RestartStrategy(max_attempts=attempts, delay_ms=100)
    restarts, notes, tried = Restarts(plan), [], Counter()
    for epoch, position in enumerate(places):
        if epoch % 3 == 2:
            restarts = Restarts(plan)
            restarts.resume(notes)
        delay_ms = restarts.delay_ms(epoch=epoch, position=position)
        if position is None:
            assert delay_ms == 0
        else:
            expected = 0 if tried[position] == 0 else 100 if tried[position] < attempts else None
            assert delay_ms == expected
            tried[position] += 1
        if delay_ms is None:
            return
        notes.append(note(attempt=restarts.used_count, position=position))
        notes[-1].epoch = epoch


def test_delays_at_one_record_grow_although_other_sources_make_progress():
    restarts = Restarts(strategy(RestartKind.EXPONENTIAL_BACKOFF))

    delays = [restarts.delay_ms(epoch=epoch, position="f: in 0 7") for epoch in range(4)]

    assert delays == [0, 100, 200, None]


def test_no_error_that_a_restart_meets_asks_to_start_the_job_again():
    """Unless it says that this happens by itself; also errors of storage that workers meet."""
    asks = re.compile(r"\b(run|start|submit)\b[^.;:]*\bagain\b")
    entries = [*_RESTARTABLE, STORAGE_MISSING, STORAGE_FULL, STORAGE_ACCESS_DENIED]
    for entry in entries:
        assert not asks.search(entry.fix) or "restart strategy" in entry.fix, entry.code
    assert asks.search("make space and run the same command again")


def test_an_error_of_a_worker_may_be_one_of_its_host():
    error = STORAGE_MISSING(url="s3://none", action="read", path="a")
    assert not may_pass(error)

    error.facts["worker_epoch"] = 3
    assert may_pass(error)


def test_a_job_whose_epoch_was_mixed_in_each_run_is_started_again():
    assert may_pass(EpochMixedError(epoch=3, job="job", level=0, subtask=1))


def failed(exception, message="no a"):
    return FunctionHookError(
        operator="o", action="open", exception=exception, exception_message=message,
        user_traceback="",
    )  # fmt: skip


def noted(error, *, epoch):
    message = error.summary.splitlines()[0]
    return [
        RestartNote(
            time_ms=1, code=error.code, message=message, epoch=epoch, attempt=1, delay_ms=0,
            operator="o",
        )
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("exception", "is_vain"),
    [
        ("ValueError", True), ("KeyError", True), ("ZeroDivisionError", True),
        ("ConnectionError", False), ("TimeoutError", False), ("RuntimeError", False),
        ("Exception", False), ("OperationalError", False),
    ],
)  # fmt: skip
def test_a_mistake_that_happens_twice_in_one_epoch_will_happen_again(exception, is_vain):
    error = failed(exception)

    assert fails_again(error, noted(error, epoch=3), epoch=3) is is_vain
    assert not fails_again(error, [], epoch=3)
    assert not fails_again(error, noted(error, epoch=2), epoch=3)
    assert not fails_again(error, noted(failed(exception, "no b"), epoch=3), epoch=3)


def at_record(offset, exception, *bases, message="no a"):
    facts = dict.fromkeys(
        ["location", "operator_name", "plugin", "plugin_version", "position", "key", "value_type"],
        "",
    )
    return FunctionFailedError(
        **facts, operator="o", exception=exception, exception_message=message, user_traceback="",
        subtask=0, source="in", shard="a", offset=offset, exception_bases=[exception, *bases],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("exception", "bases", "is_vain"),
    [
        ("InvalidOperation", ["DecimalException", "ArithmeticError", "Exception"], True),
        ("ValidationError", ["Exception"], True),
        ("OrderError", ["ValueError", "Exception"], True),
        ("OperationalError", ["DatabaseError", "Exception"], False),
        ("ConnectTimeout", ["TransportError", "Exception"], False),
        ("HTTPError", ["RequestException", "OSError", "Exception"], False),
    ],
)
def test_an_exception_of_a_library_at_the_same_record_twice_will_come_again(
    exception, bases, is_vain
):
    error = at_record(7, exception, *bases)
    [note] = noted(error, epoch=3)
    note = replace(note, position=position_of(error))

    assert fails_again(error, [note], epoch=3) is is_vain
    assert not fails_again(error, [replace(note, position=position_of(at_record(8, "x")))], epoch=3)
    assert not fails_again(error, [replace(note, epoch=2)], epoch=3)


def test_a_record_that_cannot_be_decoded_never_will_be():
    error = RECORD_UNDECODABLE(
        operator="in", position="a.csv line 2", reason="no number", source="in", shard="a", offset=9
    )

    assert fails_again(error, [], epoch=0)


def test_a_strategy_that_is_set_is_no_default():
    assert Restarts(RestartStrategy()).is_default
    assert not Restarts(RestartStrategy(), 3).is_default
    assert not Restarts(RestartStrategy(), delay_ms=5_000).is_default
    assert not Restarts(strategy(RestartKind.EXPONENTIAL_BACKOFF)).is_default
