"""Sealed state as a file for other programs: Parquet, or JSON lines.

Keys and values may be of any shape, so in Parquet they are JSON texts; in JSON lines they are JSON.
The file appears whole or not at all, and never in a checkpoint directory.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from bicycle_runtime.base.storage import LocalStorage, Storage
from bicycle_runtime.jobs.checkpoints.sealed_states import LocatedEntry
from bicycle_runtime.jobs.checkpoints.sealed_values import ValueReader
from bicycle_runtime.jobs.errors import EXPORT_REFUSED

_PAGE_COUNT = 10_000
_TEXTS = ("operator", "state", "kind")
_NUMBERS = ("key_group", "task")
_JSON = ("key", "part", "value")
COLUMNS = (*_TEXTS, *_NUMBERS, *_JSON, "since_ms")
Row = dict[str, Any]


def require_target(path: Path, storage: Storage) -> None:
    """Refuse a file that cannot be written, before any state is read.

    Raises:
        EXPORT_REFUSED: its ending has no format, its folder is missing, or it would be in the
            checkpoint directory.
    """
    if path.suffix not in (".parquet", ".jsonl"):
        hint = "use a file name that ends in .parquet or .jsonl"
        raise EXPORT_REFUSED(
            path=str(path), problem="its ending is not a supported format", hint=hint
        )
    if not path.parent.is_dir():
        hint = "create the folder first"
        raise EXPORT_REFUSED(path=str(path), problem="its folder does not exist", hint=hint)
    root = Path(storage.root) if isinstance(storage, LocalStorage) else None
    if root is not None and path.resolve().is_relative_to(root.resolve()):
        problem = "it is in the checkpoint directory"
        raise EXPORT_REFUSED(path=str(path), problem=problem, hint="choose a file outside of it")


def export_entries(path: Path, entries: Iterable[LocatedEntry], reader: ValueReader) -> int:
    """Write entries to a file that ``require_target`` allowed; return their number.

    Raises:
        EXPORT_REFUSED: the file cannot be written.
        STATE_UNLOADABLE: the plugin's classes cannot be used.
    """
    count = 0
    temporary = path.with_name(f".tmp-{path.name}")
    try:
        with _write(temporary, path.suffix) as table:
            for page in _pages(entries):
                table.write([{name: row[name] for name in COLUMNS} for row in reader.rows(page)])
                count += len(page)
        temporary.replace(path)
    except OSError as error:
        problem = error.strerror or str(error)
        hint = "check that the folder is writable and has space"
        raise EXPORT_REFUSED(path=str(path), problem=problem, hint=hint) from error
    finally:
        with contextlib.suppress(OSError):  # It would hide the error that is on its way.
            temporary.unlink(missing_ok=True)
    return count


def _pages(entries: Iterable[LocatedEntry]) -> Iterator[Sequence[LocatedEntry]]:
    rest = iter(entries)
    while page := list(islice(rest, _PAGE_COUNT)):
        yield page


class _Table(Protocol):
    """A file of rows that is being written."""

    def write(self, rows: list[Row]) -> None:
        """Add rows."""


@contextlib.contextmanager
def _write(path: Path, suffix: str) -> Iterator[_Table]:
    if suffix == ".jsonl":
        with path.open("w", encoding="utf-8") as stream:
            yield _Lines(stream)
        return
    # Slow to import.
    import pyarrow
    from pyarrow import parquet

    text, number = pyarrow.string(), pyarrow.int32()
    types = {
        **dict.fromkeys(_TEXTS, text),
        **dict.fromkeys(_NUMBERS, number),
        **dict.fromkeys(_JSON, text),
        "since_ms": pyarrow.int64(),
    }
    schema = pyarrow.schema(list(types.items()))
    with parquet.ParquetWriter(path, schema) as writer:
        yield _Columns(writer, schema)


class _Lines:
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, rows: list[Row]) -> None:
        self._stream.writelines(json.dumps(row) + "\n" for row in rows)


class _Columns:
    def __init__(self, writer: Any, schema: Any) -> None:
        self._writer = writer
        self._schema = schema

    def write(self, rows: list[Row]) -> None:
        # Loaded by now.
        import pyarrow

        plain = [
            {**row, **{name: json.dumps(row[name]) for name in _JSON if row[name] is not None}}
            for row in rows
        ]
        self._writer.write_table(pyarrow.Table.from_pylist(plain, schema=self._schema))
