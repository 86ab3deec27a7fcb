"""The rules for sources: bounded slices, replay, resume, killed jobs.

They follow from the contract (``contract``): a source owns no progress, so that after any crash
reading continues exactly at the end of the last sealed epoch.
"""

from __future__ import annotations

import gc
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from bicycle_runtime.base.faults import FAULT_POINTS
from bicycle_runtime.contract import Budget, Guarantee, Slice, SourceBatch
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.testing.connectors.cases import (
    RECORD_COUNT,
    CarriesMetadata,
    EndlessSourceCase,
    FeedsBadRecords,
    HasOutages,
    Metadata,
    SourceCase,
)
from bicycle_runtime.testing.connectors.processes import read_elsewhere
from bicycle_runtime.testing.connectors.running import (
    PLENTY,
    Epoch,
    SourceRun,
    pauses,
    services_in,
    values_of,
)
from bicycle_runtime.testing.harness import Harness
from bicycle_sdk.environment import StreamEnvironment
from bicycle_sdk.errors import BicycleError
from bicycle_streams.testing.rules import Suite, needs

_ALL = range(RECORD_COUNT)
_HALF = range(RECORD_COUNT // 2)
_REST = range(RECORD_COUNT // 2, RECORD_COUNT)


class SourceSuite(Suite):
    """The rules for sources. Inherit and set ``case_type``, or define a fixture ``case``."""

    case_type: ClassVar[type[SourceCase]]

    @pytest.fixture
    def run(self, case: SourceCase, tmp_path: Path) -> Iterator[SourceRun]:
        """Yield a started source with all records as input."""
        run = start(case, tmp_path, lambda: case.feed(_ALL))
        yield run
        run.stop()

    # --- its declarations ----------------------------------------------------------------------

    def test_it_declares_the_guarantee_that_is_tested_here(
        self, run: SourceRun, case: SourceCase
    ) -> None:
        """Check that the source declares the guarantee of the case."""
        assert run.source.guarantee is case.guarantee
        assert run.spec.connector_type == case.word

    def test_an_unknown_option_is_refused(self, case: SourceCase) -> None:
        """Check that the constructor refuses a misspelled property."""
        feed_first(case, lambda: case.feed(_ALL))
        spec = case.spec()
        wrong = replace(spec, properties={**spec.properties, "no_such_option": 1})

        with pytest.raises(BicycleError):
            case.registry().create_source(wrong)

    def test_a_position_has_a_name_for_people(self, run: SourceRun, case: SourceCase) -> None:
        """``describe`` is called when a record failed."""
        until_planned(run, case)
        epoch = run.read(PLENTY)
        offsets = [offset for batch in epoch.batches[0] for offset in batch.offsets]

        assert run.source.describe(epoch.slices[0].shard, offsets[-1])

    # --- its records ---------------------------------------------------------------------------

    def test_it_gives_every_record_once(self, run: SourceRun, case: SourceCase) -> None:
        """Check that each record arrives once, and that an ending source ends."""
        check(case, values_of(drain(run, case)))
        assert run.source.poll().is_finished is not case.is_endless

    @pytest.mark.parametrize("record_count", [1, 3, 7])
    @pytest.mark.parametrize("parallelism", [1, 3])
    def test_records_do_not_depend_on_budget_and_parallelism(
        self, run: SourceRun, case: SourceCase, record_count: int, parallelism: int
    ) -> None:
        """Check that no epoch exceeds its record budget, bad records included."""
        budget = Budget(record_count=record_count, byte_count=1 << 20, parallelism=parallelism)

        epochs = drain(run, case, budget)

        check(case, values_of(epochs))
        assert all(len(epoch.values) + len(epoch.failures) <= record_count for epoch in epochs)

    @pytest.mark.parametrize("byte_count", [1, 40, 1_000])
    def test_records_do_not_depend_on_the_byte_budget(
        self, run: SourceRun, case: SourceCase, byte_count: int
    ) -> None:
        """Check that reading progresses with the smallest byte budget."""
        budget = Budget(record_count=10_000, byte_count=byte_count, parallelism=2)

        check(case, values_of(drain(run, case, budget)))

    @needs(EndlessSourceCase)
    def test_records_that_come_while_it_runs_are_read_once(
        self, case: SourceCase, tmp_path: Path
    ) -> None:
        """Check that input between epochs is read once, by the following epochs."""
        run = start(case, tmp_path, lambda: case.feed(_HALF))
        epochs = drain(run, case, count=len(_HALF))
        case.feed(_REST)

        epochs += drain(run, case, count=len(_REST))

        run.stop()
        check(case, values_of(epochs))

    @needs(FeedsBadRecords)
    def test_input_that_cannot_be_decoded_is_reported_with_its_bytes(
        self, case: SourceCase, tmp_path: Path
    ) -> None:
        """Check that a bad record is reported with bytes, position and reason."""
        assert isinstance(case, FeedsBadRecords)
        raw: list[bytes] = []

        def feed() -> None:
            case.feed(_HALF)
            raw.append(case.feed_bad())
            case.feed(_REST)

        run = start(case, tmp_path, feed)
        epochs = drain(run, case, replace(PLENTY, record_count=7), count=RECORD_COUNT + 1)
        run.stop()

        check(case, values_of(epochs))
        assert [failure.raw for epoch in epochs for failure in epoch.failures] == raw
        assert all(failure.reason for epoch in epochs for failure in epoch.failures)

    @needs(CarriesMetadata)
    def test_keys_headers_and_times_come_with_their_record(
        self, run: SourceRun, case: SourceCase
    ) -> None:
        """Check that the columns of a batch belong to its values, row by row."""
        assert isinstance(case, CarriesMetadata)
        expected = {repr(case.record(number)): case.metadata(number) for number in _ALL}

        for epoch in drain(run, case):
            for batch in epoch.all_batches:
                assert [expected[repr(value)] for value in batch.values] == metadata_of(batch)

    # --- its position --------------------------------------------------------------------------

    def test_offsets_rise_and_lie_in_their_slice(self, run: SourceRun, case: SourceCase) -> None:
        """Check that offsets rise strictly within the bounds of their slice."""
        for epoch in drain(run, case, replace(PLENTY, record_count=11)):
            for part, batches in zip(epoch.slices, epoch.batches, strict=True):
                offsets = [offset for batch in batches for offset in batch.offsets]
                assert offsets == sorted(set(offsets))
                assert all(part.start <= offset < part.end for offset in offsets)

    def test_every_column_of_a_batch_is_as_long_as_its_values(
        self, run: SourceRun, case: SourceCase
    ) -> None:
        """Check that all columns of a batch have the length of its values."""
        for epoch in drain(run, case):
            for batch in epoch.all_batches:
                columns = (batch.offsets, batch.timestamps, batch.keys, batch.headers)
                given = [column for column in columns if column is not None]
                assert {len(column) for column in given} == {len(batch.values)}

    def test_slices_of_one_shard_are_contiguous_and_start_where_the_last_epoch_ended(
        self, run: SourceRun, case: SourceCase
    ) -> None:
        """Check that the slices of a shard have neither gaps nor overlaps."""
        ends: dict[str, int] = {}
        for epoch in drain(run, case, replace(PLENTY, record_count=9, parallelism=3)):
            positions = dict(ends)
            for part in epoch.slices:
                assert part.start == positions.get(part.shard, part.start)
                positions[part.shard] = part.end
            ends.update(epoch.ends)

    def test_a_shard_begins_at_the_same_offset_in_every_run(
        self, run: SourceRun, case: SourceCase
    ) -> None:
        """Check that a restart before the first seal plans the same slices."""
        first = {part.shard: part.start for part in reversed(until_planned(run, case))}
        run.restart()

        assert {p.shard: p.start for p in reversed(until_planned(run, case))} == first

    def test_planning_again_without_sealing_gives_the_same_slices(
        self, run: SourceRun, case: SourceCase
    ) -> None:
        """Check that planning has no side effects."""
        first = until_planned(run, case)

        assert run.source.plan(PLENTY) == first

    # --- reading again -----------------------------------------------------------------------

    def test_a_slice_read_again_gives_the_same_batches(
        self, run: SourceRun, case: SourceCase
    ) -> None:
        """Check that a second attempt reads equal values, metadata and failures."""
        until_planned(run, case)
        epoch = run.read(replace(PLENTY, record_count=15))

        again = [list(run.reader.read(part)) for part in reversed(epoch.slices)]

        assert [rows(part) for part in reversed(again)] == [rows(part) for part in epoch.batches]

    def test_a_slice_read_by_another_process_gives_the_same_batches(
        self, run: SourceRun, case: SourceCase, tmp_path: Path
    ) -> None:
        """Check that a reader and a slice suffice to read in another process."""
        until_planned(run, case)
        epoch = run.read(replace(PLENTY, record_count=15))

        again = read_elsewhere(run.source.reader(), epoch.slices, tmp_path / "elsewhere")

        assert [rows(part) for part in again] == [rows(part) for part in epoch.batches]

    def test_a_restart_after_every_epoch_loses_and_repeats_nothing(
        self, run: SourceRun, case: SourceCase
    ) -> None:
        """Check that sealed offsets and state determine the remaining input."""
        epochs = drain(run, case, replace(PLENTY, record_count=8), restarts=True)

        check(case, values_of(epochs))

    def test_an_epoch_that_was_not_sealed_is_read_again(
        self, run: SourceRun, case: SourceCase
    ) -> None:
        """Check that input of an unsealed epoch is read again."""
        budget = replace(PLENTY, record_count=10)
        until_planned(run, case)
        sealed = run.read(budget)
        run.seal(sealed)
        until_planned(run, case)
        assert run.read(budget).values
        run.restart()

        rest = drain(run, case, budget, count=RECORD_COUNT - len(sealed.values))

        check(case, sealed.values + values_of(rest))

    def test_a_restart_at_the_end_finds_nothing(self, run: SourceRun, case: SourceCase) -> None:
        """Check that a restart after the last seal has no input."""
        drain(run, case)
        run.restart()

        status = run.source.poll()

        assert not status.has_input
        assert status.is_finished is not case.is_endless

    # --- ends --------------------------------------------------------------------------------

    def test_stopping_twice_is_harmless(self, run: SourceRun) -> None:
        """Check that a second stop is harmless, since the engine stops again after errors."""
        run.stop()

        run.source.stop()

    def test_stopping_what_never_started_is_harmless(self, case: SourceCase) -> None:
        """Check that stopping a source that never started is harmless."""
        feed_first(case, lambda: case.feed(_ALL))
        source = case.registry().create_source(case.spec())

        source.stop()

    # --- when things break -------------------------------------------------------------------

    @needs(HasOutages)
    def test_an_outage_loses_and_repeats_nothing(self, run: SourceRun, case: SourceCase) -> None:
        """Check that a restart continues after an outage, during which errors may occur."""
        assert isinstance(case, HasOutages)
        budget = replace(PLENTY, record_count=10)
        until_planned(run, case)
        first = run.read(budget)
        run.seal(first)
        timer = threading.Timer(case.outage_s, case.repair_transport)

        case.break_transport()
        timer.start()
        try:
            rest = through_outage(run, case, budget, RECORD_COUNT - len(first.values))
        finally:
            timer.join()

        check(case, first.values + values_of(rest))

    # The process continues, so files that a killed worker held open are found by the collector.
    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    @pytest.mark.parametrize("point", FAULT_POINTS)
    def test_a_job_killed_at(self, case: SourceCase, point: str) -> None:
        """Check a job from this source to a list, killed at a point: each record once."""
        feed_first(case, lambda: case.feed(_ALL))
        with Harness(
            job_of(case),
            extensions=[] if case.extension is None else [case.extension],
            engine=EngineOptions(max_records_per_epoch=RECORD_COUNT // 4),
        ) as harness:
            case.started(harness.setup.sources["in"])
            feed_last(case, lambda: case.feed(_ALL))
            harness.fail_at(point, passage=2)

            found = run_job(harness, case)

            assert harness.crash_count == 1
            check(case, found, is_ordered=False)
        gc.collect()


def job_of(case: SourceCase) -> Callable[[StreamEnvironment], None]:
    """Return the job of the rule above."""

    def collect(env: StreamEnvironment) -> None:
        env.add_source(case.descriptor()).uid("in").collect("out")

    return collect


def run_job(harness: Harness, case: SourceCase) -> list[Any]:
    """Run until all records arrived, or until the time limit of the case."""
    for _ in pauses(case.wait_s):
        harness.run()
        if len(harness.results("out")) >= RECORD_COUNT:
            break
        harness.clock.advance(100)
    harness.run()
    return harness.results("out")


def start(case: SourceCase, folder: Path, feed: Callable[[], None]) -> SourceRun:
    """Start a source; an ending one is fed before, an endless one then."""
    feed_first(case, feed)
    run = SourceRun(
        case.spec(),
        services_in(folder, clock=case.clock),
        registry=case.registry(),
        on_start=case.started,
        is_publishing=True,
    ).start()
    feed_last(case, feed)
    return run


def feed_first(case: SourceCase, feed: Callable[[], None]) -> None:
    """Feed an ending source."""
    if not case.is_endless:
        feed()


def feed_last(case: SourceCase, feed: Callable[[], None]) -> None:
    """Feed an endless source."""
    if case.is_endless:
        feed()


def until_planned(run: SourceRun, case: SourceCase) -> list[Slice]:
    """Poll until there is input to plan; epochs without slices are sealed meanwhile."""
    for _ in pauses(case.wait_s):
        if run.poll_for_input(case.wait_s).has_input:
            if slices := run.source.plan(PLENTY):
                return slices
            run.seal(run.read(PLENTY))
    raise AssertionError(f"there was nothing to plan for {case.wait_s} s")


def drain(
    run: SourceRun,
    case: SourceCase,
    budget: Budget = PLENTY,
    *,
    restarts: bool = False,
    count: int = RECORD_COUNT,
) -> list[Epoch]:
    """Read so many records, and any input beyond."""
    return run.drain(budget, restarts=restarts, count=count, wait_s=case.wait_s)


def through_outage(run: SourceRun, case: SourceCase, budget: Budget, count: int) -> list[Epoch]:
    """Read so many records, with a restart after every error, like the engine."""
    epochs: list[Epoch] = []
    for _ in pauses(case.wait_s + case.outage_s):
        try:
            if run.source.poll().has_input:
                epoch = run.read(budget)
                run.seal(epoch)
                epochs.append(epoch)
        except Exception:  # noqa: BLE001 - whatever a driver of an absent server raises.
            with suppress(Exception):
                run.restart()
        if len(values_of(epochs)) >= count:
            break
    return epochs


def check(case: SourceCase, found: list[Any], *, is_ordered: bool = True) -> None:
    """Compare the records read with the input, as strictly as the guarantee."""
    expected = case.records(_ALL)
    have, want = Counter(map(repr, found)), Counter(map(repr, expected))
    missing, surplus = want - have, have - want
    assert not set(have) - set(want), "records that nobody fed"
    if case.guarantee is not Guarantee.AT_MOST_ONCE:
        assert not missing, "records that were lost"
    if case.guarantee is not Guarantee.AT_LEAST_ONCE:
        assert not surplus, "records that came twice"
    if case.guarantee is Guarantee.EXACTLY_ONCE and case.is_ordered and is_ordered:
        assert found == expected


def rows(batches: list[SourceBatch]) -> list[tuple[Any, ...]]:
    """Return the parts of batches that must be equal in each attempt."""
    values = [
        (offset, repr(value), *(m.timestamp_ms, m.key, m.headers))
        for batch in batches
        for offset, value, m in zip(batch.offsets, batch.values, metadata_of(batch), strict=True)
    ]
    failures = [
        (bad.offset, bad.raw, bad.reason, bad.key, bad.headers, bad.timestamp_ms)
        for batch in batches
        for bad in batch.failures
    ]
    return [*values, *failures, (batches[-1].next_offset,)]


def metadata_of(batch: SourceBatch) -> list[Metadata]:
    """Return the metadata of a batch, row by row."""
    return [
        Metadata(
            timestamp_ms=None if batch.timestamps is None else batch.timestamps[row],
            key=None if batch.keys is None else batch.keys[row],
            headers=() if batch.headers is None else batch.headers[row],
        )
        for row in range(len(batch.values))
    ]
