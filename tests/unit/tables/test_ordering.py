"""ORDER BY, LIMIT and OFFSET, by SQL and by the Table API."""

import random
from dataclasses import dataclass

import pytest

from bicycle_runtime.cli.plan import explain_lines
from bicycle_runtime.jobs.inspection.reports import inspect_job
from bicycle_runtime.tables.building import build_tables
from bicycle_runtime.tables.catalog import _unbounded_reason
from bicycle_sdk import StreamEnvironment, col
from bicycle_sdk.connectors import collection_source, generator_source
from bicycle_sdk.descriptors import SourceDescriptor
from bicycle_sdk.errors import BicycleError, StreamDefinitionError
from tests.unit.jobs.job_samples import bundle_of
from tests.unit.tables.sql_runs import by_duckdb, graph, ran, run

TABLES = """
    CREATE TABLE t (a BIGINT, b DOUBLE, c VARCHAR) WITH (kind = 'file', path = 'in');
    CREATE TABLE o (a BIGINT, b DOUBLE, c VARCHAR) WITH (kind = 'file', path = 'out');
"""
NULLS_HIGH = "SET default_null_order = 'nulls_last_on_asc_first_on_desc'; "


@dataclass
class Bid:
    auction: int
    price: int | None


def rows_of(count, seed=1):
    chosen = random.Random(seed)
    return [
        {
            "a": chosen.choice([None, *range(20)]),
            "b": chosen.choice([None, float("nan"), float("-inf"), -1.5, 0.0, 2.5]),
            "c": f"{number:04}",
        }
        for number in range(count)
    ]


def values(rows):
    return [tuple(map(repr, row)) for row in rows]


@pytest.mark.parametrize(
    "clauses",
    [
        "ORDER BY a, b DESC, c",
        "ORDER BY b NULLS FIRST, a DESC NULLS LAST, 3 LIMIT 70 OFFSET 31",
        "ORDER BY a * -1 DESC, c DESC FETCH FIRST 40 ROWS ONLY",
    ],
)
def test_rows_are_ordered_as_by_duckdb(clauses):
    rows = rows_of(400)
    query = f"SELECT a, b, c FROM t {clauses}"

    expected = by_duckdb("a BIGINT, b DOUBLE, c VARCHAR", rows, {"q": NULLS_HIGH + query})["q"]
    found = run(f"{TABLES} INSERT INTO o {query}", {"t": rows}, "o", epochs=5, parallelism=3)

    assert values(row.values() for row in found) == values(expected)


@pytest.mark.parametrize("clauses", ["ORDER BY a", "ORDER BY b DESC LIMIT 5", "LIMIT 7 OFFSET 2"])
def test_ties_have_one_order_in_all_conditions(clauses):
    text = f"{TABLES} INSERT INTO o SELECT a, b, c FROM t {clauses}"
    rows = rows_of(90)
    shuffled = random.Random(7).sample(rows, len(rows))

    first = run(text, {"t": rows}, "o")
    with ran(text, {"t": shuffled}, epochs=3, parallelism=3, faults=["after_seal"]) as harness:
        second = harness.results("o")
        crashes = harness.crash_count

    assert values(row.values() for row in first) == values(row.values() for row in second)
    assert crashes == 1


def test_all_of_many_rows_are_written_in_order():
    rows = [{"a": -at, "b": 0.0, "c": "x" * 90} for at in range(9_000)]
    text = f"{TABLES} INSERT INTO o SELECT a, b, c FROM t ORDER BY a"

    found = run(text, {"t": rows}, "o", parallelism=3, epochs=2)

    assert [row["a"] for row in found] == [*range(-8_999, 1)]


def test_the_sink_of_ordered_rows_has_one_subtask():
    query = "SELECT a, b, c FROM (SELECT * FROM t ORDER BY a) AS s WHERE a > 1"
    found = graph(f"SET parallelism = 3; {TABLES} INSERT INTO o {query}")

    assert {each.id: each.parallelism for each in found.vertices}["o"] == 1


ROWS = [{"a": at, "b": -float(at), "c": "x"} for at in range(1, 10)]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT a, b FROM sorted WHERE a <> 2 LIMIT 3", [1, 3, 4]),
        ("SELECT a + 1, b FROM sorted OFFSET 6", [8, 9, 10]),
        ("SELECT a * 10, b FROM t ORDER BY b", [90, 80, 70, 60, 50, 40, 30, 20, 10]),
        ("SELECT x + 1, b FROM (SELECT a AS x, b FROM sorted WHERE a > 6) AS s", [8, 9, 10]),
    ],
)
def test_steps_over_ordered_rows_have_one_subtask(query, expected):
    views = "CREATE VIEW sorted AS SELECT a, b FROM t ORDER BY a;"
    text = f"SET parallelism = 3; {TABLES}{views} INSERT INTO o (a, b) {query}"

    vertices = graph(text).vertices
    first = next(at for at, each in enumerate(vertices) if each.parallelism == 1)
    found = run(text, {"t": ROWS}, "o", parallelism=3)

    assert "-sort-" in vertices[first].id
    assert {each.parallelism for each in vertices[first:]} == {1}
    assert {each.parallelism for each in vertices[:first]} == {3}
    assert [row["a"] for row in found] == expected


