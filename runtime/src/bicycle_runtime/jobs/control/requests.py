"""Asking a running job for something: files in its folder, from any process of this machine.

Whoever asks puts a request into ``<job folder>/requests`` and waits for the answer beside it. The
driver looks there between two epochs, when nothing is in flight, does what is asked and answers
with plain data or an error; what takes longer is a future, and the job runs on meanwhile. A request
that nobody waits for any more is withdrawn, so that it is not met later by surprise; one that an
earlier driver left behind is not met either.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from bicycle_runtime.base.clock import Clock
from bicycle_runtime.base.errors import error_from_json
from bicycle_runtime.base.files import replace_file
from bicycle_runtime.base.processes import wait_for_end
from bicycle_runtime.jobs.control.looking import job_status
from bicycle_runtime.jobs.errors import JobNotRunningError, RequestTimeoutError, RequestUnknownError
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.status import JobStatus
from bicycle_sdk.errors import BicycleError

__all__ = ["Answer", "Handler", "Inbox", "ask_job"]

Answer = Mapping[str, Any]
Handler = Callable[[Mapping[str, Any]], Answer | Future[Answer]]

_POLL_S = 0.05
_ASKED, _ANSWERED = ".request.json", ".answer.json"


class _Request(msgspec.Struct, frozen=True):
    kind: str
    facts: dict[str, Any]


class Inbox:
    """The driver's side: what it is asked, and its answers.

    Args:
        folder: The job's folder in the home.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "requests"

    def open(self) -> None:
        """Begin a run: what was asked of an earlier driver is not met by this one."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for path in self._folder.iterdir():
            path.unlink(missing_ok=True)

    def serve(self, handlers: Mapping[str, Handler]) -> None:
        """Meet all requests that lie there, oldest first. An error of a handler is its answer.

        Args:
            handlers: What is done for a request, by its kind. Of a future the answer is written
                when it is done, in the thread that does it; one that ends with an error of
                another kind than ours gives no answer, as the end of a job does.
        """
        # hot path: once per epoch; an empty folder costs 10 µs.
        with os.scandir(self._folder) as entries:
            names = sorted(entry.name for entry in entries)
        asked = [self._folder / name for name in names if _is_request(name)]
        for path in asked:
            with contextlib.suppress(FileNotFoundError):  # Whoever asked has withdrawn it.
                answer = _answer(path.read_bytes(), handlers)
                answered = path.with_name(path.name.replace(_ASKED, _ANSWERED))
                if isinstance(answer, Future):
                    path.unlink()
                    answer.add_done_callback(partial(_write_late, answered))
                    continue
                _write(answered, answer)
                path.unlink()


def ask_job(
    home: Home, job: str, kind: str, facts: Mapping[str, Any], *, clock: Clock, timeout_ms: int
) -> dict[str, Any]:
    """Ask a running job for something and return its answer.

    Args:
        home: Where jobs are kept.
        job: The job's id.
        kind: What is asked: ``savepoint``, ``rescale``.
        facts: Plain data that goes with it.
        clock: Measures how long is waited.
        timeout_ms: A job that has not answered by then is not going to: the request is withdrawn.

    Raises:
        JobNotFoundError: there is no such job.
        JobNotRunningError: it has ended, or ends before it answers.
        RequestTimeoutError: it runs and does not answer.
        BicycleError: what the job answered.
    """
    folder = home.find(job).path / "requests"
    name = f"{clock.now_ms():015}-{secrets.token_hex(4)}"
    asked, answered = folder / f"{name}{_ASKED}", folder / f"{name}{_ANSWERED}"
    status = _require_running(home, job, kind)
    deadline = clock.monotonic() + timeout_ms / 1_000
    _write(asked, {"kind": kind, "facts": dict(facts)})
    try:
        while not answered.exists():
            if clock.monotonic() >= deadline:
                raise RequestTimeoutError(job=job, kind=kind, waited_ms=timeout_ms)
            has_ended = wait_for_end(status.pid, status.pid_started, timeout_s=_POLL_S)
            if has_ended and not answered.exists():  # An answer may be its last word.
                _require_running(home, job, kind)
        answer = json.loads(answered.read_bytes())
    finally:
        for path in (asked, answered):
            path.unlink(missing_ok=True)
    if "error" in answer:
        raise error_from_json(answer["error"])
    result: dict[str, Any] = answer["result"]
    return result


def _require_running(home: Home, job: str, kind: str) -> JobStatus:
    status = job_status(home, job)
    if status.state.is_final:
        raise JobNotRunningError(job=job, kind=kind, state=status.state.value)
    return status


def _is_request(name: str) -> bool:
    """Tell requests from answers, and from what is still being written."""
    return name.endswith(_ASKED) and not name.startswith(".")


def _answer(data: bytes, handlers: Mapping[str, Handler]) -> dict[str, Any] | Future[Answer]:
    try:
        request = msgspec.json.decode(data, type=_Request)
    except msgspec.MsgspecError as error:
        return {"error": RequestUnknownError(kind=str(error), known_text="").to_json()}
    try:
        if request.kind not in handlers:
            known_text = ", ".join(sorted(handlers))
            raise RequestUnknownError(kind=request.kind, known_text=known_text)
        answer = handlers[request.kind](request.facts)
        return answer if isinstance(answer, Future) else {"result": dict(answer)}
    except BicycleError as error:
        return {"error": error.to_json()}


def _write_late(path: Path, done: Future[Answer]) -> None:
    error = done.exception()
    if error is None:
        _write(path, {"result": dict(done.result())})
    elif isinstance(error, BicycleError):
        _write(path, {"error": error.to_json()})


def _write(path: Path, data: Mapping[str, Any]) -> None:
    """Write a whole file as one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, json.dumps(data).encode())
