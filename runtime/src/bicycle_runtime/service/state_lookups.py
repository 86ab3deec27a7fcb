"""Look-ups in the state of jobs, each in a child process of its own that stays for a while.

The service itself reads no state: what a job keeps may be larger than all the memory it may use.
"""

from __future__ import annotations

import asyncio
import json
import select
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Lock
from typing import IO, Any

# Errors that a child answers with are known by their classes here, too.
import bicycle_runtime.state.errors  # noqa: F401  # registers them
from bicycle_runtime.base.environment import environment_for_python
from bicycle_runtime.base.errors import error_from_json
from bicycle_runtime.service.errors import READING_TIMED_OUT, SERVICE_BUSY

__all__ = ["StateLookups"]

_MODULE = "bicycle_runtime.jobs.checkpoints.state_child"
_HEAD_BYTES = 4
_CHILDREN_MAX = 3
_WAITING_MAX = 16
_ANSWER_BYTES_MAX = 64 << 20
_TIMEOUT_S = 60.0


class StateLookups:
    """Asks children, one for each checkpoint storage, three at most."""

    def __init__(self) -> None:
        self._children: dict[str, _Child] = {}
        self._lock = Lock()
        self._waiting_count = 0
        self._threads = ThreadPoolExecutor(_CHILDREN_MAX, thread_name_prefix="state")

    async def ask(self, url: str, question: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a question about the state of one job.

        Args:
            url: Checkpoint storage of the job.
            question: As ``state_child`` takes it.

        Raises:
            SERVICE_BUSY: 16 questions wait already.
            READING_TIMED_OUT: there was no answer within a minute; the child was ended.
            BicycleError: what the child answers: no such epoch, no such operator, and the like.
        """
        if self._waiting_count >= _WAITING_MAX:
            raise SERVICE_BUSY(waiting=self._waiting_count)
        self._waiting_count += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, self._ask, url, question)
        finally:
            self._waiting_count -= 1

    def close(self) -> None:
        """End all children."""
        with self._lock:
            children = list(self._children.values())
            self._children.clear()
        for child in children:
            child.end()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _ask(self, url: str, question: dict[str, Any]) -> dict[str, Any]:
        for _attempt in range(2):  # A child may have ended just now, because nobody asked.
            child = self._child(url)
            try:
                found = child.ask(question, timeout_s=_TIMEOUT_S)
            except TimeoutError:  # Before OSError, which it is a case of.
                self._forget(url, child)
                break
            except (EOFError, OSError):
                self._forget(url, child)
                continue
            if "error" in found:
                raise error_from_json(found["error"])
            answer: dict[str, Any] = found["answer"]
            return answer
        raise READING_TIMED_OUT(what="the state", waited_ms=round(_TIMEOUT_S * 1_000))

    def _child(self, url: str) -> _Child:
        """Return the child of a storage, as the one that was used last."""
        with self._lock:
            child = self._children.pop(url, None) or _Child(url)
            self._children[url] = child
            is_full = len(self._children) > _CHILDREN_MAX
            oldest = self._children.pop(next(iter(self._children))) if is_full else None
        if oldest is not None:
            oldest.end()
        return child

    def _forget(self, url: str, child: _Child) -> None:
        with self._lock:
            if self._children.get(url) is child:
                del self._children[url]
        child.end()


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
        """Return what it answers.

        Raises:
            EOFError: it has ended, or answers what nobody can read.
            OSError: it takes no question.
            TimeoutError: it gave no answer in time.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        data = json.dumps(question).encode()
        with self._lock:
            deadline = time.monotonic() + timeout_s
            self._process.stdin.write(len(data).to_bytes(_HEAD_BYTES, "big") + data)
            head = _exactly(self._process.stdout, _HEAD_BYTES, deadline)
            size = int.from_bytes(head, "big")
            if size > _ANSWER_BYTES_MAX:
                raise EOFError
            found: dict[str, Any] = json.loads(_exactly(self._process.stdout, size, deadline))
            return found

    def end(self) -> None:
        """End it at once, and wait until it has ended."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()


def _exactly(stream: IO[bytes], count: int, deadline: float) -> bytes:
    """Return so many bytes."""
    data = bytearray()
    while len(data) < count:
        left_s = deadline - time.monotonic()
        ready, _, _ = select.select([stream], [], [], max(0.0, left_s))
        if not ready:
            raise TimeoutError
        piece = stream.read(count - len(data))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)