def test_the_records_of_ordered_rows_are_made_in_order():
    env = StreamEnvironment()
    bids = env.table(env.from_collection([Bid(1, 5), Bid(2, None)]), name="bids")

    bids.order_by("auction").to_stream(Bid)

    assert env.vertices[-1].final_id.endswith("-records")
    assert env.vertices[-1].parallelism == 1


def test_the_first_of_many_rows_are_results():
    rows = rows_of(5_000)
    text = f"{TABLES} INSERT INTO o SELECT a, b, c FROM t ORDER BY c LIMIT 3"

    found = run(text, {"t": rows}, "o")

    assert [row["c"] for row in found] == ["0000", "0001", "0002"]


def test_calls_of_the_table_api_are_the_same_query():
    env = StreamEnvironment()
    bids = env.table(
        env.from_collection([Bid(1, 5), Bid(2, None), Bid(3, 9), Bid(4, 9)]), name="bids"
    )
    top = bids.order_by(col("price"), "auction", descending=[True, False])

    assert [bid.auction for bid in top.preview()] == [2, 3, 4, 1]
    assert [bid.auction for bid in top.limit(2, offset=1).preview()] == [3, 4]
    assert [bid.auction for bid in bids.order_by("auction", descending=True).preview()] == [
        4, 3, 2, 1,
    ]  # fmt: skip


def test_a_limit_after_an_order_is_one_sort():
    env = StreamEnvironment()
    bids = env.table(env.from_collection([Bid(1, 5)]), name="bids")

    bids.order_by("price").select("auction").limit(2).to_stream()

    assert sum(each.final_id.endswith("-sort-key") for each in env.vertices) == 1


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda bids: bids.order_by(), "got 0 keys"),
        (lambda bids: bids.order_by("price", descending=[True, True]), "2 values of descending"),
    ],
)
def test_wrong_calls_are_refused(call, problem):
    env = StreamEnvironment()
    bids = env.table(env.from_collection([Bid(1, 5)]), name="bids")

    with pytest.raises(StreamDefinitionError, match=problem):
        call(bids)


def test_a_stream_that_never_ends_is_not_sorted():
    env = StreamEnvironment()
    words = env.generator_source(0).map(lambda word: Bid(len(word), None))
    bids = env.table(words, name="bids", type=Bid)

    with pytest.raises(BicycleError, match="bids never ends; set the option count"):
        bids.order_by("auction")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (collection_source([1]), ""),
        (generator_source(count=3), ""),
        (generator_source(), "never ends; set the option count"),
        (SourceDescriptor(connector_type="jsonl", properties={"path": "x"}), ""),
        (
            SourceDescriptor(connector_type="redis", properties={"address": "redis://h/s"}),
            "waits for new messages; set the option bounded = 'true'",
        ),
        (
            SourceDescriptor(connector_type="stdio", properties={"address": "stdio:s"}),
            "never ends; store its rows first, and sort the stored table",
        ),
    ],
)
def test_the_options_of_a_source_state_its_end(source, reason):
    assert _unbounded_reason(source) == reason


def test_the_plan_names_the_order():
    found = graph(f"{TABLES} INSERT INTO o SELECT a, b, c FROM t ORDER BY b DESC, a LIMIT 3")

    [sort] = [
        each for each in found.vertices if each.id.startswith("o-sort-") and "LIMIT" in each.name
    ]
    assert sort.name == "ORDER BY b DESC, a LIMIT 3"
    assert sort.parallelism == 1


def test_a_plan_shows_the_bound_of_a_sort_and_no_warning():
    text = f"""{TABLES}
        INSERT INTO o SELECT a, b, c FROM t ORDER BY a LIMIT 3;
        INSERT INTO o SELECT a, b, c FROM t ORDER BY b;
    """
    bundle = bundle_of(lambda env: build_tables(env, text, file="t.sql"))

    lines = explain_lines(inspect_job(bundle), bundle.graph)

    assert [line.rpartition(": ")[2] for line in lines if " key groups, " in line] == [
        "it has at most twice as many rows as results, or 1,000 more",
        "it has all rows until the input ends",
    ]
    assert sum(line.startswith("    ") for line in lines) == 2  # Rows, and no settings.
    assert "warnings: none" in lines
