"""Requests to a running job: files in its folder, from any local process.

A command puts a request into ``<job folder>/requests`` and waits for the answer beside it. The
driver looks there between two epochs, when nothing is in flight, carries out the request and
answers with plain data or an error; longer work is a future, and the job runs on meanwhile. A
request stays there until it is answered, so a driver that replaces a dead one finds it. A request
whose sender does not wait any more is withdrawn, so that it is not carried out later by surprise;
requests of a former run are ignored, too. A kind that may have ended the driver is tried once: the
next driver answers it with an error.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from bicycle_runtime.base.errors import error_from_json
from bicycle_runtime.base.files import own_folder, replace_file
from bicycle_runtime.base.processes import is_alive, start_ticks, wait_for_end
from bicycle_runtime.base.stored import decode_stored, encode_stored
from bicycle_runtime.jobs.control.job_queries import job_status
from bicycle_runtime.jobs.errors import (
    REQUEST_CUT_SHORT,
    REQUEST_TIMED_OUT,
    REQUEST_UNKNOWN,
    JobNotRunningError,
)
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.status import JobStatus
from bicycle_sdk.clock import Clock
from bicycle_sdk.errors import BicycleError

Answer = Mapping[str, Any]
Handler = Callable[[Mapping[str, Any]], Answer | Future[Answer]]

_POLL_S = 0.05
_ASKED, _BEGUN, _ANSWERED = ".request.json", ".begun.json", ".answer.json"


class DriverRequest(StrEnum):
    """Kinds of requests that a driver carries out between two epochs."""

    SAVEPOINT = "savepoint"
    DRAIN = "drain"
    RESCALE = "rescale"
    REPLAY_LETTERS = "replay"


class _Request(msgspec.Struct, frozen=True):
    """A request; ``asker`` is the waiting process' id and start time, or zeros."""

    kind: str
    facts: dict[str, Any]
    asker: tuple[int, int] = (0, 0)

    @property
    def is_awaited(self) -> bool:
        pid, started = self.asker
        return not pid or is_alive(pid, started)


class Inbox:
    """The driver's side: its requests, and the answers.

    Args:
        folder: The job's folder in the home.
        tried_once: Kinds of requests that are not begun again by another driver.
    """

    def __init__(self, folder: Path, *, tried_once: frozenset[str] = frozenset()) -> None:
        self._folder = folder / "requests"
        self._tried_once = tried_once
        self._begun: set[str] = set()

    def open(self, *, is_again: bool = False) -> None:
        """Begin.

        Args:
            is_again: Whether this driver replaces another one of the same run: then it carries out
                the unanswered requests.
        """
        own_folder(self._folder)
        for path in self._folder.iterdir():
            if not is_again:
                path.unlink(missing_ok=True)
            elif path.name.endswith(_BEGUN):
                self._refuse_again(path)

    def serve(self, handlers: Mapping[str, Handler]) -> None:
        """Handle all stored requests, oldest first. An error of a handler is its answer.

        Args:
            handlers: The handler of a request, by its kind. The answer of a future is written when
                it is done, in the thread that does it; a future that ends with a foreign error has
                no answer, as at the end of a job.
        """
        # hot path: once per epoch; an empty folder costs 10 µs.
        with os.scandir(self._folder) as entries:
            names = sorted(entry.name for entry in entries)
        asked = [self._folder / name for name in names if _is_request(name)]
        for path in asked:
            if path.name not in self._begun:
                with contextlib.suppress(FileNotFoundError):  # The command has withdrawn it.
                    self._meet(path, handlers)

    def _meet(self, path: Path, handlers: Mapping[str, Handler]) -> None:
        try:
            request = _read(path)
        except msgspec.MsgspecError as error:
            unknown = REQUEST_UNKNOWN(kind=str(error), known_text="")
            _reply(path, {"error": unknown.to_json()})
            return
        except BicycleError as error:  # A newer version of the command wrote it.
            _reply(path, {"error": error.to_json()})
            return
        if not request.is_awaited:
            path.unlink()
            return
        if request.kind in self._tried_once:
            begun = path.with_name(path.name.replace(_ASKED, _BEGUN))
            path.rename(begun)
            path = begun
        answer = _answer(request, handlers)
        if isinstance(answer, Future):
            self._begun.add(path.name)
            answer.add_done_callback(partial(_reply_late, path))
        else:
            _reply(path, answer)

    def _refuse_again(self, path: Path) -> None:
        """Answer a request in the middle of which the driver before this one ended."""
        with contextlib.suppress(msgspec.MsgspecError, BicycleError):
            request = _read(path)
            cut = REQUEST_CUT_SHORT(job=self._folder.parent.name, kind=request.kind)
            if request.is_awaited:
                _write(_answer_path(path), {"error": cut.to_json()})
        path.unlink(missing_ok=True)


