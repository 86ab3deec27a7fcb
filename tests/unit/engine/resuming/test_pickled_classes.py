"""State that only a pickle can hold, and classes of it that changed: told before a job starts."""

import importlib
import sys

import pytest

from bicycle_runtime.jobs.inspection.reports import inspect_job
from bicycle_runtime.jobs.inspection.state_changes import state_changes
from bicycle_runtime.operators.errors import FunctionHookError
from bicycle_runtime.recovery.adoption import find_origin
from bicycle_runtime.recovery.errors import STATE_LOST
from bicycle_runtime.state.errors import SCHEMA_REFUSED
from bicycle_runtime.testing import bundle_of, script_source
from bicycle_sdk import StreamEnvironment
from tests.raising import raises
from tests.unit.engine.resuming.changed_code import Run, keyed_job, sealed_by

BACKENDS = ["memory", "rocksdb"]
CODE = """
import dataclasses, enum
from dataclasses import dataclass, field
from typing import Any
from bicycle_sdk import KeyedProcessFunction, RichAsyncFunction
from bicycle_sdk.windows import AggregateFunction, CountTrigger

class Level(enum.Enum):
    LOW = "low"

@dataclass
class Basket:
    numbers: list[int]
    level: Level = Level.LOW

class Saving(KeyedProcessFunction):
    def process_element(self, value, ctx):
        basket = ctx.get_state("basket") or Basket([])
        basket = dataclasses.replace(basket, numbers=[*basket.numbers, value[1]])
        ctx.save_state("basket", basket)
        return [(value[0], len(basket.numbers), getattr(basket, "note", None))]

class Snapshots(RichAsyncFunction):
    def __init__(self):
        self.basket = None

    async def process(self, value, ctx):
        self.basket = self.basket or Basket([])
        self.basket.numbers.append(value[1])
        return [(value[0], len(self.basket.numbers), getattr(self.basket, "note", None))]

    def snapshot_state(self):
        return {"basket": self.basket}

    def restore_state(self, state):
        self.basket = state["basket"]

class Baskets(AggregateFunction):
    def create_accumulator(self):
        return Basket([])

    def add(self, accumulator, value):
        accumulator.numbers.append(value[1])
        return accumulator

    def get_result(self, accumulator):
        return ("window", len(accumulator.numbers), getattr(accumulator, "note", None))

    def merge(self, a, b):
        return Basket(a.numbers + b.numbers)
"""
FIELD = "    level: Level = Level.LOW\n"


def windowed(module):
    """Return a job with a triggered window whose accumulators are of no declared type."""

    def build(env):
        pairs = env.add_source(script_source(tuple[str, int])).uid("pairs")
        window = pairs.key_by(lambda pair: pair[0]).global_window()
        fired = window.trigger(module.CountTrigger(1)).aggregate(module.Baskets())
        fired.uid("state").collect("out")

    return build


JOBS = {
    "saved by name": lambda module: keyed_job(module.Saving()),
    "a snapshot": lambda module: keyed_job(module.Snapshots(), kind="process"),
    "a triggered window": windowed,
}


@pytest.fixture
def code(tmp_path, monkeypatch):
    """Gives the module of the job with some of its code replaced."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def load(was="", now=""):
        assert was in CODE
        (tmp_path / "basket_code.py").write_text(CODE.replace(was, now))
        sys.modules.pop("basket_code", None)
        importlib.invalidate_caches()
        return importlib.import_module("basket_code")

    yield load
    sys.modules.pop("basket_code", None)


@pytest.fixture(params=JOBS)
def job(request):
    return JOBS[request.param]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_class_that_lost_a_field_is_refused_with_both_shapes(code, job, backend):
    sealed = sealed_by(job(code()), [("a", 1)], [("a", 2)], backend=backend)

    with raises(SCHEMA_REFUSED) as caught:
        Run(job(code("    numbers: list[int]", "    totals: list[int]")), sealed, backend=backend)
    [refused] = caught.value.facts["refused"]
    assert (refused["operator"], refused["state"]) == ("state", "class basket_code:Basket")
    assert refused["stored"] == "Basket(numbers: list[int], level: Level = …)"
    assert refused["declared"] == "Basket(totals: list[int], level: Level = …)"
    assert len(refused["problems"]) == 2


def test_a_class_that_got_a_field_with_a_default_goes_on(code, job):
    sealed = sealed_by(job(code()), [("a", 1)])

    with Run(job(code(FIELD, FIELD + "    note: str = 'none'\n")), sealed) as run:
        assert "2, 'none')" in repr(run.put(("a", 2))[-1])


@pytest.mark.parametrize(
    "now",
    [
        FIELD + "    tags: set = field(default_factory=set)\n",
        FIELD.replace("Level =", "Any ="),
        "",
    ],
    ids=["a field that old objects lack", "another type", "a field less"],
)
def test_other_changes_are_refused(code, now):
    job = JOBS["saved by name"]
    sealed = sealed_by(job(code()), [("a", 1)])

    with raises(SCHEMA_REFUSED):
        Run(job(code(FIELD, now)), sealed)


def test_a_class_that_restores_itself_may_change_as_it_likes(code):
    job = JOBS["saved by name"]
    sealed = sealed_by(job(code()), [("a", 1)])
    restoring = """
    def __setstate__(self, state):
        self.numbers = state["numbers"]
        self.note = "restored"
"""

    with Run(job(code(FIELD, restoring)), sealed) as run:
        assert run.put(("a", 2))[-1] == ("a", 2, None)


def test_members_may_be_added_to_an_enum_and_not_be_taken_away(code):
    job = JOBS["saved by name"]
    sealed = sealed_by(job(code()), [("a", 1)])

    with Run(job(code('LOW = "low"', 'LOW = "low"\n    HIGH = "high"')), sealed) as run:
        assert run.put(("a", 2))[-1][1] == 2
    with raises(SCHEMA_REFUSED) as caught:
        Run(job(code('LOW = "low"', 'LOW = "lower"')), sealed)
    assert [each["state"] for each in caught.value.facts["refused"]] == ["class basket_code:Level"]


def test_a_class_that_is_gone_is_a_loss_that_can_be_allowed_when_nothing_of_it_is_left(code):
    job = JOBS["saved by name"]
    sealed = sealed_by(job(code()), [("a", 1)])
    gone = job(code("Basket", "Bag"))

    with raises(STATE_LOST) as caught:
        Run(gone, sealed)
    assert caught.value.facts["lost"] == "'class basket_code:Basket' of operator 'state'"
    with (
        Run(gone, sealed, allows_dropped_state=True) as run,
        pytest.raises(FunctionHookError, match="Basket"),
    ):
        run.put(("b", 1))


def test_the_plan_tells_what_becomes_of_classes_before_the_start(code):
    with Run(JOBS["saved by name"](code())) as run:
        run.put(("a", 1))
        env = StreamEnvironment()
        pairs = env.from_collection([("a", 1)]).uid("pairs").key_by(lambda pair: pair[0])
        later = code(FIELD, FIELD + "    note: str = 'none'\n")
        pairs.process_fn(later.Saving()).uid("state").print()
        bundle = bundle_of(env)
        changes = state_changes(find_origin(run.harness.storage), bundle, inspect_job(bundle))

    [operator] = [each for each in changes.operators if each.operator == "state"]
    verdicts = {each.state: (each.verdict, each.details) for each in operator.states}
    assert verdicts == {
        "class basket_code:Basket": ("migrated", ("field 'note' was added",)),
        "class basket_code:Level": ("kept", ()),
    }
