"""Sinks of columns as cases of the conformance suite."""

from dataclasses import asdict, dataclass
from typing import ClassVar

from pyarrow import parquet

from bicycle_runtime.testing.connectors import CanBeUnwritable, RunsInForks, SinkCase
from bicycle_sdk.sinks import by_field, parquet_sink


@dataclass(frozen=True)
class Reading:
    """A record with typed fields."""

    number: int
    city: str
    celsius: float | None


CITIES = ("brest", "dover/strait", "")


class ParquetSinkCase(SinkCase, CanBeUnwritable):
    word = "parquet_file"
    folders = None
    limits: ClassVar = {"roll_ms": 86_400_000}

    def record(self, number):
        return Reading(number, CITIES[number % 3], number / 4 if number % 5 else None)

    def descriptor(self):
        return self.sink_in(self.folder / "out")

    def unwritable(self):
        (self.folder / "file").touch()
        return self.sink_in(self.folder / "file")

    def sink_in(self, path):
        columns = {"number": int, "city": str, "celsius": float}
        return parquet_sink(path, folders=self.folders, columns=columns, **self.limits)

    def visible(self):
        paths = sorted((self.folder / "out").glob("**/part-*.parquet"), key=lambda path: path.name)
        return [[row for path in paths for row in self.rows(path)]]

    def rows(self, path):
        found = parquet.ParquetFile(path).read().to_pylist()
        return [self.record(row["number"]) for row in found if self.is_whole(row)]

    def is_whole(self, row):
        expected = self.record(row["number"])
        assert row == asdict(expected)
        return True


class ParquetOnePartPerFewRowsCase(ParquetSinkCase):
    limits: ClassVar = {"roll_rows": 7}


class ParquetFoldersCase(ParquetSinkCase, RunsInForks):
    """A lane for each file: rows of a folder may come with several parts."""

    traced_modules = ("files/parquet_sink.py", "tables/sink.py")

    folders = by_field("city")
    limits: ClassVar = {"roll_rows": 4}

    def visible(self):
        paths = (self.folder / "out").glob("**/part-*.parquet")
        return [self.rows(path) for path in sorted(paths)]

    def is_whole(self, row):
        expected = self.record(row["number"])
        assert row == {"number": expected.number, "celsius": expected.celsius}
        return True
