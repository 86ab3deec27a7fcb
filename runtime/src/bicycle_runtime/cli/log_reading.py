"""The log of a job as text: from its file, or from a service."""

from __future__ import annotations

import codecs
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

from bicycle_runtime.cli.remote import Remote, job_path
from bicycle_runtime.jobs.control.job_queries import job_status
from bicycle_runtime.jobs.home import Home

_POLL_S = 0.2
_CHUNK_BYTES = 1 << 16
_PAGE = 500


def local_pieces(home: Home, job: str, *, line_count: int | None, follow: bool) -> Iterator[str]:
    """Yield the last lines of a log, and new text until the job has ended.

    Args:
        home: The home with the jobs.
        job: The job's id.
        line_count: Number of lines from the end; None for all.
        follow: Continue until the job has ended.

    Raises:
        JOB_NOT_FOUND: there is no such job.
    """
    path = home.find(job).log_path
    path.touch()
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    with path.open("rb") as stream:
        yield from map(decoder.decode, deque(stream, maxlen=line_count))
        while follow:
            is_ended = job_status(home, job).state.is_final
            while chunk := stream.read(_CHUNK_BYTES):
                yield decoder.decode(chunk)
            if is_ended:
                break
            threading.Event().wait(_POLL_S)


def remote_pieces(
    remote: Remote, job: str, *, line_count: int | None, follow: bool
) -> Iterator[str]:  # fmt: skip
    """Yield the same as ``local_pieces`` of a service: whole lines.

    Raises:
        SERVICE_UNREACHABLE: there is no answer.
        BicycleError: the service refuses.
    """
    path = job_path(job, "logs")
    if line_count is not None and line_count <= _PAGE:
        page = remote.get(path, limit=max(1, line_count))
        lines = page["lines"][-line_count:] if line_count else []
        yield from _text(lines)
        position = page["next"]
    else:
        last: deque[str] = deque(maxlen=line_count)
        position = 0
        while True:
            page = remote.get(path, after=position, limit=_PAGE)
            if line_count is None:
                yield from _text(page["lines"])
            else:
                last.extend(page["lines"])
            is_end = not page["lines"]
            position = page["next"]
            if is_end:
                break
        yield from _text(last)
    while follow:
        for kind, page in remote.events(path, after=position, limit=_PAGE, follow="true"):
            if kind == "log":
                yield from _text(page["lines"])
                position = page["next"]
        # A stream ends with the job, and after an hour.
        follow = not _is_over(remote, job)


def _text(lines: Any) -> Iterator[str]:
    return (f"{line}\n" for line in lines)


def _is_over(remote: Remote, job: str) -> bool:
    return remote.get(job_path(job))["summary"]["end_time"] is not None
