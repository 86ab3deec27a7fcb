"""Results over files and messages of each format are those over the same rows of a script."""

import json
import math
from collections import Counter

import pyarrow
import pyarrow.parquet
import pytest

from bicycle_runtime.tables.logic_records import shown_value
from bicycle_runtime.tables.logic_tests import LogicTest, _Job
from bicycle_runtime.testing import Harness
from bicycle_sdk import StreamEnvironment
from tests.sql.formats import with_input, write_input
from tests.sql.test_slt import NAMES, PATHS

FORMATS = ("jsonl", "csv", "parquet", "avro")
# Files with rows that no typed file can have, whose rows depend on the order of two inputs, or
# whose rows come from a database.
NOT_TYPED, IN_ORDER, ELSEWHERE = {"bad_rows"}, {"processing_time"}, {"lookup"}
CASES = [
    (name, form) for name in NAMES if name not in {*NOT_TYPED, *IN_ORDER, *ELSEWHERE}
    for form in FORMATS
]  # fmt: skip
CORE = [("types", form) for form in FORMATS] + [
    ("joins", "parquet"),
    ("unnest", "jsonl"),
    ("json", "parquet"),
]


class Kept(Harness):
    """A harness that keeps what is pushed."""

    def __init__(self, env, **settings):
        super().__init__(env, **settings)
        self.rows = {}

    def push(self, values, *, source=None, timestamp=None):
        self.rows.setdefault(source, []).extend(values)


def job_of(path):
    """Return the bound job of the records of a file that expect no error, and its sources."""
    test = LogicTest(path, None)
    job = _Job(test, [each for each in test.records if each.error is None])
    job._bind()
    env = StreamEnvironment()
    job._building.lower(env)
    sources = [each.id for each in env.build_graph("test").vertices if each.id.endswith("-source")]
    return job, env, sources


def results(job, harness):
    """Return the rows of each query, in no order, and the number of dead letters."""
    harness.run()
    harness.end()
    harness.run()
    found = {
        name: Counter(
            tuple(shown_value(row[each.field]) for each in plan.columns)
            for row in harness.results(name)
        )
        for name, plan in job._building.outputs.items()
    }
    return found, len(harness.dead_letters)


def pushed(path):
    """Return the rows that a file inserts, by source."""
    job, env, sources = job_of(path)
    with Kept(env, scripted=sources) as kept:
        job._play(kept, frozenset(sources))
    return kept.rows


def types_of(job, source):
    table = job._building.catalog.find(source.removesuffix("-source"), 0)
    return {each.name.text: each.type for each in table.stored_columns}


def with_texts(row, types):
    """Return a row without empty texts and without NULL in columns of texts."""
    return row | {name: row.get(name) or "-" for name, word in types.items() if word == "VARCHAR"}


def with_finite(row):
    """Return a copy of a row with NaN and infinite numbers replaced by NULL."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }


def assert_equal_results(name, form, folder):
    rows = pushed(PATHS[name])
    job, env, sources = job_of(PATHS[name])
    types = {source: types_of(job, source) for source in rows}
    if form in ("csv", "avro") and any("JSON" in each.values() for each in types.values()):
        form = "jsonl"  # The others have no values with free fields.
    if form == "csv":  # An empty text and NULL are the same there.
        rows = {
            source: [with_texts(row, types[source]) for row in values]
            for source, values in rows.items()
        }
    if form == "jsonl":
        rows = {source: list(map(with_finite, values)) for source, values in rows.items()}
    with Harness(env, scripted=sources) as harness:
        for source, values in rows.items():
            harness.push(values, source=source)
        expected = results(job, harness)

    path = folder / f"{name}.slt"
    tables = [source.removesuffix("-source") for source in rows]
    path.write_text(with_input(PATHS[name].read_text("utf-8"), tables, folder, form), "utf-8")
    for source, values in rows.items():
        write_input(values, types[source], source.removesuffix("-source"), folder, form)
    job, env, sources = job_of(path)
    with Harness(env) as harness:
        found = results(job, harness)

    assert found == expected
    assert any(found[0].values())


@pytest.mark.parametrize(("name", "form"), CORE)
def test_results_do_not_depend_on_the_format(name, form, tmp_path):
    assert_equal_results(name, form, tmp_path)


@pytest.mark.extended
@pytest.mark.parametrize(("name", "form"), [case for case in CASES if case not in CORE])
def test_results_of_each_file_do_not_depend_on_the_format(name, form, tmp_path):
    assert_equal_results(name, form, tmp_path)


def test_json_values_of_a_parquet_sink_are_read_as_they_were(tmp_path):
    values = [{"a": 5}, [1, "x"], "text", "5", 2.5, None]
    lines = [json.dumps({"id": at, "j": value}) for at, value in enumerate(values)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    options = f"path = '{tmp_path}/in.{{0}}', format = '{{0}}'"
    table = "CREATE TABLE t (id BIGINT, {}j JSON) WITH (kind = 'file', {})"
    env = StreamEnvironment()
    env.sql(
        f"{table.format('', options.format('jsonl'))}; CREATE TABLE o (id BIGINT, j JSON) "
        "WITH (kind = 'parquet', path = 'o'); INSERT INTO o SELECT * FROM t"
    )
    with Harness(env) as harness:
        harness.run()
        harness.end()
        rows = harness.results("o")
    written = {
        "id": range(len(rows)),
        "j": pyarrow.array([row["j"] for row in rows], pyarrow.string()),
        "s": [{"a": at} for at in range(len(rows))],
    }
    pyarrow.parquet.write_table(pyarrow.table(written), tmp_path / "in.parquet")

    found = StreamEnvironment()
    found.sql(table.format("s JSON, ", options.format("parquet")))
    query = found.sql("SELECT j, j ->> 'a' AS a, s ->> 'a' AS s FROM t")

    assert query.preview(10) == [
        {"j": value, "a": "5" if at == 0 else None, "s": str(at)} for at, value in enumerate(values)
    ]
