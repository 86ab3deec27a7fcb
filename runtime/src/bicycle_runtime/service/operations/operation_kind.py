"""The parts of a kind of operation: its facts, execution, and recovery."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from bicycle_runtime.base.clock import Clock
from bicycle_runtime.jobs.home import Home

__all__ = ["Kind", "NoFacts", "Result", "Surroundings"]


class NoFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The facts of operations that need only a job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The dependencies of an operation: the home of jobs, and the clock."""

    home: Home
    clock: Clock


Result = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of operation.

    ``settle`` checks the facts and fills in what is chosen now, so that it can be found again;
    ``verify`` looks at what takes seconds, last before the operation is kept; ``meet`` does it.
    ``find`` is asked after an end of the service: it returns the result of one
    that was done, else None. ``is_repeated``: it does no harm to do it again instead.
    """

    facts: type[msgspec.Struct]
    settle: Callable[[Surroundings, str, Any, int], Any]
    meet: Callable[[Surroundings, str, Any], Result]
    find: Callable[[Surroundings, str, Any, int], Result | None] | None = None
    verify: Callable[[Surroundings, Any], None] | None = None
    is_repeated: bool = False
    needs_running: bool = False
