"""Steps of pipelines that are SQL queries: results, event time, inputs, positions of problems."""

import pytest

from bicycle_runtime.pipelines.conversion import pipeline_data, write_document
from bicycle_sdk.graph import ErrorAction
from tests.unit.pipelines.pipeline_runs import built, checked, lines, ran, run
from tests.unit.pipelines.test_problems import problems

BIDS = [
    {"at": 1_000, "auction": 1, "price": "12.50", "info": {"a": [1, None]}},
    {"at": "1970-01-01T00:00:02Z", "auction": 1, "price": 3},
    {"at": 2_500, "auction": 2, "price": None, "info": None},
    {"at": 11_000, "auction": 1, "price": "7"},
]
FIELDS = '{ at = "timestamp", auction = "int", price = "decimal(10,2)?", info = "json?" }'
WINDOW = """
SELECT auction, window_start, count(*) AS n, max(price) AS top
FROM TUMBLE(input, at, INTERVAL '10' SECOND)
GROUP BY auction, window_start, window_end
"""


def pipeline(path, *queries, rest='[sink]\nkind = "console"\n', source=""):
    steps = [f"[[steps]]\noperator = 'sql'\nquery = '''{query}'''\n" for query in queries]
    return f"""
[source]
kind = "file"
path = "{path}"
timestamp_field = "at"
fields = {FIELDS}
{source}
{"".join(steps)}
{rest}"""


def test_a_query_computes_records_of_declared_fields(tmp_path):
    path = lines(tmp_path, *BIDS)
    query = "SELECT at, auction * 2 AS twice, info, info -> 'a' AS part FROM input WHERE price > 5"

    assert run(pipeline(path, query)) == [
        {"at": "1970-01-01T00:00:01Z", "twice": 2, "info": {"a": [1, None]}, "part": [1, None]},
        {"at": "1970-01-01T00:00:11Z", "twice": 2, "info": None, "part": None},
    ]


def test_windows_of_a_query_follow_the_event_time_of_the_pipeline(tmp_path):
    path = lines(tmp_path, *BIDS)
    found = [
        {"auction": 1, "start": "1970-01-01T00:00:00Z", "twice": 4},
        {"auction": 1, "start": "1970-01-01T00:00:10Z", "twice": 2},
    ]
    later = "SELECT auction, window_start AS start, n * 2 AS twice FROM input WHERE top > 3"

    assert sorted(run(pipeline(path, WINDOW, later)), key=str) == found


def test_a_window_of_a_pipeline_counts_the_results_of_a_query(tmp_path):
    path = lines(tmp_path, *BIDS)
    rest = '[window]\nsize = "10s"\n[ops]\ncount_by = "id"\n[sink]\nkind = "console"\n'

    found = run(pipeline(path, "SELECT auction AS id FROM input", rest=rest))

    assert sorted((row["window_start_ms"], row["id"], row["count"]) for row in found) == [
        (0, 1, 2), (0, 2, 1), (10_000, 1, 1),
    ]  # fmt: skip


def test_a_window_of_a_query_survives_a_crash(tmp_path):
    path = lines(tmp_path, *BIDS)
    with ran(pipeline(path, WINDOW), faults=["before_seal"]) as harness:
        assert sorted(row["n"] for row in harness.results("sink")) == [1, 1, 2]


def test_views_precede_a_query(tmp_path):
    path = lines(tmp_path, *BIDS)
    query = "CREATE VIEW high AS SELECT * FROM input WHERE price > 5;\nSELECT auction FROM high"

    assert run(pipeline(path, query)) == [{"auction": 1}, {"auction": 1}]


