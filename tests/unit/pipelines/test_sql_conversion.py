"""Pipelines as SQL files: both write the same rows, and other operators are refused."""

from datetime import UTC, datetime

import msgspec
import pyarrow.parquet
import pytest

from bicycle_runtime.pipelines.building import build_pipeline
from bicycle_runtime.pipelines.sql_conversion import sql_of_pipeline
from bicycle_runtime.tables.building import build_tables
from bicycle_runtime.tables.job import check_sql
from bicycle_runtime.testing import Harness
from bicycle_sdk import StreamEnvironment
from bicycle_sdk.errors import BicycleError
from tests.unit.pipelines.pipeline_runs import checked, lines
from tests.unit.tables.sql_runs import split

FIELDS = """{ at = "timestamp", page = "string", user = "string?", status = "int", ms = "float",
paid = "decimal(10,2)?", more = "json?" }""".replace("\n", " ")
EPOCHS = 4


def pipeline(*parts, sink='kind = "file"\npath = "out"', head=""):
    return "\n".join(
        [head, '[source]\nkind = "file"\npath = "in.jsonl"\ntimestamp_field = "at"',
         f"fields = {FIELDS}", *parts, "[sink]", sink]
    )  # fmt: skip


def step(operator, keys):
    return f'[[steps]]\noperator = "{operator}"\n{keys}'


def clicks():
    """Return rows with nulls, ties, gaps and rows that are late in some epochs."""
    rows = []
    for at in range(60):
        moment = 30_000 + 1_000 * at - (9_000 if at % 17 == 5 else 0)
        moment = datetime.fromtimestamp(moment / 1_000, UTC).isoformat().replace("+00:00", "Z")
        row = {
            "at": moment,
            "page": "/aB"[: 1 + at % 3],
            "status": 200 + 100 * (at % 4),
            "ms": at / 8,
        }
        row["user"] = None if at % 5 == 0 else f"u{at % 7}"
        row["paid"] = None if at % 3 == 0 else f"{at}.25"
        row["more"] = {"id": at % 4, "tags": [at]} if at % 6 else None
        rows.append(row)
    return rows


def rows_of(env, source, sink):
    """Return the rows that a job writes for clicks in several epochs."""
    with Harness(env, scripted=[source]) as harness:
        for part in split(clicks(), EPOCHS):
            harness.push(part, source=source)
            harness.run()
        harness.end()
        harness.run()
        return sorted(str(msgspec.to_builtins(row)) for row in harness.results(sink))


def both(text, notation="toml"):
    """Return the rows of a pipeline, and of its SQL file."""
    found = checked(text, notation)
    env, other = StreamEnvironment(), StreamEnvironment()
    build_pipeline(env, found)
    build_tables(other, sql_of_pipeline(found, check_sql), file="p.sql")
    assert other.config.parallelism == env.config.parallelism
    return rows_of(env, "source", "sink"), rows_of(other, "source-source", "sink")


FILTERED = step("filter", "where = \"status < 500 and page not like '/b%'\"")
MAPPED = step(
    "map",
    'set = { page = "lower(page)", id = "more->\'$.id\'", later = "at + interval \'1\' hour", '
    'half = "ms / 2" }\ndrop = ["more", "at"]',
)
SELECTED = step("map", 'select = { at = "at", page = "page", order = "status * 2", ms = "ms" }')
QUERY = step("sql", "query = \"SELECT page, at, CASE WHEN ms > 2 THEN 'long' ELSE 'short' END AS "
             'kind FROM input"')  # fmt: skip
