"""Former names of options that a plugin uses, collected while its graph is built.

``bicycle plan`` shows them, and the job logs them at its start. Outside a build, nothing is
collected.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import NamedTuple

from bicycle_sdk.locations import calling_location

__all__ = ["FormerName", "FormerNameWarning", "collect_former_names", "note_former_name"]

_NAMES_MAX = 100


class FormerName(NamedTuple):
    """A former name of an option, its present name, and the location of the use.

    The location is ``file:line``, or ``file:line:column`` in a job file.
    """

    name: str
    present: str
    location: str

    def __str__(self) -> str:
        where = f" ({self.location})" if self.location else ""
        return f"option {self.name!r} is now named {self.present!r}; rename it{where}"


class FormerNameWarning(DeprecationWarning):
    """The warning of the toolkit about a former name of an option."""


_collected: ContextVar[dict[FormerName, None] | None] = ContextVar("former_names", default=None)


def note_former_name(name: str, present: str, location: str | None = None) -> None:
    """Collect the use of a former name, once for each location, and at most 100.

    Args:
        name: The former name.
        present: The name of the option.
        location: Position in a job file; by default the nearest call outside this package.
    """
    collected = _collected.get()
    if collected is not None and len(collected) < _NAMES_MAX:
        where = calling_location() or "" if location is None else location
        collected[FormerName(name, present, where)] = None


@contextlib.contextmanager
def collect_former_names() -> Iterator[dict[FormerName, None]]:
    """Collect the former names that are used inside the ``with`` block, as keys."""
    found: dict[FormerName, None] = {}
    token = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(token)
