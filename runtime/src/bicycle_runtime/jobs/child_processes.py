"""Programs of ours in child processes: both ends of a question and its answer.

The child may load the code of a plugin, which the asking process never does. ``ask_child`` is the
end that asks: bytes in, one JSON document out; ``answering`` and ``answer`` are for the program.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import IO, Any

from bicycle_runtime.base.environment import environment_for_python

__all__ = ["NoAnswerError", "answer", "answering", "ask_child"]


class NoAnswerError(Exception):
    """The child returned no JSON, or not in time; the text names the case.

    Callers add the request.
    """


def ask_child(module: str, *words: str, given: bytes, timeout_s: float) -> Any:
    """Run a module with arguments and standard input, and return its answer.

    Raises:
        NoAnswerError: there is no answer.
    """
    try:
        result = subprocess.run(
            [sys.executable, "-P", "-m", module, *words],
            input=given,
            capture_output=True,
            env=environment_for_python(),
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoAnswerError(f"no result after {timeout_s} s") from None
    try:
        return json.loads(result.stdout)
    except ValueError:
        told = result.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise NoAnswerError(
            f"exit code {result.returncode}: {''.join(told) or 'no output'}"
        ) from None


def answer(given: Callable[[bytes], Any]) -> int:
    """Run as a program for ``ask_child``: answer standard input, and return 0."""
    with answering() as stream:
        stream.write(json.dumps(given(sys.stdin.buffer.read()), default=str).encode())
    return 0


@contextlib.contextmanager
def answering(*, buffering: int = -1) -> Iterator[IO[bytes]]:
    """Yield the stream for answers; all output of user code goes to standard error.

    Args:
        buffering: 0 for several answers, each of which is to arrive.
    """
    answer_descriptor = os.dup(1)
    os.dup2(2, 1)
    with os.fdopen(answer_descriptor, "wb", buffering=buffering) as stream:
        yield stream
