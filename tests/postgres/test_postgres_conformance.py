"""PostgreSQL against the conformance suite, on a real server that is killed meanwhile."""

from dataclasses import dataclass

import pytest

from bicycle_runtime.connectors import builtin
from bicycle_runtime.testing.connectors import (
    CanBeUnwritable,
    EndlessSourceCase,
    ExtensionSuite,
    FeedsBadRecords,
    HasOutages,
    SinkCase,
    SinkSuite,
    SourceCase,
    SourceSuite,
)
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.sinks import postgres_sink
from bicycle_sdk.sources import postgres_source

pytest_plugins = ["bicycle_streams.testing.plugin"]


@dataclass(frozen=True)
class Reading:
    number: int
    text: str


class PostgresCase(SinkCase, CanBeUnwritable, HasOutages):
    word = "postgres"
    clock = SystemClock()
    keys = ()

    def join(self, server, table):
        self.server, self.table = server, table
        self.descriptor_table(table)
        return self

    def descriptor_table(self, table):
        self.server.query(
            f"create table {table} (place serial, number bigint primary key, text text)"
        )

    def record(self, number):
        return Reading(number, "tab\t, line\n, \\N and \\ " + "x" * (number % 7))

    def descriptor(self):
        columns = {"number": int, "text": str}
        return postgres_sink(self.server.url, self.table, keys=self.keys, columns=columns)

    def unwritable(self):
        columns = {"number": int, "text": str}
        return postgres_sink(self.server.url, "no_such_table", keys=self.keys, columns=columns)

    def visible(self):
        self.server.start()
        rows = self.server.query(f"select number, text from {self.table} order by place")
        return [[Reading(*row) for row in rows]]

    def break_transport(self):
        self.server.kill()

    def repair_transport(self):
        self.server.start()


class PostgresSourceCase(SourceCase, FeedsBadRecords, HasOutages):
    """Rows of one table, whose numbers have gaps."""

    word = "postgres"
    clock = SystemClock()
    follow = False

    def join(self, server, table):
        self.server, self.table, self.count = server, table, 0
        server.query(f"create table {table} (place bigint primary key, number int, text text)")
        return self

    def record(self, number):
        return Reading(number, "x" * (number % 7))

    def feed(self, numbers):
        for number in numbers:
            self.put(number, self.record(number).text)

    def feed_bad(self):
        place = self.put(-1, None)
        return b'{"number":-1,"text":null,"place":%d}' % place

    def put(self, number, text):
        self.count += 3
        self.server.query(f"insert into {self.table} values (%s, %s, %s)", self.count, number, text)
        return self.count

    def descriptor(self):
        url = self.server.url
        return postgres_source(url, self.table, "place", type=Reading, follow=self.follow)

    def break_transport(self):
        self.server.kill()

    def repair_transport(self):
        self.server.start()


class FollowedPostgresCase(PostgresSourceCase, EndlessSourceCase):
    follow = True


class PostgresUpsertCase(PostgresCase):
    """Rows of distinct keys: in which order they are in the table does not matter."""

    keys = ("number",)

    def visible(self):
        [rows] = super().visible()
        return [[row] for row in rows]


class TestPostgresInserts(SinkSuite):
    case_type = PostgresCase

    @pytest.fixture
    def case(self, tmp_path, server, table):
        case = self.case_type(tmp_path).join(server, table)
        yield case
        case.close()


class TestPostgresUpserts(TestPostgresInserts):
    case_type = PostgresUpsertCase


class TestPostgresRows(SourceSuite):
    case_type = PostgresSourceCase

    @pytest.fixture
    def case(self, tmp_path, server, table):
        case = self.case_type(tmp_path).join(server, table)
        yield case
        server.start()
        case.close()


class TestFollowedPostgresRows(TestPostgresRows):
    case_type = FollowedPostgresCase


class TestExtension(ExtensionSuite):
    extension = builtin
    suites = (
        TestPostgresInserts,
        TestPostgresUpserts,
        TestPostgresRows,
        TestFollowedPostgresRows,
    )
    sources = {"postgres"}  # noqa: RUF012 - as the suite declares it.
    sinks = {"postgres"}  # noqa: RUF012 - as the suite declares it.
