"""Pages of the list of jobs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.jobs.status import OpenPublication, OperatorStatus
from bicycle_runtime.service.errors import ListQueryError
from bicycle_runtime.service.watching.listing import SORT_WORDS, JobQuery, list_page
from bicycle_runtime.service.watching.states import State
from tests.raising import raises
from tests.unit.service.fleets import known, view_of

FLEET = view_of(
    *(
        known(f"job{number:02}", started_ms=number // 3, lag_records=None if number % 4 else number)
        for number in range(20)
    )
)


def ids(page):
    return [job.summary.job_id for job in page.items]


@given(
    st.sampled_from([*SORT_WORDS, *(f"-{word}" for word in SORT_WORDS)]),
    st.integers(min_value=1, max_value=25),
)
def test_pages_in_any_order_have_each_job_once_in_the_order_of_one_large_page(sort, limit):
    found, after = [], None
    while True:
        page = list_page(FLEET, JobQuery(sort=sort, limit=limit, after=after))
        found += ids(page)
        after = page.next
        if after is None:
            break

    assert found == ids(list_page(FLEET, JobQuery(sort=sort, limit=500)))
    assert sorted(found) == sorted(FLEET.by_id)


def test_a_job_that_ends_between_two_pages_hides_no_other():
    first = list_page(FLEET, JobQuery(sort="name", limit=5))
    rest = view_of(*(job for job in FLEET.jobs if job.summary.job_id != "job04"))

    assert ids(list_page(rest, JobQuery(sort="name", limit=2, after=first.next))) == [
        "job05", "job06",
    ]  # fmt: skip


def test_attention_brings_first_what_is_worst():
    fleet = view_of(
        known("calm", started_ms=9),
        known("late", operators={"a": OperatorStatus(late=1)}),
        known("lost", state=State.FAILED),
        known("again", state=State.RESTARTING),
        known("behind", is_lag_growing=True),
        known("deaf", silent_sources={"in": 1}),
        known("still", is_frozen=True),
        known(
            "waits", updated_ms=60_000, publication=OpenPublication(epoch=4, sink="out", since_ms=9)
        ),
    )

    order = ids(list_page(fleet, JobQuery(sort="attention")))

    assert order == ["waits", "lost", "again", "still", "deaf", "behind", "late", "calm"]


@pytest.mark.parametrize(
    "query",
    [
        JobQuery(sort="colour"), JobQuery(state=("ASLEEP",)), JobQuery(after="x"),
        JobQuery(after="é"), JobQuery(after="W10"), JobQuery(after="bnVsbA"),
        JobQuery(sort="name", after=list_page(FLEET, JobQuery(limit=1)).next),
        JobQuery(after="WyItc3RhcnRfdGltZSIsImEiLDEsImIiXQ"),
    ],
)  # fmt: skip
def test_what_is_no_sort_state_or_cursor_is_refused(query):
    with raises(ListQueryError):
        list_page(FLEET, query)
