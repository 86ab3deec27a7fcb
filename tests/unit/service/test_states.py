"""States of jobs: what is shown, and what may follow."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.jobs.status import JobState
from bicycle_runtime.service.operations.kinds import KINDS
from bicycle_runtime.service.watching.states import FOLLOWERS, Intent, State, shown_state, steps
from bicycle_runtime.service.watching.watcher import step_times
from tests.unit.jobs.job_samples import status_of

FINAL = [state for state in State if state.is_final]
GOING_ON = [state for state in State if not state.is_final]


def shown(state=JobState.RUNNING, *, driven=True, supervised=True, **more):
    fields = {name: more.pop(name) for name in ("running_ms", "error") if name in more}
    if "intent" in more:
        kind = KINDS[more["intent"]]
        more["intent"] = Intent(kind.name, kind.shown, kind.needs_running)
    status = status_of(state=state, **{"running_ms": 1, **fields})
    return shown_state(status, is_driven=driven, is_supervised=supervised, **more)


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        ({}, State.RUNNING),
        ({"state": JobState.CREATED, "running_ms": None}, State.CREATED),
        ({"driven": False}, State.RESTARTING),
        ({"driven": False, "running_ms": None}, State.CREATED),
        ({"driven": False, "supervised": False}, State.FAILED),
        ({"driven": False, "supervised": False, "intent": "cancel"}, State.CANCELING),
        ({"error": {"code": "BIC-1"}}, State.FAILING),
        ({"intent": "stop"}, State.STOPPING),
        ({"intent": "drain"}, State.STOPPING),
        ({"intent": "cancel"}, State.CANCELING),
        ({"state": JobState.STOPPED}, State.STOPPED),
        ({"state": JobState.STOPPED, "intent": "suspend"}, State.STOPPING),
        ({"state": JobState.STOPPED, "intent": "stop"}, State.STOPPED),
        ({"state": JobState.PAUSED, "intent": "pause"}, State.STOPPING),
        ({"state": JobState.PAUSED, "intent": "cancel"}, State.PAUSED),
        ({"state": JobState.SUSPENDED, "intent": "suspend"}, State.SUSPENDED),
        ({"state": JobState.FAILED, "intent": "stop"}, State.FAILED),
        ({"state": JobState.PAUSED}, State.PAUSED),
        ({"driven": False, "supervised": False, "is_pausing": True}, State.PAUSED),
        ({"driven": False, "is_pausing": True}, State.RESTARTING),
        ({"is_pausing": True}, State.RUNNING),
        ({"intent": "pause"}, State.STOPPING),
    ],
)
def test_the_shown_state_follows_from_file_processes_and_intent(looks, expected):
    assert shown(**looks) is expected


def test_the_table_is_that_of_the_documented_life():
    assert FOLLOWERS.keys() == set(State)
    ended = set(FINAL) - {State.PAUSED, State.STOPPED}
    assert all(FOLLOWERS[state] == {State.CREATED} for state in ended)
    assert FOLLOWERS[State.STOPPED] == {State.CREATED, State.SUSPENDED}
    assert FOLLOWERS[State.PAUSED] == {State.CREATED, State.STOPPED, State.CANCELED}
    assert not any(State.CREATED in FOLLOWERS[state] for state in GOING_ON)


def test_what_was_too_short_to_be_seen_is_filled_in():
    assert steps(State.RUNNING, State.FAILED) == (State.FAILING, State.FAILED)
    assert steps(State.CREATED, State.FINISHED) == (State.RUNNING, State.FINISHED)
    assert steps(State.FINISHED, State.RUNNING, is_new_run=True) == (State.CREATED, State.RUNNING)
    assert steps(None, State.STOPPED) == (State.STOPPED,)


def test_a_run_that_is_over_does_not_go_on():
    ways = {
        (State.PAUSED, State.STOPPED): (State.STOPPED,),
        (State.PAUSED, State.CANCELED): (State.CANCELED,),
        (State.PAUSED, State.SUSPENDED): (State.STOPPED, State.SUSPENDED),
        (State.STOPPED, State.SUSPENDED): (State.SUSPENDED,),
    }
    for a, b in itertools.permutations(FINAL, 2):
        assert steps(a, b) == ways.get((a, b))
    assert all(steps(a, b) is None for a in FINAL for b in GOING_ON if b is not State.CREATED)
    assert steps(State.RUNNING, State.CREATED) is None


@given(st.lists(st.tuples(st.sampled_from(State), st.booleans()), min_size=1, max_size=20))
def test_every_step_of_any_life_is_in_the_table(looks):
    old = None
    for new, is_new_run in looks:
        way = steps(old, new, is_new_run=is_new_run and old is not None)
        if way is None:
            continue
        for state in way:
            assert old is None or state in FOLLOWERS[old]
            old = state
        assert old is new


RUN = {"started_ms": 100, "running_ms": 150}


@pytest.mark.parametrize(
    ("way", "fields", "is_first", "times"),
    [
        ("RUNNING", RUN, True, [150]),
        ("RUNNING", RUN, False, [900]),  # Again, after a restart.
        ("FAILED", {**RUN, "state": JobState.FAILED, "ended_ms": 300}, True, [300]),
        ("CREATED RUNNING", RUN, True, [100, 150]),
        ("STOPPING STOPPED", {**RUN, "state": JobState.STOPPED, "ended_ms": 300}, False,
         [300, 300]),
        ("FAILED", {**RUN, "state": JobState.FAILED, "ended_ms": 2_000}, True, [900]),
    ],
)  # fmt: skip
def test_steps_have_the_times_of_the_status_and_none_is_in_the_future(way, fields, is_first, times):
    steps_taken = tuple(State(word) for word in way.split())

    assert step_times(steps_taken, status_of(**fields), is_first=is_first, now_ms=900) == times
