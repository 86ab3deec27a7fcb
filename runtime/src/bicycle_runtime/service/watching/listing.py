"""Pages of the list of jobs: filtered, sorted and truncated on the server."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any

import msgspec

from bicycle_runtime.service.errors import ListQueryError
from bicycle_runtime.service.watching.fleet import FleetView
from bicycle_runtime.service.watching.states import State
from bicycle_runtime.service.watching.summaries import JobSummary, KnownJob

LIMIT_MAX = 500
_NUMBERS = (
    "start_time", "updated_ms", "epoch", "records", "records_total", "records_per_second",
    "lag_records", "lag_bytes", "lag_ms", "errors", "late", "restarts", "state_bytes",
    "watermark_ms", "tasks_total",
)  # fmt: skip
_TEXTS = ("name", "state", "plugin", "owner")
SORT_WORDS = ("attention", *_TEXTS, *_NUMBERS)


class JobQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query for jobs: filter, order and number.

    ``state`` may be repeated and has words of ``State``, empty for any; ``owner`` is an owner, or
    empty for any; ``text`` is searched in id, name and plugin, ignoring case; ``sort`` is one of
    ``SORT_WORDS``, in descending order with a ``-`` before it; ``limit`` is 1 to 500; ``after`` is
    the cursor of a previous page.
    """

    state: tuple[str, ...] = ()
    owner: str = ""
    text: str = ""
    sort: str = "-start_time"
    limit: int = 50
    after: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some jobs; ``next`` is the cursor of the next page, ``total`` counts matches."""

    items: tuple[KnownJob, ...]
    next: str | None
    total: int


def list_page(view: FleetView, query: JobQuery) -> Page:
    """Return one page of a snapshot.

    A cursor holds the place of the last row in the order, not its number: jobs that come or go
    between two pages hide no other.

    Raises:
        ListQueryError: a word of the query is unknown.
    """
    word = query.sort.removeprefix("-")
    if word not in SORT_WORDS:
        hint = f"use one of {', '.join(SORT_WORDS)}, with - for descending order"
        raise ListQueryError(name="sort", found=query.sort, problem="unknown field", hint=hint)
    _require_states(query.state)
    is_back = query.sort.startswith("-")
    wanted, text = {state.upper() for state in query.state}, query.text.casefold()
    fitting = [
        job
        for job in view.jobs
        if (not wanted or job.summary.state in wanted)
        and query.owner in ("", job.summary.owner)
        and text in _haystack(job.summary)
    ]
    # By id first, and in the same direction always: the sort is stable.
    keyed = sorted(((_key(job.summary, word), job) for job in fitting), key=lambda pair: pair[0])
    if is_back:
        keyed.reverse()
    if query.after is not None:
        last = _decode(query.after, query.sort)
        keyed = [pair for pair in keyed if _is_behind(pair[0], last, is_back=is_back)]
    rows = keyed[: query.limit]
    more = len(keyed) > len(rows)
    return Page(
        items=tuple(job for _, job in rows),
        next=_encode(rows[-1][0], query.sort) if more and rows else None,
        total=len(fitting),
    )


def _require_states(words: tuple[str, ...]) -> None:
    known = {state.value for state in State}
    for word in words:
        if word.upper() not in known:
            hint = f"use one of {', '.join(sorted(known))}"
            raise ListQueryError(name="state", found=word, problem="unknown state", hint=hint)


def _haystack(summary: JobSummary) -> str:
    return f"{summary.job_id}\n{summary.name}\n{summary.plugin}".casefold()


def _key(summary: JobSummary, word: str) -> tuple[Any, ...]:
    """Return the place of a row in an order; numbers that are not known come first."""
    if word == "attention":
        return (summary.attention_rank, -summary.start_time, summary.job_id)
    value = getattr(summary, word)
    if word in _TEXTS:
        return (value, 0, summary.job_id)
    return (value is not None, value or 0, summary.job_id)


def _is_behind(key: tuple[Any, ...], last: tuple[Any, ...], *, is_back: bool) -> bool:
    return key < last if is_back else key > last


def _encode(key: tuple[Any, ...], sort: str) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode([sort, *key])).decode().rstrip("=")


def _decode(cursor: str, sort: str) -> tuple[Any, ...]:
    hint = "use the cursor `next` of the previous page, with the same sort"
    try:
        data = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        found_sort, first, second, job = msgspec.json.decode(data, type=list[Any])
    except (binascii.Error, msgspec.MsgspecError, ValueError):
        problem = "it is not a cursor of a list"
        raise ListQueryError(name="after", found=cursor, problem=problem, hint=hint) from None
    kind: type[Any] | tuple[type[Any], ...] = str if sort.removeprefix("-") in _TEXTS else int
    is_sound = isinstance(first, kind) and isinstance(second, (int, float)) and isinstance(job, str)
    if found_sort != sort or not is_sound:
        raise ListQueryError(
            name="after", found=cursor, problem="it belongs to another list", hint=hint
        )
    return (first, second, job)
