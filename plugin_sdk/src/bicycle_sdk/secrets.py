"""Secrets by reference: a graph contains a password's location, not the password.

A reference is resolved where the job runs, so a graph, the parameters of a job and the functions
that hold a reference can be stored, shown and sent as they are. Nothing is read before ``read`` is
called.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from bicycle_sdk.errors import SecretError, StreamDefinitionError

__all__ = ["Secret"]


@dataclass(frozen=True, slots=True)
class Secret:
    """A reference to a secret, created by ``Secret.env`` or ``Secret.file``.

    It is a type of plugin parameters, too: given as ``env:NAME``, ``file:PATH`` or ``prompt:``,
    never as the secret itself. Connectors accept it directly; functions call ``reveal`` in
    ``open``.

    Example:
        >>> Secret.env("KAFKA_PASSWORD").to_json()
        {'secret': {'env': 'KAFKA_PASSWORD'}}
    """

    kind: Literal["env", "file"]
    location: str
    option_type: ClassVar[str] = "reference to a secret"

    def __post_init__(self) -> None:
        if not self.location:
            raise StreamDefinitionError(
                call=f"Secret.{self.kind}",
                problem="the location of the secret is empty",
                hint="name an environment variable or a file",
            )

    @classmethod
    def env(cls, name: str) -> Secret:
        """Take the secret from an environment variable of the process that runs the job.

        A newline at its end is not part of the secret.
        """
        return cls("env", name)

    @classmethod
    def file(cls, path: str | os.PathLike[str]) -> Secret:
        """Take the secret from a file; a newline at its end is not part of the secret."""
        return cls("file", os.fspath(path))

    @classmethod
    def parse(cls, text: str) -> Secret:
        """Return the reference in a parameter's text, ``env:NAME`` or ``file:PATH``.

        Raises:
            ValueError: it is neither; the message does not have the text, which may be a secret.
        """
        kind, _, location = text.partition(":")
        if kind == "env" and location:
            return cls.env(location)
        if kind == "file" and location:
            return cls.file(location)
        raise ValueError("expected a reference, got another value (not shown)")

    @classmethod
    def from_json(cls, value: object) -> Secret:
        """Return the reference in a graph, ``{"secret": {"env": NAME}}``.

        Raises:
            ValueError: it is something else, which the message does not show.
        """
        inner = value["secret"] if isinstance(value, Mapping) and set(value) == {"secret"} else None
        if isinstance(inner, Mapping) and len(inner) == 1:
            [(kind, location)] = inner.items()
            if kind in ("env", "file") and isinstance(location, str) and location:
                return cls(kind, location)
        raise ValueError("expected a reference, got another value (not shown)")

    @classmethod
    def from_option(cls, value: object, *, is_text: bool) -> Secret:
        """Return the reference that an option holds; parse a text from outside Python.

        Raises:
            ValueError: it is something else, which the message does not show.
        """
        if isinstance(value, Secret):
            return value
        return cls.parse(value) if is_text and isinstance(value, str) else cls.from_json(value)

    def reveal(self) -> str:
        """Return the secret: call it where it is used, and keep it out of state and logs.

        A function calls it in ``open``, on the host where it runs: variables and files must exist
        on this host. A newline at the end is not part of the secret.

        Raises:
            SecretError: the variable is not set, or the file cannot be read.
        """
        if self.kind == "env":
            if self.location in os.environ:
                return os.environ[self.location].rstrip("\r\n")
            raise SecretError(
                kind="environment variable", location=self.location, problem="is not set"
            )
        try:
            return Path(self.location).read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            problem = f"cannot be read: {error.strerror}"
        except UnicodeDecodeError:
            problem = "is not UTF-8 text"
        raise SecretError(kind="file", location=self.location, problem=problem)

    def to_json(self) -> dict[str, dict[str, str]]:
        """Return the reference as it is in a graph."""
        return {"secret": {self.kind: self.location}}
