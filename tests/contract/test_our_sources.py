"""Our own sources against the conformance suite that every connector has to pass."""

from bicycle_runtime.connectors import builtin
from bicycle_runtime.testing.connectors import ExtensionSuite, SourceSuite
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
from tests.contract.received_cases import SocketStreamCase, StdioCase, WebSocketCase
from tests.contract.stream_file_cases import BoundedStreamFileCase, GrowingStreamFileCase

pytest_plugins = ["bicycle_streams.testing.plugin"]

# Their suites are in tests/lakes and in the folders of the servers.
ELSEWHERE = {"delta", "iceberg", "kafka", "postgres", "pulsar", "redis"}


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


class TestSocketStream(SourceSuite):
    case_type = SocketStreamCase


class TestSocketSource(SourceSuite):
    case_type = SocketSourceCase


class TestGrowingStreamFile(SourceSuite):
    case_type = GrowingStreamFileCase


class TestStreamFile(SourceSuite):
    case_type = BoundedStreamFileCase


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
        TestWebSocket,
        TestSocketStream,
        TestStdio,
        TestSocketSource,
        TestGrowingStreamFile,
        TestStreamFile,
    )
    sources = builtin.bicycle_sources().keys() - ELSEWHERE
    sinks = ()