VERTICES = """
vertices:
  - id: orders
    operator: source
    connector:
      type: file
      properties: {{path: {orders}, timestamp_field: at, fields: {{at: timestamp, id: int}}}}
  - id: order-times
    operator: time
  - id: shipped
    operator: source
    connector:
      type: file
      properties: {{path: {shipped}, timestamp_field: at, fields: {{at: timestamp, order: int}}}}
  - id: shipped-times
    operator: time
  - id: joined
    operator: sql
    parallelism: 2
    on_error: dead_letter
    config:
      query: |
        SELECT o.id, s.at AS sent
        FROM "order-times" AS o
        JOIN "shipped-times" AS s
        ON o.id = s.order AND s.at BETWEEN o.at AND o.at + INTERVAL '1' HOUR
  - id: out
    operator: sink
    connector: {{type: console}}
edges:
  - {{from: orders, to: order-times}}
  - {{from: shipped, to: shipped-times}}
  - {{from: order-times, to: joined}}
  - {{from: shipped-times, to: joined}}
  - {{from: joined, to: out}}
"""


def test_several_inputs_are_tables_with_the_ids_of_their_vertices(tmp_path):
    orders = lines(tmp_path, {"at": 0, "id": 7}, {"at": 1, "id": 8}, name="orders.jsonl")
    shipped = lines(tmp_path, {"at": 60_000, "order": 7}, name="shipped.jsonl")
    text = VERTICES.format(orders=orders, shipped=shipped)

    assert run(text, "yaml", sink="out") == [{"id": 7, "sent": "1970-01-01T00:01:00Z"}]
    own = [vertex for vertex in built(text, "yaml").vertices if "joined" in vertex.final_id]
    assert own[-1].final_id == "joined"
    assert {vertex.parallelism for vertex in own} == {2}
    assert {vertex.on_error.action for vertex in own} == {ErrorAction.DEAD_LETTER}


def test_outputs_of_a_split_are_tables(tmp_path):
    path = lines(tmp_path, {"kind": "a", "n": 1}, {"kind": "b", "n": 2})
    text = f"""
vertices:
  - {{id: in, operator: source, connector: {{type: file, properties: {{path: {path},
     fields: {{kind: string, n: int}}}}}}}}
  - {{id: split, operator: split, config: {{field: kind}}}}
  - {{id: both, operator: sql, config: {{query: "SELECT n FROM a UNION ALL SELECT n * 10 FROM b"}}}}
  - {{id: out, operator: sink, connector: {{type: console}}}}
edges:
  - {{from: in, to: split}}
  - {{from: split, to: both, output: a}}
  - {{from: split, to: both, output: b}}
  - {{from: both, to: out}}
"""
    assert sorted(row["n"] for row in run(text, "yaml", sink="out")) == [1, 20]


def test_a_bad_row_of_a_query_is_one_dead_letter(tmp_path):
    path = lines(tmp_path, *BIDS)
    text = pipeline(path, "SELECT 1 / (auction - 2) AS x FROM input", source="").replace(
        "operator = 'sql'", "operator = 'sql'\non_error = 'skip'"
    )
    assert run(text) == [{"x": -1}, {"x": -1}, {"x": -1}]


def at_word(text, word, notation="toml"):
    """Return line and column of a word, and the problem that is reported there."""
    before = text[: text.index(word)]
    position = f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}: "
    found = problems(text, notation)
    assert len(found) == 1
    assert found[0].startswith(position), (found, position)
    return found[0].removeprefix(position)


NO_SUCH = "there is no column 'prce'; did you mean 'price'? known: at, auction, price, info"
TEXTS = [
    "'''\n  SELECT auction,\n    prce\n FROM input'''",
    "'SELECT prce FROM input'",
    '"SELECT \\"auction\\", \\n\\tprce FROM input"',
    '"""\\\n  SELECT \\\n  prce FROM input"""',
    "\"SELECT '\\u00e9n' AS e, prce FROM input\"",
]
BLOCKS = [
    "|\n    SELECT auction,\n\n      prce\n    FROM input\n",
    ">-\n    SELECT auction,\n    prce FROM\n    input",
    "SELECT auction,\n    prce FROM input",
    "'SELECT ''a'' AS a, prce FROM input'",
    "\"SELECT '\\x41' AS a, \\\n  prce\n  FROM input\"",
    "&q |2\n    SELECT prce FROM input",
]


