"""A table of each kind, with its sink and somebody who reads it."""

import duckdb
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from bicycle_runtime.base.faults import disarm_faults
from bicycle_sdk.sinks import IcebergCatalog, delta_sink, duckdb_sink, iceberg_sink
from tests.sink_runs import SinkRuns


class Lake(SinkRuns):
    """One place with tables; ``start`` begins a job that writes to one of them."""

    def __init__(self, folder):
        super().__init__(self.word, folder, roll_rows=1)

    def start(self, record_type=None, *, name="a", **more):
        return super().start(record_type, **{**self.descriptor(name).properties, **more})

    def stop(self):
        disarm_faults()
        super().stop()


class DeltaLake(Lake):
    word = "delta"

    def descriptor(self, name="a", **properties):
        return delta_sink(self.folder / name, **properties)

    def table(self, name="a"):
        return DeltaTable(self.folder / name)

    def read(self, name="a"):
        return self.table(name).to_pyarrow_table()

    def last_facts(self):
        return self.table().history(1)[0]

    def make(self, schema, name="a"):
        DeltaTable.create(str(self.folder / name), schema)

    def append(self, rows):
        write_deltalake(self.folder / "a", rows, mode="append")


class Iceberg(Lake):
    word = "iceberg"

    def __init__(self, folder, address=None, password=None):
        super().__init__(folder)
        self.catalog = IcebergCatalog(
            address=address or f"sqlite:///{folder}/lake.db",
            warehouse=f"file://{folder}/warehouse",
            password=password,
        )
        self._opened = None

    def descriptor(self, name="a", **properties):
        return iceberg_sink(self.catalog, f"shop.{name}", **properties)

    def opened(self):
        if self._opened is None:
            address = self.catalog.address.replace("postgresql:", "postgresql+psycopg:")
            self._opened = SqlCatalog("bicycle", uri=address, warehouse=self.catalog.warehouse)
        return self._opened

    def table(self, name="a"):
        return self.opened().load_table(f"shop.{name}")

    def read(self, name="a"):
        return self.table(name).scan().to_arrow()

    def last_facts(self):
        return self.table().current_snapshot().summary.additional_properties

    def make(self, schema, name="a"):
        self.opened().create_namespace_if_not_exists("shop")
        self.opened().create_table(f"shop.{name}", schema)

    def append(self, rows):
        self.table().append(rows)

    def stop(self):
        super().stop()
        if self._opened is not None:
            self._opened.close()


class DuckdbFile(Lake):
    word = "duckdb"

    def descriptor(self, name="a", **properties):
        return duckdb_sink(self.folder / "lake.duckdb", name, **properties)

    def execute(self, statement):
        with duckdb.connect(self.folder / "lake.duckdb") as file:
            file.execute("set timezone = 'UTC'")
            found = file.sql(statement)
            return None if found is None else found.to_arrow_table()

    def read(self, name="a"):
        return self.execute(f'from "{name}"')


@pytest.fixture
def duckdb_file(tmp_path):
    lake = DuckdbFile(tmp_path)
    yield lake
    lake.stop()


@pytest.fixture
def delta(tmp_path):
    lake = DeltaLake(tmp_path)
    yield lake
    lake.stop()


@pytest.fixture
def iceberg(tmp_path):
    lake = Iceberg(tmp_path)
    yield lake
    lake.stop()


@pytest.fixture(params=["delta", "iceberg"])
def lake(request):
    return request.getfixturevalue(request.param)
