"""What every connector must hold, as classes to inherit from: the same tests for all connectors.

A subclass gives a *case*; the suite plays the engine: poll, plan, read, seal, restart, publish. It
knows nothing of any connector, so an extension's connector is checked by the same classes.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from bicycle_runtime.base.clock import ManualClock
from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.connectors.contract import (
    Budget,
    ConnectorSpec,
    DriverServices,
    Guarantee,
    Sink,
    Source,
)
from bicycle_runtime.connectors.registry import create_sink, create_source
from bicycle_runtime.operators.io import Slice, SourceBatch, StagedFile, WriterTask

PLENTY = Budget(record_count=1_000_000, byte_count=1 << 30, parallelism=2)
WAIT_S = 20.0


def services_in(folder: Path, printed: list[str] | None = None) -> DriverServices:
    """Return services over a folder, with a clock that is moved by hand."""
    return DriverServices(
        storage=LocalStorage(str(folder / "checkpoints"), is_synced=False),
        prefix="connectors/v",
        clock=ManualClock(start_ms=1_000_000),
        collected={},
        console=(printed if printed is not None else []).append,
    )


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until another thread has made a condition true."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.002)


@dataclass
class Epoch:
    """What one epoch read."""

    slices: list[Slice]
    batches: list[list[SourceBatch]]

    @property
    def values(self) -> list[Any]:
        """All records, slice by slice."""
        return [value for part in self.batches for batch in part for value in batch.values]

    @property
    def ends(self) -> dict[str, int]:
        """Per shard, the furthest offset reached."""
        ends: dict[str, int] = {}
        for part, batches in zip(self.slices, self.batches, strict=True):
            ends[part.shard] = max(ends.get(part.shard, 0), batches[-1].next_offset)
        return ends


@dataclass
class SourceRun:
    """The engine's side of one source: what is sealed, and the live object."""

    spec: ConnectorSpec
    services: DriverServices
    offsets: dict[str, int] = field(default_factory=dict)
    memo: dict[str, Any] = field(default_factory=dict)

    def start(self) -> SourceRun:
        """Start a source from what is sealed."""
        self.source: Source = create_source(self.spec)
        self.source.start(self.services, dict(self.offsets), self.memo)
        self.reader = pickle.loads(cloudpickle.dumps(self.source.reader()))
        return self

    def restart(self) -> SourceRun:
        """Forget the live object, as a crash does, and start again."""
        self.stop()
        return self.start()

    def stop(self) -> None:
        """Close what is open."""
        self.reader.close()
        self.source.stop()

    def read(self, budget: Budget) -> Epoch:
        """Plan and read one epoch without sealing it."""
        slices = self.source.plan(budget)
        return Epoch(slices, [list(self.reader.read(part)) for part in slices])

    def seal(self, epoch: Epoch) -> None:
        """Seal it; the memo goes through JSON, as in a manifest."""
        self.memo = json.loads(json.dumps(self.source.memo(epoch.slices, epoch.ends)))
        self.offsets.update(epoch.ends)
        self.source.sealed(epoch.ends)

    def drain(self, budget: Budget = PLENTY, *, restarts: bool = False) -> list[Epoch]:
        """Read and seal epochs until there is no input."""
        epochs = []
        while self.source.poll().has_input:
            epoch = self.read(budget)
            self.seal(epoch)
            epochs.append(epoch)
            assert len(epochs) < 10_000, "the source does not move on"
            if restarts:
                self.restart()
        return epochs


def values_of(epochs: list[Epoch]) -> list[Any]:
    """All records of some epochs."""
    return [value for epoch in epochs for value in epoch.values]


