"""Files of `bicycle sql test`: the records, the comparison, and the failures with their lines."""

import hashlib
import re
import sys
import textwrap

import pytest
from click.testing import CliRunner

from bicycle_runtime.cli.root import main
from bicycle_runtime.tables.errors import SQL_TEST_INVALID
from bicycle_runtime.tables.logic_records import LogicText, read_records
from bicycle_runtime.tables.logic_tests import LogicTest
from bicycle_runtime.testing import Harness
from tests.raising import raises

TABLE = "statement ok\nCREATE TABLE t (a BIGINT, s VARCHAR)\n"
TIMED = """
statement ok
CREATE TABLE t (k VARCHAR, at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '4' SECOND)

statement ok
CREATE VIEW counts AS SELECT k, window_start, count(*) AS n
  FROM TUMBLE(t, at, INTERVAL '10' SECOND) GROUP BY k, window_start
"""
ROWS = "epoch\nINSERT INTO t VALUES (2, 'b  c'), (1, NULL);\nINSERT INTO t (s) VALUES ('')\n"
# The MD5 of all values in the order of the rows, each with a line break.
HASH = hashlib.md5(b"1\nNULL\n2\nb  c\nNULL\n(empty)\n").hexdigest()
HASH_OF_A = hashlib.md5(b"1\n2\nNULL\n").hexdigest()
RESULT = "1 NULL\n2 b c\nNULL (empty)\n"


@pytest.fixture
def failures(tmp_path):
    """Return line and text of each failure of a test file."""

    def run(text, epochs=1, sql=None, **settings):
        path = tmp_path / "v.slt"
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        if sql is not None:
            (tmp_path / "v.sql").write_text(textwrap.dedent(sql), encoding="utf-8")

        def harness(env, sources):
            return Harness(env, scripted=sources, **settings)

        return [(each.line, each.text) for each in LogicTest(path, harness, epochs=epochs).run()]

    return run


