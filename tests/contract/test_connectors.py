"""Our own connectors against the conformance suite that every connector has to pass."""

from bicycle_runtime.connectors import builtin
from bicycle_runtime.testing.connectors import ExtensionSuite, SinkSuite, SourceSuite
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
from tests.contract.our_sources import (
    CollectionCase,
    CsvCase,
    FollowedTextCase,
    GeneratorCase,
    GzipCase,
    JsonlCase,
    ParquetCase,
    SocketSourceCase,
    TextCase,
    ZstdCase,
)
from tests.contract.received_cases import StdioCase, WebSocketCase
from tests.contract.stream_file_cases import (
    BoundedStreamFileCase,
    GrowingStreamFileCase,
    StreamFileSinkCase,
)
from tests.contract.table_cases import (
    ParquetFoldersCase,
    ParquetOnePartPerFewRowsCase,
    ParquetSinkCase,
)

pytest_plugins = ["bicycle_runtime.testing.connectors.plugin"]

# Their suites are in tests/lakes and in the folders of the servers.
ELSEWHERE = {"delta", "iceberg", "kafka", "postgres", "redis"}


class TestCollection(SourceSuite):
    case_type = CollectionCase


class TestGenerator(SourceSuite):
    case_type = GeneratorCase


class TestTextFile(SourceSuite):
    case_type = TextCase


class TestFollowedTextFiles(SourceSuite):
    case_type = FollowedTextCase


class TestGzipFile(SourceSuite):
    case_type = GzipCase


class TestZstdFiles(SourceSuite):
    case_type = ZstdCase


class TestJsonlFile(SourceSuite):
    case_type = JsonlCase


class TestCsvFile(SourceSuite):
    case_type = CsvCase


class TestParquetFiles(SourceSuite):
    case_type = ParquetCase


class TestWebSocket(SourceSuite):
    case_type = WebSocketCase


class TestStdio(SourceSuite):
    case_type = StdioCase


class TestSocketSource(SourceSuite):
    case_type = SocketSourceCase


class TestGrowingStreamFile(SourceSuite):
    case_type = GrowingStreamFileCase


class TestStreamFile(SourceSuite):
    case_type = BoundedStreamFileCase


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
        TestCollection,
        TestGenerator,
        TestTextFile,
        TestFollowedTextFiles,
        TestGzipFile,
        TestZstdFiles,
        TestJsonlFile,
        TestCsvFile,
        TestParquetFiles,
        TestSocketSource,
        TestStdio,
        TestWebSocket,
        TestGrowingStreamFile,
        TestStreamFile,
        TestStreamFileSink,
        TestCollect,
        TestConsole,
        TestJsonlFileSink,
        TestJsonlFileSinkWithOnePartPerFewRecords,
        TestJsonlFileSinkWithOnePartPerStagedFile,
        TestTextFileSink,
        TestCsvFileSink,
        TestSocketSink,
        TestParquetSink,
        TestParquetSinkWithOnePartPerFewRows,
        TestParquetSinkWithFolders,
        TestHttpSink,
        TestHttpSinkBeforeAServerThatForgets,
        TestConsoleTable,
    )
    sources = builtin.bicycle_sources().keys() - ELSEWHERE
    sinks = builtin.bicycle_sinks().keys() - ELSEWHERE
