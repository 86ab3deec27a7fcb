"""Sessions of the SQL shell: answers to statements, and rejections with their lines."""

import json
import textwrap
import threading

import pytest

from bicycle_runtime.cli.plan import explain_lines
from bicycle_runtime.jobs.inspection.reports import inspect_job
from bicycle_runtime.tables.building import build_tables
from bicycle_runtime.tables.errors import SQL_STATEMENT_INVALID
from bicycle_runtime.tables.shell import JobText, Running, ShellSession, is_complete, pieces_of
from bicycle_runtime.testing import bundle_of
from bicycle_runtime.testing.previews import preview_epochs
from bicycle_sdk import StreamEnvironment
from bicycle_sdk.result_tables import ResultTable
from tests.raising import raises

BIDS = """
CREATE TABLE bids (
  auction BIGINT NOT NULL, price DECIMAL(10, 2), at TIMESTAMP(3), euros AS price * 0.5,
  WATERMARK FOR at AS at - INTERVAL '4' SECOND
) WITH (kind = 'file', path = 'bids.jsonl')"""
VIEW = "CREATE VIEW dear AS SELECT auction, price FROM bids WHERE price > 10 -- a comment"
COUNTS = "CREATE TABLE counts (auction BIGINT) WITH (kind = 'console')"


def answers(session, text, **where):
    """Return the answers to the statements of a text."""
    return [session.answer(piece) for piece in pieces_of(text, **where)]


@pytest.fixture
def session():
    """Return a session with tables and a view."""
    session = ShellSession()
    found = answers(session, f"{BIDS};\n{VIEW}\n;{COUNTS}")
    assert found == ["bids created", "dear created", "counts created"]
    return session


def rejected(session, text, **where):
    """Return the listing of the problems of a text."""
    with raises(SQL_STATEMENT_INVALID) as caught:
        answers(session, text, **where)
    return textwrap.dedent(caught.value.facts["listing"])


def rows_of(running):
    """Return the rows of a query, run to its end."""
    epochs = preview_epochs(running.env, running.vertex, size=100, stop=threading.Event())
    return ResultTable([row for rows in epochs for row in rows], columns=running.columns)