WINDOW = '[window]\nsize = "10s"\n'
AGGREGATES = """[ops]
count_by = "page"
aggregates = [
  { name = "n", agg = "count" }, { name = "total", agg = "sum", field = "ms" },
  { name = "users", agg = "distinct", field = "user" },
  { name = "sum", agg = "sum", field = "paid" }, { name = "mean", agg = "avg", field = "ms" },
  { name = "least", agg = "min", field = "user" }, { name = "most", agg = "max", field = "paid" },
]"""
TIME = '[time]\nmax_out_of_orderness = "3s"'
PIPELINES = [
    pipeline(FILTERED, MAPPED),
    pipeline(SELECTED),
    pipeline(step("map", 'set = { ms = "ms + 1", user = "lower(user)" }\ndrop = ["ms", "more"]')),
    pipeline(step("filter", 'field = "status"\npredicate = "equals"\nvalue = 200'), QUERY),
    pipeline(step("filter", 'field = "user"\npredicate = "exists"'), TIME, WINDOW, AGGREGATES),
    pipeline(FILTERED, QUERY, WINDOW, '[ops]\ncount_by = "kind"',
             head='on_error = "skip"\n[config]\nparallelism = 2'),
    pipeline('[window]\ntype = "sliding"\nsize = "10s"\nslide = "2500ms"\noffset = "1s"',
             AGGREGATES),
    pipeline('[window]\ntype = "session"\ngap = "3s"', AGGREGATES.replace('"page"', '"status"')),
]  # fmt: skip


@pytest.mark.parametrize("text", PIPELINES)
def test_a_converted_pipeline_writes_the_same_rows_over_several_epochs(text):
    rows, of_sql = both(text)

    assert of_sql == rows
    assert len(rows) > 1


def refused(text, notation="toml"):
    """Return line and text of the reasons for which a pipeline has no SQL file."""
    with pytest.raises(BicycleError) as caught:
        sql_of_pipeline(checked(text, notation), check_sql)
    assert caught.value.code == "BIC-2708"
    return [(each["line"], each["text"]) for each in caught.value.facts["problems"]]


def test_all_operators_without_a_counterpart_are_refused_with_their_lines():
    text = pipeline(
        step("dedup", 'fields = ["page"]'),
        step("map", 'function = "json:dumps"\nparallelism = 2'),
        step("rate_limit", "per_second = 5"),
    )
    steps = [at for at, line in enumerate(text.splitlines(), 1) if line == "[[steps]]"]
    assert refused(text) == [
        (steps[0], "dedup-1 (dedup): SQL files cannot keep the first of several rows"),
        (steps[1], "map-1 (map): SQL files set parallelism for the whole job"),
        (steps[2], "rate_limit-1 (rate_limit): SQL has no rates"),
    ]


REASONS = [
    (pipeline(WINDOW + 'keep = "1m"', AGGREGATES), "late records update its results"),
    (pipeline('[window]\ntype = "count"\nrecords = 3', AGGREGATES),
     "SQL has no windows of a number"),
    (pipeline(WINDOW, AGGREGATES.replace('"avg", field = "ms"', '"avg", field = "paid"')),
     "avg of a field of the type decimal(10,2) has another result in SQL"),
    (pipeline(WINDOW, '[ops]\ncount_by = "more"'), "the key more is not a string, int or bool"),
    (pipeline('[ops]\ncount_by = "page"'), "running aggregates change with each record"),
    (pipeline(sink='kind = "parquet"\npath = "lake"'), "without `columns`, rows have the columns"),
    (pipeline(step("filter", 'field = "user"\npredicate = "min_length"\nvalue = 3')),
     "min_length has no counterpart"),
    (pipeline('[time]\nidle_timeout = "0s"'), "tables of SQL have the idle timeout 10s"),
    *((pipeline(sink=f'kind = "parquet"\npath = "lake"\ncolumns = {{ {name} = "{declared}" }}'),
       f"the column {name} is {declared}, but its field is {field}")
      for name, declared, field in [("status", "string", "int"), ("ms", "int", "float"),
                                    ("at", "date", "timestamp"), ("more", "string", "json")]),
    (pipeline().replace('at = "timestamp"', 'at = "int"'), "the event time must be a field of the"),
    (pipeline().replace(f"fields = {FIELDS}", ""), "add `fields` with types"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "reason"), REASONS)
