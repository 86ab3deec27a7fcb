"""Tables of lakes as cases of the conformance suite, read back by the libraries that own them."""

from dataclasses import asdict, dataclass

import duckdb
import pyarrow
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError

from bicycle_runtime.testing.connectors import CanBeUnwritable, SinkCase
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.sinks import IcebergCatalog, Rolling, delta_sink, duckdb_sink, iceberg_sink

CITIES = ("brest", "dover/strait", "Köln")


@dataclass(frozen=True)
class Reading:
    number: int
    city: str
    celsius: float | None


COLUMNS = {"number": int, "city": str, "celsius": float}


class SetClock(SystemClock):
    """The time of day stands, so that decisions can be compared; time-outs go by real time."""

    def now_ms(self):
        return 1_700_000_000_000


class DeltaCase(SinkCase, CanBeUnwritable):
    """Each epoch is committed when it is published: a commit for each."""

    word = "delta"
    clock = SetClock()
    keys = ()
    partition_by = ()
    rolling = Rolling(rows=1)

    def record(self, number):
        return Reading(number, CITIES[number % 3], number / 4 if number % 5 else None)

    def descriptor(self):
        return self.sink_in(self.folder / "table")

    def unwritable(self):
        (self.folder / "file").touch()
        return self.sink_in(self.folder / "file" / "table")

    def sink_in(self, path):
        return delta_sink(
            path,
            keys=self.keys,
            columns=COLUMNS,
            partition_by=self.partition_by,
            rolling=self.rolling,
        )

    def visible(self):
        return [[row] for row in self.rows(self.found())]

    def found(self):
        return delta_rows(self.folder / "table")

    def rows(self, found):
        expected = [self.record(number) for number in found["number"].to_pylist()]
        assert found.to_pylist() == [asdict(row) for row in expected]
        return expected


class DeltaHeldCase(DeltaCase):
    """Rows are held over epochs, and committed together."""

    rolling = Rolling(rows=17)
    partition_by = ("city",)


class DeltaUpsertCase(DeltaCase):
    keys = ("number", "city")


class IcebergCase(DeltaCase):
    word = "iceberg"

    def sink_in(self, path):
        return iceberg_sink(
            self.catalog(path),
            "shop.readings",
            keys=self.keys,
            columns=COLUMNS,
            partition_by=self.partition_by,
            rolling=self.rolling,
        )

    def catalog(self, path):
        return IcebergCatalog(address=f"sqlite:///{path}.db", warehouse=f"file://{path}")

    def found(self):
        return iceberg_rows(self.catalog(self.folder / "table"), "shop.readings", COLUMNS)


class IcebergHeldCase(IcebergCase):
    rolling = Rolling(rows=17)
    partition_by = ("city",)


class IcebergUpsertCase(IcebergCase):
    keys = ("number", "city")


class DuckdbCase(DeltaCase):
    word = "duckdb"

    def sink_in(self, path):
        return duckdb_sink(path, "readings", keys=self.keys, columns=COLUMNS, rolling=self.rolling)

    def found(self):
        return duckdb_rows(self.folder / "table", "readings", COLUMNS)


class DuckdbHeldCase(DuckdbCase):
    rolling = Rolling(rows=17)


class DuckdbUpsertCase(DuckdbCase):
    keys = ("number", "city")


def delta_rows(path):
    """Return all rows of a table, in no order."""
    if not DeltaTable.is_deltatable(str(path)):
        return pyarrow.table({"number": []})
    return DeltaTable(path).to_pyarrow_table()


def iceberg_rows(catalog, table, columns):
    """Return all rows of a table, in no order."""
    opened = SqlCatalog("bicycle", uri=catalog.address, warehouse=catalog.warehouse)
    try:
        return opened.load_table(table).scan().to_arrow()
    except NoSuchTableError:
        return pyarrow.table({name: [] for name in columns})
    finally:
        opened.close()


def duckdb_rows(path, table, columns):
    """Return all rows of a table in a file, in no order."""
    if path.exists():
        with duckdb.connect(path) as file:
            if (table,) in file.execute("select table_name from duckdb_tables()").fetchall():
                return file.sql(f"from {table}").to_arrow_table()
    return pyarrow.table({name: [] for name in columns})
