"""Patience with an unavailable system: an action is retried until it returns."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from bicycle_runtime.connectors.errors import PublishInterruptedError
from bicycle_runtime.contract import InterruptiblePublication
from bicycle_sdk.clock import Clock
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.logging import log_event

_LOG = logging.getLogger(__name__)
_PAUSES_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """The waiting policy of a sink during publication.

    Args:
        vertex: Of the sink, for logs and errors.
        timeout_ms: It waits no longer than this for one epoch.
        is_away: Returns whether an error may pass when the act is tried again.
        given_up: Makes an error of the ms that were waited and of the last error.

    Attributes:
        is_stopping: Set when the job must end.
    """

    vertex: str
    timeout_ms: int
    is_away: Callable[[Exception], bool]
    given_up: Callable[[int, Exception], BicycleError]
    is_stopping: threading.Event = field(default_factory=threading.Event, init=False)

    def carry_out(self, act: Callable[[], None], *, epoch: int, target: str, clock: Clock) -> None:
        """Run an action until it succeeds; raise errors that waiting cannot fix.

        Raises:
            PublishInterruptedError: the job had to end meanwhile.
        """
        begun = clock.monotonic()
        for attempt in range(1 << 30):
            try:
                act()
                return
            except Exception as error:
                if not self.is_away(error):
                    raise
                waited_ms = round((clock.monotonic() - begun) * 1_000)
                if waited_ms > self.timeout_ms:
                    raise self.given_up(waited_ms, error) from error
                reason = str(error).strip()
                if attempt == 0:
                    log_event(
                        _LOG, "publication_waiting", level=logging.WARNING,
                        operator=self.vertex, target=target, reason=reason,
                    )  # fmt: skip
                pause_s = _PAUSES_S[min(attempt, len(_PAUSES_S) - 1)]
                if self.is_stopping.wait(pause_s):
                    raise PublishInterruptedError(
                        vertex=self.vertex, epoch=epoch, target=target, reason=reason
                    ) from error


class PatientPublication(InterruptiblePublication):
    """A sink whose publication waits with patience, until the job must end."""

    _patience: Patience

    def interrupt(self) -> None:
        """Make a waiting publication stop."""
        self._patience.is_stopping.set()


class AnswerLimit:
    """Breaks the connections of a sink if the other system is silent for too long.

    A library waits for an answer without a limit while a proxy keeps its connection open. The limit
    is half of the time for one epoch, so that the epoch is tried once more.

    Args:
        timeout_ms: The time for one epoch.
        break_off: Shuts the connections down. Called by another thread.
    """

    def __init__(self, timeout_ms: int, break_off: Callable[[], None]) -> None:
        self._limit_s = timeout_ms / 2_000
        self._break_off = break_off
        self._progressed = threading.Event()
        self._is_over = False
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._is_over = False
        self._thread = threading.Thread(target=self._watch, name="answer-limit", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._progressed.set()
        assert self._thread is not None, "it was entered"
        self._thread.join()

    def note_progress(self) -> None:
        """Start the limit again, since the other system took something."""
        self._progressed.set()

    def _watch(self) -> None:
        while not self._is_over:
            if not self._progressed.wait(self._limit_s):
                self._break_off()
            self._progressed.clear()


def close_socket(descriptor: int) -> None:
    """Close both directions of a socket, which ends a wait for it."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
        connection.shutdown(socket.SHUT_RDWR)
