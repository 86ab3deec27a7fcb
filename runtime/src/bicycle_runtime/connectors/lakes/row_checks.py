"""Checks of rows before they are sealed, against rules of a lake's table.

A commit is made when an epoch is sealed, so that a row that it refuses would stop the job for good.
The folder of a row has its values in its name, and names have bounds.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import pyarrow
import pyarrow.compute as pc

from bicycle_runtime.expressions.conditions import Conditions

_FILE_NAME_BYTES_MAX = 255
_KEY_BYTES_MAX = 700  # Of 1,024 that stores of objects take for the whole path.
FolderText = Callable[[Any], str]


def name_bytes_max(location: str) -> int:
    """Return how many bytes the name of a folder may have at a path or URL.

    Example:
        >>> name_bytes_max("/data/t"), name_bytes_max("s3://bucket/t")
        (255, 700)
    """
    is_local = "://" not in location or location.startswith("file:")
    return _FILE_NAME_BYTES_MAX if is_local else _KEY_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChecks:
    """The rules for rows; picklable.

    Args:
        folders: Column by which the table is put into folders -> function that returns the text of
            a value in the name of a folder, or raises ValueError for a value without one.
        bytes_max: Of the name of a folder.
        conditions: Constraints of the table, or None.
    """

    folders: Mapping[str, FolderText] = field(default_factory=dict)
    bytes_max: int = _FILE_NAME_BYTES_MAX
    conditions: Conditions | None = None

    def check(self, rows: pyarrow.RecordBatch) -> None:
        """Raise where a row cannot be committed.

        Raises:
            ValueError: so it is.
        """
        names = set(rows.schema.names)
        for name, text_of in self.folders.items():
            if name not in names:  # Absent columns are null, and null has a folder.
                continue
            self._check_folders(name, text_of, rows.column(name))
        if self.conditions is not None:
            self.conditions.check(rows)

    def _check_folders(self, name: str, text_of: FolderText, values: pyarrow.Array) -> None:
        rest = self.bytes_max - len(quote(name, safe="")) - 1
        if pyarrow.types.is_string(values.type):
            # hot path: most texts are short, and their lengths are in the column: 2 ns a row.
            longest = pc.max(pc.binary_length(values)).as_py() or 0
            if 3 * longest <= rest:
                return
        for value in values.unique().to_pylist():
            if value is None:
                continue
            text = text_of(value)
            if len(quote(text, safe="")) > rest:
                raise ValueError(
                    f"the value {text[:40]!r}… of {name!r} must have at most {rest} bytes as a "
                    f"folder name, got {len(quote(text, safe=''))}"
                )


def delta_text(value: Any) -> str:
    """Return a value in the name of a folder of Delta."""
    if isinstance(value, Decimal) and value < 0 and value != int(value):
        # The library writes -1.5 as "-1.-5", which it cannot read then.
        raise ValueError(
            f"{value} cannot be a folder name: Delta does not support negative fractions there"
        )
    if isinstance(value, float) and math.isfinite(value):
        return format(Decimal(repr(value)), "f")
    return str(value)


def iceberg_text(value: Any) -> str:
    """Return a value in the name of a folder of Iceberg."""
    if isinstance(value, float) and math.isnan(value):
        raise ValueError("NaN cannot be a folder name: Iceberg does not support it")
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
