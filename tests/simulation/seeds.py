"""The seeds of schedules that every `make test` plays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest


def core_first(seeds: Sequence[int], *, count: int = 8) -> list[Any]:
    """Return seeds as parameters of a test: the first ones belong to the core tier."""
    marked = [pytest.param(seed, marks=pytest.mark.core) for seed in seeds[:count]]
    return [*marked, *seeds[count:]]
