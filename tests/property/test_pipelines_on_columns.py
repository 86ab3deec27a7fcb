"""Pipelines give the same on columns as record by record, whatever stands in their files."""

import csv
import json
import tempfile
import textwrap
from datetime import UTC, datetime
from pathlib import Path

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.frames.frame import Frame
from tests.examples import examples
from tests.property.pipeline_values import NUMBERS, SETTINGS, TEXTS
from tests.unit.pipelines.pipeline_runs import finish, on_columns, ran

WINDOW_KEYS = {"sliding": 'slide = "5s"', "session": 'gap = "7s"'}
PIPELINE = """
    on_error = "skip"

    [source]
    kind = "file"
    path = "{path}"
    format = "{notation}"
    time_field = "at"
    {fields}

    [time]
    allowed_lateness = "1h"

    {steps}

    [window]
    type = "{window}"
    size = "10s"
    {window_key}

    [ops]
    count_by = "{key}"
    aggregates = [
        {{ name = "count", agg = "count" }},
        {{ name = "sum", agg = "sum", field = "n" }},
        {{ name = "avg", agg = "avg", field = "n" }},
        {{ name = "low", agg = "min", field = "n" }},
        {{ name = "high", agg = "max", field = "n" }},
        {{ name = "first", agg = "min", field = "t" }},
        {{ name = "last", agg = "max", field = "t" }},
        {{ name = "texts", agg = "distinct", field = "t" }},
    ]

    [sink]
    kind = "console"
"""
CALLED = '[[steps]]\noperator = "filter"\nfunction = "tests.unit.pipelines.functions:unreadable"\n'
STEPS = """
    [[steps]]
    operator = "filter"
    where = "n > -5 or t = 'a'"

    [[steps]]
    operator = "map"
    set = { n = "n * 2", t = "lower(t)", more = "n + 1" }

    [[steps]]
    operator = "filter"
    field = "t"
    predicate = "exists"
"""
TYPES = 'fields = { at = "timestamp", n = "float", t = "string" }'
OPEN = 'fields = { at = "timestamp?", n = "float?", t = "string?" }'
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "at": st.one_of(st.integers(0, 60_000), st.just("1970-01-01T00:00:03Z")),
            "n": st.one_of(NUMBERS, TEXTS),
            "t": TEXTS,
        }
    ),
    min_size=1,
    max_size=30,
)


def at_of(row, kind):
    at = row["at"] if isinstance(row["at"], int) else 3_000
    return at if kind is int else datetime.fromtimestamp(at / 1_000, UTC)


def input_of(rows, notation, folder):
    path = Path(folder) / "in"
    with path.open("w", newline="") as out:
        if notation == "csv":
            writer = csv.DictWriter(out, ["at", "n", "t"])
            writer.writeheader()
            writer.writerows(rows)
        elif notation == "parquet":
            columns = {name: [row[name] for row in rows] for name in ("at", "n", "t")}
            parquet.write_table(pyarrow.table(columns), path)
        else:
            out.writelines(f"{json.dumps(row)}\n" for row in rows)
    return path


def outcome(rows, *, called, notation="jsonl", steps="", fields="", window="tumbling", key="t"):
    """Return the rows of results, how many were folded on columns, and if rows were made so."""
    with tempfile.TemporaryDirectory() as folder:
        path = input_of(rows, notation, folder)
        text = PIPELINE.format(
            path=path, notation=notation, fields=fields, window=window, key=key,
            window_key=WINDOW_KEYS.get(window, ""),
            steps=CALLED + steps + CALLED if called else steps,
        )  # fmt: skip
        with ran(text, parallelism=2) as harness:
            taken = on_columns(harness)
            rows = sorted(map(repr, harness.results("sink")))
            return rows, taken["window-combine"], taken["window-rows"] == len(rows)


