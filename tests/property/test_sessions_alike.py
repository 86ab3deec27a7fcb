"""Sessions of functions, expressions, pipelines and SQL are equal, however epochs split the input.

Within the bound on disorder, results do not depend on epochs. Beyond it, a record is late if its
session had ended before its epoch: which records are late depends on epochs, and nothing else.
"""

import dataclasses
import json
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.testing import Harness
from bicycle_sdk import StreamEnvironment, WatermarkStrategy
from bicycle_sdk.expressions import col
from tests.examples import examples
from tests.property import window_model
from tests.property.mishaps import ENGINES
from tests.unit.pipelines.pipeline_runs import built as built_pipeline
from tests.unit.tables.sql_runs import built as built_sql

GAP, BOUND = 5, 3
PIPELINE = """
    [source]
    kind = "file"
    path = "{path}"
    format = "jsonl"
    timestamp_field = "at"
    fields = {{ k = "string", at = "timestamp" }}

    [time]
    max_out_of_orderness = "3ms"

    [window]
    type = "session"
    gap = "5ms"

    [ops]
    count_by = "k"

    [sink]
    kind = "console"
"""
SQL = """
    CREATE TABLE t (k VARCHAR, at TIMESTAMP(3),
      WATERMARK FOR at AS at - INTERVAL '0.003' SECOND)
      WITH (kind = 'file', path = '{path}', format = 'jsonl');
    CREATE TABLE sink (k VARCHAR, first TIMESTAMP(3), last TIMESTAMP(3), n BIGINT)
      WITH (kind = 'file', path = 'out');
    INSERT INTO sink SELECT k, window_start, window_end, count(*)
      FROM SESSION(TABLE t PARTITION BY k, DESCRIPTOR(at), INTERVAL '0.005' SECOND)
      GROUP BY k, window_start, window_end;
"""


def by_key(make):
    """Return what builds a Python job whose key is made by a function or an expression."""

    def build(path):
        env = StreamEnvironment()
        strategy = WatermarkStrategy.bounded_out_of_orderness(BOUND)
        times = strategy.with_timestamps(lambda row: row["at"])
        rows = env.read_jsonl(str(path)).assign_timestamps(times)
        rows.key_by(make()).session_window(GAP).count().collect("sink")
        return env

    return build


def ms(moment):
    return round(moment.timestamp() * 1_000)


# How a job is built from the path of its input, and how its results are read.
DOORS = {
    "function": (by_key(lambda: lambda row: "".join([row["k"]])), tuple),
    "expression": (by_key(lambda: col("k")), tuple),
    "pipeline": (
        lambda path: built_pipeline(PIPELINE.format(path=path)),
        lambda row: (row["k"], row["window_start_ms"], row["window_end_ms"], row["count"]),
    ),
    "sql": (
        lambda path: built_sql(SQL.format(path=path)),
        lambda row: (row["k"], ms(row["first"]), ms(row["last"]), row["n"]),
    ),
}


def sessions(door, rows, size, engine=EngineOptions()):  # noqa: B008  # it is frozen
    """Return sessions, the number of late records, and of records taken as columns."""
    build, read = DOORS[door]
    engine = dataclasses.replace(engine, max_records_per_epoch=size)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "in.jsonl"
        path.write_text("".join(json.dumps({"k": k, "at": at}) + "\n" for k, at, _ in rows))
        with Harness(build(path), engine=engine) as harness:
            harness.run()
            counts = [each for epoch in harness.epochs for each in epoch.counts.values()]
            found = sorted(map(read, harness.results("sink")))
            on_columns = sum(each.on_columns for each in counts)
            return found, sum(each.late for each in counts), on_columns


KEYS_AND_TIMES = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 40)), min_size=1, max_size=30
)
SLOW = settings(deadline=None, max_examples=examples(12), suppress_health_check=list(HealthCheck))


def numbered(pairs):
    return [(key, time, number) for number, (key, time) in enumerate(pairs)]


@pytest.mark.parametrize("door", DOORS)
@SLOW
@given(
    pairs=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60), st.integers(0, BOUND))),
    size=st.integers(1, 30),
    engine=ENGINES,
)
def test_sessions_do_not_depend_on_epochs_within_the_bound(door, pairs, size, engine):
    in_order = sorted(pairs, key=lambda pair: pair[1] + pair[2])
    rows = numbered([(key, time) for key, time, _ in in_order])

    found, late, _ = sessions(door, rows, size, engine)

    assert found == window_model.model(("session", GAP), rows, len)
    assert late == 0


@SLOW
@given(pairs=KEYS_AND_TIMES, size=st.integers(1, 30), engine=ENGINES)
def test_records_beyond_the_bound_are_late_by_the_watermark_before_their_epoch(pairs, size, engine):
    rows = numbered(pairs)
    epochs = [rows[start : start + size] for start in range(0, len(rows), size)]
    accepted, late = window_model.late_model(
        ("session", GAP), epochs, delay=BOUND, lateness=0
    )  # fmt: skip

    found = [sessions(door, rows, size, engine)[:2] for door in DOORS]

    assert found == [found[0]] * len(DOORS)
    counted, late_count = found[0]
    assert late_count == len(late)
    assert sum(row[3] for row in counted) == len(accepted)
    keys = Counter(row[0] for row in accepted)
    assert Counter(key for key, _, _, n in counted for _ in range(n)) == keys
    assert all(a[0] != b[0] or a[2] < b[1] for a, b in pairwise(counted))


@pytest.mark.parametrize("door", DOORS)
def test_a_record_that_joins_two_sessions_is_late_only_if_the_first_one_has_ended(door):
    rows = numbered([("a", 0), ("a", 10), ("a", 5)])

    assert sessions(door, rows, 3)[:2] == ([("a", 0, 15, 3)], 0)
    assert sessions(door, rows, 1)[:2] == ([("a", 0, 5, 1), ("a", 10, 15, 1)], 1)


def test_expressions_take_the_records_as_columns():
    rows = numbered([("a", number // 4) for number in range(200)])

    assert sessions("expression", rows, 200)[2] > 0
