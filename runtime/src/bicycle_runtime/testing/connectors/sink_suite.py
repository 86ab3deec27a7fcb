"""The rules for sinks: publication, repetition, crashes, zombies, outages.

They follow from the contract (``contract``): tasks stage, the driver
seals, and only then is anything visible. How strictly output is compared depends on the guarantee
that the sink declares: a sink that is at-least-once may repeat records, but never lose one.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import pytest

from bicycle_runtime.base.faults import (
    FAULT_POINTS,
    TRANSACTION_POINTS,
    InjectedFault,
    arm_fault,
    disarm_faults,
)
from bicycle_runtime.contract import DropsRecords, WriterTask
from bicycle_runtime.testing.connectors.cases import (
    CanBeUnwritable,
    HasOutages,
    RunsInForks,
    SinkCase,
)
from bicycle_runtime.testing.connectors.output import Output
from bicycle_runtime.testing.connectors.processes import find_steps, kill_at
from bicycle_runtime.testing.connectors.running import SinkRun, pauses, services_in
from bicycle_runtime.testing.harness import Harness
from bicycle_runtime.testing.script import script_source
from bicycle_sdk.environment import StreamEnvironment
from bicycle_sdk.errors import BicycleError
from bicycle_streams.testing.rules import Suite, needs

_PARALLELISMS = (2, 1, 3, 2)  # Writers of each epoch: the sink is rescaled between them.
_PER_WRITER = 5
_PART = 10  # Records of one of the three parts of a job's input.


class SinkSuite(Suite):
    """The rules for sinks. Inherit and set ``case_type``, or define a fixture ``case``."""

    case_type: ClassVar[type[SinkCase]]

    @pytest.fixture
    def run(self, case: SinkCase, tmp_path: Path) -> Iterator[SinkRun]:
        """Yield a started sink."""
        run = start(case, tmp_path)
        yield run
        disarm_faults()
        run.stop()

    # --- its declarations ----------------------------------------------------------------------

    def test_it_declares_the_guarantee_that_is_tested_here(
        self, run: SinkRun, case: SinkCase
    ) -> None:
        """Check that the sink declares the guarantee of the case."""
        assert run.sink.guarantee is case.guarantee
        assert run.spec.connector_type == case.word

    def test_the_records_of_the_case_are_distinct(self, case: SinkCase) -> None:
        """Check that records are distinct, so that duplicates can be detected."""
        texts = [repr(value) for epoch in plan_of(case) for part in epoch for value in part]

        assert len(set(texts)) == len(texts)

    def test_an_unknown_option_is_refused(self, case: SinkCase) -> None:
        """Check that the constructor refuses a misspelled property."""
        spec = case.spec()
        wrong = replace(spec, properties={**spec.properties, "no_such_option": 1})

        with pytest.raises(BicycleError):
            case.registry().create_sink(wrong)

    @needs(CanBeUnwritable)
    def test_an_output_that_cannot_be_written_is_an_error_at_the_start(
        self, case: SinkCase, tmp_path: Path
    ) -> None:
        """Check that an unwritable output is an error before any input is read."""
        assert isinstance(case, CanBeUnwritable)
        found = case.unwritable()
        spec = replace(
            case.spec(), connector_type=found.connector_type, properties=found.properties
        )
        sink = case.registry().create_sink(spec)

        with pytest.raises(BicycleError):
            sink.start(services_in(tmp_path), {})
        sink.stop()

    # --- staging -----------------------------------------------------------------------------

    def test_nothing_is_visible_before_it_is_published(self, run: SinkRun, case: SinkCase) -> None:
        """Check that a sealed epoch is invisible until ``publish``."""
        run.seal(plan_of(case)[0], is_last=True)

        output_of(case, run).check(published_count=0)

    def test_output_of_attempts_that_were_not_sealed_is_never_visible(
        self, run: SinkRun, case: SinkCase
    ) -> None:
        """Check that output of attempts that were not sealed is never visible."""
        run.stage(1, [case.records(range(1000, 1005))])
        run.seal(plan_of(case)[0], is_last=True)
        run.stage(1, [case.records(range(2000, 2005)), case.records(range(2005, 2010))])
        run.publish()

        output_of(case, run).check()

    def test_an_aborted_writer_leaves_nothing(self, run: SinkRun, case: SinkCase) -> None:
        """Check that an aborted writer leaves no staged file, and no output."""
        task = WriterTask(storage=run.services.storage, prefix="staged/1/x", epoch=1, subtask=0)
        writer = run.sink.writer().open(task)
        run.write(writer, case.records(range(5)))

        writer.abort()

        assert run.services.storage.list("staged") == []
        output_of(case, run).check()

    def test_a_writer_without_records_stages_nothing(self, run: SinkRun) -> None:
        """Check that an epoch without output stages no file."""
        assert run.stage(1, [[], []]) == []

    def test_staged_files_are_what_they_are_reported_to_be(
        self, run: SinkRun, case: SinkCase
    ) -> None:
        """Check that reported path, size, checksum and counts match the files."""
        records = plan_of(case)[0]

        staged = run.stage(1, records)

        for file in staged:
            data = run.services.storage.read(file.path)
            assert (len(data), zlib.crc32(data)) == (file.byte_count, file.crc32)
        for subtask, values in enumerate(records):
            counts = [file.record_count for file in staged if file.subtask == subtask]
            assert sum(counts) == len(values) or not staged

    def test_preparing_again_before_sealing_gives_the_same_decision(
        self, run: SinkRun, case: SinkCase
    ) -> None:
        """``prepare`` changes nothing, here or outside."""
        staged = run.stage(1, plan_of(case)[0])

        first = run.sink.prepare(1, staged, is_last=False)

        assert run.sink.prepare(1, staged, is_last=False) == first
        output_of(case, run).check()

    # --- publishing --------------------------------------------------------------------------

    def test_all_records_are_visible_at_the_end(self, run: SinkRun, case: SinkCase) -> None:
        """Check that all records are visible, in the order of each writer."""
        for records, is_last in epochs_of(case):
            run.run_epoch(records, is_last=is_last)

        output_of(case, run).check(is_in_order=True)

    def test_publishing_every_epoch_twice_is_harmless(self, run: SinkRun, case: SinkCase) -> None:
        """Check that repeating each publication is harmless."""
        for records, is_last in epochs_of(case):
            run.run_epoch(records, is_last=is_last)
            run.publish()

        output_of(case, run).check()

    def test_a_restart_after_every_sealed_epoch_is_harmless(
        self, run: SinkRun, case: SinkCase
    ) -> None:
        """Check that a new object can publish from the state alone, after each seal."""
        for records, is_last in epochs_of(case):
            run.seal(records, is_last=is_last)
            run.restart()

        output_of(case, run).check()

    def test_a_restart_after_every_published_epoch_is_harmless(
        self, run: SinkRun, case: SinkCase
    ) -> None:
        """Check that publishing again at a restart is harmless."""
        for records, is_last in epochs_of(case):
            run.run_epoch(records, is_last=is_last)
            run.restart()

        output_of(case, run).check()

    def test_staged_files_that_publishing_needs_are_claimed(
        self, run: SinkRun, case: SinkCase
    ) -> None:
        """Check that publishing works if all files without a reference are deleted."""
        for records, is_last in epochs_of(case):
            run.seal(records, is_last=is_last)
            run.collect()
            run.restart()
            run.collect()

        output_of(case, run).check()

    def test_an_epoch_without_records_changes_nothing(self, run: SinkRun, case: SinkCase) -> None:
        """Check that idle epochs are sealed and published like others."""
        run.run_epoch([[], []])
        run.run_epoch(plan_of(case)[0])
        run.run_epoch([])
        run.run_epoch([], is_last=True)

        output_of(case, run).check()

    def test_epochs_may_follow_one_that_completed_what_was_open(
        self, run: SinkRun, case: SinkCase
    ) -> None:
        """Check that epochs may follow one with completed files, as after a savepoint."""
        for records, _ in epochs_of(case):
            run.run_epoch(records, is_last=True)

        output_of(case, run).check(is_in_order=True)

    # --- crashes -----------------------------------------------------------------------------

    @pytest.mark.parametrize("point", TRANSACTION_POINTS)
    @pytest.mark.parametrize("passage", [1, 2])
    def test_a_crash_inside_publishing_loses_and_repeats_nothing(
        self, run: SinkRun, case: SinkCase, point: str, passage: int
    ) -> None:
        """Check that a restart after a crash in publishing neither loses nor repeats.

        A sink that publishes in transactions passes these points; for others this is a restart.
        """
        for records, is_last in epochs_of(case):
            run.seal(records, is_last=is_last)
            arm_fault(point, passage)
            with suppress(InjectedFault):
                run.publish()
            disarm_faults()
            run.lose()

        output_of(case, run).check()

    @needs(RunsInForks)
    @pytest.mark.parametrize("is_last", [False, True])
    def test_a_kill_at_any_line_of_publishing_loses_and_repeats_nothing(
        self, tmp_path: Path, is_last: bool
    ) -> None:
        """Check that a kill before any line of publishing neither loses nor repeats.

        A line that runs many times is died at the first two times and the last.
        """
        assert issubclass(self.case_type, RunsInForks)
        case, run = _start_and_seal(self.case_type, tmp_path / "whole", is_last=is_last)
        steps = find_steps(run.publish, self.case_type.traced_modules)
        _restart_and_check(case, run)
        assert len(steps) > self.case_type.traced_lines_min
        for step in steps:
            case, run = _start_and_seal(self.case_type, tmp_path / str(step), is_last=is_last)
            kill_at(step, run.publish, self.case_type.traced_modules)
            _restart_and_check(case, run)

    def test_an_old_object_that_wakes_up_changes_nothing(
        self, run: SinkRun, case: SinkCase
    ) -> None:
        """Check that a publication by an old object fails or is ignored."""
        for records, is_last in epochs_of(case):
            run.seal(records, is_last=is_last)
            old, epoch, state = run.sink, run.epoch, run.state
            run.lose()
            # Whatever the fence of the sink raises: only the output counts.
            with suppress(Exception):
                old.publish(epoch, state)
        for zombie in run.lost:
            with suppress(Exception):
                zombie.publish(epoch, state)

        output_of(case, run).check()

    def test_an_old_object_that_wakes_up_an_epoch_later_changes_nothing(
        self, run: SinkRun, case: SinkCase
    ) -> None:
        """Check that a late publication by an old object changes no output."""
        run.seal(plan_of(case)[0])
        old, epoch, state = run.sink, run.epoch, run.state
        run.lose()
        for records, is_last in list(epochs_of(case))[1:]:
            run.seal(records, is_last=is_last)
            publish_or_restart(run)
            # Whatever the fence of the sink raises: only the output counts.
            with suppress(Exception):
                old.publish(epoch, state)

        output_of(case, run).check()

    @needs(HasOutages)
    @pytest.mark.parametrize("point", ["before", *TRANSACTION_POINTS])
    def test_an_outage_loses_and_repeats_nothing(
        self, run: SinkRun, case: SinkCase, point: str
    ) -> None:
        """Check that an outage before or within publishing neither loses nor repeats."""
        assert isinstance(case, HasOutages)
        for records, is_last in epochs_of(case):
            run.seal(records, is_last=is_last)
            if run.epoch == 2:
                publish_through_outage(run, case, point)
            else:
                run.publish()

        output_of(case, run).check()

    # --- ends --------------------------------------------------------------------------------

    def test_stopping_twice_is_harmless(self, run: SinkRun) -> None:
        """Check that a second stop is harmless, since the engine stops again after errors."""
        run.stop()

        run.stop()

    def test_stopping_what_never_started_is_harmless(self, case: SinkCase) -> None:
        """Check that stopping a sink that never started is harmless."""
        sink = case.registry().create_sink(case.spec())

        sink.stop()

    # --- whole jobs --------------------------------------------------------------------------

    @pytest.mark.parametrize("point", FAULT_POINTS)
    def test_a_job_killed_at(self, case: SinkCase, point: str) -> None:
        """Check a job from a list to this sink, killed at a point of its second epoch."""
        assert run_job(case, point) == 1

    @pytest.mark.parametrize("point", TRANSACTION_POINTS)
    def test_a_job_killed_inside_publishing_at(self, case: SinkCase, point: str) -> None:
        """Check a job killed within a transaction of this sink, if it has transactions."""
        assert run_job(case, point) <= 1


def run_job(case: SinkCase, point: str) -> int:
    """Run a job in three parts, killed in the second one, and compare its output.

    Returns:
        How often it was killed.
    """
    values = case.records(range(3 * _PART))

    def job(env: StreamEnvironment) -> None:
        env.add_source(script_source()).uid("in").sink_to(case.descriptor()).uid("out")

    with Harness(
        job,
        parallelism=2,
        real_sinks=["out"],
        extensions=[] if case.extension is None else [case.extension],
    ) as harness:
        case.started(harness.setup.sinks["out"])
        for part in range(3):
            harness.push(values[part * _PART : (part + 1) * _PART])
            if part == 1:
                harness.fail_at(point)
            crash_count = harness.crash_count
            harness.run_epoch()
            if harness.crash_count > crash_count:
                case.started(harness.setup.sinks["out"])
        disarm_faults()
        harness.end()
        harness.run()
        case.collected = {name: harness.results(name) for name in harness.sink_names()}
        case.console = harness.console
        sink = harness.setup.sinks["out"]
        unseen_count = sink.dropped_count() if isinstance(sink, DropsRecords) else 0
        # Either writer may take a record, depending on the crash: no order is required.
        output = Output(case, epochs=[[[value] for value in values]], written=values)
        output.check(unseen_count=unseen_count)
        return harness.crash_count


def start(case: SinkCase, folder: Path) -> SinkRun:
    """Start a sink; the first epoch will be 1, as in the engine."""
    services = services_in(folder, case.console, case.collected, clock=case.clock)
    return SinkRun(
        case.spec(), services, registry=case.registry(), epoch=0, on_start=case.started
    ).start()


def _start_and_seal(
    case_type: type[SinkCase], folder: Path, *, is_last: bool
) -> tuple[SinkCase, SinkRun]:
    """Return a new case and its sink, with the last epoch sealed but not published."""
    case = case_type(folder / "world")
    case.folder.mkdir(parents=True)
    run = start(case, folder)
    *before, last = plan_of(case)
    for records in before:
        run.run_epoch(records)
    run.seal(last, is_last=is_last)
    return case, run


def _restart_and_check(case: SinkCase, run: SinkRun) -> None:
    run.restart()
    run.run_epoch([], is_last=True)
    output_of(case, run).check()
    run.stop()
    case.close()


def output_of(case: SinkCase, run: SinkRun) -> Output:
    """Return the output of a run, to be checked."""
    return Output(case, epochs=run.sealed, written=run.written)


def plan_of(case: SinkCase) -> list[list[list[Any]]]:
    """Return the records of all epochs: epoch, subtask, records."""
    numbers = count()
    return [
        [[case.record(next(numbers)) for _ in range(_PER_WRITER)] for _ in range(parallelism)]
        for parallelism in _PARALLELISMS
    ]


def epochs_of(case: SinkCase) -> Iterator[tuple[list[list[Any]], bool]]:
    """Yield the records of each epoch, and whether it is the last one."""
    for number, records in enumerate(plan_of(case), start=1):
        yield records, number == len(_PARALLELISMS)


def publish_or_restart(run: SinkRun) -> None:
    """Publish, with one restart if an old object fences the new one while it dies."""
    try:
        run.publish()
    except Exception:  # noqa: BLE001 - any answer of the other system to a fenced client.
        run.lose()


def publish_through_outage(run: SinkRun, case: SinkCase, point: str) -> None:
    """Publish while the other side is away, with a restart after every error."""
    assert isinstance(case, HasOutages)
    timer = threading.Timer(case.outage_s, case.repair_transport)
    going_away = leaving(case, timer)
    if point == "before":
        going_away()
    else:
        arm_fault(point, act=going_away)
    try:
        for _ in pauses(case.wait_s + case.outage_s):
            try:
                run.publish()
                return
            except Exception:  # noqa: BLE001 - whatever a driver of an absent server raises.
                with suppress(Exception):
                    run.lose()
        raise AssertionError(f"it was not published within {case.wait_s} s after the outage")
    finally:
        disarm_faults()
        if timer.ident is not None:
            timer.join()


def leaving(case: HasOutages, timer: threading.Timer) -> Callable[[], None]:
    """Return a function that starts an outage, which the timer ends."""

    def leave() -> None:
        case.break_transport()
        timer.start()

    return leave
