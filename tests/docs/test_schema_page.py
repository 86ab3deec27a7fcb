"""The page about changed code is code that reads what its version 1 wrote."""

import re
from dataclasses import dataclass

import pytest

from bicycle_runtime.jobs.inspection.state_changes import _WORST
from bicycle_sdk import KeyedProcessFunction, ValueStateDescriptor
from tests.docs.scripts import DOCS, page_module
from tests.unit.engine.resuming.changed_code import Run, keyed_job, sealed_by

PAGE = (DOCS / "how-to/schema-evolution.md").read_text("utf-8")


@dataclass
class First:
    count: int
    total: int


class FirstReadings(KeyedProcessFunction):
    reading = ValueStateDescriptor("reading", First)

    def process_element(self, value, ctx):
        state = ctx.get_value_state(self.reading)
        old = state.value() or First(0, 0)
        state.update(First(old.count + 1, old.total + value[1]))
        return [state.value()]


@pytest.fixture
def module(monkeypatch, tmp_path):
    with page_module(PAGE, "schema_page", tmp_path, monkeypatch) as found:
        yield found


@pytest.fixture(scope="module")
def sealed():
    return sealed_by(keyed_job(FirstReadings()), [("a", 3), ("a", 4)])


def test_a_record_with_an_alias_and_a_default_reads_version_one(module, sealed):
    with Run(keyed_job(module.Readings()), sealed) as run:
        assert run.put(("a", 5))[-1] == module.Reading(3, 12.0, "ms")


def test_the_hook_of_the_page_migrates_version_one(module, sealed):
    with Run(keyed_job(module.Accounts()), sealed) as run:
        assert run.put(("a", 1))[-1] == module.Cents(800, 3)


def test_the_page_explains_every_word_of_the_plan():
    words = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)

    assert set(words) == set(_WORST)
