"""The password of a login, as an option of connectors."""

from __future__ import annotations

from bicycle_sdk.options import option, shared_options
from bicycle_sdk.secrets import Secret

__all__ = ["PasswordReference"]


@shared_options
class PasswordReference:
    """The password of a login as a reference, since a graph is stored and displayed."""

    password: Secret | None = option(
        default=None,
        doc=(
            "A reference to the password of the server; without it, a client of PostgreSQL uses "
            "PGPASSWORD or the password file of libpq."
        ),
    )
