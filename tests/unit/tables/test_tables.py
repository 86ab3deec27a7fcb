"""Tables of SQL files: connectors, columns, constraints, bad rows, and ids of operators."""

import json

import pyarrow
import pytest
from pyarrow import parquet

from bicycle_runtime.base.faults import FAULT_POINTS
from bicycle_runtime.frames.vectors import Vector
from bicycle_runtime.tables.functions import convert_stored
from bicycle_runtime.testing import Harness
from bicycle_sdk import col
from tests.unit.tables.sql_runs import built, graph, problems, ran, run

TABLE = "CREATE TABLE t (a BIGINT, b VARCHAR) WITH (kind = 'file', path = 'in');"
OUT = "CREATE TABLE out (a BIGINT, b VARCHAR) WITH (kind = 'file', path = 'out');"


def connector(text, uid):
    [found] = [vertex for vertex in graph(text).vertices if vertex.id == uid]
    return found.details["connector"]


def finish(text, *, faults=()):
    """Run a file with its own sources and sinks to the end."""
    env = built(text)
    sinks = [vertex.id for vertex in env.execute("v").vertices if vertex.kind.name == "SINK"]
    with Harness(env, real_sinks=sinks) as harness:
        for point in faults:
            harness.fail_at(point)
        harness.run()
        return harness


def written(folder):
    return sorted(json.loads(line)["a"] for path in folder.rglob("*.jsonl") for line in path.open())


@pytest.mark.parametrize("word", ["DOUBLE PRECISION", "double precision", "CHARACTER VARYING(9)"])
def test_the_name_of_a_type_may_have_two_words(word):
    assert problems(f"{TABLE.replace('b VARCHAR', f'b {word}')}{OUT} INSERT INTO out SELECT a, "
                    "CAST(b AS VARCHAR) FROM t") == []  # fmt: skip


@pytest.mark.parametrize("format", ["jsonl", "csv", "parquet"])
def test_files_are_read_with_the_types_of_the_table(tmp_path, format):
    rows = [{"n": 1, "x": 0.5, "s": "ä", "b": True}, {"n": None, "x": None, "s": "", "b": False}]
    path = tmp_path / f"in.{format}"
    if format == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif format == "csv":
        path.write_text("n,x,s,b\n1,0.5,ä,true\n,,,false\n")
    else:
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    text = f"""
        CREATE TABLE t (n BIGINT, x DOUBLE, s VARCHAR, b BOOLEAN, later DATE)
          WITH (kind = 'file', path = '{path}', format = '{format}');
        CREATE TABLE out (s VARCHAR, b BOOLEAN, x DOUBLE, n BIGINT, later DATE)
          WITH (kind = 'file', path = 'out');
        INSERT INTO out SELECT s, b, x, n, later FROM t;
    """
    if format == "parquet":
        text = text.replace(", later DATE", "").replace(", later", "")

    found = run(text, {}, "out")

    expected = [{"s": row["s"], "b": row["b"], "x": row["x"], "n": row["n"]} for row in rows]
    assert [{name: row[name] for name in "sbxn"} for row in found] == expected


def test_times_and_decimals_of_json_are_texts_or_numbers():
    text = """
        CREATE TABLE t (at TIMESTAMP(3), day DATE, d DECIMAL(10, 2), j JSON)
          WITH (kind = 'file', path = 'in');
        CREATE TABLE out (at VARCHAR, day VARCHAR, d VARCHAR, j VARCHAR)
          WITH (kind = 'file', path = 'out');
        INSERT INTO out SELECT CAST(at AS VARCHAR), CAST(day AS VARCHAR), CAST(d AS VARCHAR),
          j ->> 'a' FROM t;
    """
    rows = [
        {"at": "2026-11-28T10:00:00+02:00", "day": "2026-11-28", "d": "1.50", "j": {"a": "x"}},
        {"at": "2026-11-28 08:00:00", "day": "2026-11-28", "d": 1.5, "j": {"a": 1}},
        {"at": 1795852800000, "day": None, "d": 2, "j": None},
    ]

    found = run(text, {"t": rows}, "out")

    assert [tuple(row.values()) for row in found] == [
        ("2026-11-28T08:00:00Z", "2026-11-28", "1.50", "x"),
        ("2026-11-28T08:00:00Z", "2026-11-28", "1.50", "1"),
        ("2026-11-28T08:00:00Z", None, "2.00", None),
    ]


