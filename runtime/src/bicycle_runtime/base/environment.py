"""Environment variables of this process: the only access outside of the doors."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager


def environment_for_child(extra: Mapping[str, str]) -> dict[str, str]:
    """Return this process's variables with some added or replaced."""
    return {**os.environ, **extra}


def environment_for_python(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return variables for a Python that is to find modules where this process does."""
    path = os.pathsep.join(filter(None, sys.path))
    return environment_for_child({"PYTHONPATH": path, **(extra or {})})


def chosen_variables(names: Iterable[str]) -> dict[str, str]:
    """Return the named variables that are set."""
    return {name: os.environ[name] for name in names if name in os.environ}


def replace_environment(values: Mapping[str, str]) -> None:
    """Set all variables of this process."""
    os.environ.clear()
    os.environ.update(values)


@contextmanager
def environment_set(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables during the block, for a library that reads its settings there."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
