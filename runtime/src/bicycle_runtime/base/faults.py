"""Named points at which a test may break the runtime; nearly free without a plan.

Crash tests set ``BICYCLE_FAULTS`` to ``point@n=action`` (comma separated): at the n-th passage of
that point in a process, ``kill`` sends SIGKILL to it, ``raise`` raises, and ``hold`` stops there
until the test lets go, so that it can kill or freeze another process at just that point. With a
directory in ``BICYCLE_FAULTS_ONCE`` each entry fires once over all processes and restarts, and
leaves a file of its name with the process id; ``point@any=action`` fires at whatever passage comes
while that file is not there, so that a test arms it again by removing the file. A file ``release``
there lets go of all that hold; one with the entry's name and ``.release`` lets go of that entry,
and is removed by what held there. Within one process ``arm_fault`` does the same as ``raise``,
without the environment, or does there whatever a test wants.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

FAULT_POINTS: Final = (
    "read",
    "operator",
    "delta_written",
    "before_seal",
    "after_seal",
    "before_publish",
    "half_published",
    "after_publish",
)
# Inside the publication of a sink that writes in transactions; other sinks never pass them.
TRANSACTION_POINTS: Final = (
    "transaction_begun",
    "transaction_produced",
    "transaction_marked",
    "transaction_committed",
)
# While a base is made beside the epochs, in this order; the two in the middle in a thread.
BASE_POINTS: Final = (
    "base_announced",
    "base_begun",
    "base_file_written",
    "base_made",
    "base_taken",
)
_ANY = "any"
_KNOWN_POINTS = FAULT_POINTS + TRANSACTION_POINTS + BASE_POINTS


class InjectedFault(Exception):
    """Raised by a fault point with the action ``raise``."""


_counts: dict[str, int] = {}
_armed: dict[str, int] = {}
_acts: dict[str, Callable[[], object]] = {}
_lock = threading.Lock()  # Sinks may pass a point in several threads.


def arm_fault(name: str, passage: int = 1, *, act: Callable[[], object] | None = None) -> None:
    """Make a point raise ``InjectedFault`` once, at its next n-th passage.

    Args:
        name: One of ``FAULT_POINTS``, ``TRANSACTION_POINTS`` or ``BASE_POINTS``.
        passage: Which passage from now on, 1 or more.
        act: What to do there instead, in the thread that passes; then it goes on.
    """
    if name not in _KNOWN_POINTS:
        raise ValueError(f"{name!r} is none of {', '.join(_KNOWN_POINTS)}")
    _armed[name] = passage
    _acts.pop(name, None)
    if act is not None:
        _acts[name] = act


def disarm_faults() -> None:
    """Cancel the requests of ``arm_fault`` that have not fired yet."""
    _armed.clear()
    _acts.clear()


def fault_point(name: str) -> None:
    """Break here if the plan contains this point.

    Args:
        name: One of ``FAULT_POINTS``, ``TRANSACTION_POINTS`` or ``BASE_POINTS``.
    """
    if name in _armed:
        _pass_armed(name)
    plan = _plan()
    if not plan or name not in plan:
        return
    _counts[name] = _counts.get(name, 0) + 1
    for passage, action in plan[name]:
        is_here = passage in (_ANY, str(_counts[name]))
        entry = f"{name}@{passage}={action}"
        if is_here and _is_first(entry):
            _break(entry, action)


def _pass_armed(name: str) -> None:
    with _lock:
        left = _armed.get(name, 0) - 1
        if left != 0:
            if left > 0:
                _armed[name] = left
            return
        del _armed[name]
        act = _acts.pop(name, None)
    if act is None:
        raise InjectedFault(name)
    act()


def _plan() -> dict[str, list[tuple[str, str]]]:
    text = os.environ.get("BICYCLE_FAULTS")
    if not text:
        return {}
    plan: dict[str, list[tuple[str, str]]] = {}
    for entry in text.split(","):
        point, _, action = entry.partition("=")
        name, _, passage = point.partition("@")
        plan.setdefault(name, []).append((passage or "1", action))
    return plan


def _is_first(entry: str) -> bool:
    folder = os.environ.get("BICYCLE_FAULTS_ONCE")
    if folder is None:
        return True
    try:
        with (Path(folder) / entry).open("x") as stream:
            stream.write(str(os.getpid()))
    except FileExistsError:
        return False
    return True


def _break(entry: str, action: str) -> None:
    match action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hold":
            folder = Path(os.environ["BICYCLE_FAULTS_ONCE"])
            general, own = folder / "release", folder / f"{entry}.release"
            while not (general.exists() or own.exists()):
                threading.Event().wait(0.01)
            own.unlink(missing_ok=True)
        case "raise":
            raise InjectedFault(entry)
        case _:
            raise ValueError(f"unknown fault action {action!r}")
