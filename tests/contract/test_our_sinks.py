"""Our own sinks against the conformance suite that every connector has to pass."""

from bicycle_runtime.connectors import builtin
from bicycle_runtime.testing.connectors import ExtensionSuite, SinkSuite
from tests.contract.http_cases import HttpAtLeastOnceCase, HttpCase
from tests.contract.our_sinks import (
    CollectCase,
    ConsoleCase,
    ConsoleTableCase,
    CsvSinkCase,
    FewRecordsCase,
    JsonlSinkCase,
    SocketSinkCase,
    StagedFileCase,
    TextSinkCase,
)
from tests.contract.sent_cases import SocketStreamSinkCase, StdioSinkCase, WebSocketSinkCase
from tests.contract.stream_file_cases import StreamFileSinkCase
from tests.contract.table_cases import (
    ParquetFoldersCase,
    ParquetOnePartPerFewRowsCase,
    ParquetSinkCase,
)

pytest_plugins = ["bicycle_streams.testing.plugin"]

# Their suites are in tests/lakes and in the folders of the servers.
ELSEWHERE = {"delta", "duckdb", "iceberg", "kafka", "postgres", "pulsar", "redis"}


class TestStreamFileSink(SinkSuite):
    case_type = StreamFileSinkCase


class TestCollect(SinkSuite):
    case_type = CollectCase


class TestConsole(SinkSuite):
    case_type = ConsoleCase


class TestJsonlFileSink(SinkSuite):
    case_type = JsonlSinkCase


class TestJsonlFileSinkWithOnePartPerFewRecords(SinkSuite):
    case_type = FewRecordsCase


class TestJsonlFileSinkWithOnePartPerStagedFile(SinkSuite):
    case_type = StagedFileCase


class TestTextFileSink(SinkSuite):
    case_type = TextSinkCase


class TestCsvFileSink(SinkSuite):
    case_type = CsvSinkCase


class TestSocketSink(SinkSuite):
    case_type = SocketSinkCase


class TestWebSocketSink(SinkSuite):
    case_type = WebSocketSinkCase


class TestSocketStreamSink(SinkSuite):
    case_type = SocketStreamSinkCase


class TestStdioSink(SinkSuite):
    case_type = StdioSinkCase


class TestParquetSink(SinkSuite):
    case_type = ParquetSinkCase


class TestParquetSinkWithOnePartPerFewRows(SinkSuite):
    case_type = ParquetOnePartPerFewRowsCase


class TestParquetSinkWithFolders(SinkSuite):
    case_type = ParquetFoldersCase


class TestHttpSink(SinkSuite):
    case_type = HttpCase


class TestHttpSinkBeforeAServerThatForgets(SinkSuite):
    case_type = HttpAtLeastOnceCase


class TestConsoleTable(SinkSuite):
    case_type = ConsoleTableCase


class TestExtension(ExtensionSuite):
    extension = builtin
    suites = (
        TestStreamFileSink,
        TestCollect,
        TestConsole,
        TestJsonlFileSink,
        TestJsonlFileSinkWithOnePartPerFewRecords,
        TestJsonlFileSinkWithOnePartPerStagedFile,
        TestTextFileSink,
        TestCsvFileSink,
        TestSocketSink,
        TestWebSocketSink,
        TestSocketStreamSink,
        TestStdioSink,
        TestParquetSink,
        TestParquetSinkWithOnePartPerFewRows,
        TestParquetSinkWithFolders,
        TestHttpSink,
        TestHttpSinkBeforeAServerThatForgets,
        TestConsoleTable,
    )
    sinks = builtin.bicycle_sinks().keys() - ELSEWHERE
    sources = ()
