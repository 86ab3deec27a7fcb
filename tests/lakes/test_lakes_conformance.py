"""The sinks of lakes against the conformance suite, each way in which rows get into a table."""

from bicycle_runtime.connectors import builtin
from bicycle_runtime.testing.connectors import ExtensionSuite, SinkSuite
from tests.lakes.lake_cases import (
    DeltaCase,
    DeltaHeldCase,
    DeltaUpsertCase,
    DuckdbCase,
    DuckdbHeldCase,
    DuckdbUpsertCase,
    IcebergCase,
    IcebergHeldCase,
    IcebergUpsertCase,
)

pytest_plugins = ["bicycle_streams.testing.plugin"]


class TestDeltaAppends(SinkSuite):
    case_type = DeltaCase


class TestDeltaHeldRowsInFolders(SinkSuite):
    case_type = DeltaHeldCase


class TestDeltaUpserts(SinkSuite):
    case_type = DeltaUpsertCase


class TestDuckdbAppends(SinkSuite):
    case_type = DuckdbCase


class TestDuckdbHeldRows(SinkSuite):
    case_type = DuckdbHeldCase


class TestDuckdbUpserts(SinkSuite):
    case_type = DuckdbUpsertCase


class TestIcebergAppends(SinkSuite):
    case_type = IcebergCase


class TestIcebergHeldRowsInFolders(SinkSuite):
    case_type = IcebergHeldCase


class TestIcebergUpserts(SinkSuite):
    case_type = IcebergUpsertCase


class TestExtension(ExtensionSuite):
    extension = builtin
    suites = (
        TestDeltaAppends,
        TestDeltaHeldRowsInFolders,
        TestDeltaUpserts,
        TestDuckdbAppends,
        TestDuckdbHeldRows,
        TestDuckdbUpserts,
        TestIcebergAppends,
        TestIcebergHeldRowsInFolders,
        TestIcebergUpserts,
    )
    sources = ()
    sinks = {"delta", "duckdb", "iceberg"}  # noqa: RUF012 - as the suite declares it.
