"""The password of a login, as an option of connectors."""

from __future__ import annotations

from dataclasses import dataclass

from bicycle_sdk.options import option
from bicycle_sdk.secrets import Secret

__all__ = ["PasswordReference"]


@dataclass(frozen=True, kw_only=True)
class PasswordReference:
    """The password of a login as a reference, since a graph is stored and displayed."""

    password: Secret | None = option(default=None, doc="A reference to the password of the server.")
