"""The lock files of the repository: which version of each package is installed, and for what."""

from __future__ import annotations

from pathlib import Path

LOCK = Path(__file__).parents[1] / "requirements.lock"
# Dependency groups that only one session installs.
_GROUPS_WITH_LOCKS = ("release", "site")


def lock_of(group: str) -> Path:
    """Return the lock file that has a dependency group of the repository."""
    return LOCK.with_name(f"requirements-{group}.lock") if group in _GROUPS_WITH_LOCKS else LOCK


def locked_lines(lock: Path = LOCK) -> list[str]:
    """Return the lines of a lock file that name a package, in their order."""
    lines = lock.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if "==" in line.partition(";")[0]]


def locked(lock: Path = LOCK) -> dict[str, str]:
    """Return the version of each package by its name; of several, the one for the newest Python."""
    lines = (line.removesuffix(" \\").partition(";")[0].strip() for line in locked_lines(lock))
    pairs = (line.split("==") for line in lines)
    return {name: version for name, version in pairs}
