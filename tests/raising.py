"""The expectation that an error of one row of the catalogue is raised."""

from typing import Any

import pytest

from bicycle_sdk.errors import BicycleError, ErrorRow


def raises(
    entry: ErrorRow[Any] | type[BicycleError], match: str | None = None
) -> "pytest.RaisesExc[BicycleError]":
    """Return ``pytest.raises`` for errors of a row, or of a class."""
    if not isinstance(entry, ErrorRow):
        return pytest.raises(entry, match=match)
    return pytest.raises(entry.kind, match=match, check=lambda error: error.code == entry.code)
