"""Asking a module of ours in a child process: bytes in, one JSON document out.

The child may load the code of a plugin, which this process never does.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from bicycle_runtime.base.environment import environment_for_python

__all__ = ["NoAnswerError", "ask_child"]


class NoAnswerError(Exception):
    """The child gave no JSON, or not in time; the text says which. Callers tell what they asked."""


def ask_child(module: str, *words: str, given: bytes, timeout_s: float) -> Any:
    """Run a module with words and standard input, and return what it answered.

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
        raise NoAnswerError(f"not done after {timeout_s} s") from None
    try:
        return json.loads(result.stdout)
    except ValueError:
        told = result.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise NoAnswerError(
            f"exit code {result.returncode}: {''.join(told) or 'no words'}"
        ) from None
