"""Secrets by reference: a graph says where a password is to be found, never what it is.

A reference is resolved where the job runs, so a graph can be stored, shown and sent as it is. This
module reads nothing: neither the environment nor files.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from bicycle_sdk.errors import StreamDefinitionError

__all__ = ["Secret"]


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a secret is found; made by ``Secret.env`` or ``Secret.file``.

    Example:
        >>> Secret.env("KAFKA_PASSWORD").to_json()
        {'secret': {'env': 'KAFKA_PASSWORD'}}
    """

    kind: Literal["env", "file"]
    place: str

    def __post_init__(self) -> None:
        if not self.place:
            raise StreamDefinitionError(
                call=f"Secret.{self.kind}",
                problem="the place of the secret is empty",
                hint="name an environment variable or a file",
            )

    @classmethod
    def env(cls, name: str) -> Secret:
        """Take the secret from an environment variable of the process that runs the job."""
        return cls("env", name)

    @classmethod
    def file(cls, path: str | os.PathLike[str]) -> Secret:
        """Take the secret from a file; a newline at its end is not part of the secret."""
        return cls("file", os.fspath(path))

    def to_json(self) -> dict[str, dict[str, str]]:
        """Return the reference as it stands in a graph."""
        return {"secret": {self.kind: self.place}}
