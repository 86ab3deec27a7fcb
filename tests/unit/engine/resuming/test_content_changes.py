"""Snapshots that a function makes itself, and panes of triggered windows, under changed code."""

from dataclasses import dataclass
from typing import Annotated

import pytest

from bicycle_runtime.engine.resuming.state_metadata import compared_states
from bicycle_runtime.layouts.manifest import OperatorState, PlanRecord
from bicycle_runtime.layouts.state import RangeState, StateRef
from bicycle_runtime.operators.tasks.declared_states import DeclaredOperator
from bicycle_runtime.recovery.manifest import Manifest
from bicycle_runtime.state.errors import SCHEMA_REFUSED
from bicycle_runtime.state.memory.attributes import declared_attributes
from bicycle_runtime.testing import script_source
from bicycle_sdk import AggregateFunction, Aliases, RichAsyncFunction
from bicycle_sdk.windows import Trigger, TriggerResult
from tests.raising import raises
from tests.unit.engine.resuming.changed_code import Run, keyed_job, sealed_by

BACKENDS = ["memory", "rocksdb"]


@dataclass
class Seen:
    numbers: list[int]


@dataclass
class SeenLater:
    numbers: list[float]
    note: str = "none"


class Snapshots(RichAsyncFunction[tuple[str, int], tuple]):
    """Keeps what it has seen of a key group, and says so of no type."""

    def __init__(self):
        self.seen = self.fresh()

    @staticmethod
    def fresh():
        return Seen([])

    async def process(self, pair, ctx):
        self.seen.numbers.append(pair[1])
        return [(list(self.seen.numbers), getattr(self.seen, "note", None))]

    def snapshot_state(self):
        return self.seen

    def restore_state(self, state):
        self.seen = state


class Typed(Snapshots):
    def snapshot_state(self) -> Seen:
        return self.seen


class Later(Snapshots):
    @staticmethod
    def fresh():
        return SeenLater([])

    def snapshot_state(self) -> SeenLater:
        return self.seen


class Counted(Snapshots):
    """Its snapshot is a number, which a hook makes of former ones."""

    state_version = 2

    @staticmethod
    def fresh():
        return 0

    async def process(self, pair, ctx):
        self.seen += 1
        return [self.seen]

    def snapshot_state(self) -> int:
        return self.seen

    def migrate_state(self, attribute, old_version, value):
        assert (attribute, old_version) == ("snapshot_state", 1)
        return len(value["numbers"])


class Unmigrated(Counted):
    state_version = 1


def of(function):
    return keyed_job(function, kind="process")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_snapshot_of_a_declared_type_is_read_with_the_fields_of_now(backend):
    sealed = sealed_by(of(Typed()), [("a", 1)], [("a", 2)], backend=backend)
    later = sealed_by(of(Later()), [("a", 3)], former=sealed, backend=backend)

    with Run(of(Later()), later, backend=backend) as run:
        assert run.put(("a", 4))[-1] == ([1, 2, 3, 4], "none")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_hook_migrates_snapshots(backend):
    sealed = sealed_by(of(Typed()), [("a", 1)], [("a", 2)], backend=backend)

    with Run(of(Counted()), sealed, backend=backend) as run:
        assert run.put(("a", 3))[-1] == 3


def test_a_snapshot_of_another_type_is_refused():
    sealed = sealed_by(of(Typed()), [("a", 1)])

    with raises(SCHEMA_REFUSED) as caught:
        Run(of(Unmigrated()), sealed)
    [refused] = caught.value.facts["refused"]
    assert (refused["state"], refused["stored"], refused["declared"]) == (
        "snapshot_state",
        "Seen(numbers: list[int])",
        "int",
    )


def test_a_snapshot_that_gets_a_type_goes_on():
    sealed = sealed_by(of(Snapshots()), [("a", 1)])

    with Run(of(Typed()), sealed) as run:
        assert run.put(("a", 2))[-1] == ([1, 2], None)


@pytest.mark.parametrize(
    ("function", "verdict"),
    [(Snapshots(), "kept"), (Typed(), "migrated")],
    ids=["as it was", "typed"],
)
def test_a_snapshot_of_which_an_older_manifest_says_nothing_was_pickled(function, verdict):
    file = StateRef(
        path="a", is_base=False, tier=0, first_epoch=1, last_epoch=1, byte_count=1, crc32=0
    )
    part = RangeState(first_group=0, end_group=4, files=(file,))
    manifest = Manifest(
        epoch=1,
        plan=PlanRecord(bundle_digest="", parallelism={}, now_ms=0),
        states={"state": OperatorState(scope="key_groups", group_count=4, ranges=(part,))},
    )
    declared = {"state": DeclaredOperator(states=declared_attributes(function))}

    state_metadata, [change] = compared_states(manifest, declared, dict)
    assert (change.state, change.verdict) == ("snapshot_state", verdict)
    assert state_metadata["state"].states[0].stored_name == "$snapshot"
    assert (
        compared_states(Manifest(epoch=0, plan=manifest.plan), declared, dict)[1][0].verdict
        == "new"
    )


@dataclass
class Sum:
    total: int = 0


@dataclass
class SumLater:
    amount: Annotated[float, Aliases("total")] = 0.0
    count: int = 0


class Adding(AggregateFunction):
    def create_accumulator(self) -> Sum:
        return Sum()

    def add(self, accumulator, value):
        return Sum(accumulator.total + value[1])

    def get_result(self, accumulator):
        return accumulator.total

    def merge(self, a, b):
        return Sum(a.total + b.total)


class AddingLater(Adding):
    def create_accumulator(self) -> SumLater:
        return SumLater()

    def add(self, accumulator, value):
        return SumLater(accumulator.amount + value[1], accumulator.count + 1)

    def get_result(self, accumulator):
        return accumulator.amount, accumulator.count


class Text(Adding):
    def create_accumulator(self) -> str:
        return ""


class Halves(Trigger):
    """Fires at each second record, and keeps something odd about it."""

    def on_element(self, element, timestamp_ms, window, ctx):
        seen = ctx.get_state("seen", ())
        ctx.save_state("seen", (*seen, element))
        ctx.save_state("count", len(seen) + 1)
        return TriggerResult.FIRE if len(seen) % 2 else TriggerResult.CONTINUE


def windowed(aggregate):
    def build(env):
        pairs = env.add_source(script_source(tuple[str, int])).uid("pairs")
        window = pairs.key_by(lambda pair: pair[0]).global_window().trigger(Halves())
        window.aggregate(aggregate).uid("state").collect("out")

    return build


@pytest.mark.parametrize("backend", BACKENDS)
def test_accumulators_in_panes_are_read_with_the_fields_of_now(backend):
    sealed = sealed_by(windowed(Adding()), [("a", 1)], [("a", 2)], backend=backend)
    later = sealed_by(windowed(AddingLater()), [("a", 4)], former=sealed, backend=backend)

    with Run(windowed(AddingLater()), later, backend=backend) as run:
        assert run.put(("a", 8))[-1][-1] == (15.0, 2)


def test_accumulators_in_panes_of_another_type_are_refused():
    sealed = sealed_by(windowed(Adding()), [("a", 1)])

    with raises(SCHEMA_REFUSED) as caught:
        Run(windowed(Text()), sealed)
    [refused] = caught.value.facts["refused"]
    assert refused["state"] == "$windows"
    assert refused["problems"] == [
        "field 'content' was tuple[Sum(total: int = 0)] | None and is tuple[str] | None"
    ]
