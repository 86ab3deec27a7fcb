"""The PostgreSQL sink against the conformance suite, on a real server that is killed meanwhile."""

from dataclasses import dataclass

import pytest

from bicycle_runtime.base.clock import SystemClock
from bicycle_runtime.connectors import builtin
from bicycle_runtime.testing.connectors import (
    CanBeUnwritable,
    ExtensionSuite,
    HasOutages,
    SinkCase,
    SinkSuite,
)
from bicycle_sdk.sinks import postgres_sink

pytest_plugins = ["bicycle_runtime.testing.connectors.plugin"]


@dataclass(frozen=True)
class Reading:
    number: int
    text: str


class PostgresCase(SinkCase, CanBeUnwritable, HasOutages):
    word = "postgres"
    clock = SystemClock()
    wait_s = 60.0
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


class TestExtension(ExtensionSuite):
    extension = builtin
    suites = (TestPostgresInserts, TestPostgresUpserts)
    sources = ()
    sinks = {"postgres"}  # noqa: RUF012 - as the suite declares it.
