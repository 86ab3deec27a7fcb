"""The note on an upgrade in the folder of its job, with its current step."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Any, Literal

import msgspec

from bicycle_runtime.base.files import replace_file
from bicycle_runtime.base.stored import decode_stored, encode_stored
from bicycle_runtime.jobs.errors import UPGRADE_UNDERWAY
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.options import JobRequest
from bicycle_runtime.jobs.shadow_note import forget_shadow

_FILE = "upgrade.json"
Strategy = Literal["stop-and-go", "blue-green"]


class UpgradeStep(StrEnum):
    """The steps of an upgrade, as in its note."""

    SAVE = "save"
    FOLLOW = "follow"
    STOP = "stop"
    START = "start"
    WATCH = "watch"
    BACK = "back"


class UpgradeNote(msgspec.Struct, kw_only=True):
    """The step of an upgrade, with requests as from ``JobRequest.to_json``."""

    token: str
    step: UpgradeStep
    former: dict[str, Any]
    wanted: dict[str, Any]
    plan: dict[str, Any]
    strategy: Strategy = "stop-and-go"
    savepoint: str | None = None
    epoch: int = 0
    gap_ms: int | None = None
    error: dict[str, Any] | None = None


def require_no_upgrade(home: Home, job: str, *, tokens: Collection[str] | None = None) -> None:
    """Ensure that no upgrade of a job has begun and is not over.

    Args:
        home: The home of the job.
        job: The job's id.
        tokens: The tokens of the upgrades that are not over; None for any upgrade with a note.

    Raises:
        UPGRADE_UNDERWAY: one has.
    """
    note = read_upgrade(home, job)
    if note is not None and (tokens is None or note.token in tokens):
        raise UPGRADE_UNDERWAY(job=job, step=note.step.value)


def noted_requests(home: Home, job: str) -> list[JobRequest]:
    """Return the requests of both versions of an upgrade that is underway."""
    note = read_upgrade(home, job)
    return [] if note is None else [*map(JobRequest.from_json, (note.former, note.wanted))]


def read_upgrade(home: Home, job: str) -> UpgradeNote | None:
    """Return the note of an upgrade that is underway; None without one."""
    path = home.folder(job).path / _FILE
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    return decode_stored(data, UpgradeNote, path=str(path))


def write_upgrade(home: Home, job: str, note: UpgradeNote) -> None:
    """Write the note, as one step."""
    replace_file(home.folder(job).path / _FILE, encode_stored(note))


def forget_ended(home: Home, job: str, *, tokens: Collection[str]) -> None:
    """Remove the note of an upgrade, unless its token is among ``tokens``."""
    note = read_upgrade(home, job)
    if note is not None and note.token not in tokens:
        forget_shadow(home.folder(job))
        forget_upgrade(home, job)


def forget_upgrade(home: Home, job: str) -> None:
    """Remove the note: the upgrade is over."""
    (home.folder(job).path / _FILE).unlink(missing_ok=True)