@settings(SETTINGS, max_examples=examples(30))
@given(
    rows=ROWS,
    notation=st.sampled_from(["jsonl", "csv", "parquet"]),
    kind=st.sampled_from([int, datetime]),
    typed=st.sampled_from([("", ""), ("", TYPES), (STEPS, TYPES)]),
    window=st.sampled_from(["tumbling", "sliding", "session"]),
    key=st.sampled_from(["t", "n"]),
)
def test_a_pipeline_gives_the_same_both_ways(rows, notation, kind, typed, window, key):
    given = {"notation": notation, "steps": typed[0], "fields": typed[1], "window": window}
    if notation == "parquet":  # A column has one type.
        rows = [{**row, "at": at_of(row, kind), "n": float(n)} for n, row in enumerate(rows)]
    columns, records = (outcome(rows, called=each, key=key, **given) for each in (False, True))

    assert columns[0] == records[0]
    assert records[1] == 0


@pytest.mark.parametrize(
    ("notation", "steps", "fields"),
    [
        ("jsonl", "", ""),
        ("jsonl", "", TYPES),
        ("jsonl", STEPS, TYPES),
        ("csv", "", ""),
        ("csv", "", TYPES),
        ("csv", STEPS, TYPES),
        ("parquet", "", ""),
        ("parquet", STEPS, TYPES),
    ],
)
def test_a_pipeline_without_functions_is_folded_on_columns(notation, steps, fields):
    rows = [{"at": 1_000 * n, "n": n / 2, "t": "ab"[n % 2]} for n in range(20)]

    found, folded, are_made_on_columns = outcome(
        rows, called=False, notation=notation, steps=steps, fields=fields
    )

    assert (folded, are_made_on_columns) == (20, True)
    assert found == outcome(rows, called=True, notation=notation, steps=steps, fields=fields)[0]


SMALL = EngineOptions(max_records_per_epoch=7)
SINKS = ['format = "jsonl"', 'format = "csv"', 'format = "text"',
         'format = "jsonl"\ntime_field = "when"', 'format = "csv"\ntime_field = "t"']  # fmt: skip


def written(rows, *, called, notation, sink=SINKS[0], steps=STEPS, engine=SMALL, fields=TYPES):
    """Return the bytes that a pipeline without a window writes, and what it did on columns."""
    with tempfile.TemporaryDirectory() as folder:
        path = input_of(rows, notation, folder)
        source = f'[source]\nkind = "file"\npath = "{path}"\nformat = "{notation}"\n{fields}\n'
        if "time_field" in sink:
            source += 'time_field = "at"\n'
        out = f'[sink]\nkind = "file"\nout_dir = "{folder}/out"\n{sink}\n'
        steps = textwrap.dedent(steps)
        text = f'on_error = "skip"\n{source}{CALLED if called else ""}{steps}{out}'
        with ran(text, real_sinks=["sink"], engine=engine) as harness:
            taken = on_columns(harness).total()
        return b"".join(each.read_bytes() for each in sorted(Path(folder).glob("out/*"))), taken


@settings(SETTINGS, max_examples=examples(30))
@given(
    rows=ROWS,
    notation=st.sampled_from(["jsonl", "csv", "parquet"]),
    sink=st.sampled_from(SINKS),
    engine=st.sampled_from([SMALL, EngineOptions()]),
)
def test_a_pipeline_without_a_window_writes_the_same_bytes_both_ways(rows, notation, sink, engine):
    if notation == "parquet":  # A column has one type, and what a row lacks is null there.
        rows = [
            {**row, "at": at_of(row, int), "n": float(n), "t": row["t"] or None}
            for n, row in enumerate(rows)
        ]

    columns, records = (
        written(rows, called=each, notation=notation, sink=sink, engine=engine)
        for each in (False, True)
    )

    assert columns[0] == records[0]