def ask_job(
    home: Home, job: str, kind: str, facts: Mapping[str, Any], *, clock: Clock, timeout_ms: int,
    is_hopeless: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:  # fmt: skip
    """Send a request to a running job, and return its answer.

    Args:
        home: Where jobs are kept.
        job: The job's id.
        kind: A ``DriverRequest``.
        facts: Plain data that goes with it.
        clock: Measures how long is waited.
        timeout_ms: A job that has not answered by then is not going to: the request is withdrawn.
        is_hopeless: Returns earlier whether an answer cannot come any more.

    Raises:
        JOB_NOT_FOUND: there is no such job.
        JobNotRunningError: it has ended, or ends before it answers.
        REQUEST_TIMED_OUT: it runs and does not answer.
        BicycleError: the error in the job's answer.
    """
    folder = home.find(job).path / "requests"
    name = f"{clock.now_ms():015}-{secrets.token_hex(4)}"
    asked, begun, answered = (folder / f"{name}{end}" for end in (_ASKED, _BEGUN, _ANSWERED))
    status, pause = _require_running(home, job, kind), threading.Event()
    deadline = clock.monotonic() + timeout_ms / 1_000
    own = os.getpid()
    _write(asked, {"kind": kind, "facts": dict(facts), "asker": [own, start_ticks(own)]})
    try:
        while not answered.exists():
            if clock.monotonic() >= deadline or is_hopeless():
                phase_text = _phase_text(job_status(home, job), now_ms=clock.now_ms())
                raise REQUEST_TIMED_OUT(
                    job=job, kind=kind, waited_ms=timeout_ms, phase_text=phase_text
                )
            has_ended = wait_for_end(status.pid, status.pid_started, timeout_s=_POLL_S)
            if has_ended and not answered.exists():  # An answer may be its last word.
                former, status = status, _require_running(home, job, kind)
                if former.pid == status.pid:  # The next driver is still to come.
                    pause.wait(_POLL_S)
        answer = decode_stored(answered.read_bytes(), dict[str, Any], path=str(answered))
    finally:
        for path in (asked, begun, answered):
            path.unlink(missing_ok=True)
    if "error" in answer:
        raise error_from_json(answer["error"])
    result: dict[str, Any] = answer["result"]
    return result


def _phase_text(status: JobStatus, *, now_ms: int) -> str:
    """Return the activity of a job that handles no request; empty if unknown."""
    if status.phase is not None:
        return f"; it is {status.phase.name} {status.phase.target}".rstrip()
    if status.epoch_began_ms is not None:
        seconds = max(now_ms - status.epoch_began_ms, 0) / 1_000
        return f"; its epoch {status.epoch + 1} has run for {seconds:.0f} s"
    return ""


def _require_running(home: Home, job: str, kind: str) -> JobStatus:
    status = job_status(home, job)
    if status.state.is_final:
        raise JobNotRunningError(job=job, kind=kind, state=status.state.value)
    return status


def _is_request(name: str) -> bool:
    """Return whether a file is a complete request, and not an answer."""
    return name.endswith(_ASKED) and not name.startswith(".")


def _answer(request: _Request, handlers: Mapping[str, Handler]) -> dict[str, Any] | Future[Answer]:
    try:
        if request.kind not in handlers:
            known_text = ", ".join(sorted(handlers))
            raise REQUEST_UNKNOWN(kind=request.kind, known_text=known_text)
        answer = handlers[request.kind](request.facts)
        return answer if isinstance(answer, Future) else {"result": dict(answer)}
    except BicycleError as error:
        return {"error": error.to_json()}


def _reply(path: Path, answer: Mapping[str, Any]) -> None:
    """Answer a request, which is done then, unless the command has withdrawn it."""
    if path.exists():
        _write(_answer_path(path), answer)
        path.unlink(missing_ok=True)


def _answer_path(path: Path) -> Path:
    """Return where the answer to a request is, begun or not."""
    return path.with_name(path.name.replace(_ASKED, _ANSWERED).replace(_BEGUN, _ANSWERED))


def _reply_late(path: Path, done: Future[Answer]) -> None:
    error = done.exception()
    if error is None:
        _reply(path, {"result": dict(done.result())})
    elif isinstance(error, BicycleError):
        _reply(path, {"error": error.to_json()})


def _read(path: Path) -> _Request:
    return decode_stored(path.read_bytes(), _Request, path=str(path))


def _write(path: Path, data: Mapping[str, Any]) -> None:
    """Write a whole file as one step."""
    own_folder(path.parent)
    replace_file(path, encode_stored(data))
