"""Who asks, and what they may do: three roles, each with all that the ones below it may."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from bicycle_runtime.service.users.errors import ROLE_TOO_LOW

__all__ = ["LOCAL", "NOBODY", "Identity", "Role", "require_role"]


class Role(IntEnum):
    """What somebody may do; a higher one may do all that a lower one may."""

    NOBODY = 0  # See that the service is there, and log in.
    VIEWER = 1  # Look at everything but secrets.
    OPERATOR = 2  # Start jobs, and act on them. Who starts a job runs code as the service's user.
    ADMIN = 3  # See the audit log.


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Somebody, by the name that operations and the audit log show.

    ``token`` is the id of the token that says so, empty where none does; ``session`` the secret of
    a login by page, empty where there was none.
    """

    name: str
    role: Role
    token: str = ""
    session: str = ""

    def may(self, least: Role) -> bool:
        """Tell whether the role is enough."""
        return self.role >= least


# Who reaches a loopback address is on this machine, where files and signals are open to him anyway.
LOCAL = Identity(name="local", role=Role.ADMIN)
NOBODY = Identity(name="nobody", role=Role.NOBODY)


def require_role(identity: Identity, least: Role) -> None:
    """See that somebody may do something.

    Raises:
        ROLE_TOO_LOW: they may not.
    """
    if not identity.may(least):
        raise ROLE_TOO_LOW(
            name=identity.name, found=identity.role.name.lower(), least=least.name.lower()
        )
