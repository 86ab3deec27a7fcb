"""Log lines as events with fields, such as ``epoch_sealed job=orders epoch=17``.

The event name is a stable word; variable parts are fields. Modules call ``log_event`` on their own
standard logger; ``configure`` is called once by the program. This module does not rotate or ship
files.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import IO, Any

from bicycle_sdk.errors import BicycleError

__all__ = ["configure", "log_event", "tell_end"]

_FIELDS = "bicycle_fields"
_LEADING = ("job", "operator", "epoch")
_LOGGERS = ("bicycle_runtime", "bicycle_streams")
_LOG = logging.getLogger(__name__)


def log_event(
    logger: logging.Logger,
    event: str,
    *,
    level: int = logging.INFO,
    error: BaseException | None = None,
    **fields: Any,
) -> None:
    """Log one event.

    Args:
        logger: The module's logger.
        event: A lower-case word that is never reworded: ``epoch_sealed``.
        level: A level of the standard library.
        error: The error, if any. Ours add their code and facts, others their traceback.
        fields: Plain values; ``job``, ``operator`` and ``epoch`` come first in human lines.
    """
    if not logger.isEnabledFor(level):
        return
    if isinstance(error, BicycleError):
        fields |= {"error": error.to_json()}
        error = None
    trace = (type(error), error, error.__traceback__) if error is not None else None
    logger.log(level, event, exc_info=trace, extra={_FIELDS: fields})


def configure(
    stream: IO[str], *, as_json: bool = False, level: int | str = "INFO", job: str | None = None
) -> None:
    """Send log lines to ``stream``: ours from ``level``, others from WARNING.

    Called by a door at start. Calling it again replaces the former stream and form.

    Args:
        stream: Where lines go.
        as_json: One JSON object a line, instead of text for people.
        level: Of our own lines.
        job: The job of this process: JSON lines without a job get it, also lines of libraries.
    """
    handler = _EventHandler(stream)
    handler.setFormatter(_JsonFormatter(job) if as_json else _HumanFormatter())
    root = logging.getLogger()
    for former in [h for h in root.handlers if isinstance(h, _EventHandler)]:
        root.removeHandler(former)
    root.addHandler(handler)
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(level)


def tell_end(error: BicycleError, stream: IO[str], *, as_json: bool) -> None:
    """Report why this process ends: a log event if lines are JSON, else a text."""
    if as_json:
        log_event(_LOG, "job_failed", level=logging.ERROR, error=error)
    else:
        stream.write(f"{error}\n")


class _EventHandler(logging.StreamHandler[IO[str]]):
    """The log handler of this module, distinct from handlers of plugins and tests."""


class _HumanFormatter(logging.Formatter):
    """``07:14:39.120 INFO  epoch_sealed job=orders epoch=17 record_count=100``."""

    def format(self, record: logging.LogRecord) -> str:
        fields = dict(getattr(record, _FIELDS, {}))
        error = fields.pop("error", None)
        leading = {name: fields.pop(name) for name in _LEADING if name in fields}
        parts = [f"{_time(record):%H:%M:%S}.{int(record.msecs):03d}", f"{record.levelname:<5}"]
        parts.append(record.getMessage())
        parts += [f"{name}={_text(value)}" for name, value in (leading | fields).items()]
        line = " ".join(parts)
        if error is not None:
            line += f"\n  {error['code']} {error['message']}\n  fix: {error['fix']}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class _JsonFormatter(logging.Formatter):
    """A formatter of one JSON object per line: fields, ``time``, ``level``, ``event``."""

    def __init__(self, job: str | None) -> None:
        super().__init__()
        self._common = {} if job is None else {"job": job}

    def format(self, record: logging.LogRecord) -> str:
        head: dict[str, Any] = {
            "time": _time(record).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "event": record.getMessage(),
        }
        if record.exc_info:
            head["traceback"] = self.formatException(record.exc_info)
        fields = {k: v for k, v in getattr(record, _FIELDS, {}).items() if k not in head}
        return json.dumps(head | self._common | fields, default=str, ensure_ascii=False)


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, tz=UTC)


def _text(value: object) -> str:
    """Return a value as one word: text with blanks or quotes becomes a JSON string."""
    if isinstance(value, str) and value and not any(c.isspace() or c in '"=' for c in value):
        return value
    return json.dumps(value, default=str, ensure_ascii=False)