def test_an_operator_that_means_something_else_in_sql_is_refused(text, reason):
    assert any(reason in found for _, found in refused(text)), refused(text)


@pytest.mark.parametrize("parts", [("",), (SELECTED,), (TIME, SELECTED)])
def test_a_table_has_the_declared_types_and_folders_of_the_pipeline(tmp_path, parts):
    columns = "{ at = 'datetime', page = 'string', order = 'float', ms = 'float' }"
    if SELECTED not in parts:
        columns = "{ paid = 'decimal(12,3)', at = 'string', status = 'float' }"
    source = lines(tmp_path, *clicks())

    def written(folder, build):
        sink = f'kind = "parquet"\npath = "{tmp_path / folder}"\ncolumns = {columns}'
        found = checked(pipeline(*parts, sink=sink).replace("in.jsonl", str(source)))
        env = StreamEnvironment()
        build(env, found)
        with Harness(env, real_sinks=["sink"]) as harness:
            harness.run()
        files = list((tmp_path / folder).rglob("*.parquet"))
        tables = [pyarrow.parquet.ParquetFile(file).read() for file in files]
        schemas = {str(table.schema.remove_metadata()) for table in tables}
        return schemas, {file.parent.name for file in files if file.parent.name != folder}

    def build_sql(env, found):
        build_tables(env, sql_of_pipeline(found, check_sql), file="p.sql")

    schemas, folders = written("rows", build_pipeline)
    assert written("sql", build_sql) == (schemas, folders)
    assert folders == {"dt=1970-01-01"}


VERTICES = """
vertices:
  - {id: in, operator: source, connector: {type: file, properties: {path: in.jsonl,
     fields: {page: string, n: int}}}}
  - {id: by-page, operator: split, config: {field: page, outputs: {a: [x, y], b: [z]}, default: b}}
  - {id: big, operator: filter, config: {where: n > 1}}
  - {id: out, operator: sink, connector: {type: kafka, properties: {topic: t, key_field: page,
     bootstrap_servers: "h:1"}}}
  - {id: rest, operator: sink, connector: {type: file, properties: {path: rest}}}
edges:
  - {from: in, to: by-page}
  - {from: by-page, to: big, output: a}
  - {from: big, to: out}
  - {from: by-page, to: rest, output: b}
"""


def test_branches_become_views_and_a_field_of_the_key_a_primary_key():
    text = sql_of_pipeline(checked(VERTICES, "yaml"), check_sql)
    assert "SELECT * FROM \"in\" WHERE page IN ('x', 'y');" in text
    assert "WHERE page IN ('z') OR page NOT IN ('x', 'y', 'z') OR page IS NULL;" in text
    assert "  PRIMARY KEY (page)\n) WITH (kind = 'kafka', " in text
    options = VERTICES.replace("bootstrap_servers", "client.id: c, bootstrap_servers")
    [(_, reason)] = refused(options, "yaml")
    assert reason == "out (sink): properties is a table or a list, but options of SQL are texts"


@pytest.mark.parametrize("output", ["u1", "other"])
def test_a_split_by_names_writes_the_same_rows(output):
    branches = f"""
vertices:
  - {{id: source, operator: source, connector: {{type: file, properties: {{path: in.jsonl,
     fields: {{page: string, user: "string?"}}}}}}}}
  - {{id: by, operator: split, config: {{field: user, default: other}}}}
  - {{id: sink, operator: sink, connector: {{type: console}}}}
  - {{id: rest, operator: sink, connector: {{type: console}}}}
edges:
  - {{from: source, to: by}}
  - {{from: by, to: sink, output: {output}}}
  - {{from: by, to: rest, output: {"other" if output == "u1" else "u1"}}}
"""
    rows, of_sql = both(branches, "yaml")

    assert of_sql == rows
    assert len(rows) > 1
