"""Dead letters that a running job replays: valid letters, and their epoch.

The epoch reads no input, and besides its results it seals one line for each letter, which marks it
as replayed. So a crash neither loses a letter nor makes it count twice.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from bicycle_runtime.engine.errors import DEAD_LETTER_NOT_REPLAYABLE, LETTERS_NOT_REPLAYED
from bicycle_runtime.engine.loop.rescaling import Topology
from bicycle_runtime.operators.spec import OperatorSpec, StagePlan, StateScope
from bicycle_runtime.operators.tasks.orders import LetterOrder
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.graph import OperatorKind

_COMBINE = "-combine"


class LetterLoop(Protocol):
    """An epoch loop between two steps, as ``replay_letters`` needs it."""

    @property
    def topology(self) -> Topology:
        """The job as of the last epoch."""

    def settle(self) -> None:
        """Wait until that is published."""

    def change_topology(self, topology: Topology) -> None:
        """Continue with fresh tasks."""

    def run_without_input(self, *, letters: Sequence[LetterOrder]) -> None:
        """Run an epoch in which no source is read."""


def replay_letters(loop: LetterLoop, letters: Sequence[LetterOrder]) -> int:
    """Replay letters to their operators in a separate epoch, and publish it.

    If the epoch fails before it is sealed, the job continues as before.

    Returns:
        The number of the epoch.

    Raises:
        LETTERS_NOT_REPLAYED: the epoch failed.
        BicycleError: any error that the next step of the loop would have raised as well.
    """
    loop.settle()
    before = loop.topology
    try:
        loop.run_without_input(letters=letters)
    except BicycleError as error:
        if loop.topology.last.epoch > before.last.epoch:  # Sealed: nothing takes that back.
            raise
        loop.change_topology(before)  # Tasks hold the epoch's changes.
        raise LETTERS_NOT_REPLAYED(
            job=before.setup.job_id, count=len(letters), reason=error.summary, hint=error.remedy,
            cause=error.code,
        ) from error  # fmt: skip
    loop.settle()
    return loop.topology.last.epoch


def letter_order(
    plan: StagePlan, letter: str, plain: Mapping[str, Any], *, request: str = ""
) -> LetterOrder:
    """Return the order that replays a letter.

    Args:
        plan: The job of now.
        letter: Id of the letter.
        plain: The letter as it was published.
        request: The identity of the request.

    Raises:
        DEAD_LETTER_NOT_REPLAYABLE: it is no record of an operator that the job has.
    """
    operator = _operator(plan, letter, plain)
    selectors = operator.input_selectors or (operator.key_selector,)
    # Letters of versions that did not note the input: most operators have only one.
    ordinal = plain.get("input", None if len(selectors) > 1 else 0)
    is_keyed = operator.scope is StateScope.KEY_GROUPS
    reason = _NOT_A_RECORD.get(plain["encoding"])
    if reason is None and ordinal is None:
        reason = (
            "the operator failed without an input record: in a timer or a window, or its input "
            "was not recorded"
        )
    elif reason is None and ordinal >= len(selectors):
        reason = (
            f"its record arrived at input {ordinal}, but the operator now has only {len(selectors)}"
        )
    elif reason is None and is_keyed and selectors[ordinal] is None:
        reason = "its record arrived at a broadcast input, of which every subtask has a copy"
    if reason is not None:
        raise DEAD_LETTER_NOT_REPLAYABLE(letter=letter, operator=operator.uid, reason=reason)
    return LetterOrder(
        id=letter, operator=operator.uid, value=base64.b64decode(plain["value"]), ordinal=ordinal,
        event_time_ms=plain.get("event_time_ms"), source=plain.get("source"),
        shard=plain.get("shard") or "", offset=plain.get("offset") or 0,
        end_offset=plain.get("end_offset"), request=request,
    )  # fmt: skip


_NOT_A_RECORD = {
    "raw": "it contains bytes that the source could not decode, so no function has processed them",
    "repr": "its record could not be pickled, so only its text form is known",
}


def _operator(plan: StagePlan, letter: str, plain: Mapping[str, Any]) -> OperatorSpec:
    """Return the operator of a letter, for windows the part before the shuffle.

    Raises:
        DEAD_LETTER_NOT_REPLAYABLE: the job has no such operator.
    """
    by_uid = {operator.uid: operator for operator in plan.operators()}
    uid = str(plain["operator"])
    before = by_uid.get(f"{uid}{_COMBINE}")
    if before is not None and before.vertex.kind is OperatorKind.WINDOW_COMBINE:
        return before
    found = by_uid.get(uid) or by_uid.get(uid.removesuffix(_COMBINE))
    if found is None:
        raise DEAD_LETTER_NOT_REPLAYABLE(
            letter=letter, operator=uid, reason="the current job has no such operator"
        )
    return found
