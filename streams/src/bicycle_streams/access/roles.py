"""Identities and roles: three roles, each with all rights of lower ones.

A role counts for the jobs of all owners, or of some.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from bicycle_streams.access.errors import OWNER_FOREIGN, ROLE_TOO_LOW


class Role(IntEnum):
    """The rights of an identity; a higher role includes lower ones."""

    NOBODY = 0  # See that the service is there, and log in.
    VIEWER = 1  # Look at everything but secrets.
    OPERATOR = 2  # Start and change jobs, and thereby run code as the service's user.
    ADMIN = 3  # See the audit log.


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """An identity, with its name in operations and the audit log.

    ``owners`` are the owners for whose jobs the role applies, None for all. ``token`` is the id of
    the token, empty without a token; ``session`` is the secret of a login to the pages, empty
    without a login.
    """

    name: str
    role: Role
    owners: tuple[str, ...] | None = None
    token: str = ""
    session: str = ""

    @property
    def owner(self) -> str:
        """The owner of the jobs that the identity starts: itself, else its first owner."""
        return self.name if self.owners is None or self.name in self.owners else self.owners[0]

    def sees(self, owner: str) -> bool:
        """Return whether resources of an owner are visible; "" means no owner."""
        return self.owners is None or owner in self.owners

    def may(self, least: Role) -> bool:
        """Return whether the role is enough."""
        return self.role >= least


# Callers on a loopback address are on this machine, and can use its files and signals anyway.
LOCAL = Identity(name="local", role=Role.ADMIN)
NOBODY = Identity(name="nobody", role=Role.NOBODY)


def client_of(name: str, word: str) -> Identity:
    """Return the identity of a client certificate from its role and owners.

    Raises:
        KeyError: there is no such role.

    Example:
        >>> found = client_of("grafana", "viewer:ada,bob")
        >>> found.role.name, found.owners, client_of("root", "admin").owners
        ('VIEWER', ('ada', 'bob'), None)
    """
    role, _, owners = word.partition(":")
    chosen = tuple(owners.split(",")) if owners else None
    return Identity(name=name, role=Role[role.upper()], owners=chosen)


def require_role(identity: Identity, least: Role) -> None:
    """Require a role.

    Raises:
        ROLE_TOO_LOW: they may not.
    """
    if not identity.may(least):
        raise ROLE_TOO_LOW(
            name=identity.name, found=identity.role.name.lower(), least=least.name.lower()
        )


def require_all_owners(identity: Identity) -> None:
    """Require an identity with access to all owners.

    Raises:
        OWNER_FOREIGN: it does not.
    """
    if identity.owners is not None:
        raise OWNER_FOREIGN(name=identity.name, owners_text=", ".join(identity.owners))
