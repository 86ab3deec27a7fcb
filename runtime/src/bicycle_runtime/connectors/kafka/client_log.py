"""What the Kafka client says of itself, as events of our log.

Left alone, librdkafka prints its lines on stderr, past every handler and between the lines of a log
that somebody reads as JSON. With a ``ClientLog`` they are events ``kafka_client``, told while the
client is polled; those of a client that is not polled any more are not told. All are warnings: how
much a client says is settled by its properties ``log_level`` and ``debug``, so what comes here was
asked for, and what goes wrong is raised and logged as an error of ours elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from bicycle_runtime.base.logging import log_event

__all__ = ["ClientLog"]

_logger = logging.getLogger(__name__)


class ClientLog:
    """The client's ``logger`` property.

    Args:
        vertex: Whose client it is.
        redacted: Takes secrets out of a text.
    """

    def __init__(self, vertex: str, redacted: Callable[[str], str]) -> None:
        self._vertex = vertex
        self._redacted = redacted

    def log(self, _level: int, _form: str, *told: str) -> None:
        """Tell one line. Called by the client, which gives a level and a template of its own, too.

        Args:
            told: The client's word for what it is about (``FAIL``, ``CONFWARN``, ``FATAL``), which
                client of the process it is, and what it says.
        """
        kind, client, text = told
        log_event(
            _logger, "kafka_client", level=logging.WARNING, operator=self._vertex,
            kind=kind, client=client, reason=self._redacted(text.strip()),
        )  # fmt: skip
