"""The results of the test files in this folder by DuckDB, from all rows at once.

``python -m tests.sql.by_duckdb --write`` replaces the expected rows of all files by DuckDB's.
Tables are created without the clauses of streams. The table ``watermark`` has the event time
``moment`` of the records so far: a view in DuckDB leaves out windows that have not ended.
"""

import sys
from collections import Counter
from pathlib import Path

import duckdb

from bicycle_runtime.endpoints.checking import Checks
from bicycle_runtime.tables.dialect import split_statements
from bicycle_runtime.tables.errors import SQL_INVALID
from bicycle_runtime.tables.logic_records import LogicText, read_records, shown_value
from bicycle_runtime.tables.python_functions import load_function
from bicycle_runtime.tables.statements import (
    CreateFunction,
    CreateTable,
    SetOption,
    read_statements,
)

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("*.slt"))
END = "infinity"


class Duck:
    """A connection that runs the records of a file."""

    def __init__(self, path):
        self.text = LogicText(path.name, "", path.read_text("utf-8"))
        self.records = read_records(self.text, "duckdb")
        self.connection = duckdb.connect()
        self.connection.execute("SET TimeZone = 'UTC'")
        self.connection.execute("SET default_null_order = 'nulls_last_on_asc_first_on_desc'")
        self.connection.execute("CREATE TABLE watermark AS SELECT TIMESTAMP '-infinity' AS moment")
        self.watermarks = {}
        self.seen = {}

    def results(self):
        """Yield each record that has rows, and its rows; of a query error whether it failed."""
        for record in self.records:
            if record.error is not None:
                if record.kind == "query":
                    yield record, self.fails(record)
            elif record.kind in ("statement", "epoch"):
                for begin, end in self.spans(record):
                    self.execute(begin, end)
                self.advance()
            elif record.kind == "watermark" and record.expected is None:
                self.advance(record.header.partition(" ")[2].replace("end", END))
            elif record.kind == "query":
                yield record, self.rows(self.text.whole[record.begin : record.end])
            elif record.kind == "changes" and not record.words[1].startswith("$"):
                yield record, self.changes(record.words[1])

    def spans(self, record):
        for cursor in split_statements(self.text.only([(record.begin, record.end)])):
            yield cursor.tokens[0].start, cursor.tokens[-1].end + 1

    def execute(self, begin, end):
        text = self.text.only([(begin, end)])
        checks = Checks(text, SQL_INVALID)
        found = read_statements(text, checks)
        if found and isinstance(found[0], SetOption):
            return
        if found and isinstance(found[0], CreateTable):
            self.create(found[0])
        elif found and isinstance(found[0], CreateFunction):
            self.create_function(found[0])
        else:
            self.connection.execute(self.text.whole[begin:end])

    def create(self, table):
        columns = [
            f'"{each.name.text}" {each.type}{"" if each.is_nullable else " NOT NULL"}'
            if each.value is None
            else f'"{each.name.text}" AS ({each.value.sql("duckdb")})'
            for each in table.columns
        ]
        self.connection.execute(f'CREATE TABLE "{table.name.text}" ({", ".join(columns)})')
        if table.watermark is not None:
            self.watermarks[table.name.text] = table.watermark

    def create_function(self, definition):
        function = load_function(definition.name, definition.location, of_plugins=False)
        if function.columns:  # DuckDB has no table functions in Python.
            return
        [signature], python = function.row.signatures, function.python

        def call(*row):
            is_null = any(
                value is None and not takes
                for value, takes in zip(row, python.takes_null, strict=True)
            )
            return None if is_null else python.function(*row)

        self.connection.create_function(
            function.name, call, list(signature.arguments), signature.result,
            type="arrow" if python.is_on_columns else "native", null_handling="special",
        )  # fmt: skip

    def advance(self, time=None):
        """Advance the table ``watermark`` to a time, or to that of the rows."""
        if time is not None:
            self.connection.execute(
                "UPDATE watermark SET moment = greatest(moment, ?::TIMESTAMP)", [time]
            )
        for table, each in self.watermarks.items():
            self.connection.execute(
                f"UPDATE watermark SET moment = greatest(moment, (SELECT max({each.column.text}) "
                f"- INTERVAL {each.delay_ms + 1} MILLISECOND FROM {table}))"
            )

    def rows(self, query):
        return [list(map(shown_value, row)) for row in self.connection.execute(query).fetchall()]

    def changes(self, name):
        rows = Counter(map(tuple, self.rows(f"SELECT * FROM {name}")))
        new = rows - self.seen.get(name, Counter())
        assert self.seen.get(name, Counter()) <= rows, "a row was retracted"
        self.seen[name] = rows
        return [list(row) for row in new.elements()]

    def fails(self, record):
        try:
            self.rows(self.text.whole[record.begin : record.end])
        except duckdb.Error:
            return True
        return False


def write(path):
    """Replace the expected rows of a file."""
    lines = path.read_text("utf-8").splitlines()
    found = [(record, rows) for record, rows in Duck(path).results() if record.error is None]
    for record, rows in reversed(found):
        begin = next(at for at in range(record.line, len(lines)) if lines[at] == "----") + 1
        end = begin
        while end < len(lines) and lines[end].strip():
            end += 1
        shown = [" ".join(" ".join(row).split()) for row in rows]
        lines[begin:end] = sorted(shown) if record.sort_mode == "rowsort" else shown
    path.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    for file in FILES:
        write(file)
