"""The connection to a PostgreSQL server: one per sink, opened on demand."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import psycopg

from bicycle_runtime.connectors.errors import POSTGRES_UNREACHABLE
from bicycle_runtime.connectors.patience import close_socket
from bicycle_runtime.connectors.settings import option_error
from bicycle_runtime.contract import ConnectorSpec
from bicycle_sdk.clock import Clock
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.logging import log_event
from bicycle_sdk.secrets import Secret

_LOG = logging.getLogger(__name__)
_ATTEMPT_S = 5
_NOT_YET = ("the database system is", "too many clients", "connection slots are reserved")
_PAUSE_S = 0.2


class PostgresServer:
    """A server, and the session of one sink or source there.

    Args:
        url: Without a password.
        password: A reference to it, or None.
        spec: Of the connector, for errors.
        connect_timeout_ms: How long a start tries; None for a task, which waits without a limit.
    """

    def __init__(
        self, url: str, password: Secret | None, spec: ConnectorSpec,
        *, connect_timeout_ms: int | None,
    ) -> None:  # fmt: skip
        self._spec = spec
        self._url = url
        self._connect_timeout_ms = connect_timeout_ms
        self._secret = password
        try:
            self._facts = psycopg.conninfo.conninfo_to_dict(url)
        except psycopg.Error as error:
            raise self._wrong("url", f"it cannot be read: {error}") from error
        if "password" in self._facts:
            raise self._wrong("url", "it contains a password, which would be stored in the graph")
        self.name = ""
        self.revealed: str | None = None
        self._connection: psycopg.Connection[Any] | None = None

    def connection(self) -> psycopg.Connection[Any]:
        """Return the open session; one that was lost is opened again.

        Raises:
            psycopg.OperationalError: it cannot be.
        """
        if self._connection is None or self._connection.closed:
            self._connection = self._connect()
        return self._connection

    def reveal(self) -> str | None:
        """Return the password, or None if the library finds it."""
        if self.revealed is not None or self._secret is None:
            return self.revealed
        return self._secret.reveal()

    @contextmanager
    def opened(
        self, clock: Clock, is_stopping: threading.Event
    ) -> Iterator[psycopg.Connection[Any]]:
        """Yield a session of its own; a server that is not there yet is waited for.

        Raises:
            POSTGRES_UNREACHABLE: for too long.
        """
        begun = clock.monotonic()
        timeout_ms = self._connect_timeout_ms
        for attempt in count():
            try:
                connection = self._connect()
                break
            except psycopg.OperationalError as error:
                waited_ms = round((clock.monotonic() - begun) * 1_000)
                is_late = timeout_ms is not None and waited_ms > timeout_ms
                if is_late or is_stopping.wait(_PAUSE_S) or not _is_away(error):
                    raise self.unreachable(waited_ms, error) from error
                if attempt == 0:
                    log_event(
                        _LOG, "postgres_awaited", level=logging.WARNING,
                        operator=self._spec.vertex_id, reason=str(error).strip(),
                    )  # fmt: skip
        with connection:
            yield connection

    def end_others(self, connection: psycopg.Connection[Any], name: str) -> None:
        """End sessions of replaced drivers, which may be frozen and hold locks."""
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = %s "
            "and usename = current_user and pid <> pg_backend_pid()",
            [_application(name)],
        )

    def break_off(self) -> None:
        """End a wait for an answer of the session with an error."""
        connection = self._connection
        if connection is not None:
            with contextlib.suppress(psycopg.Error):  # It is closed meanwhile.
                close_socket(connection.fileno())

    def close(self) -> None:
        """Close the session."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def unreachable(self, waited_ms: int, error: Exception) -> BicycleError:
        """Return the error of an unusable server."""
        server = f"{self._facts.get('host', 'localhost')}:{self._facts.get('port', 5432)}"
        return POSTGRES_UNREACHABLE(
            vertex=self._spec.vertex_id,
            server=server,
            waited_ms=waited_ms,
            reason=str(error).strip(),
        )

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(
            self._url,
            autocommit=True,
            connect_timeout=_ATTEMPT_S,
            client_encoding="UTF8",
            application_name=_application(self.name),
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=3,
            tcp_user_timeout=30_000,
            # A replica lacks rows, and does not show which transactions are still writing.
            target_session_attrs="primary",
            password=self.reveal(),
        )

    def _wrong(self, name: str, problem: str) -> BicycleError:
        hint = "use url='postgresql://user@host/database' and password=Secret.env('NAME')"
        return option_error(self._spec, name, problem, hint)


def _application(name: str) -> str:
    return f"bicycle {name}".strip()


def _is_away(error: psycopg.OperationalError) -> bool:
    """Return whether the server may become available; a refused login is final.

    The library has no code for errors before a session begins.
    """
    text = str(error)
    is_answer = "FATAL:" in text or "fe_sendauth" in text
    return not is_answer or any(words in text for words in _NOT_YET)
