"""Properties of the Kafka client: checked against options, with secrets hidden.

Any property of librdkafka passes through unless an option of ours decides it. The remaining checks
(names, values, combinations) are the client's at its construction; ``open`` adds the location to
its errors. This module opens no connection.

Secrets are references: the graph has the location of a password, and the driver looks it up when it
starts. Only the driver's process and host are sure to have the variable or file (workers of a
cluster need not), so the driver resolves references at each start and ships the values inside the
job's image. They are in no graph, manifest, log line or error; Spark's own local files can be
encrypted with ``spark.io.encryption.enabled``.

The client's own log lines are events of our log. Left alone, librdkafka prints its lines on stderr,
past every handler and between the lines of a JSON log. With a ``ClientLog`` they are events
``kafka_client``, logged while the client is polled; lines of a client that is not polled any more
are dropped. All are warnings: the client's properties ``log_level`` and ``debug`` set its
verbosity, so the lines here were requested, and failures are raised and logged as our errors
elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self, TypeVar

from confluent_kafka import KafkaError, KafkaException

from bicycle_runtime.connectors.kafka.errors import (
    KAFKA_BATCH_DAMAGED,
    KAFKA_CLIENT_FAILED,
    KAFKA_PROPERTY_WRONG,
    KAFKA_SECRET_MISSING,
    KafkaAccessError,
)
from bicycle_sdk.errors import BicycleError, SecretError
from bicycle_sdk.logging import log_event
from bicycle_sdk.secrets import Secret
from bicycle_streams.kafka.clients import ClientConfigError, ClientSettings
from bicycle_streams.kafka.failures import NO_RIGHTS, Rights, is_refusal, plain_error, reason_of

_logger = logging.getLogger(__name__)

_C = TypeVar("_C")
SOURCE_DEFAULTS: Final = {
    "reconnect.backoff.max.ms": "1000",
    "isolation.level": "read_committed",
    "log_level": "2",
}
"""Properties of the clients that read, on the driver and in tasks."""


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
        """Log one line.

        Called by the client, which also passes a level and a template.

        Args:
            told: The client's word for the subject (``FAIL``, ``CONFWARN``, ``FATAL``), the
                client's name, and its text.
        """
        kind, client, text = told
        log_event(
            _logger, "kafka_client", level=logging.WARNING, operator=self._vertex,
            kind=kind, client=client, reason=self._redacted(text.strip()),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ClientProperties(ClientSettings):
    """Properties of a client in the graph: plain texts, and references to secrets.

    ``bound`` makes the copy that travels to workers; it holds the values of the secrets. No form of
    this object shows one.
    """

    vertex: str
    references: Mapping[str, Secret] = field(default_factory=dict)

    def __repr__(self) -> str:
        secrets = {name: f"<{ref.kind} {ref.location}>" for name, ref in self.references.items()}
        return f"ClientProperties({dict(self.plain) | secrets!r})"

    def names(self) -> set[str]:
        """Return the names of all properties."""
        return {*self.plain, *self.references}

    def bound(self) -> Self:
        """Return a copy that knows its secrets, for processes that cannot look them up.

        Raises:
            KAFKA_SECRET_MISSING: a secret is not at the location of its reference.
        """
        if self.values is not None:
            return self
        return replace(self, values={name: self._secret(name) for name in self.references})

    def _secret(self, name: str) -> str:
        try:
            return self.references[name].reveal()
        except SecretError as error:
            kind, location, problem = (error.facts[key] for key in ("kind", "location", "problem"))
            raise KAFKA_SECRET_MISSING(
                vertex=self.vertex,
                name=name,
                problem=f"{kind} {location!r} {problem}",
                hint="set the variable, or make the file readable, on the host that starts the job",
            ) from None

    def open(self, make: Callable[[dict[str, Any]], _C], own: Mapping[str, Any]) -> _C:
        """Return a client, as ``ClientSettings.open``, whose lines go into our log.

        Raises:
            KAFKA_PROPERTY_WRONG: the client does not know a property, or refuses its value.
            KAFKA_SECRET_MISSING: a secret is not at the location of its reference.
        """
        bound = self.bound()
        log = ClientLog(bound.vertex, bound.redacted)
        try:
            return ClientSettings.open(bound, make, {"logger": log, **own})
        except ClientConfigError as error:
            raise _refusal(
                self.vertex,
                error.name,
                f"the client reports: {error}",
                "see the configuration reference of librdkafka for the property",
            ) from None

    def error(
        self, error: KafkaException | KafkaError, action: str, rights: Rights = NO_RIGHTS
    ) -> BicycleError:
        """Return our error for a client's error that is not an outage.

        Args:
            error: The client's error, raised or reported.
            action: The attempted action: ``"reading topic/3"``.
            rights: The rights that it needs.
        """
        reason = self.redacted(reason_of(error))
        plain = plain_error(error)
        if not is_refusal(error):
            is_damaged = plain.code() in (KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION)
            row = KAFKA_BATCH_DAMAGED if is_damaged else KAFKA_CLIENT_FAILED
            return row(vertex=self.vertex, action=action, reason=reason)
        lack = rights.lack(plain, self.plain.get("sasl.username"))
        return KafkaAccessError(
            vertex=self.vertex,
            action=action,
            reason=reason,
            resource=lack.resource,
            operation=lack.operation,
            kept_epoch=None,
            outcome="",
            hint=lack.hint,
        )


def checked_properties(
    properties: Mapping[str, str | Secret] | None, *, vertex: str, reserved: Mapping[str, str]
) -> ClientProperties:
    """Return the client's properties of a vertex, without conflicts with our options.

    Args:
        properties: The option; None for none.
        vertex: For errors.
        reserved: Names that the connector decides, each with an alternative.

    Raises:
        KAFKA_PROPERTY_WRONG: a property is reserved, or contradicts another one.
    """
    given = dict(properties or {})
    for name in given:
        if name in reserved:
            problem = "it is set by an option of the connector"
            raise _refusal(vertex, name, problem, reserved[name])
    plain = {name: value for name, value in given.items() if isinstance(value, str)}
    references = {name: value for name, value in given.items() if isinstance(value, Secret)}
    checked = ClientProperties(vertex=vertex, plain=plain, references=references)
    for found in checked.contradictions():
        raise _refusal(vertex, *found)
    return checked


def _refusal(vertex: str, name: str, problem: str, hint: str) -> BicycleError:
    return KAFKA_PROPERTY_WRONG(vertex=vertex, name=name, problem=problem, hint=hint)