@pytest.mark.parametrize(
    ("text", "is_at_once"),
    [
        *((f"2026-11-28{rest}", True) for rest in ("", "T10", " 10:00", "T10:00:00.5", "T10:00Z")),
        *(("0001-01-01", True), ("9999-12-31 23:59:59.999", True), ("0000-01-01", False)),
        *((f"2026-11-28{rest}", False) for rest in ("T10:00+02:00", "T10:00:00.000001", "T24:00")),
        *((f"2026-11-28{rest}", False) for rest in ("Z", "x10:00", "T", "T1000", " ", "T10:00z")),
        *(("20261128", False), ("2026-W01", False), ("12", False), ("2026-02-30", False)),
    ],
)
def test_texts_become_the_same_times_at_once_as_one_by_one(text, is_at_once):
    _, convert, _ = convert_stored("TIMESTAMP", col("at"), "file").arguments

    found = convert.vector(Vector(2, [text, None]))

    assert (found is not None) is is_at_once
    if is_at_once:
        assert found.items == [convert(text), None]
        assert found.items[0].utcoffset() == convert(text).utcoffset()


def test_json_columns_are_written_as_values():
    text = """
        CREATE TABLE t (j JSON) WITH (kind = 'file', path = 'in');
        CREATE TABLE out (whole JSON, part JSON) WITH (kind = 'file', path = 'out');
        CREATE VIEW v AS SELECT j AS k FROM t WHERE j IS NOT NULL;
        INSERT INTO out SELECT k, k -> 'a' FROM v;
    """

    found = run(text, {"t": [{"j": {"a": [1, "x"]}}, {"j": None}, {"j": "text"}]}, "out")

    assert found == [
        {"whole": {"a": [1, "x"]}, "part": [1, "x"]}, {"whole": "text", "part": None},
    ]  # fmt: skip


def test_computed_columns_use_stored_columns_and_are_not_written():
    text = f"""
        CREATE TABLE t (a BIGINT, twice AS a * 2, b VARCHAR) WITH (kind = 'file', path = 'in');
        {OUT}
        CREATE TABLE both (a BIGINT, x AS a + 1, b VARCHAR) WITH (kind = 'file', path = 'both');
        INSERT INTO out SELECT twice, b FROM t;
        INSERT INTO both SELECT a, b FROM t;
    """

    with ran(text, {"t": [{"a": 3, "b": "x"}]}) as harness:
        assert harness.results("out") == [{"a": 6, "b": "x"}]
        assert harness.results("both") == [{"a": 3, "b": "x"}]


def test_a_bad_row_is_one_dead_letter_with_its_value():
    text = f"SET on_error = 'dead_letter'; {TABLE} {OUT} INSERT INTO out SELECT 10 / a, b FROM t"
    rows = [{"a": n, "b": "x"} for n in range(-50, 51)]
    rows[10] = {"a": "ten", "b": "x"}

    with ran(text, {"t": rows}, parallelism=2) as harness:
        assert len(harness.results("out")) == 99
        letters = [letter["value"] for letter in harness.dead_letters]
        assert len(letters) == 2


def test_a_null_in_a_column_that_is_not_null_is_an_error_of_its_row():
    text = f"""
        SET on_error = skip;
        CREATE TABLE t (a BIGINT NOT NULL, b VARCHAR) WITH (kind = 'file', path = 'in');
        {OUT}
        CREATE TABLE strict (b VARCHAR NOT NULL) WITH (kind = 'file', path = 'strict');
        INSERT INTO out SELECT a, b FROM t;
        INSERT INTO strict SELECT b FROM t;
    """
    rows = [{"a": 1, "b": None}, {"a": None, "b": "x"}, {"b": "y"}, {"a": 2, "b": "z"}]

    with ran(text, {"t": rows}) as harness:
        assert [row["a"] for row in harness.results("out")] == [1, 2]
        assert harness.results("strict") == [{"b": "z"}]


def test_an_insert_may_name_columns_in_any_order():
    text = f"""{TABLE} {OUT}
        INSERT INTO out (b) SELECT b FROM t; INSERT INTO out (B, `a`) SELECT b, a FROM t;
    """

    with ran(text, {"t": [{"a": 1, "b": "x"}]}) as harness:
        found = harness.results("out")

    assert sorted(found, key=str) == [{"a": 1, "b": "x"}, {"a": None, "b": "x"}]
    assert all(list(row) == ["a", "b"] for row in found)


def test_names_are_found_in_any_case_and_keep_their_spelling():
    text = f"""
        CREATE TABLE "My Table" (userId BIGINT, "order" VARCHAR) WITH (kind = 'file', path = 'in');
        {OUT}
        INSERT INTO OUT SELECT USERID, `order` FROM `my table` AS m WHERE M.userid > 0;
    """

    found = run(text, {"My Table": [{"userId": 1, "order": "x"}]}, "out")

    assert found == [{"a": 1, "b": "x"}]