class SourceSuite(ABC):
    """Replay, bounded slices, resume: inherit and implement ``run``."""

    expected: list[Any]
    is_bounded = True
    is_ordered = True  # False when several shards may be read in any order.

    @abstractmethod
    def make_run(self, folder: Path) -> SourceRun:
        """Return a run, not started, of a source that gives ``expected`` (more than 20 records)."""

    def after_start(self, run: SourceRun) -> None:  # noqa: B027 - most need nothing.
        """Wait here until all input has arrived, for sources that are sent something."""

    @pytest.fixture
    def run(self, tmp_path):
        run = self.make_run(tmp_path).start()
        self.after_start(run)
        yield run
        run.stop()

    def check(self, values: list[Any]) -> None:
        """Compare what was read with what is expected."""
        if self.is_ordered:
            assert values == self.expected
        else:
            assert sorted(values, key=repr) == sorted(self.expected, key=repr)

    def test_it_gives_every_record_once(self, run):
        self.check(values_of(run.drain()))
        assert run.source.poll().is_finished is self.is_bounded

    @pytest.mark.parametrize("record_count", [1, 3, 7])
    @pytest.mark.parametrize("parallelism", [1, 3])
    def test_records_do_not_depend_on_budget_and_parallelism(self, run, record_count, parallelism):
        budget = Budget(record_count=record_count, byte_count=1 << 20, parallelism=parallelism)

        epochs = run.drain(budget)

        self.check(values_of(epochs))
        assert all(len(epoch.values) <= record_count for epoch in epochs)

    @pytest.mark.parametrize("byte_count", [1, 40, 1_000])
    def test_records_do_not_depend_on_the_byte_budget(self, run, byte_count):
        budget = Budget(record_count=10_000, byte_count=byte_count, parallelism=2)

        self.check(values_of(run.drain(budget)))

    def test_a_slice_read_again_gives_the_same_batches(self, run):
        budget = replace(PLENTY, record_count=15)
        run.source.poll()
        epoch = run.read(budget)
        run.seal(epoch)
        run.drain(budget)

        again = [list(run.reader.read(part)) for part in epoch.slices]

        assert [shape(part) for part in again] == [shape(part) for part in epoch.batches]

    def test_offsets_rise_and_lie_in_their_slice(self, run):
        for epoch in run.drain(replace(PLENTY, record_count=11)):
            for part, batches in zip(epoch.slices, epoch.batches, strict=True):
                offsets = [offset for batch in batches for offset in batch.offsets]
                assert offsets == sorted(set(offsets))
                assert all(part.start <= offset < part.end for offset in offsets)
                assert all(len(batch.values) == len(batch.offsets) for batch in batches)

    def test_slices_of_one_shard_are_contiguous_and_start_where_the_last_epoch_ended(self, run):
        ends: dict[str, int] = {}
        for epoch in run.drain(replace(PLENTY, record_count=9, parallelism=3)):
            positions = dict(ends)
            for part in epoch.slices:
                assert part.start == positions.get(part.shard, 0)
                positions[part.shard] = part.end
            ends.update(epoch.ends)

    def test_a_restart_after_every_epoch_loses_and_repeats_nothing(self, tmp_path):
        run = self.make_run(tmp_path).start()
        self.after_start(run)

        epochs = run.drain(replace(PLENTY, record_count=8), restarts=True)

        run.stop()
        self.check(values_of(epochs))

    def test_an_epoch_that_was_not_sealed_is_read_again(self, run):
        budget = replace(PLENTY, record_count=10)
        run.source.poll()
        sealed = run.read(budget)
        run.seal(sealed)
        run.source.poll()
        assert run.read(budget).values
        run.restart()

        self.check(sealed.values + values_of(run.drain(budget)))

    def test_planning_again_without_sealing_gives_the_same_slices(self, run):
        run.source.poll()
        first = run.source.plan(PLENTY)
        run.source.poll()

        assert run.source.plan(PLENTY) == first

    def test_a_position_has_a_name_for_people(self, run):
        run.source.poll()
        epoch = run.read(PLENTY)
        offsets = [offset for batch in epoch.batches[0] for offset in batch.offsets]

        assert run.source.describe(epoch.slices[0].shard, offsets[-1])


