"""Forks, unions and filters give the same bytes on columns as record by record."""

import csv
import json
import tempfile
from pathlib import Path

import pyarrow
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.testing import Harness
from bicycle_sdk import file_sink
from tests.examples import examples
from tests.unit.pipelines.pipeline_runs import on_columns, ran

SETTINGS = settings(
    max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck)
)
ENGINES = st.sampled_from(
    [
        EngineOptions(),
        EngineOptions(max_records_per_epoch=5),
        EngineOptions(max_records_per_epoch=5, state_backend="rocksdb"),
    ]
)
TYPES = {"at": "int", "n": "float", "t": "string", "j": "json"}
GATE = {"operator": "filter", "config": {"function": "tests.unit.pipelines.functions:unreadable"}}
# What may stand behind the source: name -> operator, its keys, and what it takes.
STEPS = {
    "kept": ("filter", {"field": "t", "predicate": "contains", "value": "a"}, "source"),
    "large": ("filter", {"field": "n", "predicate": "exists"}, "kept"),
    "where": ("filter", {"where": "n > 0"}, "source"),
    "twice": ("map", {"set": {"n": "n * 2"}}, "where"),
    "path": ("map", {"select": {"t": "t", "j": "j", "y": "j ->> 'y'"}}, "source"),
    "timed": ("time", {"field": "at", "allowed_lateness": "1h"}, "source"),
    "by": ("key_by", {"field": "t"}, "timed"),
    "windows": ("window", {"type": "tumbling", "size": "10s", "agg": "sum", "agg_field": "n"},
        "by"),
    "counts": ("window", {"type": "session", "gap": "7s"}, "late-by"),
    "late-by": ("key_by", {"field": "at"}, "timed"),
    "again-by": ("key_by", {"field": "key"}, "windows"),
    "again": ("window", {"type": "sliding", "size": "30s", "slide": "20s", "aggregates": [
        {"name": "n", "agg": "count"}, {"name": "high", "agg": "max", "field": "sum"}]},
        "again-by"),
    "dropped": ("map", {"drop": ["j", "n"]}, "where"),
    "both": ("union", {}, "source", "kept"),
}  # fmt: skip
NEEDS_TYPES = {"where", "twice", "path"}
SINKS = {
    name: (step, form)
    for step in ["source", *STEPS]
    if not step.endswith("by")
    for name, form in ((f"{step}-{form}", form) for form in ("jsonl", "csv"))
}


def with_inputs(names):
    """Return steps with all that they stand behind."""
    found = set()
    todo = list(names)
    while todo:
        name = todo.pop()
        if name != "source" and name not in found:
            found.add(name)
            todo += STEPS[name][2:]
    return [name for name in STEPS if name in found]


def pipeline(folder, sinks, *, called, is_typed, notation):
    """Return the text of a pipeline, as YAML that is JSON."""
    source = {"path": f"{folder}/in", "format": notation}
    if is_typed:
        source["fields"] = TYPES
    vertices = [
        {"id": "read", "operator": "source", "connector": {"type": "file", "properties": source}}
    ]
    edges = []
    if called:
        vertices.append({"id": "source", **GATE})
        edges.append({"from": "read", "to": "source"})
    else:
        vertices[0]["id"] = "source"
    for name in with_inputs(SINKS[sink][0] for sink in sinks):
        operator, config, *inputs = STEPS[name]
        vertices.append({"id": name, "operator": operator, "config": config})
        edges += [{"from": each, "to": name} for each in inputs]
    for sink in sinks:
        step, form = SINKS[sink]
        out = {"out_dir": f"{folder}/{sink}", "format": form}
        vertices.append(
            {"id": sink, "operator": "sink", "connector": {"type": "file", "properties": out}}
        )
        edges.append({"from": step, "to": sink})
    return json.dumps({"name": "p", "on_error": "skip", "vertices": vertices, "edges": edges})


