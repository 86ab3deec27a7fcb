"""The lock file of the repository: which version of each package is installed for development."""

from __future__ import annotations

from pathlib import Path

LOCK = Path(__file__).parents[1] / "requirements.lock"


def locked_lines() -> list[str]:
    """Return the lines of the lock file that name a package, in their order."""
    return [line for line in LOCK.read_text(encoding="utf-8").splitlines() if "==" in line]


def locked() -> dict[str, str]:
    """Return the version of each package by its name."""
    pairs = (line.removesuffix(" \\").split("==") for line in locked_lines())
    return {name: version for name, version in pairs}
