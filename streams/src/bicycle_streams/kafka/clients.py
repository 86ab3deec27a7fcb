"""The settings of clients of a cluster, and their opening.

The toolkit and the connectors of jobs open every client here.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException

from bicycle_streams.kafka.failures import reason_of, text_of
from bicycle_streams.tls_failures import refused_handshake

_C = TypeVar("_C")
SAME: Final = (
    ("sasl.mechanism", "sasl.mechanisms"),
    ("linger.ms", "queue.buffering.max.ms"),
    ("retries", "message.send.max.retries"),
    ("compression.type", "compression.codec"),
    ("delivery.timeout.ms", "message.timeout.ms"),
    ("max.in.flight", "max.in.flight.requests.per.connection"),
    ("max.partition.fetch.bytes", "fetch.message.max.bytes"),
)
"""Names of librdkafka for one setting: when both are set, the later one wins silently."""
_CONSUMER: Final = {
    "check.crcs": "true",  # Otherwise a bit that a disk has flipped is part of a value.
    "enable.auto.commit": "false",
}
READS_MANY: Final = {
    # hot path: left as the client has them, these cost a factor of eight in throughput: it pauses
    # a second whenever its queue was full.
    "fetch.queue.backoff.ms": "1",
    "queued.min.messages": "20000",
}
"""Settings of consumers that read many messages."""
_PROTOCOL = "security.protocol"
_PROTOCOLS: Final = {"SASL": "SASL_SSL or SASL_PLAINTEXT", "SSL": "SSL or SASL_SSL"}
_QUOTED = re.compile(r'"([\w.]+)"')
_HIDDEN = "***"
_OTHER_CERTIFICATES = ("ssl.keystore", "ssl.certificate.pem", "ssl.key.pem", "ssl.engine")
_HANDSHAKES_MAX, _STEP_S = 3, 0.5
_SECRET_LENGTH_MIN = 4  # Shorter ones would blot out ordinary words.


class ClientConfigError(Exception):
    """An unknown setting of the client, or a wrong value; without secrets.

    Args:
        name: The setting.
        reason: The client's text.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name


def texts(settings: Mapping[str, object]) -> dict[str, str]:
    """Return settings as the client writes them.

    Example:
        >>> texts({"enable.idempotence": True, "linger.ms": 5})
        {'enable.idempotence': 'true', 'linger.ms': '5'}
    """
    return {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in settings.items()}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ClientSettings:
    """The settings of all clients of a user: plain texts, and the values of secrets."""

    plain: Mapping[str, str]
    values: Mapping[str, str] | None = None

    def resolved(self) -> dict[str, str]:
        """Return all settings with secrets, to be passed to a client, not stored."""
        return {**self.plain, **(self.values or {})}

    def names(self) -> set[str]:
        """Return the names of all settings."""
        return {*self.plain, *(self.values or {})}

    def value(self, name: str) -> str | None:
        """Return a setting, under one name or another, or None."""
        found = self.resolved()
        names = next((names for names in SAME if name in names), (name,))
        return next((found[name] for name in names if name in found), None)

    def contradictions(self) -> Iterator[tuple[str, str, str]]:
        """Yield settings that the client would ignore, with the reason and a hint."""
        names = self.names()
        for name, other in SAME:
            if {name, other} <= names:
                yield name, f"it is an alias of {other}, which is also set", "give one"
        protocol = self.plain.get(_PROTOCOL, "PLAINTEXT").upper()
        for part, protocols in _PROTOCOLS.items():
            idle = sorted(name for name in names if name.startswith(f"{part.lower()}."))
            if idle and part not in protocol.split("_"):
                problem = f"it has no effect while {_PROTOCOL} is {protocol}"
                yield idle[0], problem, f"set {_PROTOCOL} to {protocols}, or remove {idle[0]}"

    def with_defaults(self, defaults: Mapping[str, str]) -> Self:
        """Return a copy with settings that were not given, under one name or another."""
        given = self.names()
        given |= {name for names in SAME if given & {*names} for name in names}
        missing = {k: v for k, v in defaults.items() if k not in given}
        return replace(self, plain={**missing, **self.plain})

    def redacted(self, reason: str | KafkaException | KafkaError) -> str:
        """Return a text, or that of an error, without secrets, for errors and logs."""
        text = text_of(reason)
        for value in (self.values or {}).values():
            if len(value) >= _SECRET_LENGTH_MIN:
                text = text.replace(value, _HIDDEN)
        return text

    def refused_handshake(self) -> KafkaError | None:
        """Return the reason for which a broker refuses TLS; None if TLS is not the cause. Blocks.

        For the client, a broker that requires a certificate is one that closes connections.
        """
        found = self.resolved()
        is_other = any(name.startswith(_OTHER_CERTIFICATES) for name in found)
        if is_other or not found.get("security.protocol", "").upper().endswith("SSL"):
            return None
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # The client checks.
        try:
            certificate = found.get("ssl.certificate.location")
            if certificate:
                key, password = found.get("ssl.key.location"), found.get("ssl.key.password", "")
                context.load_cert_chain(certificate, key, lambda: password)
            for address in found.get("bootstrap.servers", "").split(",")[:_HANDSHAKES_MAX]:
                host, _, port = address.strip().rpartition(":")
                number = int(port)
                if error := refused_handshake(host.strip("[]"), number, context, timeout_s=_STEP_S):
                    text = str(error)
                    if not certificate and "alert" in text:  # Java calls it a bad certificate.
                        text = f"client certificate required: {text}"
                    return KafkaError(KafkaError._SSL, self.redacted(text))
        except (OSError, ValueError):  # The client reports files and addresses itself.
            return None
        return None

    def open(self, make: Callable[[dict[str, Any]], _C], own: Mapping[str, Any]) -> _C:
        """Return a client with these settings and ``own``, which wins.

        Args:
            make: ``Consumer``, ``Producer`` or ``AdminClient``.
            own: Settings of this client; may hold callbacks.

        Raises:
            ClientConfigError: the client does not know a setting, or refuses its value.
        """
        full = self.with_defaults(_CONSUMER) if make is Consumer else self
        try:
            return make({**full.resolved(), **own})
        except (KafkaException, TypeError, ValueError) as error:
            text = self.redacted(reason_of(error))
        known = [name for name in self.names() if f'"{name}"' in text]
        quoted = _QUOTED.search(text)  # An older name of the setting, as the client calls it.
        named = known[0] if known else quoted[1] if quoted else "(a combination)"
        raise ClientConfigError(named, text)
