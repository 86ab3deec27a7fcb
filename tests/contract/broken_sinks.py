"""Sinks that break one rule each; all are the sink of the guide but for one thing."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

from bicycle_runtime.base.faults import TRANSACTION_POINTS, fault_point
from bicycle_runtime.connectors.hooks import connector_hook
from bicycle_runtime.connectors.staging import StagedStream, StagedWriter, read_staged
from bicycle_runtime.contract import Guarantee
from bicycle_runtime.testing.connectors import CanBeUnwritable, HasOutages, RunsInForks, SinkCase
from bicycle_sdk.connectors import SinkDescriptor
from tests.contract.broken_sources import without
from tests.contract.guide import import_guide

import_guide()

# The package exists only now.
from tide_tables.sink import TideLogSink, TideLogWriters, json_lines  # noqa: E402 - see above.


class Flaky(TideLogSink):
    """Right: it passes all points of a transaction, and while the disk is away, it fails."""

    def publish(self, epoch, state):
        for point in TRANSACTION_POINTS[:-1]:
            fault_point(point)
        if (self._folder.parent / "down").exists():
            raise OSError("the disk does not answer")
        super().publish(epoch, state)
        fault_point(TRANSACTION_POINTS[-1])


class PromisesLess(TideLogSink):
    guarantee = Guarantee.AT_LEAST_ONCE


class TakesAnyOption(TideLogSink):
    def __init__(self, spec):
        super().__init__(without(spec, "no_such_option"))


class LooksLate(TideLogSink):
    def start(self, services, state):
        self._storage = services.storage

    def publish(self, epoch, state):
        self._folder.mkdir(exist_ok=True)
        super().publish(epoch, state)


class PublishesTooSoon(TideLogSink):
    def prepare(self, epoch, staged, *, is_last):
        state = super().prepare(epoch, staged, is_last=is_last)
        self.publish(epoch, state)
        return state


class PublishesWhatItFinds(TideLogSink):
    def publish(self, epoch, state):
        lines = [self._storage.read(path) for path in self._storage.list(f"staged/{epoch}")]
        (self._folder / f"epoch-{epoch:010d}.jsonl").write_bytes(b"".join(lines))


class DeterminedWriter(StagedWriter):
    def abort(self):
        self.finish()


class DeterminedWriters(TideLogWriters):
    def open(self, task):
        return DeterminedWriter(task, "levels.jsonl", json_lines)


class LeavesAborted(TideLogSink):
    def writer(self):
        return DeterminedWriters()


@dataclass(frozen=True)
class ReportingWriters(TideLogWriters):
    """Writers whose report is changed."""

    is_eager: bool

    def open(self, task):
        writer = ReportingWriter(task, "levels.jsonl", json_lines)
        writer.is_eager = self.is_eager
        return writer


class ReportingWriter(StagedWriter):
    def finish(self):
        if not self.is_eager:
            return [replace(file, record_count=0) for file in super().finish()]
        if self._stream is None:
            self._stream = StagedStream(self._task, self._path)
        return super().finish()


class StagesNothing(TideLogSink):
    def writer(self):
        return ReportingWriters(is_eager=True)


class Miscounts(TideLogSink):
    def writer(self):
        return ReportingWriters(is_eager=False)


class DecidesAnew(TideLogSink):
    decision_count = 0

    def prepare(self, epoch, staged, *, is_last):
        self.decision_count += 1
        state = super().prepare(epoch, staged, is_last=is_last)
        return {**state, "decision": self.decision_count}


class ForgetsAWriter(TideLogSink):
    def publish(self, epoch, state):
        super().publish(epoch, {"files": state["files"][:1]})


class TurnsOrder(TideLogSink):
    def publish(self, epoch, state):
        super().publish(epoch, state)
        for path in self._folder.glob(f"*{epoch}.jsonl"):
            path.write_bytes(b"".join(reversed(path.read_bytes().splitlines(keepends=True))))


class EndsForGood(TideLogSink):
    is_over = False

    def prepare(self, epoch, staged, *, is_last):
        state = super().prepare(epoch, [] if self.is_over else staged, is_last=is_last)
        self.is_over = is_last
        return state


class Appender(TideLogSink):
    """Appends to one file; the mistakes are in when it does so."""

    def append(self, state):
        with (self._folder / "all.jsonl").open("ab") as stream:
            for file in self.staged_files(state):
                stream.write(read_staged(self._storage, file))


class AppendsAgain(Appender):
    def publish(self, epoch, state):
        self.append(state)


class AppendsAgainAfterARestart(Appender):
    def start(self, services, state):
        super().start(services, state)
        self._done = 0

    def publish(self, epoch, state):
        if epoch > self._done:
            self.append(state)
        self._done = max(epoch, self._done)


class RemembersInTheObject(TideLogSink):
    _files: tuple = ()

    def prepare(self, epoch, staged, *, is_last):
        self._files = super().prepare(epoch, staged, is_last=is_last)
        return {}

    def publish(self, epoch, state):
        if self._files:
            super().publish(epoch, self._files)


class ClaimsNothing(TideLogSink):
    def referenced_paths(self, state):
        return set()


class NeedsRecords(TideLogSink):
    def publish(self, epoch, state):
        assert state["files"]
        super().publish(epoch, state)


class MarksAfterwards(Appender):
    """Appends, then notes the epoch in another file: a crash between the two repeats it."""

    @property
    def marker(self):
        return self._folder / "marker"

    def publish(self, epoch, state):
        if not self.marker.exists() or int(self.marker.read_text()) < epoch:
            self.append(state)
            for point in TRANSACTION_POINTS:
                fault_point(point)
            self.marker.write_text(str(epoch))


class TrustsItsMemory(MarksAfterwards):
    """Reads the marker at the start only, and so never hears of another run."""

    def start(self, services, state):
        super().start(services, state)
        self._done = int(self.marker.read_text()) if self.marker.exists() else 0

    def publish(self, epoch, state):
        if epoch > self._done:
            self.append(state)
            self.marker.write_text(str(epoch))
            self._done = epoch


class TakesOlderForNewer(Appender):
    """Compares the marker for equality."""

    def publish(self, epoch, state):
        marker = self._folder / "marker"
        if not marker.exists() or int(marker.read_text()) != epoch:
            self.append(state)
            marker.write_text(str(epoch))


class GivesUp(Flaky):
    def publish(self, epoch, state):
        try:
            super().publish(epoch, state)
        except OSError:
            self.lost_epoch = epoch


class StopsOnce(TideLogSink):
    is_stopped = False

    def stop(self):
        assert not self.is_stopped
        self.is_stopped = True


class StopsOnlyStarted(TideLogSink):
    def stop(self):
        self._storage.list("")


class Case(SinkCase, CanBeUnwritable, RunsInForks, HasOutages):
    traced_modules = ("tide_tables/sink.py", "contract/broken_sinks.py")
    wait_s = 0.05  # What never comes is not waited for; the right one has the usual time.
    outage_s = 0.05

    def record(self, number):
        return {"number": number}

    def descriptor(self):
        return self.log_in(self.folder / "out")

    def unwritable(self):
        (self.folder / "file").touch()
        return self.log_in(self.folder / "file")

    def log_in(self, folder):
        return SinkDescriptor(connector_type=self.word, properties={"folder": str(folder)})

    def visible(self):
        files = sorted((self.folder / "out").glob("*.jsonl"))
        lines = [line for file in files for line in file.read_text().splitlines()]
        return [[json.loads(line) for line in lines]]

    def break_transport(self):
        Path(self.folder, "down").touch()

    def repair_transport(self):
        Path(self.folder, "down").unlink(missing_ok=True)


class Same(Flaky):
    """A right sink, in a case whose records nobody can tell apart."""


# Class -> the rule that it breaks; it may break others as well.
BROKEN = {
    PromisesLess: "test_it_declares_the_guarantee_that_is_tested_here",
    Same: "test_the_records_of_the_case_are_distinct",
    TakesAnyOption: "test_an_unknown_option_is_refused",
    LooksLate: "test_an_output_that_cannot_be_written_is_an_error_at_the_start",
    PublishesTooSoon: "test_nothing_is_visible_before_it_is_published",
    PublishesWhatItFinds: "test_output_of_attempts_that_were_not_sealed_is_never_visible",
    LeavesAborted: "test_an_aborted_writer_leaves_nothing",
    StagesNothing: "test_a_writer_without_records_stages_nothing",
    Miscounts: "test_staged_files_are_what_they_are_reported_to_be",
    DecidesAnew: "test_preparing_again_before_sealing_gives_the_same_decision",
    ForgetsAWriter: "test_all_records_are_visible_at_the_end",
    TurnsOrder: "test_all_records_are_visible_at_the_end",
    AppendsAgain: "test_publishing_every_epoch_twice_is_harmless",
    RemembersInTheObject: "test_a_restart_after_every_sealed_epoch_is_harmless",
    AppendsAgainAfterARestart: "test_a_restart_after_every_published_epoch_is_harmless",
    ClaimsNothing: "test_staged_files_that_publishing_needs_are_claimed",
    NeedsRecords: "test_an_epoch_without_records_changes_nothing",
    EndsForGood: "test_epochs_may_follow_one_that_completed_what_was_open",
    MarksAfterwards: "test_a_crash_inside_publishing_loses_and_repeats_nothing",
    TrustsItsMemory: "test_an_old_object_that_wakes_up_changes_nothing",
    TakesOlderForNewer: "test_an_old_object_that_wakes_up_an_epoch_later_changes_nothing",
    GivesUp: "test_an_outage_loses_and_repeats_nothing",
    StopsOnce: "test_stopping_twice_is_harmless",
    StopsOnlyStarted: "test_stopping_what_never_started_is_harmless",
}
# Rules for which another class of the table stands, too.
BROKEN_TOO = {
    "test_a_kill_at_any_line_of_publishing_loses_and_repeats_nothing": MarksAfterwards,
    "test_a_job_killed_at": RemembersInTheObject,
    "test_a_job_killed_inside_publishing_at": MarksAfterwards,
}


@connector_hook
def bicycle_sinks():
    return {cls.__name__: f"{__name__}:{cls.__name__}" for cls in [Flaky, *BROKEN]}


EXTENSION = SimpleNamespace(bicycle_sinks=bicycle_sinks)


def case_of(cls):
    """Return the case for a sink."""
    parts = {"word": cls.__name__, "extension": EXTENSION}
    if cls is Flaky:
        parts["wait_s"] = SinkCase.wait_s
    if cls is Same:
        parts["record"] = lambda self, number: {"number": 1}
    return type(f"{cls.__name__}Case", (Case,), parts)
