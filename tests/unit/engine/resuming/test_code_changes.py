"""A job that goes on with other code: what becomes of the state that the former code sealed."""

from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import pytest

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.recovery.errors import STATE_LOST
from bicycle_runtime.state.errors import SCHEMA_REFUSED, MigrationError
from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import (
    Aliases,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    RichAsyncFunction,
    ValueStateDescriptor,
)
from bicycle_sdk.aggregations import FirstOfTotal, Total
from tests.raising import raises
from tests.unit.engine.resuming.changed_code import Folding, Run, keyed_job, sealed_by

BACKENDS = ["memory", "rocksdb"]


@dataclass
class Reading:
    count: int
    total: int


@dataclass
class WiderReading:
    """The same under another name, with a float, a field more, and one that got a new name."""

    count: int
    amount: Annotated[float, Aliases("total")]
    unit: str = "ms"
    tags: list[str] = field(default_factory=list)


class Keeping(Folding):
    state = ValueStateDescriptor("reading", Reading)

    def fold(self, value, number):
        value = value or Reading(0, 0)
        return Reading(value.count + 1, value.total + number)


class KeepingWider(Folding):
    state = ValueStateDescriptor("reading", WiderReading)

    def fold(self, value, number):
        value = value or WiderReading(0, 0.0)
        return WiderReading(value.count + 1, value.amount + number + 0.5, value.unit, ["seen"])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_record_of_another_class_with_other_fields_goes_on_with_its_values(backend):
    sealed = sealed_by(keyed_job(Keeping()), [("a", 1), ("b", 5)], [("a", 2)], backend=backend)

    with Run(keyed_job(KeepingWider()), sealed, backend=backend) as run:
        published = run.put(("a", 10), ("c", 1))

        assert published[-2:] == [
            ("a", WiderReading(3, 13.5, "ms", ["seen"])),
            ("c", WiderReading(1, 1.5, "ms", ["seen"])),
        ]
        assert run.harness.value("state", key="b", name="reading") == WiderReading(1, 5.0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_former_code_reads_what_the_later_one_wrote_and_both_lie_in_one_range(backend):
    sealed = sealed_by(keyed_job(Keeping()), [("a", 1), ("b", 5)], backend=backend)
    later = sealed_by(keyed_job(LaterKeeping()), [("a", 2)], former=sealed, backend=backend)

    with Run(keyed_job(Keeping()), later, backend=backend) as run:
        run.put(("a", 4), ("b", 1))
        again = run.sealed

        assert run.harness.value("state", key="a", name="reading") == Reading(3, 7)
        assert run.harness.value("state", key="b", name="reading") == Reading(2, 6)
    with Run(keyed_job(LaterKeeping()), again, backend=backend) as run:
        assert run.put(("a", 1), ("b", 1))[-2:] == [
            ("a", LaterReading(4, 8, "later")),
            ("b", LaterReading(3, 7, "later")),
        ]


@dataclass
class LaterReading:
    count: int
    total: int
    note: str = ""


class LaterKeeping(Folding):
    state = ValueStateDescriptor("reading", LaterReading)

    def fold(self, value, number):
        value = value or LaterReading(0, 0)
        return LaterReading(value.count + 1, value.total + number, "later")


def to_reading(old_version, value):
    assert old_version == 1
    return {"cents": int(value["total"] * 100), "count": value["count"]}


@dataclass
class Cents:
    cents: int
    count: int


class KeepingCents(Folding):
    state = ValueStateDescriptor("reading", Cents, version=2, migrate=to_reading)

    def fold(self, value, number):
        value = value or Cents(0, 0)
        return Cents(value.cents + number * 100, value.count + 1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_hook_migrates_values_when_they_are_read_and_the_way_back_is_the_savepoint(backend):
    sealed = sealed_by(keyed_job(Keeping()), [("a", 1), ("b", 5)], backend=backend)
    migrated = sealed_by(keyed_job(KeepingCents()), [("a", 2)], former=sealed, backend=backend)

    with Run(keyed_job(KeepingCents()), migrated, backend=backend) as run:
        # "b" was never touched: it is migrated again from what the first code wrote.
        assert run.put(("a", 1), ("b", 1))[-2:] == [("a", Cents(400, 3)), ("b", Cents(600, 2))]
    with Run(keyed_job(Keeping()), sealed, backend=backend) as run:
        assert run.put(("a", 10))[-1] == ("a", Reading(2, 11))
    with raises(SCHEMA_REFUSED) as refused:
        Run(keyed_job(Keeping()), migrated, backend=backend)
    assert "version 2 wrote it" in refused.value.facts["refused"][0]["problems"][0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_hook_that_fails_names_operator_state_line_and_no_key(backend):
    class Broken(KeepingCents):
        state = ValueStateDescriptor("reading", Cents, version=2, migrate=broken_hook)

    sealed = sealed_by(keyed_job(Keeping()), [("secret-key", 1)], backend=backend)
    with pytest.raises(MigrationError) as failed:
        sealed_by(keyed_job(Broken()), [("secret-key", 2)], former=sealed, backend=backend)

    facts = failed.value.facts
    assert (facts["operator"], facts["state"], facts["version"]) == ("state", "reading", 1)
    assert "test_code_changes.py:" in facts["location"]
    assert "secret-key" not in str(failed.value)
    assert "type str" in facts["key"]


def broken_hook(old_version, value):
    raise ValueError("no way")


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_hook_returns_must_be_of_the_declared_type(backend):
    class Wrong(KeepingCents):
        state = ValueStateDescriptor("reading", Cents, version=2, migrate=wrong_hook)

    sealed = sealed_by(keyed_job(Keeping()), [("a", 1)], backend=backend)
    with pytest.raises(MigrationError) as failed:
        sealed_by(keyed_job(Wrong()), [("a", 2)], former=sealed, backend=backend)

    assert failed.value.facts["exception"] == "RecordDecodingError"


def wrong_hook(old_version, value):
    return {"cents": "many"}


@dataclass
class TextReading:
    count: str
    total: int


class KeepingText(Folding):
    state = ValueStateDescriptor("reading", TextReading)

    def fold(self, value, number):
        return TextReading("", number)


def test_a_change_that_cannot_be_read_is_refused_before_anything_is_written():
    sealed = sealed_by(keyed_job(Keeping()), [("a", 1)])

    with raises(SCHEMA_REFUSED) as refused:
        Run(keyed_job(KeepingText()), sealed)

    assert refused.value.facts["refused"] == [
        {
            "operator": "state",
            "state": "reading",
            "problems": ["field 'count' was int and is str"],
            "stored": "Reading(count: int, total: int)",
            "declared": "TextReading(count: str, total: int)",
        }
    ]


class Renamed(Folding):
    state = ValueStateDescriptor("measure", Reading, aliases=("reading",))
    fold = Keeping.fold


class RenamedWithAnother(Renamed):
    """What had the name before is another state now."""

    other = ValueStateDescriptor("reading", int, default=100)

    def process_element(self, pair, ctx):
        other = ctx.get_value_state(self.other)
        other.update(other.value() + 1)
        return [*super().process_element(pair, ctx), other.value()]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_state_with_an_alias_goes_on_under_its_new_name(backend):
    sealed = sealed_by(keyed_job(Keeping()), [("a", 1)], backend=backend)
    renamed = sealed_by(keyed_job(Renamed()), [("a", 2)], former=sealed, backend=backend)

    with Run(keyed_job(Renamed()), renamed, backend=backend) as run:
        assert run.put(("a", 3))[-1] == ("a", Reading(3, 6))
        renamed = run.sealed
    with Run(keyed_job(Keeping()), renamed, backend=backend) as run:
        assert run.put(("a", 4))[-1] == ("a", Reading(4, 10))  # the way back
    with Run(keyed_job(RenamedWithAnother()), renamed, backend=backend) as run:
        assert run.put(("a", 4))[-2:] == [("a", Reading(4, 10)), 101]


class Forgetful(KeyedProcessFunction):
    seen = ListStateDescriptor("seen", int)

    def process_element(self, pair, ctx):
        ctx.get_list_state(self.seen).add(pair[1])
        return [ctx.get_list_state(self.seen).get()]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_state_that_is_gone_must_be_given_up_and_never_comes_back(backend):
    sealed = sealed_by(keyed_job(Keeping()), [("a", 1)], backend=backend)
    with raises(STATE_LOST) as lost:
        Run(keyed_job(Forgetful()), sealed, backend=backend)
    assert "'reading' of operator 'state'" in lost.value.facts["lost"]

    dropped = sealed_by(
        keyed_job(Forgetful()), [("a", 2)],
        former=sealed, backend=backend, allows_dropped_state=True,
    )  # fmt: skip
    with Run(keyed_job(Keeping()), dropped, backend=backend, allows_dropped_state=True) as run:
        assert run.put(("a", 3))[-1] == ("a", Reading(1, 3))


@pytest.mark.parametrize("backend", BACKENDS)
def test_state_of_an_operator_that_keeps_none_now_must_be_given_up(backend):
    def identity(pair: tuple[str, int]) -> tuple[str, int]:
        return pair

    job = keyed_job(identity, kind="map")
    sealed = sealed_by(keyed_job(Keeping()), [("a", 1)], backend=backend)
    with raises(STATE_LOST) as lost:
        Run(job, sealed, backend=backend)
    assert lost.value.facts["lost"] == "'state'"

    with Run(job, sealed, backend=backend, allows_dropped_state=True) as run:
        assert run.put(("a", 2))[-1] == ("a", 2)
        dropped = run.sealed
    with Run(keyed_job(Keeping()), dropped, backend=backend) as run:
        assert run.put(("a", 3))[-1] == ("a", Reading(1, 3))


def test_offsets_of_a_source_whose_uid_another_operator_has_must_be_given_up():
    def build(env):
        pairs = env.add_source(script_source(tuple[str, int])).uid("input")
        pairs.filter(lambda _: True).uid("pairs").key_by(lambda pair: pair[0]).process_fn(
            Keeping()
        ).uid("state").collect("out")

    with raises(STATE_LOST) as lost:
        Run(build, sealed_by(keyed_job(Keeping()), [("a", 1)]))
    assert lost.value.facts["lost"] == "'pairs'"


class Totals(RichAsyncFunction):
    def __init__(self):
        self.totals: dict[str, int] = {}
        self.last: int = 0

    async def process(self, pair, ctx):
        self.totals[pair[0]] = self.totals.get(pair[0], 0) + pair[1]
        self.last += 1
        return [(pair[0], self.totals[pair[0]])]


@dataclass
class OtherTotals(RichAsyncFunction):
    """An annotated attribute got another name and a wider type."""

    sums: Annotated[dict[str, float], Aliases("totals")] = field(default_factory=dict)
    last: int = 0

    async def process(self, pair, ctx):
        self.sums[pair[0]] = self.sums.get(pair[0], 0.0) + pair[1] + 0.5
        self.last += 1
        return [(pair[0], self.sums[pair[0]])]


class AnnotatedTotals(Totals):
    totals: dict[str, int]
    last: int


class TotalsAsTexts(AnnotatedTotals):
    state_version = 2
    totals: dict[str, str]

    async def process(self, pair, ctx):
        self.totals[pair[0]] = self.totals.get(pair[0], "") + f"+{pair[1]}"
        return [(pair[0], self.totals[pair[0]])]

    def migrate_state(self, attribute, old_version, value):
        return f"v{old_version}:{value}" if attribute == "totals" else value


@pytest.mark.parametrize("backend", BACKENDS)
def test_attributes_of_a_rich_function_are_renamed_and_widened(backend):
    sealed = sealed_by(
        keyed_job(AnnotatedTotals(), kind="process"), [("a", 1), ("b", 2)], backend=backend
    )
    job = keyed_job(OtherTotals(), kind="process")
    later = sealed_by(job, [("a", 1)], former=sealed, backend=backend)

    with Run(job, later, backend=backend) as run:
        assert run.put(("a", 1), ("b", 1))[-2:] == [("a", 4.0), ("b", 3.5)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_attributes_are_migrated_by_the_hook_of_their_function(backend):
    sealed = sealed_by(
        keyed_job(AnnotatedTotals(), kind="process"), [("a", 1), ("b", 2)], backend=backend
    )
    job = keyed_job(TotalsAsTexts(), kind="process")
    later = sealed_by(job, [("a", 7)], former=sealed, backend=backend)

    with Run(job, later, backend=backend) as run:
        assert run.put(("a", 8), ("b", 9))[-2:] == [("a", "v1:1+7+8"), ("b", "v1:2+9")]


class Point(NamedTuple):
    x: int
    y: int


class NamedPoint(NamedTuple):
    name: str = "none"
    y: int = 0
    x: int = 0


class Points(KeyedProcessFunction):
    points = MapStateDescriptor("points", int, Point)

    def process_element(self, pair, ctx):
        points = ctx.get_map_state(self.points)
        points.put(pair[1], Point(pair[1], -pair[1]))
        return [dict(points.entries())]


class NamedPoints(KeyedProcessFunction):
    points = MapStateDescriptor("points", int, NamedPoint)

    def process_element(self, pair, ctx):
        return [dict(ctx.get_map_state(self.points).entries())]


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_are_read_by_the_names_of_their_fields_and_not_by_place(backend):
    sealed = sealed_by(keyed_job(Points()), [("a", 1), ("a", 2)], backend=backend)

    with Run(keyed_job(NamedPoints()), sealed, backend=backend) as run:
        assert run.put(("a", 0))[-1] == {
            1: NamedPoint(name="none", y=-1, x=1),
            2: NamedPoint(name="none", y=-2, x=2),
        }


def test_a_key_of_another_type_is_refused():
    def by_text(pair) -> str:
        return pair[0]

    def by_number(pair) -> int:
        return pair[1]

    def job(selector):
        def build(env):
            pairs = env.add_source(script_source(tuple[str, int])).uid("pairs")
            pairs.key_by(selector).process_fn(Keeping()).uid("state").collect("out")

        return build

    sealed = sealed_by(job(by_text), [("a", 1)])
    with raises(SCHEMA_REFUSED) as refused:
        Run(job(by_number), sealed)

    assert refused.value.facts["refused"][0]["problems"] == ["the key was str and is int"]


class Lines(KeyedProcessFunction):
    count = ValueStateDescriptor("count", int, default=0)

    def process_element(self, line, ctx):
        count = ctx.get_value_state(self.count)
        count.update(count.value() + 1)
        return [(line, count.value())]


def lines_of(path):
    """Return a job whose source reads a file or a folder."""

    def build(env):
        lines = env.read_text(str(path)).uid("lines").key_by(lambda line: line)
        lines.process_fn(Lines()).uid("count").collect("out")

    return build


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_source_that_reads_elsewhere_or_more_keeps_the_state_of_the_job(tmp_path, backend):
    source = tmp_path / "lines"
    source.mkdir()
    (source / "old.txt").write_text("ada\nbob\n")
    (source / "new.txt").write_text("bob\nada\nada\n")
    options = {"engine": EngineOptions(state_backend=backend)}
    with Harness(lines_of(source / "old.txt"), **options) as harness:
        harness.run()
        snapshot = harness.snapshot()

    with Harness(lines_of(source / "new.txt"), **options) as harness:
        harness.restore(snapshot)
        harness.run()
        assert sorted(harness.results("out")[2:]) == [("ada", 2), ("ada", 3), ("bob", 2)]
    with Harness(lines_of(source), **options) as harness:  # Both files: one of them is not new.
        harness.restore(snapshot)
        harness.run()
        assert sorted(harness.results("out")[2:]) == [("ada", 2), ("ada", 3), ("bob", 2)]


def is_long(pair: tuple[str, int]) -> bool:
    return pair[1] > 5


def sum_of_booleans(*, first):
    def build(env):
        pairs = env.add_source(script_source(tuple[str, int])).uid("pairs")
        keyed = pairs.key_by(lambda pair: pair[0])
        keyed._aggregate("sum", Total(is_long), first).uid("state").collect("out")

    return build


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_sum_that_began_with_a_boolean_goes_on(backend):
    former = sealed_by(sum_of_booleans(first=is_long), [("a", 9)], [("b", 9)], backend=backend)

    with Run(sum_of_booleans(first=FirstOfTotal(is_long)), former, backend=backend) as run:
        sums = run.put(("a", 9), ("b", 1), ("c", 9))[-3:]

    assert sums == [("a", 2), ("b", 1), ("c", 1)]
    assert {type(value) for _, value in sums} == {int}