@pytest.mark.parametrize(
    "query",
    [
        f"query IT\nSELECT * FROM t\n----\n{RESULT}",
        f"query IT rowsort\nSELECT * FROM t\n----\n{RESULT}",
        "query IT nosort\nSELECT * FROM t\n----\n2 b c\n1 NULL\nNULL (empty)\n",
        "query IT valuesort\nSELECT * FROM t\n----\n(empty)\n1\n2\nNULL\nNULL\nb c\n",
        "query IT nosort\nSELECT * FROM t\n----\n2\nb c\n1\nNULL\nNULL\n(empty)\n",
        f"query IT\nSELECT * FROM t\n----\n6 values hashing to {HASH}\n",
        "query I rowsort x\nSELECT a FROM t\n----\n1\n2\nNULL\n\n"
        "query I rowsort x\nSELECT a + 0 FROM t\n----\n1\n2\nNULL\n",
        "changes t\n----\n2 b c\n1 NULL\nNULL (empty)\n",
        "statement ok\nCREATE TABLE u (a BIGINT);\nINSERT INTO u (a) SELECT a FROM t\n\n"
        "query I\nSELECT a FROM u WHERE a > 1\n----\n2\n",
        "query error divi\nSELECT 1 / (a - 1) FROM t\n",
        "query error\nSELECT 1 / (a - 1) FROM t\n----\ndivide by zero\n",
        "statement error no column 'b'\nCREATE VIEW v AS SELECT b FROM t\n",
        "statement error NOT NULL\nCREATE TABLE u (a BIGINT NOT NULL, b BIGINT);\n"
        "INSERT INTO u (b) VALUES (1)\n",
        "skipif bicycle\nnonsense of others\n\nonlyif duckdb\nquery I\nSELECT a FROM t\n----\n9\n",
        "halt\n\nquery I\nSELECT a FROM t\n----\n9\n",
    ],
)  # fmt: skip
def test_a_record_that_holds_has_no_failure(failures, query):
    query = query.replace("nonsense of others", "statement ok\nCREATE SEQUENCE s")

    assert failures(f"{TABLE}\n{ROWS}\n{query}") == []


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("query IT\nSELECT * FROM t\n----\n1 NULL\n3 b c\nNULL (empty)\n",
         "result differs\n 1 NULL\n-3 b c\n+2 b c\n NULL (empty)"),
        ("query IT nosort\nSELECT * FROM t WHERE a > 0\n----\n1 NULL\n2 b c\n",
         "result differs\n+2 b c\n 1 NULL\n-2 b c"),
        ("query I\nSELECT * FROM t\n----\n1\n", "expected 1 columns, got 2"),
        ("query I rowsort x\nSELECT a FROM t WHERE a = 1\n----\n1\n\n"
         "query I rowsort x\nSELECT a FROM t WHERE a = 2\n----\n2\n",
         "the result differs from that of the other query with label x"),
        ("hash-threshold 2\n\nquery I\nSELECT a FROM t\n----\n1\n",
         f"result differs\n-1\n+3 values hashing to {HASH_OF_A}"),
        ("changes t\n----\n", "result differs\n+1 NULL\n+2 b c\n+NULL (empty)"),
        ("query error over\nSELECT 1 / (a - 1) FROM t\n", "the error differs\n-over\n+BIC-14"),
        ("query error zero\nSELECT 1 / (a - 7) FROM t\n",
         "expected an error, but there was none\n-zero"),
        ("query I\nSELECT b FROM t\n----\n",
         "column 8: there is no column 'b'; known: a, s"),
        ("epoch\nINSERT INTO t VALUES (1)\n", "column 13: t takes 2 values, got 1"),
        ("epoch\nSELECT 1\n", "column 1: epoch takes INSERT"),
        ("watermark noon\n", "expected a time such as 2026-11-28 10:00:00, or end; got 'noon'"),
        ("query I\nSELECT 7 / a FROM t WHERE a IS NOT NULL\n----\n3\n7\n\n"
         "epoch\nINSERT INTO t VALUES (0, '')\n", "the job failed: BIC-1401"),
    ],
)  # fmt: skip
def test_a_record_that_does_not_hold_is_one_failure_at_its_line(failures, query, expected):
    text = f"{TABLE}\n{ROWS}\n{query}"
    found = failures(text)

    assert len(found) == 1
    [(line, problem)] = found
    assert text.splitlines()[line - 1].split()[0] in (
        "query", "changes", "epoch", "watermark", "SELECT", "INSERT",
    )  # fmt: skip
    assert problem.startswith(expected)


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ("qury I\nSELECT a FROM t\n", "there is no record 'qury'; did you mean 'query'? known:"),
        ("statement maybe\nSELECT 1\n", "expected statement ok, or statement error REGEX; got"),
        ("statement ok\n", "statement needs SQL in the next line"),
        ("query rowsort\nSELECT 1\n----\n", "expected query TYPES [nosort|rowsort|valuesort]"),
        ("query I\nSELECT 1\n", "query needs ---- and the expected rows"),
        ("query I sorted\nSELECT 1\n----\n1\n", None),
        ("changes\n----\n", "expected changes NAME [nosort|rowsort|valuesort]; got 'changes'"),
        ("changes v\nSELECT 1\n----\n", "changes takes no SQL"),
        ("hash-threshold many\n", "expected hash-threshold NUMBER; got 'hash-threshold many'"),
        ("statement error (\nSELECT 1\n", "'(' is not a regular expression"),
    ],
)
def test_a_record_that_is_not_valid_is_rejected_with_its_line(record, problem):
    text = LogicText("v.slt", "", f"# a comment\n\n{record}")
    if problem is None:  # It is a label.
        assert read_records(text)[0].label == "sorted"
        return

    with raises(SQL_TEST_INVALID) as caught:
        read_records(text)

    assert caught.value.facts["line"] == 3
    assert caught.value.facts["problem"].startswith(problem)


def test_epochs_watermarks_and_changes_follow_event_time(failures):
    text = f"""{TIMED}
epoch
INSERT INTO t VALUES ('a', '2026-11-28 10:00:01'), ('a', '2026-11-28 10:00:13')

watermark counts
----
2026-11-28 10:00:08.999

changes counts
----

watermark 2026-11-28 10:00:10

changes counts
----
a 2026-11-28 10:00:00 1

epoch
INSERT INTO t VALUES ('late', '2026-11-28 10:00:02'), ('b', '2026-11-28 10:00:12')

watermark end

changes counts
----
a 2026-11-28 10:00:10 1
b 2026-11-28 10:00:10 1

changes counts
----

query ITI
SELECT n, k, window_start FROM counts
----
1 a 2026-11-28 10:00:00
1 a 2026-11-28 10:00:10
1 b 2026-11-28 10:00:10
"""

    assert failures(text) == []
    assert failures(text, parallelism=2, epochs=3) == []


def test_rows_after_the_end_of_the_input_are_an_error(failures):
    text = f"{TABLE}\nwatermark end\n\n{ROWS}\nchanges t\n----\n"

    [(line, problem)] = failures(text)

    assert line == 6
    assert "the job has finished" in problem


