from types import SimpleNamespace

import pytest

from bicycle_runtime.contract import Guarantee
from bicycle_runtime.jobs.running.first_status import weakest_link
from bicycle_runtime.jobs.running.timings import Timings
from bicycle_runtime.jobs.status import GuaranteeStatus, JobStatus, OperatorStatus
from bicycle_runtime.operators.metrics import OperatorCounts
from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk.clock import ManualClock
from tests.unit.jobs.job_samples import stats_of, status_of

EXACTLY, AT_LEAST, AT_MOST = (
    Guarantee.EXACTLY_ONCE,
    Guarantee.AT_LEAST_ONCE,
    Guarantee.AT_MOST_ONCE,
)


@pytest.fixture
def clock():
    return ManualClock(1_000)


@pytest.fixture
def timings(clock):
    return Timings(clock)


def shown(timings, *epochs, **fields):
    status = status_of(**fields)
    for stats in epochs:
        timings.take(status, stats)
    timings.show(status)
    return status


def test_a_run_without_an_epoch_has_no_latency_and_no_growth(timings):
    status = shown(timings)

    assert (status.epoch_p50_ms, status.epoch_p99_ms, status.state_growth) == (None, None, None)


def test_quantiles_are_those_of_the_last_hundred_epochs(timings):
    slow = [stats_of(duration_ms=9_000.0) for _ in range(50)]
    quick = [stats_of(duration_ms=float(ms)) for ms in range(1, 101)]

    status = shown(timings, *slow, *quick)

    assert (status.epoch_p50_ms, status.epoch_p99_ms) == (50.0, 99.0)
    assert status.epoch_times.count == 150


def test_phases_of_the_last_epoch_stand_beside_those_of_all(timings):
    status = shown(
        timings,
        stats_of(phases_ms={"run": 40.0, "seal": 2.0}),
        stats_of(phases_ms={"run": 60.0, "seal": 3.0}),
    )

    assert status.phases_ms == {"run": 60.0, "seal": 3.0}
    assert status.phase_times["run"].seconds == pytest.approx(0.1)


def test_the_busy_share_forgets_what_was_long_ago(timings):
    idle, busy = (
        stats_of(counts={"f": OperatorCounts(busy_ms=busy_ms, task_ms=6_000.0)})
        for busy_ms in (0.0, 5_400.0)
    )
    fields = {"operators": {"f": OperatorStatus()}}

    assert shown(timings, idle, **fields).operators["f"].busy_share == 0.0
    assert shown(timings, *[busy] * 12, **fields).operators["f"].busy_share == pytest.approx(
        0.9, abs=0.01
    )


def test_an_operator_in_tasks_that_took_no_time_has_no_share(timings):
    operators = {"f": OperatorStatus()}
    status = shown(timings, stats_of(counts={"f": OperatorCounts()}), operators=operators)

    assert status.operators["f"].busy_share is None


def test_a_source_waits_while_full_epochs_go_on_behind_it(clock, timings):
    full = stats_of(
        duration_ms=10_000.0, sources=("in", "other"), full_sources={"in"},
        counts={"in": OperatorCounts(busy_ms=4_000.0)}, subtask_counts={"in": {0: 1, 1: 1}},
    )  # fmt: skip
    status = status_of(operators={"in": OperatorStatus(), "map": OperatorStatus()})
    shares = []
    for epochs in ([full, full, full], [], []):
        for stats in epochs:
            clock.advance(10_000)
            timings.take(status, stats)
        timings.show(status)
        shares.append(status.operators["in"].backpressure)
        clock.advance(30_001)

    # Of each 10 s both subtasks read for 2 s; then nothing comes, and it is over.
    assert shares == [0.8, 0.4, 0.0]
    assert status.operators["other"].backpressure == 0.0
    assert status.operators["map"].backpressure is None


def test_growth_is_that_of_the_last_minute_and_may_be_negative(clock, timings):
    status = status_of()
    for size in (10_000_000, 0, 600, 1_200, 1_800, 300):
        timings.take(status, stats_of(state_bytes=size, operator_bytes={"f": 2 * size}))
        clock.advance(30_000)
    timings.show(status)

    assert status.state_growth == -15.0  # 1,200 to 300 within the last minute
    assert status.operators["f"].state_growth == -30.0


def test_the_size_of_an_operator_without_records_is_shown(timings):
    status = shown(timings, stats_of(operator_bytes={"sum": 77}))

    assert status.operators["sum"].state_bytes == 77


@pytest.mark.parametrize(
    ("source", "sink", "found"),
    [
        (EXACTLY, EXACTLY, GuaranteeStatus(guarantee="exactly-once")),
        (EXACTLY, AT_LEAST, GuaranteeStatus(guarantee="at-least-once", weakest="o", role="sink")),
        (AT_MOST, AT_LEAST, GuaranteeStatus(guarantee="at-most-once", weakest="i", role="source")),
    ],
)
def test_the_guarantee_is_that_of_the_weakest_link(source, sink, found):
    setup = SimpleNamespace(
        sources={"i": SimpleNamespace(guarantee=source)},
        sinks={"o": SimpleNamespace(guarantee=sink)},
    )

    assert weakest_link(setup) == found


def test_a_job_without_a_sink_promises_what_its_source_does():
    setup = SimpleNamespace(sources={"i": SimpleNamespace(guarantee=EXACTLY)}, sinks={})

    assert weakest_link(setup) == GuaranteeStatus(guarantee="exactly-once")


def double(value):
    return value * 2


def test_tasks_measure_the_operators_they_run():
    def build(env):
        env.add_source(script_source(int)).map(double).uid("double").collect("out")

    with Harness(build) as harness:
        harness.push(list(range(100)))
        harness.run_epoch()
        counts = harness.epochs[-1].counts["double"]

    assert counts.times.count == counts.records_in == 100
    assert 0 < counts.busy_ms <= counts.task_ms
    assert counts.busy_ms == pytest.approx(counts.times.seconds * 1_000)


def test_a_status_of_before_is_read_with_nothing_measured():
    status = JobStatus(id="a", job="a", plugin="p")

    assert (status.guarantee, status.epoch_times.count, status.phases_ms) == (None, 0, {})