@pytest.mark.parametrize("notation", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize("sink", SINKS)
def test_a_pipeline_without_a_window_makes_no_record(notation, sink, monkeypatch):
    rows = [{"at": 1_000 * n, "n": n / 2, "t": "ab"[n % 2]} for n in range(20)]
    monkeypatch.setattr(Frame, "records", None)

    found, taken = written(rows, called=False, notation=notation, sink=sink, engine=EngineOptions())

    assert len(found.splitlines()) == 20 + ("csv" in sink)
    assert taken == 20 * (4 + ("time_field" in sink))  # Its fields, the steps, the time.


ENRICH = """
    [[steps]]
    operator = "enrich"
    path = "{path}"
    key = "t"
    lookup_key = "id"
    fields = ["town", "n"]
    how = "{how}"
"""
TOWNS = "id,town,n\na,Ulm,1\nb,Bonn,2\nb,Brest,3\nß,,4\n12,Emden,5\n"


def enriched(rows, folder, *, how, **more):
    towns = Path(folder) / "towns.csv"
    towns.write_text(TOWNS)
    return written(rows, steps=ENRICH.format(path=towns, how=how), **more)


@settings(SETTINGS, max_examples=examples(20))
@given(
    rows=ROWS,
    notation=st.sampled_from(["jsonl", "csv", "parquet"]),
    how=st.sampled_from(["inner", "left"]),
    known=st.sampled_from([TEXTS, st.sampled_from(["a", "b", "ß", "12"])]).flatmap(st.lists),
)
def test_records_are_completed_the_same_both_ways(rows, notation, how, known):
    texts = dict(enumerate(known))
    rows = [
        {**row, "at": at_of(row, int), "n": float(n), "t": texts.get(n, "a")}
        for n, row in enumerate(rows)
    ]
    with tempfile.TemporaryDirectory() as folder:
        columns, records = (
            enriched(rows, folder, how=how, called=called, notation=notation)[0]
            for called in (False, True)
        )

    assert columns == records


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("notation", ["jsonl", "csv", "parquet"])
def test_records_are_completed_on_columns(tmp_path, notation, how, monkeypatch):
    rows = [{"at": n, "n": n / 2, "t": "ab"[n % 2]} for n in range(20)]
    if how == "inner":
        rows += [{"at": 1, "n": 1.0, "t": "unknown"}] * 5
    monkeypatch.setattr(Frame, "records", None)

    found, _ = enriched(rows, tmp_path, how=how, called=False, notation=notation)

    lines = [json.loads(line) for line in found.splitlines()]
    assert [(line["t"], line["town"], line["n"]) for line in lines] == [
        ("a", "Ulm", "1"), ("b", "Brest", "3")
    ] * 10  # fmt: skip


EMPTY_CELLS = """
    on_error = "skip"

    [source]
    kind = "file"
    path = "{path}"
    format = "csv"
    fields = {{ n = "int?", at = "timestamp?", j = "json?", t = "string?", must = "float" }}

    [[steps]]
    operator = "map"
    set = {{ twice = "n * 2" }}

    [sink]
    kind = "file"
    out_dir = "{out}"
"""


@pytest.mark.parametrize("called", [False, True])
def test_an_empty_cell_is_null_where_a_type_may_be_and_is_no_text(tmp_path, called):
    path, out = tmp_path / "in.csv", tmp_path / "out"
    lines = ["n,at,j,t,must", "1,5,x,a,2", ",,,,3", '"","","","",4', "5,,,,"]
    path.write_text("".join(f"{line}\n" for line in lines))
    text = textwrap.dedent(EMPTY_CELLS.format(path=path, out=out))
    if called:
        text = text.replace("[[steps]]", f"{CALLED}\n[[steps]]", 1)

    finish(text)

    found = [json.loads(line) for file in out.glob("*") for line in file.read_text().splitlines()]
    empty = {"n": None, "at": None, "j": None, "t": ""}
    assert found == [
        {"n": 1, "at": "5", "j": "x", "t": "a", "must": 2.0, "twice": 2},
        {**empty, "must": 3.0, "twice": None},
        {**empty, "must": 4.0, "twice": None},
    ]  # and a record without a number that must be there is bad


def test_empty_cells_stay_on_columns():
    rows = [{"at": 1_000 * n, "n": "" if n % 3 else n / 2, "t": "ab"[n % 2]} for n in range(20)]
    steps = '[[steps]]\noperator = "map"\nset = { more = "coalesce(n, 0.5)" }\n'
    columns, records = (
        written(rows, called=called, notation="csv", steps=steps, fields=OPEN)[0]
        for called in (False, True)
    )

    assert columns == records
    assert columns.count(b'"n":null') == 13


SPLIT = """
on_error: skip
vertices:
  - id: in
    operator: source
    connector: {{type: file, properties: {{path: "{path}", format: {notation}, time_field: at}}}}
  - {{id: every, operator: {every}}}
  - {{id: time, operator: time, config: {{allowed_lateness: 1h}}}}
  - {{id: by, operator: split, config: {{field: t, outputs: {{a: [a, b], b: [b]}}, default: rest}}}}
  - {{id: key, operator: key_by, config: {{field: t}}}}
  - {{id: w, operator: window, config: {{size: 10s}}}}
  - {{id: counted, operator: sink, connector: {{type: file, properties: {{out_dir: "{out}/w"}}}}}}
  - {{id: kept, operator: sink, connector: {{type: file, properties: {{out_dir: "{out}/k"}}}}}}
edges:
  - {{from: in, to: every}}
  - {{from: every, to: time}}
  - {{from: time, to: by}}
  - {{from: by, to: key, output: a}}
  - {{from: key, to: w}}
  - {{from: w, to: counted}}
  - {{from: by, to: kept, output: rest}}
"""


def split_outcome(rows, *, called, notation):
    """Return the lines of both branches of a split, and how many records each took on columns."""
    every = "filter, config: {predicate: exists, field: at}"
    if called:
        every = "filter, config: {function: 'tests.unit.pipelines.functions:unreadable'}"
    with tempfile.TemporaryDirectory() as folder:
        path = input_of(rows, notation, folder)
        text = SPLIT.format(path=path, notation=notation, every=every, out=f"{folder}/out")
        with ran(text, "yaml", real_sinks=["counted", "kept"]) as harness:
            taken = on_columns(harness)
        lines = {
            kind: sorted(
                line
                for file in Path(folder).glob(f"out/{kind}/*")
                for line in file.read_text().splitlines()
            )
            for kind in "wk"
        }
        return lines, taken


TO_TABLE = """
    on_error = "skip"

    [source]
    kind = "file"
    path = "{path}"
    format = "{notation}"
    fields = {{ n = "float", t = "{text}" }}

    [[steps]]
    operator = "filter"
    where = "n > 1"

    [[steps]]
    operator = "map"
    set = {{ word = "upper(t)", twice = "n * 2" }}

    [sink]
    kind = "parquet"
    out_dir = "{out}"
    columns = {{ n = "float", t = "string", word = "string", twice = "float" }}
"""


def table_of(rows, *, called, notation, text):
    """Return the rows of the table that a pipeline writes."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        path = input_of(rows, notation, folder)
        toml = TO_TABLE.format(path=path, notation=notation, text=text, out=out)
        if called:
            toml = toml.replace("    [[steps]]", CALLED + "\n    [[steps]]", 1)
        finish(toml)
        return [parquet.read_table(each).to_pylist() for each in sorted(out.glob("*.parquet"))]


@settings(SETTINGS, max_examples=examples(20))
@given(
    rows=ROWS,
    notation=st.sampled_from(["jsonl", "parquet"]),
    text=st.sampled_from(["string", "string?"]),
)
def test_a_pipeline_writes_the_same_table_both_ways(rows, notation, text):
    rows = [
        {"at": at_of(row, int), "n": float(n), "t": row["t"] or None} for n, row in enumerate(rows)
    ]

    columns, records = (
        table_of(rows, called=each, notation=notation, text=text) for each in (False, True)
    )

    assert columns == records


@settings(SETTINGS, max_examples=examples(30))
@given(rows=ROWS, notation=st.sampled_from(["jsonl", "csv", "parquet"]))
def test_a_split_gives_the_same_both_ways(rows, notation):
    if notation == "parquet":  # A column has one type.
        rows = [{**row, "at": at_of(row, int), "n": float(n)} for n, row in enumerate(rows)]

    columns, records = (split_outcome(rows, called=each, notation=notation) for each in (0, 1))

    assert columns[0] == records[0]


@pytest.mark.parametrize("notation", ["jsonl", "csv", "parquet"])
def test_a_split_works_on_columns(notation):
    rows = [{"at": 1_000 * n, "n": n / 2, "t": "abc"[n % 3]} for n in range(21)]

    lines, taken = split_outcome(rows, called=False, notation=notation)

    assert taken.items() >= {"by": 21, "by-a": 21, "by-rest": 21, "w-combine": 14}.items()
    assert len(lines["k"]) == 7
    assert sum(json.loads(line)["count"] for line in lines["w"]) == 14