def test_the_sql_file_beside_the_test_comes_first_and_its_sinks_can_be_read(failures):
    sql = """
        CREATE TABLE t (a BIGINT) WITH (kind = 'file', path = 'in');
        CREATE TABLE big (a BIGINT) WITH (kind = 'file', path = 'out');
        INSERT INTO big SELECT a FROM t WHERE a > 1;
        INSERT INTO big SELECT -a FROM t -- The last statement has no semicolon.
    """
    rows = "epoch\nINSERT INTO t VALUES (1), (2)\n"

    assert failures(f"{rows}\nquery I\nSELECT a FROM big\n----\n-1\n-2\n2\n", sql=sql) == []
    assert failures(f"{rows}\nquery I\nSELECT x FROM big\n----\n", sql=sql) == [
        (5, "column 8: there is no column 'x'; known: a")
    ]


def test_a_value_that_does_not_fit_its_column_is_a_bad_row(failures):
    text = """
statement ok
SET on_error = 'dead_letter';
CREATE TABLE t (a BIGINT, j JSON, d DOUBLE, l BIGINT[], m DECIMAL(6, 2));
CREATE VIEW v AS SELECT a, j ->> 'x' AS x, d, l, m FROM t

epoch
INSERT INTO t VALUES (1, '{"x": [2]}', 1, [1, NULL], 2.5), ('ten', NULL, NULL, NULL, NULL)

query ITRTR
SELECT * FROM v
----
1 [2] 1.0 [1, NULL] 2.50

changes $dead_letters
----
t-rows could not convert 'ten' with type str: tried to convert to int64
"""

    assert failures(text) == []


def test_a_view_of_a_window_function_has_no_rows_of_its_own(failures):
    view = "CREATE VIEW w AS SELECT * FROM TUMBLE(t, at, INTERVAL '1' HOUR)"
    text = f"{TIMED}\nstatement ok\n{view}\n"
    rows = "\nepoch\nINSERT INTO t VALUES ('a', '2026-11-28 10:00:00')\n"

    assert failures(f"{text}{rows}") == []
    [(line, problem)] = failures(f"{text}{rows}\nquery T\nSELECT k FROM w\n----\n")
    assert (line, problem) == (10, "column 32: TUMBLE needs GROUP BY window_start, window_end")


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.slt").write_text(
        f"{TABLE}\n{ROWS}\nquery IT\nSELECT * FROM t\n----\n{RESULT}"
    )
    (tmp_path / "bad.slt").write_text(f"{TABLE}\n{ROWS}\nquery I\nSELECT a FROM t\n----\n1\n")
    return lambda *words: CliRunner().invoke(main, ["sql", "test", *words])


def test_the_command_prints_a_line_for_each_file(files):
    found = files("good.slt", "good.slt", "--parallelism", "2", "--epochs", "3")

    assert (found.exit_code, found.output) == (0, "good.slt: 3 records passed\n" * 2)


def test_functions_are_in_modules_beside_a_file(files, tmp_path, monkeypatch):
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "tripling.py").write_text("def triple(n: int) -> int: return n * 3\n")
    created = "statement ok\nCREATE FUNCTION triple AS 'tripling:triple'\n"
    (tmp_path / "beside" / "f.slt").write_text(
        f"{created}\n{TABLE}\n{ROWS}\nquery I\nSELECT triple(a) FROM t WHERE a IS NOT NULL\n----\n"
        "3\n6\n"
    )
    monkeypatch.delitem(sys.modules, "tripling", raising=False)

    found = files("beside/f.slt")

    assert (found.exit_code, found.output) == (0, "beside/f.slt: 4 records passed\n")


def test_the_command_fails_with_file_line_and_difference(files):
    found = files("good.slt", "bad.slt", "--state-backend", "rocksdb")

    assert found.exit_code == 1
    assert (
        "BIC-3203 1 of 6 records failed\nbad.slt:8: result differs\n 1\n+2\n+NULL" in found.output
    )


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [("--epochs", "0", 4), ("--parallelism", "x", 4), ("--state-backend", "tape", 4)],
)
def test_the_command_rejects_options_that_are_not_valid(files, name, value, code):
    found = files("good.slt", name, value)

    assert found.exit_code == code
    assert re.search(r"error: .*(epochs|parallelism|tape)", found.output)


@pytest.mark.parametrize(
    ("query", "mode"),
    [
        ("SELECT a FROM t", "rowsort"),
        ("SELECT a FROM t\nORDER  BY a", "nosort"),
        ("SELECT a FROM (SELECT a FROM t ORDER BY a LIMIT 1) WHERE b = ' ORDER BY '", "rowsort"),
    ],
)
def test_the_default_order_of_rows_follows_the_query(query, mode):
    text = LogicText("t.slt", "", f"query I\n{query}\n----\n\nquery I valuesort\n{query}\n----\n")

    assert [each.sort_mode for each in read_records(text)] == [mode, "valuesort"]
