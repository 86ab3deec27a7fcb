from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from bicycle_runtime.cli.plan import report_lines
from bicycle_runtime.connectors.errors import CONNECTOR_OPTION_WRONG
from bicycle_runtime.jobs.errors import GUARANTEE_TOO_WEAK, INSPECTION_FAILED
from bicycle_runtime.jobs.inspection import reports
from bicycle_runtime.jobs.inspection.child import describe_job, fixed_attributes
from bicycle_runtime.jobs.inspection.reports import inspect_job, report_of, require_guarantee
from bicycle_sdk import (
    AggregateFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    RichAsyncFunction,
    SinkDescriptor,
    StateTtl,
    ValueStateDescriptor,
    file_sink,
    retry,
)
from bicycle_sdk.kafka import DeliveryGuarantee, KafkaSinkBuilder
from tests.raising import raises
from tests.unit.jobs.job_samples import bundle_of


@dataclass
class Typed(RichAsyncFunction[str, str]):
    counts: dict[str, int] = field(default_factory=dict)

    async def process(self, value, ctx) -> list[str]:
        return [value]


@dataclass
class Untyped(RichAsyncFunction[str, str]):
    seen: Any = None

    async def process(self, value, ctx):
        self.seen = value
        return [value]


class Merging(Untyped):
    def merge_state(self, states):
        return states[0]


class Lengths(AggregateFunction[str, tuple[int, int], float]):
    def create_accumulator(self):
        return (0, 0)

    def add(self, accumulator, value):
        return (accumulator[0] + len(value), accumulator[1] + 1)

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, a, b):
        return (a[0] + b[0], a[1] + b[1])


@dataclass(frozen=True)
class Key:
    number: int


def itself(key: Key) -> Key:
    return key


def keyed(function, *, uid="f"):
    def build(env):
        stream = env.read_text("in").uid("lines").key_by(str).process_rich(function)
        (stream.uid(uid) if uid else stream).sink_to(file_sink("out")).uid("out")

    return build


def report(build, **bundle):
    made = bundle_of(build, **bundle)
    return report_of(made, describe_job(made, parallelism=None))


def kinds(found):
    return {(warned.kind, warned.operator) for warned in found.warnings}


def test_files_to_files_are_exactly_once_and_nothing_is_weak():
    found = report(keyed(Typed()))

    assert (found.guarantee, found.weakest) == ("exactly-once", None)
    require_guarantee(found, "exactly-once")


def test_the_weakest_sink_is_named_and_asking_for_more_is_an_error():
    def build(env):
        lines = env.read_text("in").uid("lines")
        lines.sink_to(file_sink("out")).uid("files")
        lines.print().uid("screen")

    found = report(build)

    assert found.guarantee == "at-least-once"
    assert found.weakest.operator == "screen"
    require_guarantee(found, "at-least-once")
    with raises(GUARANTEE_TOO_WEAK) as caught:
        require_guarantee(found, "exactly-once")
    assert caught.value.facts["operator"] == "screen"


def test_a_promise_that_depends_on_options_is_that_of_each_vertex():
    def build(env):
        lines = env.read_text("in").uid("lines")
        once = KafkaSinkBuilder("127.0.0.1:1", "once")
        lines.sink_to(once.delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)).uid("once")
        lines.sink_to(KafkaSinkBuilder("127.0.0.1:1", "often")).uid("often")

    found = report(build)

    assert {item.operator: item.guarantee for item in found.connectors} == {
        "lines": "exactly-once", "once": "exactly-once", "often": "at-least-once",
    }  # fmt: skip
    assert found.weakest.operator == "often"


def test_typed_state_is_described_and_warns_of_its_growth_only():
    [state] = report(keyed(Typed())).states

    assert (state.operator, state.scope, state.group_count) == ("f", "key_groups", 128)
    [part] = state.attributes
    assert (part.name, part.type, part.codec) == ("counts", "dict[str, int]", "typed")
    assert kinds(report(keyed(Typed()))) >= {("unbounded-state", "f")}
    assert ("untyped-state", "f") not in kinds(report(keyed(Typed())))


class Mixed(RichAsyncFunction[str, int]):
    span: tuple[int, int] = (0, 0)

    def __init__(self):
        self.counts: dict[str, int] = {}
        self.total = 0
        self.words: list[str] = []

    def process(self, value, ctx):
        return []


def test_attributes_that_are_copied_for_each_record_are_told_where_attempts_are_undone():
    def build(policy):
        def job(env):
            rich = env.read_text("in").uid("lines").key_by(str).process_rich(Mixed())
            rich.on_error(policy).uid("f").sink_to(file_sink("out")).uid("out")

        return job

    for policy, copied in (("fail", ()), ("skip", ("words",)), (retry(2), ("words",))):
        found = report(build(policy))
        assert found.states[0].copied == copied
        assert (("copied-state", "f") in kinds(found)) is bool(copied)


def test_untyped_state_and_a_missing_uid_are_warned_of():
    found = report(keyed(Untyped(), uid=None))
    [state] = found.states

    assert kinds(found) >= {("untyped-state", state.operator), ("no-uid", state.operator)}


