"""Approximate numbers of distinct values without the library of sketches."""

import sys

import pytest

from bicycle_runtime.operators.preaggregation.aggregates import Folding
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.windows import AlignedWindows, ApproximateDistinct, WindowPlan


def test_a_sketch_without_its_library_names_the_versions_that_have_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasketches", None)
    plan = WindowPlan(
        assigner=AlignedWindows(size_ms=10, slide_ms=10),
        aggregates=(ApproximateDistinct(len),),
    )

    with pytest.raises(BicycleError) as caught:
        Folding(plan)

    assert caught.value.code == "BIC-1408"
    assert "3.11 to 3.13" in caught.value.fix