@pytest.mark.parametrize("text", TEXTS)
def test_problems_of_a_query_have_positions_in_a_toml_file(text):
    whole = pipeline("in.jsonl", "QUERY").replace("'''QUERY'''", text)
    assert at_word(whole, "prce") == NO_SUCH


@pytest.mark.parametrize("text", BLOCKS)
def test_problems_of_a_query_have_positions_in_a_yaml_file(text):
    whole = (
        "source: {kind: file, path: in.jsonl, fields: {at: timestamp, auction: int, price: int,"
        f" info: json}}}}\nsink: {{kind: console}}\nsteps:\n- operator: sql\n  query: {text}\n"
    )
    assert at_word(whole, "prce", "yaml") == NO_SUCH


WRONG = [
    ("SELECT auction FROM inptu", "inptu", "there is no table 'inptu'; did you mean 'input'?"),
    ("SELECT auction FROM", "FROM", "unexpected 'FROM'"),
    (
        "CREATE VIEW AS SELECT 1;\nSELECT auction FROM input",
        "SELECT 1",
        "expected AS, found 'SELECT'",
    ),
    ("INSERT INTO x SELECT 1", "x SELECT", "a step has no such statement: only CREATE VIEW and"),
    ("SELECT auction FROM input; SELECT at FROM input", "SELECT at", "a step has one query, not 2"),
    ("CREATE VIEW v AS SELECT auction FROM input", "CREATE", "a step has one query, not 0"),
    ("SELECT auction, auction FROM input", "SELECT", "two columns are named auction; rename one"),
    ("SELECT CAST(at AS DATE) AS d FROM input", "SELECT", "column d is DATE, which is not a type"),
    ("SELECT NULL AS n FROM input", "SELECT", "column n is NULL, which is not a type of fields"),
    ("SELECT sum(auction) AS s FROM input", "sum", "an aggregation without a window changes"),
    (
        "CREATE FUNCTION f AS 'os:getcwd';\nSELECT f() AS x FROM input",
        "'os:getcwd'",
        "'os:getcwd' is not in an installed plugin",
    ),
]


@pytest.mark.parametrize(("query", "word", "problem"), WRONG)
def test_a_wrong_query_is_reported_at_its_words(query, word, problem):
    whole = pipeline("in.jsonl", query)
    assert at_word(whole, word).startswith(problem)


def test_a_window_needs_the_event_time_of_the_pipeline():
    text = pipeline("in.jsonl", WINDOW).replace('timestamp_field = "at"', "")
    expected = (
        "at is not the event time of input: set the event time before the step, in a field of the "
        "type timestamp"
    )
    assert at_word(text, "at, INTERVAL") == expected
    number = pipeline("in.jsonl", WINDOW).replace('at = "timestamp"', 'at = "int"')
    assert at_word(number, "at, INTERVAL") == expected
    changed = pipeline("in.jsonl", "SELECT at + INTERVAL '1' DAY AS at, auction, price FROM input",
                       WINDOW)  # fmt: skip
    assert at_word(changed, "at, INTERVAL") == expected


@pytest.mark.parametrize("notation", ["toml", "yaml"])
def test_a_converted_query_keeps_its_lines(notation):
    text = pipeline("in.jsonl", "\n" + WINDOW)
    written = write_document(pipeline_data(checked(text), "vertices"), notation)
    spec = checked(written, notation).nodes[2].spec
    assert spec == checked(text).nodes[2].spec
    assert "\nGROUP BY" in written.replace(" ", "").replace("GROUPBY", "GROUP BY")


def test_fields_behind_a_query_are_checked_and_unknown_ones_named():
    rest = '[[steps]]\noperator = "filter"\nwhere = "auctoin > 1"\n[sink]\nkind = "console"\n'
    [found] = problems(pipeline("in.jsonl", "SELECT auction FROM input", rest=rest))
    assert "'auctoin'" in found
    text = pipeline("in.jsonl", "SELECT auction FROM input").replace(f"fields = {FIELDS}", "")
    [found] = problems(text)
    assert found.endswith(
        "steps[0].query reads 'input', but the fields of its records are unknown: add `fields` "
        "with types to the source"
    )