def test_a_query_reads_the_definitions_before_it(session, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    at = "2026-01-01T00:00:00Z"
    rows = [
        {"auction": n, "price": price, "at": at} for n, price in ((1, "20.50"), (2, "3"), (3, "11"))
    ]
    (tmp_path / "bids.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    [running] = answers(session, "SELECT auction, price * 2 AS twice FROM dear")

    assert isinstance(running, Running)
    assert repr(rows_of(running)).splitlines() == [
        "auction          twice",
        " BIGINT  DECIMAL(29,2)",
        "      1          41.00",
        "      3          22.00",
        "(2 rows)",
    ]


def test_a_table_is_joined_with_itself_by_other_names(session, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    row = {"auction": 1, "price": "2", "at": "2026-01-01T00:00:00Z"}
    (tmp_path / "bids.jsonl").write_text(f"{json.dumps(row)}\n")
    text = """WITH w (x, y, z, v) AS (SELECT * FROM bids) SELECT a.auction, b.y FROM bids a
        JOIN w b ON a.auction = b.x AND b.z = a.at"""

    [running] = answers(session, text)

    assert [(each["auction"], str(each["y"])) for each in rows_of(running)] == [(1, "2.00")]


def test_lists_show_what_is_defined(session):
    tables, views, functions = answers(session, "SHOW TABLES; SHOW VIEWS; show functions")

    assert tables == [
        {"table": "bids", "connector": "file"},
        {"table": "counts", "connector": "console"},
    ]
    assert views == [{"view": "dear"}]
    by_name = {each["function"]: each["types"] for each in functions}
    assert by_name["upper"] == "VARCHAR → VARCHAR"
    assert "equal" not in by_name


def test_a_definition_is_shown_as_it_was_written(session):
    assert answers(session, "SHOW CREATE TABLE bids; SHOW CREATE VIEW DEAR") == [
        BIDS.strip(), VIEW.partition(" --")[0],
    ]  # fmt: skip


def test_a_description_has_columns_types_and_roles(session):
    table, view, windows = answers(
        session,
        "CREATE VIEW ends AS SELECT window_time, count(*) AS n FROM TUMBLE(bids, at, INTERVAL '1' "
        "HOUR) GROUP BY window_start, window_time; DESCRIBE bids; DESC dear; DESC ends",
    )[1:]

    assert table == [
        {"column": "auction", "type": "BIGINT", "null": "NOT NULL", "extra": ""},
        {"column": "price", "type": "DECIMAL(10,2)", "null": "NULL", "extra": ""},
        {"column": "at", "type": "TIMESTAMP", "null": "NULL",
         "extra": "event time, up to 4000 ms late"},
        {"column": "euros", "type": "DOUBLE", "null": "NULL", "extra": "computed"},
    ]  # fmt: skip
    assert view == [
        {"column": "auction", "type": "BIGINT", "null": "NOT NULL", "extra": ""},
        {"column": "price", "type": "DECIMAL(10,2)", "null": "NULL", "extra": ""},
    ]
    assert windows == [
        {"column": "window_time", "type": "TIMESTAMP", "null": "NOT NULL", "extra": "event time"},
        {"column": "n", "type": "BIGINT", "null": "NOT NULL", "extra": ""},
    ]


def test_options_are_set_shown_and_reset(session):
    text = "SET parallelism = 2; SET 'properties.team' = 'a'; SET; RESET parallelism; RESET; SET"

    assert answers(session, text) == [
        "parallelism = 2",
        "properties.team = a",
        [{"option": "parallelism", "value": "2"}, {"option": "properties.team", "value": "a"}],
        "1 option reset",
        "1 option reset",
        [],
    ]


def test_an_insert_becomes_a_file_with_the_definitions_that_the_job_needs(session):
    [job] = answers(session, "INSERT INTO counts SELECT auction FROM dear")

    assert isinstance(job, JobText)
    assert [piece.text for piece in pieces_of(job.text)] == [
        BIDS.strip(),
        VIEW.partition(" --")[0],
        COUNTS,
        "INSERT INTO counts SELECT auction FROM dear",
    ]


def test_a_plan_is_that_of_a_query_or_of_an_insert(session):
    insert = "INSERT INTO counts SELECT auction FROM bids"
    query, insert = answers(session, f"EXPLAIN SELECT 1 AS n FROM bids; EXPLAIN PLAN FOR {insert}")

    assert query.vertex == insert.vertex == ""
    assert query.env.build_graph("x").vertices[-1].id == "result"
    assert insert.env.build_graph("x").vertices[-1].id == "counts"


def test_a_table_of_a_program_explains_its_rows_as_the_shell_does(session):
    text = """SELECT auction, count(*) AS n FROM TUMBLE(bids, at, INTERVAL '1' HOUR)
        GROUP BY auction, window_end"""
    env = StreamEnvironment()
    env.sql(BIDS)
    table = env.sql(text)
    env.from_collection([1]).map(str)  # It has no reader, and is not a part of the plan.
    before = len(env.vertices)

    found = table.explain()

    [query] = answers(session, f"EXPLAIN {text}")
    bundle = bundle_of(query.env)
    lines = explain_lines(inspect_job(bundle), bundle.graph)
    assert found.replace("rows", "result") == "\n".join(lines).replace("rows", "result")
    assert "128 key groups, bounded: a window is removed when" in found
    assert len(env.vertices) == before


def test_a_dropped_table_can_be_defined_again(session):
    assert answers(session, "DROP VIEW dear; DROP TABLE bids; SHOW TABLES") == [
        "dear dropped",
        "bids dropped",
        [{"table": "counts", "connector": "console"}],
    ]
    assert answers(session, BIDS) == ["bids created"]


def test_functions_in_python_belong_to_the_session(session):
    created = "CREATE FUNCTION Bids AS 'tests.unit.tables.user_functions:half'"  # As a table.
    done, rows, shown = answers(session, f"{created}; SHOW FUNCTIONS; SHOW CREATE FUNCTION bids")

    assert (done, shown) == ("Bids created", created)
    own = {"function": "Bids", "group": "python", "types": "DOUBLE → DOUBLE"}
    assert [row for row in rows if row["group"] == "python"] == [own]
    assert "bids" in session.words()["function"]

    [running] = answers(session, "SELECT bids(auction) AS x FROM bids")
    assert running.columns == {"x": "DOUBLE"}
    answers(session, "CREATE VIEW halves AS SELECT bids(auction) AS x FROM bids")
    assert "Bids is in use: BIDS(auction) is not allowed" in rejected(session, "DROP FUNCTION Bids")
    assert answers(session, "DROP VIEW halves; DROP FUNCTION bids; SHOW TABLES") == [
        "halves dropped",
        "bids dropped",
        [{"table": "bids", "connector": "file"}, {"table": "counts", "connector": "console"}],
    ]


def test_words_complete_keywords_and_the_names_of_the_session(session):
    words = session.words()

    assert words["table"] == ["bids", "counts", "dear"]
    assert words["column"] == ["auction", "price", "at", "euros"]
    assert {"upper", "count"} < set(words["function"])
    assert "SELECT" in words["keyword"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT auctoin\nFROM bids", "there is no column 'auctoin'; did you mean 'auction'?"),
        ("SHOW TABELS", "did you mean TABLES?"),
        ("SHOW", "expected TABLES, VIEWS, FUNCTIONS, CREATE TABLE, CREATE VIEW or CREATE FUNCTION, "
         "found the end of the statement"),
        ("SHOW CREATE TABLE bidz", "there is no table 'bidz'; did you mean 'bids'?"),
        ("SELCT 1", "there is no statement SELCT; did you mean SELECT?"),
        ("DESCRIBE bidz", "there is no table 'bidz'; did you mean 'bids'?"),
        ("DESCRIBE bids price", "expected a semicolon, found 'price'"),
        ("EXPLAIN CREATE TABLE a", "expected a query or INSERT INTO, found 'CREATE'"),
        ("EXPLAIN ANALYZE SELECT 1", "expected a query or INSERT INTO, found 'ANALYZE'"),
        ("EXPLAIN SELECT auctoin FROM bids", "there is no column 'auctoin'"),
        ("RESET parallelism", "there is no option that was set 'parallelism'; known: none"),
        ("SET paralelism = 2", "unknown key SET.paralelism; did you mean 'parallelism'?"),
        ("DROP bids", "expected TABLE, VIEW or FUNCTION, found 'bids'"),
        ("DROP FUNCTION upper", "there is no function 'upper'; known: none"),
        ("CREATE FUNCTION f AS 'nowhere:f'", "module 'nowhere' not found"),
        ("DROP TABLE bids", "bids is in use: there is no table 'bids'"),
        (
            "CREATE TABLE bids (a BIGINT) WITH (kind = 'console')",
            "bids is defined; write CREATE OR REPLACE, or DROP it before",
        ),
        ("DROP TABLE dear", "dear is a view; write DROP VIEW"),
        ("DROP VIEW counts", "counts is a table; write DROP TABLE"),
        ("INSERT INTO bidz SELECT 1 FROM bids", "there is no table 'bidz'"),
        ("UPDATE bids SET a = 1", "tables are streams; a job only appends rows to them"),
        ("SELECT 'a", "a quote or a comment is not closed"),
        ("SELECT count(*) FROM bids", "1:8: an aggregation without a window changes its rows"),
        ("EXPLAIN SELECT auction, sum(price) FROM bids GROUP BY auction",
         "1:55: an aggregation without a window changes its rows"),
        ("EXPLAIN INSERT INTO counts SELECT count(*) FROM bids",
         "1:35: an aggregation without a window changes its rows"),
        ("SELECT row_number() OVER (ORDER BY at) AS n FROM bids", "1:8: OVER is not supported: "),
        ("SELECT auction FROM bids WHERE auction IN (SELECT auction FROM dear)",
         "1:32: IN (SELECT …) is not supported: "),
        ("SELECT a.price FROM bids a JOIN bids b ON a.auction = b.auction",
         "1:43: the join has no bounds of event time"),
        ("SELECT auction FROM TUMBLE(bids, at, INTERVAL '1' HOUR)",
         "1:21: TUMBLE needs GROUP BY window_start, window_end"),
    ],
)  # fmt: skip
def test_a_wrong_statement_is_rejected_and_changes_nothing(session, text, expected):
    before = session.words(), answers(session, "SHOW TABLES; SET")

    assert expected in rejected(session, text)
    assert (session.words(), answers(session, "SHOW TABLES; SET")) == before


def test_an_error_has_the_position_in_its_file_and_a_caret_below_its_line(session):
    text = "SHOW TABLES;\n  SELECT price,\n\tauctoin FROM bids"

    listing = rejected(session, text, file="a.sql").splitlines()
    assert listing[0].startswith("a.sql:3:2: there is no column 'auctoin'")
    assert listing[1].index("auctoin") == listing[2].index("^")


def test_the_caret_of_a_long_line_stays_near_its_word(session):
    text = f"SELECT {'price + ' * 40} auctoin FROM bids"

    label, line, caret = rejected(session, text).splitlines()

    assert label.startswith(f"1:{text.index('auctoin') + 1}: ")
    assert len(line) < 80
    assert line.index("auctoin") == caret.index("^")


def test_an_option_that_is_wrong_in_its_role_is_shown_in_its_definition(session):
    answers(session, "CREATE TABLE a (n BIGINT) WITH (kind = 'file', path = 'a', follow = 'true')")

    listing = rejected(session, "INSERT INTO a SELECT auction FROM bids")

    assert "unknown key a.follow" in listing
    assert "WITH (kind = 'file', path = 'a', follow = 'true')" in listing


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        ("n BIGINT", "kind = 'file', path = 'a', roll_bytes = '1MiB'"),
        ("n BIGINT", "kind = 'parquet', path = 'a', partition_by = 'none'"),
        ("n BIGINT PRIMARY KEY", "kind = 'postgres', url = 'postgresql://w@h/d', table = 'x', "
         "mode = 'upsert'"),
        ("s VARCHAR", "kind = 'kafka', brokers = 'h:1', topic = 'x', format = 'string'"),
    ],
)  # fmt: skip
def test_a_table_may_have_the_options_of_a_sink(session, columns, options):
    assert answers(session, f"CREATE TABLE a ({columns}) WITH ({options})") == ["a created"]


