"""Look-ups in the state of jobs, each in a child process that lives for a while.

The service itself reads no state, because the state of a job may be larger than its memory limit.
"""

from __future__ import annotations

import logging
from functools import partial
from threading import Lock
from typing import Any

# Errors that a child answers with are known by their classes here, too.
import bicycle_runtime.state.errors  # noqa: F401  # registers them
from bicycle_runtime.base.children import Child, NoAnswerError
from bicycle_runtime.base.errors import error_from_json
from bicycle_runtime.service.errors import READING_TIMED_OUT, STATE_READER_ENDED
from bicycle_runtime.service.threads import Threads
from bicycle_sdk.logging import log_event

_MODULE = "bicycle_runtime.jobs.checkpoints.state_child"
_LOG = logging.getLogger(__name__)
_ATTEMPTS = 2  # A child may have ended just now, because it was idle.
_LAST_WORDS_S = 2.0
_CHILDREN_MAX = 3
_WAITING_MAX = 16
_TIMEOUT_S = 60.0
_ASKED_MS = 600_000  # Two children for each question that waits.


class StateLookups:
    """Asks children, one for each checkpoint storage, three at most."""

    def __init__(self) -> None:
        self._children: dict[str, Child] = {}
        self._asked: list[str] = []  # The storages of the questions that are being answered.
        self._lock = Lock()
        self._threads = Threads(_CHILDREN_MAX, name="state")

    async def ask(self, url: str, question: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a question about the state of one job.

        Args:
            url: Checkpoint storage of the job.
            question: As ``state_child`` takes it.

        Raises:
            SERVICE_BUSY: 16 questions wait already.
            READING_TIMED_OUT: there was no response within a minute; the child was killed.
            STATE_READER_ENDED: two consecutive children ended before they responded.
            BicycleError: an error of the child, such as an unknown epoch or operator.
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
                found, _ = child.answer_to(question, timeout_s=_TIMEOUT_S)
            except NoAnswerError as error:
                how = self._forget(url, child, within_s=0.0 if error.is_late else _LAST_WORDS_S)
                if error.is_late:
                    raise READING_TIMED_OUT(
                        what="the state",
                        waited_ms=round(_TIMEOUT_S * 1_000),
                        busy="the checkpoint storage does not respond",
                    ) from None
                reason = f"{error}; {how}"
                log_event(_LOG, "state_reader_ended", level=logging.WARNING, reason=reason)
                continue
            finally:
                with self._lock:
                    self._asked.remove(url)
            if "error" in found:
                raise error_from_json(found["error"])
            answer: dict[str, Any] = found["answer"]
            return answer
        raise STATE_READER_ENDED(attempts=_ATTEMPTS, reason=reason)

    def _child(self, url: str) -> Child:
        """Return the child of a storage, and mark it as the last used one, which is asked."""
        with self._lock:
            child = self._children.pop(url, None) or Child(_MODULE, url)
            self._children[url] = child
            self._asked.append(url)
            is_full = len(self._children) > _CHILDREN_MAX
            idle = (each for each in self._children if each not in self._asked)
            oldest = self._children.pop(next(idle)) if is_full else None
        if oldest is not None:
            oldest.end()
        return child

    def _forget(self, url: str, child: Child, *, within_s: float = 0.0) -> str:
        """Discard a child; return how it ended, within a time or killed."""
        with self._lock:
            if self._children.get(url) is child:
                del self._children[url]
        return child.end(within_s=within_s)