def write_input(rows, notation, folder):
    path = Path(folder, "in")
    if notation == "csv":
        with path.open("w", newline="") as out:
            writer = csv.DictWriter(out, ["at", "n", "t", "j"])
            writer.writeheader()
            writer.writerows(rows)
    elif notation == "parquet":
        columns = {name: [row.get(name) for row in rows] for name in ("at", "n", "t", "j")}
        parquet.write_table(pyarrow.table(columns), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def outcome(rows, sinks, *, engine, notation="jsonl", faults=(), **given):
    """Return what each sink wrote, and how many records operators took as columns."""
    with tempfile.TemporaryDirectory() as folder:
        write_input(rows, notation, folder)
        text = pipeline(folder, sinks, notation=notation, **given)
        with ran(text, "yaml", faults=faults, real_sinks=sinks, engine=engine) as harness:
            taken = on_columns(harness).total()
        found = {
            sink: b"".join(each.read_bytes() for each in sorted(Path(folder, sink).glob("part*")))
            for sink in sinks
        }
        return found, taken


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "at": st.integers(0, 60_000),
            "n": st.one_of(st.integers(-3, 3), st.floats(-9, 9), st.none(), st.just("1.5")),
            "t": st.sampled_from(["a", "b", "ab c", "ß", ""]),
        },
        optional={"j": st.sampled_from([None, 1, [1, {"y": 2}], {"y": "z"}])},
    ).flatmap(lambda row: st.permutations(list(row.items())).map(dict) | st.just(row)),
    min_size=1,
    max_size=25,
)


@SETTINGS
@given(
    rows=ROWS,
    sinks=st.lists(st.sampled_from(sorted(SINKS)), min_size=1, max_size=4, unique=True),
    engine=ENGINES,
    is_typed=st.booleans(),
    notation=st.sampled_from(["jsonl", "jsonl", "csv", "parquet"]),
    faults=st.lists(st.sampled_from(["before_seal", "after_seal", "operator"]), max_size=1),
)
def test_branches_write_the_same_bytes_both_ways(rows, sinks, engine, is_typed, notation, faults):
    is_typed = is_typed or bool(NEEDS_TYPES & {*with_inputs(SINKS[sink][0] for sink in sinks)})
    if notation == "parquet":  # A column has one type.
        rows = [{**row, "n": float(at), "j": None} for at, row in enumerate(rows)]
    given = {"engine": engine, "is_typed": is_typed, "notation": notation, "faults": faults}

    columns, records = (outcome(rows, sinks, called=each, **given) for each in (False, True))

    assert columns[0] == records[0]


PLAIN = [{"at": 1_000 * n, "n": n / 2, "t": "ab"[n % 2], "j": {"y": 1}} for n in range(20)]


@pytest.mark.parametrize(
    ("sinks", "taken"),
    [
        (["source-jsonl"], 0),
        (["source-csv", "kept-jsonl"], 20),
        (["kept-jsonl", "kept-csv"], 20),
        (["large-csv", "kept-jsonl"], 20 + 10),
        (["both-jsonl"], 20 + 30),
        (["twice-jsonl", "where-csv", "path-csv", "windows-csv"], 20 + 20 + 19 + 20 + 20 * 3 + 4),
        (["windows-jsonl", "counts-csv", "source-csv"], None),
        (["again-jsonl", "again-csv"], 20 + 20 + 20 + 2 * 2),
        (["dropped-jsonl", "dropped-csv"], 20 + 19),
    ],
)
@pytest.mark.parametrize("notation", ["jsonl", "csv", "parquet"])
def test_branches_make_no_record(sinks, taken, notation, monkeypatch):
    rows = PLAIN if notation == "jsonl" else [{**row, "j": None} for row in PLAIN]
    given = {"engine": EngineOptions(), "notation": notation}
    is_typed = bool(NEEDS_TYPES & {*with_inputs(SINKS[sink][0] for sink in sinks)})
    expected, _ = outcome(rows, sinks, called=True, is_typed=is_typed, **given)
    monkeypatch.setattr(Frame, "records", None)

    found, on_columns = outcome(rows, sinks, called=False, is_typed=is_typed, **given)

    assert found == expected
    if taken is not None:
        assert on_columns >= taken


def test_a_branch_behind_a_map_looks_fields_up_by_their_names_only(tmp_path):
    (tmp_path / "in").write_text('{"a": 1}\n{"a": 7}\n')

    def job(env):
        made = env.read_jsonl(tmp_path / "in").map(lambda row: {"x": row["a"], "y": 3})
        for name, chosen in (
            ("place", lambda row: row.get(0, 5) > 4),
            ("name", lambda row: row.get("x", 5) > 4),
        ):
            made.filter(chosen).sink_to(file_sink(tmp_path / name)).uid(name)

    with Harness(job, real_sinks=["place", "name"]) as harness:
        harness.run()

    written = {
        name: b"".join(each.read_bytes() for each in (tmp_path / name).glob("part*"))
        for name in ("place", "name")
    }
    assert written["place"] == b'{"x":1,"y":3}\n{"x":7,"y":3}\n'
    assert written["name"] == b'{"x":7,"y":3}\n'
