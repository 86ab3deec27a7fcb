"""Folding a batch at a time gives what adding record by record would give."""

from fractions import Fraction
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.operators.batch import Batch, ExchangeLineage
from bicycle_runtime.operators.preaggregation.accumulators import WindowAccumulators
from bicycle_runtime.operators.preaggregation.aggregates import Folding
from bicycle_runtime.operators.preaggregation.batch_rows import Rows
from bicycle_runtime.operators.preaggregation.gathering import FoldedContents
from bicycle_sdk.windows import (
    Average,
    Count,
    Distinct,
    Maximum,
    Sum,
    WindowPlan,
    tumbling_windows,
)

PLACES = 4
NUMBERS = st.one_of(
    st.integers(),
    st.booleans(),
    st.fractions(max_denominator=9),
    st.floats(allow_nan=False, allow_infinity=False, width=32),
)
INTS = st.integers(-(10**30), 10**30)


def itself(value):
    return value


PLANS = {
    "sum": (Sum(itself),),
    "sum, count and average": (Sum(itself), Count(), Average(itself)),
    "sums beside others of the same selector": (Sum(itself), Maximum(itself), Distinct(itself)),
    "sums of two selectors": (Sum(itself), Sum(abs)),
}


def gathered(plan, batches, *, joined=()):
    """Return the results by place; ``joined`` are pairs of places: the first absorbs the second."""
    folding = Folding(plan)
    contents = FoldedContents(folding, SimpleNamespace(failed=0, batch=None, settle=None))
    ordinal_of = {}
    for namespaces, values in batches:
        ordinals = [ordinal_of.setdefault(namespace, len(ordinal_of)) for namespace in namespaces]
        contents.grow(len(ordinal_of))
        contents.add(contents.prepare(rows_of(values)), ordinals)
    for namespace, other in joined:
        if namespace in ordinal_of and other in ordinal_of:
            contents.absorb(ordinal_of[namespace], ordinal_of.pop(other))
    taken = contents.take()
    return folding, {namespace: taken[ordinal] for namespace, ordinal in ordinal_of.items()}


def rows_of(values, *, keys=None, namespaces=(), groups=None):
    batch = Batch(list(values), ExchangeLineage(None))
    keys = list(values) if keys is None else keys
    return Rows(batch, keys, [0] * len(values), groups or [0] * len(values), namespaces)


def plan_of(name):
    aggregates = PLANS[name]
    return WindowPlan(assigner=tumbling_windows(10), aggregates=aggregates, is_tuple=True)


@st.composite
def batch_lists(draw):
    kinds = [INTS, NUMBERS]
    batches = []
    for _ in range(draw(st.integers(1, 4))):
        values = draw(st.lists(draw(st.sampled_from(kinds)), min_size=1, max_size=8))
        ordinals = draw(
            st.lists(st.integers(0, PLACES - 1), min_size=len(values), max_size=len(values))
        )
        batches.append((ordinals, values))
    return batches


@pytest.mark.parametrize("name", PLANS)
@given(batches=batch_lists())
def test_batches_of_any_numbers_are_folded_as_one_record_after_the_other(name, batches):
    folding, found = gathered(plan_of(name), batches)

    by_ordinal = {}
    for ordinals, values in batches:
        for ordinal, value in zip(ordinals, values, strict=True):
            by_ordinal.setdefault(ordinal, []).append(value)
    expected = {
        ordinal: folding.value(folding.folded(values)) for ordinal, values in by_ordinal.items()
    }
    assert {ordinal: folding.value(content) for ordinal, content in found.items()} == expected


@given(batches=batch_lists())
def test_a_accumulators_that_absorbs_another_has_the_sum_of_both(batches):
    plan = plan_of("sum, count and average")
    _, apart = gathered(plan, batches)

    folding, found = gathered(plan, batches, joined=[(0, 1)])

    assert sum(folding.value(content)[1] for content in found.values()) == sum(
        folding.value(content)[1] for content in apart.values()
    )
    if 0 in apart and 1 in apart:
        both = folding.merged(apart[0], apart[1])
        assert folding.value(found[0]) == folding.value(both)
        assert 1 not in found


def test_ints_in_front_of_other_numbers_stay_ints():
    _, found = gathered(plan_of("sum"), [([0, 1], [2, 3]), ([0], [Fraction(1, 2)])])

    assert found[0] == ((Fraction(5, 2), ()),)
    assert found[1] == ((3, ()),)
    assert type(found[1][0][0]) is int


def test_what_was_taken_is_not_counted_again():
    contents = FoldedContents(
        Folding(plan_of("sum")), SimpleNamespace(failed=0, batch=None, settle=None)
    )
    for values in ([5, 6], [7, 8]):
        contents.grow(1)
        contents.add(contents.prepare(rows_of(values)), [0, 0])
        taken = contents.take()

        assert taken == [((sum(values), ()),)]


def test_accumulators_are_by_start_and_key_and_know_their_key_group():
    ordinals = WindowAccumulators(
        FoldedContents(Folding(plan_of("sum")), SimpleNamespace(failed=0, settle=None))
    )
    first = rows_of(
        [1, 2, 4, 8], keys=["a", "b", "a", "a"], namespaces=[0, 0, 10, 0], groups=b"\1\2\1\1"
    )
    second = rows_of([16, 32, 64], keys=["c", "a", "b"], namespaces=[10, 10, 0], groups=b"\3\1\2")

    ordinals.add(first)
    ordinals.add(second)

    assert len(ordinals) == 4
    assert list(ordinals.take()) == [
        (0, 1, ["a"], [((9, ()),)]),
        (0, 2, ["b"], [((66, ()),)]),
        (10, 1, ["a"], [((36, ()),)]),
        (10, 3, ["c"], [((16, ()),)]),
    ]
    assert list(ordinals.take()) == []
