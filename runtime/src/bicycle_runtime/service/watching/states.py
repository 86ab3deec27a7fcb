"""States of jobs as the service shows them, and how each may follow another.

The status file contains the state of the run. Processes that have ended and requests change it: a
job that was requested to end is STOPPING or CANCELING until its file has a final state. A job
without processes that was requested to pause is PAUSED.

Jobs are checked once per second, so that a short state may be missed. ``steps`` adds the states
that must have occurred between two checks, and refuses impossible changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from bicycle_runtime.jobs.status import JobState, JobStatus


class Intent(NamedTuple):
    """A running operation that ends a job, and the state that is shown meanwhile.

    ``needs_running``: the job ran when the operation was requested, so that it ended this run.
    """

    kind: str
    shown: str
    needs_running: bool


class State(Enum):
    """The state of a job in its life cycle, in the words of the REST API."""

    CREATED = "CREATED"
    RUNNING = "RUNNING"
    RESTARTING = "RESTARTING"
    FAILING = "FAILING"
    FAILED = "FAILED"
    CANCELING = "CANCELING"
    CANCELED = "CANCELED"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    PAUSED = "PAUSED"
    SUSPENDED = "SUSPENDED"
    FINISHED = "FINISHED"

    @property
    def is_final(self) -> bool:
        """Return whether the run is over."""
        return self in _FINAL


_FINAL = frozenset(
    {
        State.FAILED,
        State.CANCELED,
        State.STOPPED,
        State.PAUSED,
        State.SUSPENDED,
        State.FINISHED,
    },
)
# A final state is followed by another run only, which begins with CREATED. A paused job may also be
# stopped or canceled, and a stopped job is suspended when its savepoint is complete.
FOLLOWERS: Mapping[State, frozenset[State]] = {
    State.CREATED: frozenset({State.RUNNING, State.FAILING, State.CANCELING, State.STOPPING}),
    State.RUNNING: frozenset(
        {State.RESTARTING, State.FAILING, State.STOPPING, State.CANCELING, State.FINISHED}
    ),
    State.RESTARTING: frozenset({State.RUNNING, State.FAILING, State.STOPPING, State.CANCELING}),
    State.FAILING: frozenset({State.FAILED}),
    # The request may time out, and the job continues; the job may also end differently first.
    State.CANCELING: frozenset({State.CANCELED, State.RUNNING, State.FAILING, State.STOPPING}),
    State.STOPPING: frozenset(
        {
            State.STOPPED,
            State.PAUSED,
            State.SUSPENDED,
            State.RUNNING,
            State.FAILING,
            State.CANCELING,
        }
    ),
    **{state: frozenset({State.CREATED}) for state in State if state in _FINAL},
    State.STOPPED: frozenset({State.CREATED, State.SUSPENDED}),
    State.PAUSED: frozenset({State.CREATED, State.STOPPED, State.CANCELED}),
}


def shown_state(
    status: JobStatus,
    *,
    is_driven: bool,
    is_supervised: bool,
    intent: Intent | None = None,
    is_pausing: bool = False,
) -> State:
    """Return the state of a job from its file, its processes and requests.

    Args:
        status: The last status that the driver or its supervisor wrote.
        is_driven: Whether the driver is alive.
        is_supervised: Whether a supervisor is alive that restarts the driver.
        intent: The requested operation that is not complete yet; None without a request.
        is_pausing: Whether this run was requested to pause.
    """
    if status.state.is_final:
        return _final_state(status, intent)
    if not is_driven and not is_supervised:
        # A cancel kills first, and writes the last word then.
        if intent is not None and intent.shown == State.CANCELING.value:
            return State.CANCELING
        return State.PAUSED if is_pausing else State.FAILED
    if intent is not None:
        return State(intent.shown)
    if not is_driven:
        return State.CREATED if status.running_ms is None else State.RESTARTING
    return State(status.state.value) if status.error is None else State.FAILING


def _final_state(status: JobStatus, intent: Intent | None) -> State:
    """Return the state of a run that is over.

    A savepoint may still be taken, or sealed output be published.
    """
    is_stopped = status.state in (JobState.STOPPED, JobState.PAUSED)
    if is_stopped and intent is not None and intent.needs_running:
        return State(intent.shown)
    return State(status.state.value)


def steps(old: State | None, new: State, *, is_new_run: bool = False) -> tuple[State, ...] | None:
    """Return the states from one look to the next, the last of them included.

    Args:
        old: The previously shown state; None for an unknown job.
        new: The current state.
        is_new_run: Whether the job was started again in between.

    Returns:
        The shortest sequence that the table allows: empty without a change, None if impossible.

    Example:
        >>> [state.value for state in steps(State.RUNNING, State.FAILED)]
        ['FAILING', 'FAILED']
        >>> steps(State.FINISHED, State.RUNNING) is None
        True
    """
    if old is None:
        return (new,)
    if not is_new_run:
        return _way(old, new)
    ending = () if old.is_final else _way(old, State.FAILED)
    rest = _way(State.CREATED, new)
    return None if ending is None or rest is None else (*ending, State.CREATED, *rest)


def _way(old: State, new: State) -> tuple[State, ...] | None:
    """Return the shortest way within one run."""
    if old is new:
        return ()
    ways: deque[tuple[State, ...]] = deque([()])
    seen = {old}
    while ways:
        way = ways.popleft()
        last = way[-1] if way else old
        following = FOLLOWERS[last] - seen - ({State.CREATED} if last.is_final else set())
        for state in sorted(following, key=lambda state: state.value):
            if state is new:
                return (*way, state)
            seen.add(state)
            ways.append((*way, state))
    return None
