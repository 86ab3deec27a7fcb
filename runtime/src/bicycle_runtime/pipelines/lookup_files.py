"""Records that are completed from a file, which each subtask reads when it begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from bicycle_runtime.pipelines.builtin_functions import field_of
from bicycle_runtime.pipelines.errors import LOOKUP_FILE_UNUSABLE
from bicycle_runtime.pipelines.operator_keys import Enrich
from bicycle_sdk import AsyncFunction, Context

__all__ = ["LookupInFile"]

_BYTES_MAX = 256 << 20
_FORMATS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}


class LookupInFile(AsyncFunction[Any, Any]):
    """Adds the fields of the row with the same key; of rows with one key the last one counts.

    Args:
        spec: The file, and which of its fields.
    """

    def __init__(self, spec: Enrich) -> None:
        self.spec = spec

    def open(self, ctx: Context) -> None:  # noqa: ARG002 - the contract
        """Read the file; called once in each subtask, before the first record.

        Raises:
            LOOKUP_FILE_UNUSABLE: it cannot be read, is too large, or lacks a field.
        """
        path = Path(self.spec.path).expanduser()
        key = self.spec.lookup_key or self.spec.key
        try:
            size = path.stat().st_size
            if size > _BYTES_MAX:
                raise ValueError(f"it has {size:,} bytes, and at most {_BYTES_MAX:,} are held")
            rows = _rows(path, self.spec.format or _FORMATS.get(path.suffix, ""))
            self._found = {_told_key(row[key]): self._take(row, key) for row in rows}
        except (OSError, ValueError, msgspec.DecodeError) as error:
            raise LOOKUP_FILE_UNUSABLE(path=str(path), reason=str(error)) from error
        except KeyError as error:
            reason = f"a row has no field {error.args[0]!r}"
            raise LOOKUP_FILE_UNUSABLE(path=str(path), reason=reason) from error

    def process(self, value: Any, ctx: Context) -> list[Any]:  # noqa: ARG002 - the contract
        found = self._found.get(_told_key(field_of(value, self.spec.key)))
        if found is None:
            return [value] if self.spec.how == "left" else []
        return [{**value, **found}]

    def _take(self, row: dict[str, Any], key: str) -> dict[str, Any]:
        if self.spec.fields is not None:
            return {name: row[name] for name in self.spec.fields}
        return {name: value for name, value in row.items() if name != key}


def _told_key(value: Any) -> str:
    """Return a key as the text by which file and record agree: CSV has nothing but texts."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _rows(path: Path, format: str) -> list[dict[str, Any]]:
    if format == "csv":
        # Slow to import on workers that read no file.
        import csv

        with path.open(encoding="utf-8-sig", newline="") as file:
            return list(csv.DictReader(file))
    if format == "jsonl":
        return msgspec.json.Decoder(dict[str, Any]).decode_lines(path.read_bytes())
    if format == "parquet":
        # Slow to import on workers that read no file.
        import pyarrow.parquet

        rows: list[dict[str, Any]] = pyarrow.parquet.read_table(path).to_pylist()
        return rows
    raise ValueError("its name tells no format; set format to csv, jsonl or parquet")
