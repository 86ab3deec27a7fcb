"""Sources that break one rule each; all are the source of the guide but for one thing."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

from bicycle_runtime.connectors.hooks import connector_hook
from bicycle_runtime.contract import BadRecord, Guarantee
from bicycle_runtime.testing.connectors import (
    CarriesMetadata,
    EndlessSourceCase,
    FeedsBadRecords,
    HasOutages,
    Metadata,
)
from bicycle_sdk.connectors import SourceDescriptor
from tests.contract.guide import import_guide

import_guide()

# The package exists only now.
from tide_tables.source import Level, TideReader, TideSource  # noqa: E402 - see above.

STATIONS = ("brest", "dover", "emden")


def without(spec, name):
    properties = {key: value for key, value in spec.properties.items() if key != name}
    return replace(spec, properties=properties)


class Flaky(TideSource):
    """Right: while the gauges are away, it fails."""

    def poll(self):
        if (self._folder / "down").exists():
            raise OSError("the gauges do not answer")
        return super().poll()


class PromisesLess(TideSource):
    guarantee = Guarantee.AT_LEAST_ONCE


class TakesAnyOption(TideSource):
    def __init__(self, spec):
        super().__init__(without(spec, "no_such_option"))


class NamesNoPlace(TideSource):
    def describe(self, shard, offset):
        return ""


@dataclass(frozen=True)
class ChangedReader(TideReader):
    """Reads right, then changes each batch in the way that ``word`` names."""

    word: str = ""

    def read(self, part):
        for batch in super().read(part):
            CHANGES[self.word](batch, part)
            yield batch


def lose_one(batch, part):
    for column in (batch.values, batch.offsets, batch.timestamps):
        del column[-1:]


def hide_bytes(batch, part):
    batch.failures = [
        BadRecord(offset=bad.offset, raw=b"", reason=bad.reason) for bad in batch.failures
    ]


def turn_times(batch, part):
    batch.timestamps.reverse()


def stand_still(batch, part):
    batch.offsets = [part.start] * len(batch.offsets)


def cut_times(batch, part):
    del batch.timestamps[-1:]


READ_COUNTS = {}


def read_differently(batch, part):
    place = (part.shard, part.start)
    READ_COUNTS[place] = READ_COUNTS.get(place, 0) + 1
    batch.values = [Level(level.station, READ_COUNTS[place]) for level in batch.values]


OPEN_FOLDERS = set()


def need_this_process(batch, part):
    assert OPEN_FOLDERS, "nobody has started a source in this process"


CHANGES = {
    "lose_one": lose_one,
    "hide_bytes": hide_bytes,
    "turn_times": turn_times,
    "stand_still": stand_still,
    "cut_times": cut_times,
    "read_differently": read_differently,
    "need_this_process": need_this_process,
}


class Changed(TideSource):
    """Its reader makes the mistake that ``word`` names."""

    word: str

    def start(self, services, offsets, state):
        super().start(services, offsets, state)
        OPEN_FOLDERS.add(self._folder)

    def reader(self):
        return ChangedReader(str(self._folder), self.word)


class LosesRecords(Changed):
    word = "lose_one"


class HidesBytes(Changed):
    word = "hide_bytes"


class MixesTimes(Changed):
    word = "turn_times"


class StandsStill(Changed):
    word = "stand_still"


class CutsColumns(Changed):
    word = "cut_times"


class ReadsDifferently(Changed):
    word = "read_differently"


class NeedsThisProcess(Changed):
    word = "need_this_process"


class TakesAll(TideSource):
    def plan(self, budget):
        return super().plan(replace(budget, record_count=1_000_000))


class StarvesOnSmallBudgets(TideSource):
    def plan(self, budget):
        return [part for part in super().plan(budget) if part.end - part.start <= budget.byte_count]


class LooksOnce(TideSource):
    def poll(self):
        found = getattr(self, "_found", None)
        status = super().poll()
        if found is None:
            if status.has_input:
                self._found = dict(self._sizes)
            return status
        self._sizes = dict(found)
        return replace(status, has_input=any(self._waiting(name) > 0 for name in found))


class Overlaps(TideSource):
    def plan(self, budget):
        return [replace(part, start=max(part.start - 1, 0)) for part in super().plan(budget)]


class BeginsAnywhere(TideSource):
    start_count = 0

    def start(self, services, offsets, state):
        super().start(services, offsets, state)
        type(self).start_count += 1
        if not offsets and type(self).start_count % 2 == 0:
            self._next = {station: self._cut(station, 1, 1)[0] for station in STATIONS}

    def _cut(self, station, records, size):
        self._next.setdefault(station, 0)
        return super()._cut(station, records, size)


class TakesAway(TideSource):
    def plan(self, budget):
        slices = super().plan(budget)
        self._next.update({part.shard: part.end for part in slices})
        return slices


class ForgetsOffsets(TideSource):
    def start(self, services, offsets, state):
        super().start(services, {}, state)


class KeepsItsOwnProgress(TideSource):
    """It takes what was planned for done."""

    def start(self, services, offsets, state):
        own = self._folder / "progress"
        super().start(services, json.loads(own.read_text()) if own.exists() else {}, state)

    def plan(self, budget):
        slices = super().plan(budget)
        ends = {**self._next, **{part.shard: part.end for part in slices}}
        (self._folder / "progress").write_text(json.dumps(ends))
        return slices


class StopsOnce(TideSource):
    is_stopped = False

    def stop(self):
        assert not self.is_stopped
        self.is_stopped = True


class StopsOnlyStarted(TideSource):
    def stop(self):
        self._sizes.clear()


class TakesSilenceForTheEnd(TideSource):
    """When the gauges are away, it goes on as if they had said nothing."""

    def plan(self, budget):
        slices = super().plan(budget)
        if (self._folder / "down").exists():
            return [replace(part, start=part.end) for part in slices]
        return slices


class Case(EndlessSourceCase, FeedsBadRecords, CarriesMetadata, HasOutages):
    is_ordered = False
    wait_s = 0.2  # What never comes is not waited for; the right one has the usual time.
    outage_s = 0.05

    def record(self, number):
        return Level(STATIONS[number % 3], number)

    def metadata(self, number):
        return Metadata(timestamp_ms=1_000 * number)

    def descriptor(self):
        return SourceDescriptor(
            connector_type=self.word, properties={"folder": str(self.folder)}, output_type=Level
        )

    def feed(self, numbers):
        for number in numbers:
            self.append(self.record(number).station, f"{1_000 * number},{number}\n")

    def feed_bad(self):
        self.append("dover", "the gauge is broken\n")
        return b"the gauge is broken"

    def append(self, station, text):
        with (self.folder / f"{station}.csv").open("a") as stream:
            stream.write(text)

    def break_transport(self):
        Path(self.folder, "down").touch()

    def repair_transport(self):
        Path(self.folder, "down").unlink(missing_ok=True)


# Class -> the rule that it breaks; it may break others as well.
BROKEN = {
    PromisesLess: "test_it_declares_the_guarantee_that_is_tested_here",
    TakesAnyOption: "test_an_unknown_option_is_refused",
    NamesNoPlace: "test_a_position_has_a_name_for_people",
    LosesRecords: "test_it_gives_every_record_once",
    TakesAll: "test_records_do_not_depend_on_budget_and_parallelism",
    StarvesOnSmallBudgets: "test_records_do_not_depend_on_the_byte_budget",
    LooksOnce: "test_records_that_come_while_it_runs_are_read_once",
    HidesBytes: "test_input_that_cannot_be_decoded_is_reported_with_its_bytes",
    MixesTimes: "test_keys_headers_and_times_come_with_their_record",
    StandsStill: "test_offsets_rise_and_lie_in_their_slice",
    CutsColumns: "test_every_column_of_a_batch_is_as_long_as_its_values",
    Overlaps: "test_slices_of_one_shard_are_contiguous_and_start_where_the_last_epoch_ended",
    BeginsAnywhere: "test_a_shard_begins_at_the_same_offset_in_every_run",
    TakesAway: "test_planning_again_without_sealing_gives_the_same_slices",
    ReadsDifferently: "test_a_slice_read_again_gives_the_same_batches",
    NeedsThisProcess: "test_a_slice_read_by_another_process_gives_the_same_batches",
    ForgetsOffsets: "test_a_restart_after_every_epoch_loses_and_repeats_nothing",
    KeepsItsOwnProgress: "test_an_epoch_that_was_not_sealed_is_read_again",
    StopsOnce: "test_stopping_twice_is_harmless",
    StopsOnlyStarted: "test_stopping_what_never_started_is_harmless",
    TakesSilenceForTheEnd: "test_an_outage_loses_and_repeats_nothing",
}
# Rules for which another class of the table stands, too.
BROKEN_TOO = {
    "test_a_restart_at_the_end_finds_nothing": ForgetsOffsets,
    "test_a_job_killed_at": KeepsItsOwnProgress,
}


@connector_hook
def bicycle_sources():
    return {cls.__name__: f"{__name__}:{cls.__name__}" for cls in [Flaky, *BROKEN]}


EXTENSION = SimpleNamespace(bicycle_sources=bicycle_sources)


def case_of(cls):
    """Return the case for a source."""
    parts = {"word": cls.__name__, "extension": EXTENSION}
    if cls is Flaky:
        parts["wait_s"] = EndlessSourceCase.wait_s
    return type(f"{cls.__name__}Case", (Case,), parts)