def test_state_without_keys_is_warned_of_unless_it_can_be_merged():
    def build(function):
        return lambda env: env.from_collection(["a"]).process_rich(function).uid("f").print()

    assert ("no-merge", "f") in kinds(report(build(Untyped())))
    assert ("no-merge", "f") not in kinds(report(build(Merging())))


@pytest.mark.parametrize("is_read", [True, False])
def test_late_records_that_nobody_reads_are_warned_of(is_read):
    def build(env):
        stamped = env.from_collection(["a"]).assign_timestamps(len)
        window = stamped.key_by(str).tumbling_window(10).late_to("late")
        counts = window.count().uid("counts")
        if is_read:
            counts.side_output("late").print()
        counts.print()

    assert (("unread-late", "counts") in kinds(report(build))) is not is_read


@pytest.mark.parametrize("limit", [1_000, None])
def test_a_join_that_evicts_rows_says_so(limit):
    def build(env):
        left, right = (
            env.from_collection(["a"]).assign_timestamps(len).key_by(str) for _ in range(2)
        )
        left.interval_join(right, 0, 1, max, max_buffered=limit).uid("join").print()

    assert (("evicting-join", "join") in kinds(report(build))) is (limit is not None)


class Ticking(KeyedProcessFunction[str, str, str]):
    def process_element(self, value, ctx):
        return [value]

    def on_timer(self, timestamp_ms, ctx):
        return []


class Still(KeyedProcessFunction[str, str, str]):
    def process_element(self, value, ctx):
        return [value]


ORDERS = {
    "timers": (lambda keyed: keyed.process_fn(Ticking()), True),
    "timers in order": (lambda keyed: keyed.process_fn(Ticking()).in_event_time_order(), False),
    "no timers": (lambda keyed: keyed.process_fn(Still()), False),
    "two streams": (lambda keyed: keyed.table_join(keyed, lambda a, b: a), True),
    "interval join": (lambda keyed: keyed.interval_join(keyed, 0, 1, lambda a, b: a), False),
}


@pytest.mark.parametrize("name", ORDERS)
def test_functions_whose_results_depend_on_epochs_are_warned_of(name):
    make, is_warned = ORDERS[name]

    def build(env):
        stamped = env.from_collection(["a"]).assign_timestamps(len)
        make(stamped.key_by(str)).uid("f").print()

    assert (("epoch-order", "f") in kinds(report(build))) is is_warned


def test_exchanges_tell_type_and_codec():
    [exchange] = report(keyed(Typed())).exchanges

    assert (exchange.codec, exchange.type, exchange.partitioning) == ("typed", "str", "Hash")
    assert "pickle-exchange" not in {kind for kind, _ in kinds(report(keyed(Typed())))}


def test_records_of_unknown_type_travel_as_pickle_which_is_warned_of():
    def build(env):
        env.from_collection(["a"]).map(lambda line: object()).key_by(id).count().print()

    found = report(build)
    [exchange] = found.exchanges

    assert (exchange.codec, exchange.type) == ("pickle", "unknown")
    assert ("pickle-exchange", exchange.source) in kinds(found)


def test_lambdas_and_other_code_that_goes_by_value_are_counted_and_not_warned_of():
    found = report(keyed(Typed()), by_value=True)
    assert "by-value" not in {warned.kind for warned in found.warnings}
    line = next(line for line in report_lines(found) if line.startswith("functions"))
    assert "workers need Python" in line


class Above(RichAsyncFunction[str, str]):
    """Its limit and its words are parameters; only what it has seen is state."""

    def __init__(self, limit, words, *, first=None):
        self.limit, self._words, self.first = limit, words, first
        self.seen, self.listed = 0, []

    def process(self, value, ctx):
        self.seen += 1
        self.listed.append(value)
        return [value] if self.seen > self.limit and value in self._words else []


class Renaming(Above):
    def process(self, value, ctx):
        setattr(self, "limit", 3)  # noqa: B010  # it is what is tested
        return []


@dataclass
class Limited(RichAsyncFunction[str, str]):
    limit: Any
    words: dict[str, int] = field(default_factory=dict)

    def process(self, value, ctx):
        return [value] * self.limit


def test_what_only_the_constructor_sets_is_no_state_to_warn_of():
    assert fixed_attributes(Above(3, ["a"])) == {"limit", "_words", "first"}
    assert fixed_attributes(Renaming(3, ["a"])) == {"_words", "first"}
    assert fixed_attributes(Limited(3)) == {"limit"}

    found = report(keyed(Above(3, ["a"])))
    told = {warned.text.split("'")[1] for warned in found.warnings if "'" in warned.text}
    assert told == {"seen", "listed"}


@dataclass
class Only(RichAsyncFunction[str, str]):
    limit: Any

    def process(self, value, ctx):
        return [value] * self.limit


def test_a_function_with_parameters_only_is_not_warned_of():
    def build(env):
        lines = env.read_text("in").uid("lines")
        lines.process_rich(Only(3)).sink_to(file_sink("out")).uid("out")

    assert report(build).warnings == ()


