"""The text of Java about an error, and its part for people."""

from __future__ import annotations

import re

_LINES_MAX = 6
_CHARACTERS_MAX = 2_000
_PYTHON_ERROR = re.compile(
    r"(?!org\.|java\.|scala\.)[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt)\b"
)


def text_of(error: BaseException) -> str:
    """Return the complete text of Java."""
    return str(getattr(error, "java_exception", None) or error)


def root_reason(error: BaseException) -> str:
    """Return the cause that Spark wraps: the worker's Python error, else Java's."""
    lines = [line.strip() for line in text_of(error).splitlines() if line.strip()]
    raised = [line for line in lines if _PYTHON_ERROR.match(line)]
    if raised:
        return raised[-1][:_CHARACTERS_MAX]
    interesting = [line for line in lines if not line.startswith(("at ", "..."))]
    return " | ".join(interesting[:_LINES_MAX])[:_CHARACTERS_MAX]


def is_worker_gone(error: Exception) -> bool:
    """Return whether Spark lost a Python worker without a reported reason."""
    return not any(_PYTHON_ERROR.match(line.strip()) for line in text_of(error).splitlines())
