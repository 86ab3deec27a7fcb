"""The base of source and sink builders: brokers, properties, security, formats."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, ClassVar, NoReturn, Protocol, Self, TypeVar

from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.formats import Format, as_format, split_formats
from bicycle_sdk.option_values import OptionValueError
from bicycle_sdk.options import describe, take
from bicycle_sdk.secrets import Secret

__all__ = ["DecodingSchema", "EncodingSchema", "KafkaBuilder"]

_MILLISECOND = timedelta(milliseconds=1)
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


class KafkaBuilder:
    """The base of both builders: brokers, properties of the client, security, formats."""

    options_class: ClassVar[Any]  # Declares the options that the calls set.

    def __init__(self, brokers: str, record_type: Any) -> None:
        self._infos = {info.name: info for info in describe(self.options_class)}
        self._given_type = record_type
        self._given: dict[str, Any] = {}
        self._payloads: dict[str, Any] = {}
        self._protocol_parts: set[str] = set()
        self._set("brokers", brokers.strip())

    def property(self, name: str, value: str | float | bool | Secret) -> Self:
        """Set a property of the client library (librdkafka) by its name there.

        Raises:
            StreamDefinitionError: the property holds a secret, and ``value`` is plain text.
        """
        return self.properties({name: value})

    def properties(self, properties: Mapping[str, str | float | bool | Secret]) -> Self:
        """Set several properties of the client library."""
        return self._set("properties", {**self._given.get("properties", {}), **properties})

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
        return self._set_duration("connect_timeout_ms", timeout, call="connect_timeout")

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

    def _set(self, name: str, value: Any, *, call: str = "") -> Self:
        """Set an option; ``call`` is the method, if it has another name."""
        call = call or name
        if value == "":
            self._refuse(call, f"{name} is empty", f"set {self._infos[name].expected}")
        try:
            self._given[name] = take(self._infos[name], value)
        except OptionValueError as error:
            self._refuse(call, error.problem, error.hint)
        return self

    def _set_format(self, name: str, format: str | Format, *, call: str) -> Self:
        given = as_format(format, call=f"{type(self).__name__}.{call}")
        if self._given.get(name) != "schema":  # A schema object wins over a format.
            self._given.pop(f"{name}_options", None)
            self._given |= split_formats({name: given}, name)
        return self

    def _set_schema(self, side: str, schema: Any, method: str, *, call: str) -> Self:
        if not callable(getattr(schema, method, None)):
            found = type(schema).__name__
            self._refuse(call, f"{found} has no method {method}", f"give an object with {method}()")
        self._given[f"{side}_format"] = "schema"
        self._given.pop(f"{side}_format_options", None)
        self._payloads[f"{side}_schema"] = schema
        return self

    def _set_duration(self, name: str, duration: timedelta, *, call: str) -> Self:
        if duration < _MILLISECOND:
            self._refuse(call, f"found {duration}", "give a timedelta of 1 ms or more")
        return self._set(name, duration // _MILLISECOND, call=call)

    def _options(self, **defaults: Any) -> Any:
        """Return the options that were set, and ``defaults`` for the others.

        Raises:
            StreamDefinitionError: they contradict each other.
        """
        given, properties = {**defaults, **self._given}, self._given.get("properties", {})
        if self._protocol_parts:
            transport = "SSL" if "SSL" in self._protocol_parts else "PLAINTEXT"
            protocol = f"SASL_{transport}" if "SASL" in self._protocol_parts else transport
            properties = {"security.protocol": protocol, **properties}
            found = str(properties["security.protocol"])
            missing = self._protocol_parts - set(found.upper().split("_"))
            if missing:
                call = {"SASL": "sasl", "SSL": "tls"}[min(missing)]
                hint = f"remove the property, or the call of {call}"
                self._refuse(call, f"the property security.protocol is {found!r}", hint)
        options = self.options_class(**{**given, "properties": properties or None})
        for conflict in options.conflicts():
            self._refuse(conflict.option, conflict.problem, conflict.hint)
        return options

    def _refuse(self, call: str, problem: str, hint: str) -> NoReturn:
        raise StreamDefinitionError(
            call=f"{type(self).__name__}.{call}", problem=problem, hint=hint
        )