def test_how_joins_of_the_sdk_keep_their_rows_is_not_warned_of():
    def build(env):
        left = env.read_jsonl("a", timestamp_field="t").uid("left").key_by(repr)
        right = env.read_jsonl("b", timestamp_field="t").uid("right").key_by(repr)
        for number, both in enumerate(
            (
                left.as_of_join(right, lambda a, b: "x"),
                left.table_join(right, lambda a, b: "x"),
                left.interval_join(right, -5, 5, lambda a, b: "x"),
            )
        ):
            both.uid(f"join{number}").sink_to(file_sink(f"out{number}")).uid(f"out{number}")

    found = report(build)
    assert {state.operator for state in found.states} == {"join0", "join1", "join2"}
    assert {warned.kind for warned in found.warnings} <= {"pickle-exchange"}


def test_the_state_of_a_reduce_is_one_value_per_key():
    def build(env):
        env.from_collection([1, 2]).key_by(str).reduce(max).uid("largest").print()

    [state] = report(build).states

    assert [(part.name, part.is_per_entry) for part in state.attributes] == [("accumulator", True)]


def test_what_annotations_say_of_accumulators_is_their_schema():
    def build(env):
        words = env.from_collection(["a"]).assign_timestamps(len).key_by(str)
        words.count().uid("counted").print()
        words.tumbling_window(10).aggregate(Lengths()).uid("lengths").print()

    counted, lengths = report(build).states

    assert [state["schema"] for state in counted.declared["states"]] == ["int"]
    [windows] = [state["schema"] for state in lengths.declared["states"]]
    assert windows["items"] == [{"type": "tuple", "items": ["int", "int"]}]


def test_keys_of_a_class_are_warned_of():
    def build(env):
        env.from_collection([Key(1)]).key_by(itself).count().uid("counted").print()

    assert ("class-keys", "counted") in kinds(report(build))
    assert "class-keys" not in {kind for kind, _ in kinds(report(keyed(Typed())))}


def test_the_child_process_answers_as_the_function_does():
    bundle = bundle_of(lambda env: env.from_collection(["a"]).key_by(str).count().print())

    assert inspect_job(bundle) == report_of(bundle, describe_job(bundle, parallelism=None))


def test_an_error_in_the_child_process_is_the_error_here():
    def build(env):
        env.read_text("in").sink_to(
            SinkDescriptor(connector_type="jsonl_file", properties={"pth": "out"})
        )

    with raises(CONNECTOR_OPTION_WRONG):
        inspect_job(bundle_of(build))


class Declared(KeyedProcessFunction[str, str, str]):
    seen = ValueStateDescriptor("seen", bool, ttl=StateTtl(60_000))
    log = ListStateDescriptor("log")

    def process_element(self, value, ctx):
        ctx.get_value_state(self.seen).update(True)
        return [value]


class Undeclared(KeyedProcessFunction[str, str, str]):
    def process_element(self, value, ctx):
        ctx.get_value_state("seen", bool).update(True)
        ctx.save_state("named", 1)
        return [value]


def processed(function):
    def build(env):
        stream = env.read_text("in").uid("lines").key_by(str).process_fn(function).uid("f")
        stream.sink_to(file_sink("out")).uid("out")

    return build


def test_declared_states_are_described_with_codec_and_ttl():
    found = report(processed(Declared()))
    [state] = found.states

    assert [(s.name, s.kind, s.type, s.codec, s.ttl_ms) for s in state.keyed] == [
        ("log", "list", "unknown", "untyped", None),
        ("seen", "value", "bool", "typed", 60_000),
    ]
    texts = [warned.text for warned in found.warnings if warned.operator == "f"]
    assert kinds(found) >= {("untyped-state", "f"), ("unbounded-state", "f")}
    assert not any("'seen'" in text for text in texts)
    assert ("undeclared-state", "f") not in kinds(found)


def test_states_that_only_the_code_names_are_warned_of():
    found = report(processed(Undeclared()))

    assert found.states[0].keyed == ()
    assert kinds(found) >= {("undeclared-state", "f"), ("unbounded-state", "f")}


def test_how_long_a_state_lives_is_shown_as_people_read_it():
    class Kept(KeyedProcessFunction[str, str, str]):
        last = ValueStateDescriptor("last", str, ttl=StateTtl(timedelta(minutes=30)))

        def process_element(self, value, ctx):
            return [value]

    def build(env):
        keyed = env.read_text("in").uid("lines").key_by(str)
        keyed.process_fn(Kept()).uid("f").sink_to(file_sink("out")).uid("out")

    assert any("TTL 30 min" in line for line in report_lines(report(build)))


def test_a_slow_machine_is_not_taken_for_a_broken_plugin(monkeypatch):
    def build(env):
        env.from_collection(["a"]).map(str.upper).uid("upper").collect("out")

    monkeypatch.setattr(reports, "_TIMEOUT_S", 0.01)
    with raises(INSPECTION_FAILED, match=r"no result after 0.01 s\n.*the machine is less busy"):
        inspect_job(bundle_of(build))