def test_a_table_is_read_once_for_all_queries():
    text = f"""{TABLE} {OUT}
        CREATE VIEW v AS SELECT a, b FROM t WHERE a > 0;
        CREATE TABLE more (a BIGINT, b VARCHAR) WITH (kind = 'file', path = 'more');
        INSERT INTO out SELECT * FROM v;
        INSERT INTO more SELECT a + 1, b FROM v UNION ALL SELECT a, b FROM t;
    """

    kinds = [vertex.kind.name for vertex in graph(text).vertices]

    assert kinds.count("SOURCE") == 1
    assert kinds.count("FILTER") == 1


def test_ids_of_operators_come_from_names_of_views_and_tables():
    text = f"""{TABLE} {OUT}
        CREATE VIEW v AS SELECT a, b FROM t WHERE a > 0;
        INSERT INTO out SELECT a * 2, b FROM v;
    """

    found = {vertex.id: vertex.name for vertex in graph(text).vertices}

    assert found == {
        "t-source": "FROM t",
        "t-rows": "columns of t",
        "v-where": "WHERE a > 0",
        "out-select": "SELECT a, b",
        "out": "INSERT INTO out",
    }


def test_options_have_the_names_of_pipelines_and_of_clients():
    text = f"""
        CREATE TABLE t (a BIGINT, b VARCHAR) WITH (
          'connector' = 'kafka', 'topic' = 'bids', 'bootstrap.servers' = 'h:9092',
          'group.id' = 'readers', starting_offsets = 'latest', bounded = TRUE
        );
        {OUT} INSERT INTO out SELECT * FROM t;
    """

    found = connector(text, "t-source")

    assert found["connector_type"] == "kafka"
    assert found["properties"] == {
        "brokers": "h:9092", "topics": ["bids"], "group_id": "readers", "bounded": True,
        "starting_offsets": "latest", "value_format": "json",
    }  # fmt: skip


def test_a_sink_gets_columns_and_keys_from_the_table():
    text = f"""{TABLE}
        CREATE TABLE hot (id BIGINT, total DECIMAL(12, 2), at TIMESTAMP(3), PRIMARY KEY (id))
          WITH (kind = 'postgres', url = 'postgresql://writer@h/shop', table = 'hot',
                password = 'env:SHOP_PASSWORD');
        INSERT INTO hot (id) SELECT a FROM t;
    """

    found = connector(text, "hot")["properties"]

    assert found["columns"] == [["id", "int"], ["total", "decimal(12,2)"], ["at", "datetime"]]
    assert (found["keys"], found["mode"]) == (["id"], "upsert")
    assert found["password"] == {"secret": {"env": "SHOP_PASSWORD"}}


def test_a_secret_in_the_text_is_rejected_and_not_shown():
    text = f"""{TABLE}
        CREATE TABLE hot (id BIGINT) WITH (kind = 'postgres', url = 'postgresql://w@h/s',
          table = 'hot', password = 'hunter2');
        INSERT INTO hot SELECT a FROM t;
    """

    [(_, _, problem)] = problems(text)

    assert problem == "hot.password is a secret; set its location: env:NAME or file:PATH"


def test_settings_of_the_job_are_set():
    text = f"""
        SET parallelism = 3; SET 'max_restarts' = 0; SET mode = 'batch';
        SET 'properties.team' = 'red';
        {TABLE} {OUT} INSERT INTO out SELECT * FROM t;
    """

    config = graph(text).config

    assert (config.parallelism, config.mode.value) == (3, "batch")
    assert config.properties == {"team": "red"}


# A process that dies leaves files open.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_output_is_exactly_once_past_crashes_at_every_point(tmp_path):
    (tmp_path / "in").mkdir()
    for part in range(3):
        lines = [json.dumps({"a": part * 100 + n, "b": "x"}) + "\n" for n in range(100)]
        (tmp_path / "in" / f"{part}.jsonl").write_text("".join(lines))
    text = f"""
        SET parallelism = 2;
        CREATE TABLE t (a BIGINT, b VARCHAR) WITH (kind = 'file', path = '{tmp_path}/in');
        CREATE TABLE out (a BIGINT) WITH (kind = 'file', path = '{tmp_path}/out');
        INSERT INTO out SELECT a FROM t WHERE a % 2 = 0 UNION ALL SELECT -a FROM t WHERE a % 2 = 1;
    """

    harness = finish(text, faults=FAULT_POINTS)

    assert harness.crash_count >= 5
    assert written(tmp_path / "out") == sorted(n if n % 2 == 0 else -n for n in range(300))


def test_a_table_that_no_statement_uses_may_have_the_options_of_a_sink():
    unused = "CREATE TABLE u (a {}) WITH (kind = 'file', path = 'u', roll_bytes = '{}');"
    rest = f"{TABLE}{OUT} INSERT INTO out SELECT a, b FROM t"

    assert problems(f"{unused.format('BIGINT', '1MiB')}{rest}") == []
    [(_, _, problem)] = problems(f"{unused.format('BIGINT', 'many')}{rest}")
    assert problem.startswith("unknown key u.roll_bytes")
