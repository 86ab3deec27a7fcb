"""Look-ups in the state of jobs, each in a child process that lives for a while.

The service itself reads no state: what a job keeps may be larger than all the memory it may use.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Any

# Errors that a child answers with are known by their classes here, too.
import bicycle_runtime.state.errors  # noqa: F401  # registers them
from bicycle_runtime.base.environment import environment_for_python
from bicycle_runtime.base.errors import error_from_json
from bicycle_runtime.base.pipes import read_frame, write_frame
from bicycle_runtime.base.processes import how_it_ended
from bicycle_runtime.service.errors import READING_TIMED_OUT, STATE_READER_ENDED
from bicycle_runtime.service.threads import Threads
from bicycle_sdk.logging import log_event

__all__ = ["StateLookups"]

_MODULE = "bicycle_runtime.jobs.checkpoints.state_child"
_LOG = logging.getLogger(__name__)
_ATTEMPTS = 2  # A child may have ended just now, because nobody asked.
_LAST_WORDS_S = 2.0
_CHILDREN_MAX = 3
_WAITING_MAX = 16
_TIMEOUT_S = 60.0
_ASKED_MS = 600_000  # Two children for each question that waits.


class StateLookups:
    """Asks children, one for each checkpoint storage, three at most."""

    def __init__(self) -> None:
        self._children: dict[str, _Child] = {}
        self._lock = Lock()
        self._threads = Threads(_CHILDREN_MAX, name="state")

    async def ask(self, url: str, question: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a question about the state of one job.

        Args:
            url: Checkpoint storage of the job.
            question: As ``state_child`` takes it.

        Raises:
            SERVICE_BUSY: 16 questions wait already.
            READING_TIMED_OUT: there was no answer within a minute; the child was ended.
            STATE_READER_ENDED: two children in turn ended before they answered.
            BicycleError: what the child answers: no such epoch, no such operator, and the like.
        """
        return await self._threads.run(
            partial(self._ask, url, question), what="the state", timeout_ms=_ASKED_MS,
            waiting_max=_WAITING_MAX - _CHILDREN_MAX,
        )  # fmt: skip

    def close(self) -> None:
        """End all children."""
        with self._lock:
            children = list(self._children.values())
            self._children.clear()
        for child in children:
            child.end()
        self._threads.close()

    def _ask(self, url: str, question: dict[str, Any]) -> dict[str, Any]:
        for _attempt in range(_ATTEMPTS):
            child = self._child(url)
            try:
                found = child.ask(question, timeout_s=_TIMEOUT_S)
            except TimeoutError:  # Before OSError, which it is a case of.
                self._forget(url, child)
                waited_ms = round(_TIMEOUT_S * 1_000)
                raise READING_TIMED_OUT(
                    what="the state",
                    waited_ms=waited_ms,
                    busy="the checkpoint storage does not respond",
                ) from None
            except (EOFError, OSError) as error:
                how = self._forget(url, child, within_s=_LAST_WORDS_S)
                reason = f"{type(error).__name__}: {error}; {how}"
                log_event(_LOG, "state_reader_ended", level=logging.WARNING, reason=reason)
                continue
            if "error" in found:
                raise error_from_json(found["error"])
            answer: dict[str, Any] = found["answer"]
            return answer
        raise STATE_READER_ENDED(attempts=_ATTEMPTS, reason=reason)

    def _child(self, url: str) -> _Child:
        """Return the child of a storage, and mark it as the last used one."""
        with self._lock:
            child = self._children.pop(url, None) or _Child(url)
            self._children[url] = child
            is_full = len(self._children) > _CHILDREN_MAX
            oldest = self._children.pop(next(iter(self._children))) if is_full else None
        if oldest is not None:
            oldest.end()
        return child

    def _forget(self, url: str, child: _Child, *, within_s: float = 0.0) -> str:
        """Discard a child; return how it ended, within a time or killed."""
        with self._lock:
            if self._children.get(url) is child:
                del self._children[url]
        return child.end(within_s=within_s)


class _Child:
    """One child process; asked by one thread at a time."""

    def __init__(self, url: str) -> None:
        self._lock = Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", _MODULE, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=environment_for_python(),
            start_new_session=True,
        )

    def ask(self, question: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
        """Return the child's answer to a question.

        Raises:
            EOFError: it has ended, or answers what nobody can read.
            OSError: it takes no question.
            TimeoutError: it gave no answer in time.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            write_frame(self._process.stdin, question)
            found = read_frame(self._process.stdout, timeout_s=timeout_s)
        if not isinstance(found, dict):
            raise EOFError(f"an answer of type {type(found).__name__}")
        return found

    def end(self, *, within_s: float = 0.0) -> str:
        """End it unless it ends by itself within a time; return how it ended."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(within_s)
        self._process.kill()
        how = how_it_ended(self._process.wait())
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        return how
