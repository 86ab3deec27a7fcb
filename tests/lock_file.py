"""The lock files of the repository: which version of each package is installed, and for what."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parents[1] / "requirements"
RUNTIME = FOLDER / "runtime.lock"
DEVELOPMENT = FOLDER / "development.lock"
_LOCKS_OF_GROUPS = {"build": RUNTIME, "dev": DEVELOPMENT}


def lock_of(group: str) -> Path:
    """Return the lock file that has a dependency group of the repository."""
    return _LOCKS_OF_GROUPS.get(group, FOLDER / f"{group}.lock")


def locked_lines(*locks: Path) -> list[str]:
    """Return the lines of lock files that name a package, in their order."""
    lines = [line for lock in locks for line in lock.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if "==" in line.partition(";")[0]]


def locked(*locks: Path) -> dict[str, str]:
    """Return the version of each package by name; of several, the version for the newest Python.

    Args:
        locks: The lock files; by default those that ``make setup`` installs.
    """
    found = locked_lines(*(locks or (RUNTIME, DEVELOPMENT)))
    lines = (line.removesuffix(" \\").partition(";")[0].strip() for line in found)
    pairs = (line.split("==") for line in lines)
    return {name: version for name, version in pairs}