def shape(batches: list[SourceBatch]) -> list[tuple[Any, ...]]:
    """What must be equal at each attempt."""
    return [(b.values, list(b.offsets), b.next_offset, list(b.failures)) for b in batches]


@dataclass
class SinkRun:
    """The engine's side of one sink: the sealed memo, and the live object."""

    spec: ConnectorSpec
    services: DriverServices
    memo: dict[str, Any] = field(default_factory=dict)
    epoch: int = -1
    attempt: int = 0

    def start(self) -> SinkRun:
        """Start a sink from what is sealed and publish that again, as the engine does."""
        self.sink: Sink = create_sink(self.spec)
        self.sink.start(self.services, self.memo)
        if self.epoch >= 0:
            self.sink.publish(self.epoch, self.memo)
        return self

    def restart(self) -> SinkRun:
        """Forget the live object, as a crash does, and start again."""
        self.sink.stop()
        return self.start()

    def stage(self, epoch: int, records: list[list[Any]]) -> list[StagedFile]:
        """Write one list of records per subtask."""
        self.attempt += 1
        factory = pickle.loads(cloudpickle.dumps(self.sink.writer()))
        staged = []
        for subtask, values in enumerate(records):
            prefix = f"staged/{epoch}/{subtask}-{self.attempt}"
            writer = factory.open(
                WriterTask(
                    storage=self.services.storage, prefix=prefix, epoch=epoch, subtask=subtask
                )
            )
            writer.write(values[: len(values) // 2])
            writer.write(values[len(values) // 2 :])
            staged += writer.finish()
        return staged

    def seal(self, records: list[list[Any]], *, is_last: bool = False) -> None:
        """Stage and seal the next epoch; the memo goes through JSON, as in a manifest."""
        staged = self.stage(self.epoch + 1, records)
        memo = self.sink.prepare(self.epoch + 1, staged, is_last=is_last)
        self.memo = json.loads(json.dumps(memo))
        self.epoch += 1

    def publish(self) -> None:
        """Publish the sealed epoch."""
        self.sink.publish(self.epoch, self.memo)

    def run_epoch(self, records: list[list[Any]], *, is_last: bool = False) -> None:
        """Seal and publish."""
        self.seal(records, is_last=is_last)
        self.publish()


class SinkSuite(ABC):
    """Nothing before publishing, publishing twice, restarts: inherit and implement two methods."""

    epochs: list[list[list[Any]]]  # epoch -> subtask -> records
    guarantee: Guarantee

    @abstractmethod
    def make_run(self, folder: Path) -> SinkRun:
        """Return a run, not started."""

    @abstractmethod
    def visible(self, folder: Path, run: SinkRun) -> list[Any]:
        """Return every record that somebody outside can see now."""

    def before_publishing(self, run: SinkRun) -> None:  # noqa: B027 - most need nothing.
        """Connect whoever will look at the output, for sinks that keep nothing."""

    @pytest.fixture
    def run(self, tmp_path):
        run = self.make_run(tmp_path).start()
        self.before_publishing(run)
        yield run
        run.sink.stop()

    def expected(self, epoch_count: int | None = None) -> list[Any]:
        """All records of the first epochs."""
        chosen = self.epochs[:epoch_count]
        return [value for epoch in chosen for subtask in epoch for value in subtask]

    def check(self, folder: Path, run: SinkRun, epoch_count: int | None = None) -> None:
        """Compare what is visible with what was sealed, as strictly as the guarantee says."""
        found, expected = self.visible(folder, run), self.expected(epoch_count)
        if self.guarantee is Guarantee.EXACTLY_ONCE:
            assert sorted(found, key=repr) == sorted(expected, key=repr)
        else:
            assert {repr(value) for value in found} == {repr(value) for value in expected}

    def test_it_declares_the_guarantee_that_is_tested_here(self, run):
        assert run.sink.guarantee is self.guarantee

    def test_nothing_is_visible_before_it_is_published(self, run, tmp_path):
        run.seal(self.epochs[0], is_last=True)

        assert self.visible(tmp_path, run) == []

    def test_all_records_are_visible_at_the_end(self, run, tmp_path):
        for number, records in enumerate(self.epochs):
            run.run_epoch(records, is_last=number == len(self.epochs) - 1)

        self.check(tmp_path, run)

    def test_publishing_every_epoch_twice_is_harmless(self, run, tmp_path):
        for number, records in enumerate(self.epochs):
            run.run_epoch(records, is_last=number == len(self.epochs) - 1)
            run.publish()

        self.check(tmp_path, run)

    def test_a_restart_after_every_sealed_epoch_is_harmless(self, run, tmp_path):
        for number, records in enumerate(self.epochs):
            run.seal(records, is_last=number == len(self.epochs) - 1)
            run.restart()
            self.before_publishing(run)
            run.publish()

        self.check(tmp_path, run)

    def test_a_restart_after_publishing_and_collecting_staged_files_is_harmless(
        self, run, tmp_path
    ):
        for number, records in enumerate(self.epochs):
            run.run_epoch(records, is_last=number == len(self.epochs) - 1)
            if self.guarantee is Guarantee.EXACTLY_ONCE:
                needed = run.sink.referenced_paths(run.memo)
                for path in set(run.services.storage.list("staged")) - needed:
                    run.services.storage.delete(path)
                run.restart()

        self.check(tmp_path, run)

    def test_output_of_attempts_that_were_not_sealed_is_never_visible(self, run, tmp_path):
        run.stage(0, [[*self.epochs[0][0]]])
        run.run_epoch(self.epochs[0], is_last=True)

        self.check(tmp_path, run, epoch_count=1)

    def test_an_aborted_writer_leaves_nothing(self, run):
        task = WriterTask(storage=run.services.storage, prefix="staged/0/x", epoch=0, subtask=0)
        writer = run.sink.writer().open(task)
        writer.write(self.epochs[0][0])

        writer.abort()

        assert run.services.storage.list("staged") == []

    def test_a_writer_without_records_stages_nothing(self, run):
        assert run.stage(0, [[], []]) == []

    def test_preparing_again_before_sealing_gives_the_same_decision(self, run):
        staged = run.stage(0, self.epochs[0])

        first = run.sink.prepare(0, staged, is_last=False)

        assert run.sink.prepare(0, staged, is_last=False) == first


class DurableSinkSuite(SinkSuite):
    """A sink whose output outlives the process: it is killed before every line that it executes."""

    traced_modules = ("connectors/files/parts.py", "base/storage.py")

    @pytest.mark.parametrize("is_last", [False, True])
    def test_a_kill_at_any_line_of_publishing_loses_and_repeats_nothing(self, tmp_path, is_last):
        step = 0
        while True:
            step += 1
            folder = tmp_path / str(step)
            run = self.make_run(folder).start()
            for records in self.epochs[:-1]:
                run.run_epoch(records)
            run.seal(self.epochs[-1], is_last=is_last)
            was_killed = killed_at(step, run.publish, self.traced_modules)
            run.restart()
            run.run_epoch([], is_last=True)
            self.check(folder, run)
            if not was_killed:
                break
        assert step > 10


def killed_at(step: int, act: Callable[[], None], modules: tuple[str, ...]) -> bool:
    """Do ``act`` in a forked process that dies before its ``step``-th line in ``modules``.

    Returns:
        Whether it was ended; False when it finished before.
    """
    child = os.fork()
    if child == 0:
        left = step

        def trace(frame: Any, event: str, _: Any) -> Any:
            nonlocal left
            if not frame.f_code.co_filename.endswith(modules):
                return None
            if event == "line":
                left -= 1
                if left == 0:
                    os._exit(9)
            return trace

        sys.settrace(trace)
        try:
            act()
        except BaseException:  # noqa: BLE001 - the parent only sees the exit code.
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, 9), f"the process failed with {code}"
    return code == 9
