"""Secrets by reference: the graph says where a password is, the driver looks it up when it starts.

Only the driver's process and host are sure to have the variable or file (workers of a cluster need
not), so the driver resolves references at each start and ships the values inside the job's image.
They are in no graph, manifest, log line or error; Spark's own local files can be encrypted with
``spark.io.encryption.enabled``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bicycle_runtime.base.environment import chosen_variables
from bicycle_runtime.connectors.kafka.errors import KafkaSecretError

__all__ = ["SecretReference", "secret_reference"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretReference:
    """Where a secret is: the name of an environment variable, or the path of a file."""

    kind: Literal["env", "file"]
    place: str

    def resolve(self, *, vertex: str, name: str) -> str:
        """Return the secret; a file's last line end does not belong to it.

        Args:
            vertex: For the error.
            name: The property that it is for; for the error.

        Raises:
            KafkaSecretError: the variable is not set, or the file can not be read.
        """
        if self.kind == "env":
            found = chosen_variables([self.place])
            if self.place in found:
                return found[self.place]
            raise KafkaSecretError(
                vertex=vertex,
                name=name,
                problem=f"environment variable {self.place!r} is not set",
                hint=f"set {self.place} where the job is started",
            )
        try:
            return Path(self.place).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
            raise KafkaSecretError(
                vertex=vertex,
                name=name,
                problem=f"file {self.place!r} can not be read: {reason}",
                hint="give a file that the user of the job may read on the driver's host",
            ) from None


def secret_reference(value: Any) -> SecretReference | None:
    """Return the reference that JSON of the form ``{"secret": {"env": …}}`` stands for, or None."""
    if not isinstance(value, Mapping) or set(value) != {"secret"}:
        return None
    inner = value["secret"]
    if not isinstance(inner, Mapping) or len(inner) != 1:
        return None
    [(kind, place)] = inner.items()
    if kind not in ("env", "file") or not isinstance(place, str) or not place:
        return None
    return SecretReference(kind=kind, place=place)
