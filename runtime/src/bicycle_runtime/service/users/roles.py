"""Who asks, and what they may do: three roles, each with all that the ones below it may."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

__all__ = ["LOCAL", "Identity", "Role"]


class Role(IntEnum):
    """What somebody may do; a higher one may do all that a lower one may."""

    VIEWER = 1  # Look at everything but secrets.
    OPERATOR = 2  # Start jobs, and act on them. Who starts a job runs code as the service's user.
    ADMIN = 3  # See the audit log.


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Somebody, by the name that operations and the audit log show."""

    name: str
    role: Role

    def may(self, least: Role) -> bool:
        """Tell whether the role is enough."""
        return self.role >= least


# Who reaches a loopback address is on this machine, where files and signals are open to him anyway.
LOCAL = Identity(name="local", role=Role.ADMIN)
