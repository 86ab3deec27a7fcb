"""Expressions in jobs: always over columns, and with Python's results, errors included."""

from dataclasses import dataclass

import pytest

from bicycle_runtime.testing import Harness
from bicycle_sdk import col
from bicycle_sdk.errors import BicycleError
from tests.unit.jobs.inspection.test_reports import report


@dataclass
class Sale:
    shop: str
    cents: int


DICTS = [{"shop": "a", "cents": 5}, {"shop": "b", "cents": 2**70}, {"shop": "a", "cents": -1}]
SALES = [Sale("a", 5), Sale("b", 2**70), Sale("a", -1)]


def job(records, *, on_error="fail"):
    def build(env):
        stream = env.from_collection(records)
        kept = stream.filter(col("cents") != 0).uid("kept").on_error(on_error)
        made = kept.map(shop=col("shop").upper(), cents=col("cents") * 2, one=1).uid("made")
        made.on_error(on_error)
        made.key_by(col("shop"), col("one")).uid("by").count().collect("out")
        made.collect("made")

    return build


@pytest.mark.parametrize("records", [DICTS, SALES])
def test_results_are_those_of_python(records):
    with Harness(job(records), parallelism=1) as harness:
        counts = harness.run_epoch().counts
        harness.run()
        made, out = harness.results("made"), harness.results("out")

    assert made == [
        {"shop": "A", "cents": 10, "one": 1}, {"shop": "B", "cents": 2**71, "one": 1},
        {"shop": "A", "cents": -2, "one": 1},
    ]  # fmt: skip
    assert sorted(out) == [(("A", 1), 1), (("A", 1), 2), (("B", 1), 1)]
    assert [counts[uid].on_columns for uid in ("kept", "made", "by")] == [3, 3, 3]


@pytest.mark.parametrize("wrong", [{"shop": 3, "cents": 1}, {"cents": 1}, ["x"], None])
def test_a_record_that_fails_is_settled_by_on_error_and_the_others_stay(wrong):
    records = [DICTS[0], wrong, DICTS[2]]
    with Harness(job(records, on_error="skip"), parallelism=1) as harness:
        harness.run()
        assert [made["cents"] for made in harness.results("made")] == [10, -2]

    with Harness(job(records), parallelism=1) as harness, pytest.raises(BicycleError) as caught:
        harness.run()
    assert caught.value.facts["offset"] == 1


def test_plan_says_that_they_work_on_columns_wherever_they_stand():
    because = {one.operator: one.because for one in report(job(DICTS)).columns}

    assert [because[uid] for uid in ("kept", "made", "by")] == [None, None, None]
    assert sum(text is None for text in because.values()) == 3


def test_what_follows_a_map_by_an_expression_works_on_columns():
    def build(env):
        made = env.from_collection(DICTS).map(twice=col("cents") * 2).uid("made")
        made.filter(lambda record: record["twice"] > 0).uid("kept").collect("out")

    because = {one.operator: one.because for one in report(build).columns}
    with Harness(build, parallelism=1) as harness:
        counts = harness.run_epoch().counts
        harness.run()
        out = harness.results("out")

    assert (because["made"], because["kept"]) == (None, None)
    assert (counts["made"].on_columns, counts["kept"].on_columns) == (3, 3)
    assert out == [{"twice": 10}, {"twice": 2**71}]
