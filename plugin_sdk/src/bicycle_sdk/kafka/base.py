"""The base of source and sink builders: brokers, properties, security, formats."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, ClassVar, NoReturn, Protocol, Self, TypeVar

from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.formats import Format, as_format
from bicycle_sdk.options import declared_options
from bicycle_sdk.secrets import Secret

__all__ = [
    "DecodingSchema",
    "EncodingSchema",
    "KafkaBuilder",
    "format_of",
    "is_secret_property",
]

_MILLISECOND = timedelta(milliseconds=1)
_SECRET_ENDINGS = ("password", "secret", "passphrase", "key.pem")
_PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class DecodingSchema(Protocol):
    """Turns the bytes of a message into a value; called on workers, once per message.

    Whatever it raises makes the message a bad record, which the source's ``on_error`` treats.
    """

    def decode(self, data: bytes, /) -> Any:
        """Return the value."""


class EncodingSchema(Protocol):
    """Turns a value into the bytes of a message; called on workers, once per record."""

    def encode(self, value: Any, /) -> bytes:
        """Return the bytes."""


def is_secret_property(name: str) -> bool:
    """Return whether a client property holds a secret, which requires a ``Secret``.

    Example:
        >>> [is_secret_property(name) for name in ("sasl.password", "ssl.key.pem", "client.id")]
        [True, True, False]
    """
    return name.lower().endswith(_SECRET_ENDINGS)


def format_of(record_type: Any) -> str:
    """Return the format name of a type, without ``NewType``, ``Annotated`` and None."""
    while hasattr(record_type, "__supertype__"):
        record_type = record_type.__supertype__
    if typing.get_origin(record_type) is typing.Annotated:
        return format_of(typing.get_args(record_type)[0])
    if typing.get_origin(record_type) in (typing.Union, types.UnionType):
        members = set(typing.get_args(record_type)) - {types.NoneType}
        return format_of(members.pop()) if len(members) == 1 else "json"
    if record_type is str:
        return "string"
    return "bytes" if record_type is bytes else "json"


class KafkaBuilder:
    """The base of both builders: brokers, properties of the client, security, formats."""

    _options: ClassVar[type]  # Declares the settings: a call sets the option that names it.

    def __init__(self, brokers: str, record_type: Any) -> None:
        self._given_type = record_type
        self._settings: dict[str, Any] = {"brokers": brokers}
        self._payloads: dict[str, Any] = {}
        self._properties: dict[str, Any] = {}
        self._protocol_parts: set[str] = set()
        if not brokers.strip():
            self._refuse(
                "brokers", f"found {brokers!r}", "use host:port, several separated by commas"
            )

    def property(self, name: str, value: str | float | bool | Secret) -> Self:
        """Set a property of the client library (librdkafka) by its name there.

        Raises:
            StreamDefinitionError: the property holds a secret, and ``value`` is plain text.
        """
        if isinstance(value, Secret):
            self._properties[name] = value.to_json()
            return self
        if is_secret_property(name):
            hint = (
                'use Secret.env("NAME") or Secret.file(path), because the graph is stored and '
                "displayed"
            )
            self._refuse("property", f"{name} is given as plain text", hint)
        self._properties[name] = str(value).lower() if isinstance(value, bool) else str(value)
        return self

    def properties(self, properties: Mapping[str, str | float | bool | Secret]) -> Self:
        """Set several properties of the client library."""
        for name, value in properties.items():
            self.property(name, value)
        return self

    def sasl(self, mechanism: str, username: str | Secret, password: Secret) -> Self:
        """Log in with a name and a password.

        Args:
            mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; for others use ``property``.
            username: The name.
            password: Where the password is found.
        """
        if mechanism not in _PASSWORD_MECHANISMS:
            known = ", ".join(_PASSWORD_MECHANISMS)
            hint = f"one of {known}; others by property('sasl.mechanism', …)"
            self._refuse("sasl", f"mechanism is {mechanism!r}", hint)
        self._protocol_parts.add("SASL")
        return self.properties(
            {"sasl.mechanism": mechanism, "sasl.username": username, "sasl.password": password}
        )

    def tls(
        self,
        *,
        ca_location: str | None = None,
        certificate_location: str | None = None,
        key_location: str | None = None,
        key_password: Secret | None = None,
    ) -> Self:
        """Encrypt the connection. Files must be readable under the same path on every host.

        Args:
            ca_location: PEM file of the authorities to trust; None: the authorities of the machine.
            certificate_location: PEM file of the client's own certificate.
            key_location: PEM file of the client's private key.
            key_password: Where the password of that key is found.
        """
        self._protocol_parts.add("SSL")
        given: dict[str, str | Secret | None] = {
            "ssl.ca.location": ca_location,
            "ssl.certificate.location": certificate_location,
            "ssl.key.location": key_location,
            "ssl.key.password": key_password,
        }
        return self.properties({name: v for name, v in given.items() if v is not None})

    def connect_timeout(self, timeout: timedelta) -> Self:
        """Set how long the first start waits for a broker; 30 s otherwise. Later ones wait on."""
        return self._set_duration("connect_timeout", timeout)

    # --- the results of builders ----------------------------------------------------------------

    def _declared_type(self) -> Any:
        """Return the keyword's type, or that of the brackets, or None.

        ``KafkaSourceBuilder[str](…)`` leaves its argument on the instance, after the constructor.
        """
        if self._given_type is not None:
            return self._given_type
        arguments = typing.get_args(getattr(self, "__orig_class__", None))
        says_nothing = (TypeVar, typing.ForwardRef, str)
        if not arguments or arguments[0] is Any or isinstance(arguments[0], says_nothing):
            return None
        return arguments[0]

    def _set_format(self, call: str, given: str | Format) -> Self:
        format = as_format(given, call=f"{type(self).__name__}.{call}")
        setting = self._setting(call)
        if self._settings.get(setting) != "schema":  # A schema object wins over a format.
            self._settings[setting] = format.name
            self._settings.pop(f"{setting}_options", None)
            if format.options:
                self._settings[f"{setting}_options"] = dict(format.options)
        return self

    def _set_schema(self, call: str, side: str, schema: Any, method: str) -> Self:
        if not callable(getattr(schema, method, None)):
            found = type(schema).__name__
            self._refuse(call, f"{found} has no method {method}", f"give an object with {method}()")
        self._settings[f"{side}_format"] = "schema"
        self._settings.pop(f"{side}_format_options", None)
        self._payloads[f"{side}_schema"] = schema
        return self

    def _set_duration(self, call: str, duration: timedelta) -> Self:
        setting = self._setting(call)
        if duration < _MILLISECOND:
            self._refuse(call, f"found {duration}", "give a timedelta of 1 ms or more")
        declared = declared_options(self._options)[setting]
        duration_ms = duration // _MILLISECOND
        if not (declared.low or 0) <= duration_ms <= (declared.high or duration_ms):
            bounds = f"from {declared.low:,} to {declared.high:,} ms"
            self._refuse(call, f"found {duration}", f"give a timedelta {bounds}")
        self._settings[setting] = duration_ms
        return self

    def _set_word(self, call: str, word: str) -> Self:
        setting = self._setting(call)
        choices = typing.get_args(typing.get_type_hints(self._options)[setting])
        if word not in choices:
            self._refuse(call, f"found {word!r}", f"one of {', '.join(choices)}")
        self._settings[setting] = word
        return self

    def _set_name(self, call: str, name: str, hint: str) -> Self:
        if not name:
            self._refuse(call, "the name is empty", hint)
        self._settings[self._setting(call)] = name
        return self

    def _setting(self, call: str) -> str:
        """Return the option that a call sets, as it is declared."""
        options = declared_options(self._options).items()
        return next(name for name, declared in options if declared.call == call)

    def _built_settings(self) -> dict[str, Any]:
        properties = dict(self._properties)
        if self._protocol_parts:
            transport = "SSL" if "SSL" in self._protocol_parts else "PLAINTEXT"
            protocol = f"SASL_{transport}" if "SASL" in self._protocol_parts else transport
            given = properties.setdefault("security.protocol", protocol)
            missing = self._protocol_parts - set(str(given).upper().split("_"))
            if missing:
                call = {"SASL": "sasl", "SSL": "tls"}[min(missing)]
                hint = f"remove the property, or the call of {call}"
                self._refuse(call, f"the property security.protocol is {given!r}", hint)
        return dict(self._settings) | ({"properties": properties} if properties else {})

    def _refuse(self, call: str, problem: str, hint: str) -> NoReturn:
        raise StreamDefinitionError(
            call=f"{type(self).__name__}.{call}", problem=problem, hint=hint
        )
