"""The login and TLS of Kafka clients, of jobs and of programs."""

from __future__ import annotations

from typing import Any, Literal

from bicycle_sdk.client_options import UserName
from bicycle_sdk.options import option, shared_options
from bicycle_sdk.tls_files import TlsFiles

__all__ = ["KafkaSecurity"]

# Options, and the properties of the client that they set.
_PROPERTIES = {
    "security_protocol": "security.protocol",
    "sasl_mechanism": "sasl.mechanism",
    "username": "sasl.username",
    "password": "sasl.password",
    "ca_file": "ssl.ca.location",
    "cert_file": "ssl.certificate.location",
    "key_file": "ssl.key.location",
}


@shared_options
class KafkaSecurity(UserName, TlsFiles):
    """Security of the connection, as part of other options, which add a password."""

    __slots__ = ()  # Options classes with slots have room for these, too.

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] | None = option(
        default=None, doc="Security protocol of the connection. Default: PLAINTEXT."
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = option(
        default=None,
        doc="SASL mechanism of the login; set others as a property. Default of a login: PLAIN.",
    )

    def security_properties(self) -> dict[str, Any]:
        """Return the properties of the client that the given options set."""
        given = {name: getattr(self, name, None) for name in _PROPERTIES}
        logs_in = given["username"] is not None or "SASL" in (given["security_protocol"] or "")
        if logs_in and given["sasl_mechanism"] is None:
            given["sasl_mechanism"] = "PLAIN"
        return {_PROPERTIES[name]: value for name, value in given.items() if value is not None}

    def set_twice(self, properties: Any) -> list[tuple[str, str]]:
        """Return each option that is also set as a property, with the property."""
        return [
            (option_name, name)
            for option_name, name in _PROPERTIES.items()
            if name in (properties or {}) and getattr(self, option_name, None) is not None
        ]
