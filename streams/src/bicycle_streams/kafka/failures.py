"""Kinds of Kafka's errors: outages, refusals, absent topics, fences.

Brokers only report the kind of a refused resource (a topic, a transactional id); its name and the
intended operation are known to the caller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from bicycle_streams.tls_failures import tls_hint

ABSENT: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)
"""Codes of an unknown topic or partition; also of a partition without a leader, see ``watermarks``.
"""
FENCED: Final = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    }
)
"""Codes of a producer whose transactional id another producer has."""
_OUTAGES = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._DESTROY_BROKER,  # A broker that stops in good order leaves the metadata.
        KafkaError._NODE_UPDATE,
        KafkaError._UNKNOWN_BROKER,
        KafkaError._RETRY,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._WAIT_COORD,
        KafkaError._NOENT,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_COORDINATOR,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_ID,
    }
)
_REFUSALS: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_CA_PROPERTY = "the property ssl.ca.location"
_CLIENT_PROPERTIES = "the properties ssl.certificate.location and ssl.key.location"
_CHECK_LOGIN = "check user, password and certificates"


def plain_error(error: Any) -> Any:
    """Return the error of the client inside an exception; another error as it is."""
    return error.args[0] if isinstance(error, KafkaException) and error.args else error


def text_of(error: object) -> str:
    """Return the text of an error."""
    plain = plain_error(error)
    return plain.str() if isinstance(plain, KafkaError) else str(plain)


def reason_of(error: Exception | KafkaError) -> str:
    """Return the text of an error, with its name in Kafka."""
    plain, text = plain_error(error), text_of(error).strip()
    return f"{text} ({plain.name()})" if isinstance(plain, KafkaError) else text


def is_refusal(error: KafkaException | KafkaError) -> bool:
    """Return whether credentials or rights are the cause, so waiting does not help."""
    plain = plain_error(error)
    return isinstance(plain, KafkaError) and plain.code() in _REFUSALS


def is_outage(error: KafkaError) -> bool:
    """Return whether an error goes away by itself once a broker is there."""
    return not error.fatal() and (error.code() in _OUTAGES or error.retriable())


class LastError:
    """The last error of a client's connections, for the time when no broker answers.

    A refusal is kept over other errors. The client reports the loss of all brokers after each of
    them, which is the message that people need.
    """

    def __init__(self) -> None:
        self.error: KafkaError | None = None

    def note(self, error: KafkaError) -> None:
        """Keep an error; called by the client while it is polled."""
        if self.refusal is None and error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.error = error

    @property
    def refusal(self) -> KafkaError | None:
        """The error if it is a refusal."""
        return self.error if self.error is not None and is_refusal(self.error) else None


def is_of_group(error: KafkaError) -> bool:
    """Return whether a consumer may not use its group, which assignment does not need."""
    return bool(error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """The missing right; both fields are None if the login was refused."""

    resource: str | None
    operation: str | None
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """The rights of a request: an operation on a topic, and the names it uses."""

    operation: str = "Describe"
    topic: str | None = None
    transactional_id: str | None = None
    group: str | None = None

    def lack(self, error: KafkaError, user: str | None) -> Lack:
        """Return the missing right of a refused request.

        Args:
            error: A refusal.
            user: The requesting user, for the command that allows it; None if a certificate
                identifies it.

        Example:
            >>> refused = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
            >>> Rights(operation="Write", topic="t").lack(refused, "ada").hint
            'allow it with kafka-acls --add --allow-principal User:ada --operation Write --topic t'
        """
        match error.code():
            case KafkaError.TOPIC_AUTHORIZATION_FAILED:
                kind, name, operation = "topic", self.topic or "NAME", self.operation
                resource = f"--topic {name}"
            case KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                kind, name, operation = "transactional id", self.transactional_id or "NAME", "Write"
                prefix = name.rstrip("0123456789")  # There is one for each writer.
                resource = f"--transactional-id {prefix} --resource-pattern-type prefixed"
            case KafkaError.GROUP_AUTHORIZATION_FAILED:
                kind, name, operation = "group", self.group or "NAME", "Read"
                resource = f"--group {name}"
            case KafkaError.CLUSTER_AUTHORIZATION_FAILED:
                kind, name, resource = "the", "cluster", "--cluster"
                operation = self.operation if self.operation == "Create" else "IdempotentWrite"
            case _:
                advice = tls_hint(error.str(), ca=_CA_PROPERTY, client=_CLIENT_PROPERTIES)
                return Lack(resource=None, operation=None, hint=advice or _CHECK_LOGIN)
        command = f"kafka-acls --add --allow-principal User:{user or 'NAME'}"
        hint = f"allow it with {command} --operation {operation} {resource}"
        return Lack(resource=f"{kind} {name}", operation=operation, hint=hint)


NO_RIGHTS: Final = Rights()
