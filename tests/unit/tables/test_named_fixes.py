"""Errors that name a fix: the statement is accepted after the fix, as it is written."""

import json

import pytest

from tests.unit.tables.sql_runs import problems

TABLE = """\
CREATE TABLE t (id BIGINT, v VARCHAR, j JSON, at TIMESTAMP(3), WATERMARK FOR at AS at) \
WITH (kind = 'file', path = 't');
CREATE TABLE out (id BIGINT, v VARCHAR{}) WITH ({});
INSERT INTO out SELECT {}
"""
FILE = "kind = 'file', path = 'out'"
KAFKA = "kind = 'kafka', topic = 'a', brokers = 'h:1'"
TUMBLE = (
    "id, v FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(at), INTERVAL '{}' DAY)) GROUP BY id, v, "
    "window_start, window_end"
)


@pytest.mark.parametrize(
    ("given", "position", "fix", "fixed"),
    [
        (("", FILE, "id, id + 1 FROM t"), (3, 17), "write CAST(id + 1 AS VARCHAR)",
         ("", FILE, "id, CAST(id + 1 AS VARCHAR) FROM t")),
        (("", FILE, "id, id + 1 AS v FROM t"), (3, 17), "write CAST(id + 1 AS VARCHAR)",
         ("", FILE, "id, CAST(id + 1 AS VARCHAR) FROM t")),
        (("", FILE, "id, v FROM t WHERE j -> 'b' = 'x'"), (3, 43), "a text in JSON is '\"x\"'",
         ("", FILE, "id, v FROM t WHERE j -> 'b' = '\"x\"'")),
        (("", FILE, "id, v FROM t WHERE j -> 'b' = 'x'"), (3, 43), "->> reads texts",
         ("", FILE, "id, v FROM t WHERE j ->> 'b' = 'x'")),
        ((", PRIMARY KEY (id, v)", KAFKA, "id, v FROM t"), (2, 54), "write PRIMARY KEY (id)",
         (", PRIMARY KEY (id)", KAFKA, "id, v FROM t")),
        (("", FILE, TUMBLE.format(400_000)), (3, 73), "expected 0..3162240000000",
         ("", FILE, TUMBLE.format(3_162_240_000_000 // 86_400_000))),
    ],
)  # fmt: skip
def test_the_fix_of_an_error_works(given, position, fix, fixed):
    [(line, column, text)] = problems(TABLE.format(*given))

    assert (line, column) == position
    assert fix in text
    assert problems(TABLE.format(*fixed)) == []


def test_avro_needs_the_option_schema(tmp_path):
    fields = [{"name": "id", "type": "long"}, {"name": "v", "type": ["null", "string"]}]
    schema = tmp_path / "row.avsc"
    schema.write_text(json.dumps({"type": "record", "name": "row", "fields": fields}), "utf-8")
    wrong = f"{KAFKA}, format = 'avro'"

    [(_, _, text)] = problems(TABLE.format("", wrong, "id, v FROM t"))
    fixed = f"{wrong}, schema = '{schema}'"

    assert text == "out.format: the format 'avro' needs a schema; set the option 'schema'"
    assert problems(TABLE.format("", fixed, "id, v FROM t")) == []


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("t.id, t.v FROM t JOIN s ON t.id = s.id AND s.at BETWEEN t.at - INTERVAL '400000' DAY AND "
         "t.at", "bound of event times"),
        (TUMBLE.format(1).replace("id, v", "/*+ ALLOWED_LATENESS('400000 days') */ id, v", 1),
         "ALLOWED_LATENESS('400000 days')"),
    ],
)  # fmt: skip
def test_other_lengths_have_the_same_bound(query, name):
    text = TABLE.format("", FILE, query)
    second = text.splitlines()[0].replace("TABLE t", "TABLE s")

    [(line, _, found)] = problems(f"{text};{second}")

    assert (line, found.partition(":")[0]) == (3, name)


@pytest.mark.parametrize(
    ("wrong", "fix"),
    [
        ("j.b", "j ->> 'name'"),
        ("j.a.b", "j -> 'a' ->> 'b'"),
        ("t.j.b", "t.j ->> 'b'"),
        ("t.j.a.b", "t.j -> 'a' ->> 'b'"),
    ],
)
def test_names_with_dots_are_paths_of_json(wrong, fix):
    [(line, column, text)] = problems(TABLE.format("", FILE, f"id, {wrong} FROM t"))

    assert (line, column) == (3, 28)
    assert text == f"j is a column; write {fix} for a part of a JSON value"
    assert problems(TABLE.format("", FILE, f"id, {fix} FROM t")) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tags.a.b", "there is no column 'tags'; known: id, v, j, at"),
        ("id.a", "id is BIGINT, which has no parts"),
        ("t.at.a", "at is TIMESTAMP, which has no parts"),
        ("x.a", "there is no table 'x'; known: t"),
    ],
)
def test_other_names_with_dots_say_what_is_missing(name, text):
    [(_, _, found)] = problems(TABLE.format("", FILE, f"id, {name} FROM t"))

    assert found == text
