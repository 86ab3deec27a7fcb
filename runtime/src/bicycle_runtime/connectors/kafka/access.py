"""The missing right of a refused request: resource and operation of Kafka's ACLs.

Brokers only report the kind of resource (a topic, a transactional id); its name and the intended
operation are known to the caller. This module sends no request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from bicycle_streams.tls_failures import tls_hint

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


def is_refusal(error: KafkaException | KafkaError) -> bool:
    """Return whether credentials or rights are the cause, so waiting does not help."""
    plain = error.args[0] if isinstance(error, KafkaException) and error.args else error
    return isinstance(plain, KafkaError) and plain.code() in _REFUSALS


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
