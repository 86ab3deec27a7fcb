"""Replaying dead letters: requests to a running job, and their handling.

For each replayed letter, a line is written next to the letters, and is sealed and published with
the epoch of the replay. A replayed letter is refused, unless the same request is repeated: then the
driver that received it first died between the epoch and its response.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from bicycle_runtime.base.thread_safe_types import prepare_type
from bicycle_runtime.engine.loop.letters import LetterLoop, letter_order, replay_letters
from bicycle_runtime.jobs.control.dead_letters import (
    DeadLetter,
    dead_letters,
    letter_lines,
    named_letters,
    replayed_letters,
)
from bicycle_runtime.jobs.control.requests import DriverRequest, ask_job
from bicycle_runtime.jobs.errors import (
    DEAD_LETTER_REPLAYED,
    DEAD_LETTERS_NOT_LOADED,
    LETTER_REQUEST_UNREADABLE,
)
from bicycle_runtime.jobs.home import Home, JobLocation
from bicycle_runtime.jobs.options import JobRequest
from bicycle_sdk.clock import Clock
from bicycle_sdk.errors import ConfigError
from bicycle_sdk.logging import log_event
from bicycle_sdk.options import check, option

_BATCH_COUNT = 200
_BATCH_BYTES = 4 << 20
_PAGE = 1_000
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterReplayOptions:
    """The dead letters to replay, and the time limit of the replay."""

    letters: tuple[str, ...] = option(
        (), doc="Ids of dead letters. Default: all letters that were not replayed yet."
    )
    operator: str | None = option(
        None, doc="Only the letters of the operator with this uid; not with LETTERS."
    )
    timeout_ms: int = option(
        120_000, low=1_000, high=3_600_000,
        doc="Time limit for the response. A job replays letters between two epochs.",
    )  # fmt: skip

    def __post_init__(self) -> None:
        check(self)
        if self.letters and self.operator is not None:
            raise ConfigError(
                problem="`letters` cannot be combined with `operator`",
                hint="set one of them, or omit both to replay all letters of the job",
            )


class LetterReplay(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a replay: the letters, and the epochs that replayed them."""

    letters: list[str]
    epochs: list[int]


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    letters: list[str]
    request: str


def letters_to_replay(home: Home, job: str, *, operator: str | None = None) -> list[DeadLetter]:
    """Return the letters that were not replayed yet, the oldest first.

    Args:
        home: Where jobs are kept.
        job: The job's id.
        operator: Only of the operator with this uid.

    Raises:
        JOB_NOT_FOUND: there is no such job.
    """
    found: list[DeadLetter] = []
    after: str | None = None
    while True:
        page, after = dead_letters(home, job, operator=operator, after=after, limit=_PAGE)
        found += [letter for letter in page if letter.replayed_epoch is None]
        if after is None:
            return found[::-1]


def chosen_letters(
    home: Home, job: str, letters: Sequence[str], *, operator: str | None = None
) -> list[DeadLetter]:
    """Return the letters of these names; without names, all unreplayed letters.

    Raises:
        JOB_NOT_FOUND: there is no such job.
        DEAD_LETTER_UNKNOWN: it has no such letter.
    """
    if not letters:
        return letters_to_replay(home, job, operator=operator)
    return named_letters(home, job, letters)


def ask_for_replay(
    home: Home, job: str, letters: Sequence[DeadLetter], *, timeout_ms: int, clock: Clock,
    token: str = "",
) -> LetterReplay:  # fmt: skip
    """Request a running job to replay letters to their operators, and wait.

    Letters are replayed in groups of at most 200 letters or 4 MiB. Each group is one epoch: either
    all of its letters are replayed, or no letter is.

    Args:
        home: The home of the job.
        job: The job's id.
        letters: The letters.
        timeout_ms: Time limit for the response about one group, in ms.
        clock: Clock for the time limit.
        token: Identifier of the request. A request that is repeated after a lost response has the
            same token.

    Raises:
        JOB_NOT_FOUND: there is no such job.
        JobNotRunningError: it has ended.
        REQUEST_TIMED_OUT: it runs and does not answer.
        DEAD_LETTER_UNKNOWN: it has no such letter.
        DEAD_LETTER_REPLAYED: one was replayed before.
        DEAD_LETTER_NOT_REPLAYABLE: one is no record of an operator that the job has.
        LETTERS_NOT_REPLAYED: the epoch failed; the job continues as before.
    """
    epochs: list[int] = []
    token = token or secrets.token_hex(8)
    for part in _parts(letters):
        facts = {"letters": part, "request": token}
        answer = ask_job(
            home, job, DriverRequest.REPLAY_LETTERS, facts, clock=clock, timeout_ms=timeout_ms
        )
        epochs += answer["epochs"]
    return LetterReplay(letters=[letter.id for letter in letters], epochs=sorted(set(epochs)))


def _parts(letters: Sequence[DeadLetter]) -> Iterator[list[str]]:
    part: list[str] = []
    byte_count = 0
    for letter in letters:
        if part and (len(part) >= _BATCH_COUNT or byte_count + letter.value_bytes > _BATCH_BYTES):
            yield part
            part, byte_count = [], 0
        part.append(letter.id)
        byte_count += letter.value_bytes
    if part:
        yield part


def replay_asked(
    loop: LetterLoop | None, location: JobLocation, request: JobRequest, facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Handle a request in the driver: replay all letters that it names, or no letter.

    1. Publish the sealed epoch: it may contain the line of a replayed letter.
    2. Skip letters that this request has replayed; refuse letters that another request has.
    3. Find the letters, and the operators that receive them.
    4. Run the epoch.

    Args:
        loop: The job's epoch loop, between two steps.
        location: Location of the job.
        request: The request that started the job.
        facts: The facts of the request.

    Raises:
        LETTER_REQUEST_UNREADABLE: this version does not support the format of the request.
        DEAD_LETTERS_NOT_LOADED: letters are pickles.
        BicycleError: any other error of ``ask_for_replay``.
    """
    assert loop is not None
    try:
        asked = msgspec.convert(facts, prepare_type(_Request))
    except msgspec.ValidationError as error:
        raise LETTER_REQUEST_UNREADABLE(reason=str(error)) from error
    if request.no_pickle:
        raise DEAD_LETTERS_NOT_LOADED(job=location.folder.id)
    # 1. Publish the sealed epoch: it may contain the line of a replayed letter.
    loop.settle()
    # 2. Skip letters that this request has replayed; refuse letters that another request has.
    folder = Path(location.dead_letters_dir)
    known = replayed_letters(folder)
    for letter in asked.letters:
        if letter in known and known[letter].request != asked.request:
            raise DEAD_LETTER_REPLAYED(
                job=location.folder.id, letter=letter, epoch=known[letter].epoch
            )
    epochs = {known[letter].epoch for letter in asked.letters if letter in known}
    left = [letter for letter in dict.fromkeys(asked.letters) if letter not in known]
    # 3. Find the letters, and the operators that receive them.
    plain = letter_lines(folder, left, job=location.folder.id)
    plan = loop.topology.setup.plan
    orders = [letter_order(plan, each, plain[each], request=asked.request) for each in left]
    # 4. Run the epoch.
    if orders:
        epochs.add(replay_letters(loop, orders))
        log_event(
            _LOG, "dead_letters_replayed", job=location.folder.id, epoch=max(epochs),
            letter_count=len(orders),
        )  # fmt: skip
    return {"letters": asked.letters, "epochs": sorted(epochs)}