def test_options_that_fit_no_role_are_those_of_a_source(session):
    text = "CREATE TABLE a (n BIGINT) WITH (kind = 'file', path = 'a', folow = 'true', x = 'y')"

    listing = rejected(session, text)

    assert "unknown key a.folow; did you mean 'follow'?" in listing
    assert listing.count("unknown key a.x") == 1


def test_a_text_is_complete_after_a_semicolon_outside_of_quotes_and_comments():
    texts = [
        "select 1;",
        "select ';",
        "select 1",
        "a; -- x",
        "/* ;",
        "a;b",
        "a -- ;",
        ";",
        "a;\n\n",
    ]

    found = [text for text in texts if is_complete(text)]

    assert found == ["select 1;", "a; -- x", ";", "a;\n\n"]


def test_the_error_survives_as_plain_data(session):
    with raises(SQL_STATEMENT_INVALID) as caught:
        answers(session, "\n\nSELECT x FROM bids", file="f.sql")

    [problem] = caught.value.facts["problems"]
    assert (problem["file"], problem["line"], problem["column"]) == ("f.sql", 3, 8)


def test_definitions_may_be_replaced_or_kept(session):
    replaced = "CREATE OR REPLACE VIEW dear AS SELECT auction FROM bids"
    found = answers(
        session,
        f"{replaced}; CREATE VIEW IF NOT EXISTS dear AS SELECT price FROM bids; SHOW CREATE VIEW "
        "dear; DROP TABLE IF EXISTS absent; DROP VIEW IF EXISTS dear; CREATE OR REPLACE VIEW dear "
        "AS SELECT price FROM bids; INSERT INTO counts SELECT auction FROM bids",
    )

    assert found[:-1] == [
        "dear created", "dear exists", replaced, "absent does not exist", "dear dropped",
        "dear created",
    ]  # fmt: skip
    env = StreamEnvironment()
    build_tables(env, found[-1].text, file="job.sql")
    assert {vertex.name for vertex in env.execute("job").vertices} >= {"INSERT INTO counts"}


def test_a_replaced_table_must_fit_the_views_that_read_it(session):
    text = "CREATE OR REPLACE TABLE bids (auction BIGINT) WITH (kind = 'file', path = 'bids.jsonl')"

    assert "there is no column 'price'" in rejected(session, text)
    assert "price" in answers(session, "SHOW CREATE TABLE bids")[0]
