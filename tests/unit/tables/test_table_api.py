"""Tables of a program: streams become tables, tables become streams, in one job."""

import random
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, make_dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import pytest

from bicycle_runtime.base.faults import FAULT_POINTS
from bicycle_runtime.tables.building import build_tables
from bicycle_runtime.tables.errors import SQL_TEXT_INVALID
from bicycle_runtime.tables.records import python_type
from bicycle_runtime.testing import Harness
from bicycle_sdk import StreamEnvironment, col
from bicycle_sdk.errors import StreamDefinitionError
from tests.raising import raises
from tests.unit.tables import order_tables
from tests.unit.tables.order_tables import Order, program
from tests.unit.tables.sql_runs import by_duckdb, split

START = datetime(2026, 11, 28, tzinfo=UTC)
COLUMNS = "id BIGINT, shop VARCHAR, amount BIGINT, moment TIMESTAMP"


def orders_of(count, seed=0):
    chance = random.Random(seed)
    return [
        Order(
            id=at, shop=chance.choice("abc"), amount=chance.choice([None, *range(20)]),
            at=START + timedelta(seconds=at + chance.randint(-4, 0)),
        )
        for at in range(count)
    ]  # fmt: skip


def built(build=program):
    env = StreamEnvironment()
    build(env)
    return env


def expected(rows):
    """Return the rows of both results, by DuckDB."""
    data = [{**vars(row), "moment": row.at.replace(tzinfo=None)} for row in rows]
    inner = """SELECT shop, time_bucket(INTERVAL 10 SECONDS, moment) AS w, sum(amount) AS total,
        count(*) AS n FROM t WHERE amount IS NULL OR amount > 2 GROUP BY shop, w"""
    large = f"""WITH totals AS ({inner}) SELECT shop, total * 2 FROM totals WHERE total * 2 > 40
        UNION ALL SELECT shop, n * 100 FROM totals"""
    return by_duckdb(COLUMNS, data, {"totals": inner, "large": large})


def assert_equal(harness, rows):
    wanted = expected(rows)
    totals = [
        (each.shop, each.window_start.replace(tzinfo=None), each.total, each.orders)
        for each in harness.results("totals")
    ]
    large = [(each["shop"], each["twice"]) for each in harness.results("large")]
    assert Counter(totals) == Counter(wanted["totals"])
    assert Counter(large) == Counter(wanted["large"])
    assert totals and large


def run_in(harness, rows, epochs, between=None):
    for at, part in enumerate(split(rows, epochs)):
        harness.push(part, source="input")
        harness.run()
        if between is not None and at == epochs // 2:
            between(harness)
    harness.end()
    harness.run()


@pytest.mark.parametrize("epochs", [1, 7])
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_streams_and_tables_of_one_job_equal_duckdb(epochs, parallelism):
    rows = orders_of(90, seed=epochs)

    with Harness(built(), scripted=["input"], parallelism=parallelism) as harness:
        run_in(harness, rows, epochs)
        assert_equal(harness, rows)


def test_a_job_with_tables_survives_a_crash_at_every_step_and_a_rescale():
    rows = orders_of(80)

    with Harness(built(), scripted=["input"], parallelism=2) as harness:
        for point in FAULT_POINTS:
            harness.fail_at(point)
        run_in(harness, rows, 4, between=lambda harness: harness.rescale(3))
        assert harness.crash_count == len(FAULT_POINTS)
        assert_equal(harness, rows)


def test_an_unchanged_program_has_the_same_graph_with_ids_of_its_names():
    first, second = built().execute("job"), built().execute("job")

    ids = [vertex.id for vertex in first.vertices]
    assert ids == [vertex.id for vertex in second.vertices]
    kept = {re.sub(r"[0-9a-f]{8}", "…", each) for each in ids}
    assert {"orders-rows", "orders-time", "totals-where", "totals-window-…", "large"} <= kept
    assert {each.location.rpartition(":")[0] for each in first.vertices if each.location} == {
        order_tables.__file__
    }


def test_the_operators_of_a_view_have_its_name_whatever_reads_it():
    env = StreamEnvironment()
    env.table(env.from_collection([]), name="orders", type=Order, watermark="at")
    env.sql("""
        CREATE VIEW per_shop AS SELECT shop, window_start, count(*) AS n
          FROM TUMBLE(orders, at, INTERVAL '1' MINUTE) GROUP BY shop, window_start;
        CREATE TABLE counts (n BIGINT) WITH (kind = 'file', path = 'counts');
        INSERT INTO counts SELECT n FROM per_shop;
    """)

    [window] = [
        v.id for v in env.execute("job").vertices if "-window-" in v.id and "comb" not in v.id
    ]
    assert window.startswith("per_shop-window-")


def test_columns_of_records_are_read_as_fields_that_each_record_has():
    env = built()
    env.execute("job")

    rows, records = (env.payloads[f"{name}/function"] for name in ("orders-rows", "Total-records"))

    # A field that may be missing would be read record by record.
    assert "field_or" not in repr(rows.expression())
    assert records.expression().operation == "make"


def test_texts_know_the_names_of_each_other():
    env = StreamEnvironment()
    env.table(env.from_collection([Order(1, "a", 2, START)]), name="orders")
    env.sql("CREATE VIEW cheap AS SELECT * FROM ORDERS WHERE amount < 5")

    rows = env.sql("SELECT id + 1 AS next FROM cheap").preview()

    assert rows == [{"next": 2}]


def test_a_preview_leaves_the_graph_of_the_job_as_it_is():
    env = StreamEnvironment()
    orders = env.table(env.from_collection(orders_of(9)), name="orders")
    orders.to_stream().uid("kept")
    before = (list(env.vertices), list(env.edges))

    assert len(orders.where(col("id") < 5).preview(3)) == 3
    assert len(orders.where(col("id") < 5).preview(30)) == 5
    assert orders.preview(1) == orders_of(9)[:1]

    assert (env.vertices, env.edges) == before


def test_a_preview_of_rows_is_shown_as_a_table():
    env = StreamEnvironment()
    orders = env.table(env.from_collection(orders_of(2)), name="orders")

    assert repr(orders.select("id", "shop").preview(1)).splitlines()[1] == "BIGINT  VARCHAR"


def test_late_rows_are_read_in_the_text_of_their_window():
    env = StreamEnvironment()
    env.table(env.from_collection([]), name="orders", type=Order, watermark="at")
    env.sql("""CREATE VIEW counts AS SELECT count(*) AS n
        FROM TUMBLE(orders, at, INTERVAL '1' MINUTE) GROUP BY window_start""")
    late, counts = env.sql("SELECT id FROM counts$late"), env.sql("SELECT n FROM counts")
    late.to_stream().collect("late")
    counts.to_stream().collect("counts")
    other = env.sql("SELECT n FROM counts WHERE n > 1")
    other.to_stream().collect("other")
    assert [v.id for v in env.execute("job").vertices if v.id.endswith("-late")]

    env.sql("""CREATE VIEW sums AS SELECT sum(id) AS n
        FROM TUMBLE(orders, at, INTERVAL '1' MINUTE) GROUP BY window_start""")
    env.sql("SELECT n FROM sums").to_stream()
    with raises(StreamDefinitionError, match="the window of sums has been read without late rows"):
        env.sql("SELECT id FROM sums$late").to_stream()


@pytest.mark.parametrize("parallelism", [1, 3])
def test_union_select_and_columns_equal_python(parallelism):
    env = StreamEnvironment()
    rows = orders_of(60, seed=4)
    orders = env.table(env.from_collection(rows), name="orders")
    cheap, dear = orders.where("amount < 5"), orders.where(col("amount") > 15)
    table = cheap.union_all(dear).with_columns(
        shop=col("shop").upper(), rest=col("amount") % 3, kind="CASE WHEN amount < 5 THEN 'c' END"
    )
    table.select("id", "kind", "rest", name="shop || '!' -- the name").to_stream().collect("out")

    with Harness(env, parallelism=parallelism) as harness:
        harness.run()
        found = harness.results("out")

    assert sorted(found, key=lambda row: row["id"]) == [
        {
            "id": row.id, "kind": "c" if row.amount < 5 else None, "rest": row.amount % 3,
            "name": f"{row.shop.upper()}!",
        }
        for row in rows
        if row.amount is not None and (row.amount < 5 or row.amount > 15)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("window", "count"),
    [({"tumble": 10_000}, 3), ({"hop": (5_000, 10_000)}, 7), ({"session": 2_000}, 1)],
)
def test_windows_are_those_of_sql(window, count):
    env = StreamEnvironment()
    rows = [Order(at, "a", at, START + timedelta(seconds=at)) for at in range(30)]
    orders = env.table(env.from_collection(rows), name="orders", watermark="at")
    orders.window("at", **window).agg(least=col("id").min(), n="count(*)").to_stream().collect("o")

    with Harness(env) as harness:
        harness.run()
        found = harness.results("o")

    assert len(found) == count
    assert sum(row["n"] for row in found) == len(rows) * (2 if "hop" in window else 1)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (col("n") + 1, 8), (-col("n"), -7), (abs(col("n") - 10), 3), (col("n") / 2, 3),
        (col("n") % 4, 3), (1 - col("n"), -6), (col("n") * -1, -7), (col("x") / 2, 0.75),
        (col("x") + 1e-7, 1.5000001), (col("x").round(), 2.0), ((col("n") > 6) & ~col("b"), True),
        ((col("n") < 6) | col("b").is_null(), False), (col("t").is_in(["it's", "b"]), True),
        (col("t").is_in([]), False), (col("t") == "it's", True), (col("t").len(), 4),
        (col("t").strip("i").upper(), "T'S"), (col("t").replace("t", "s").startswith("is"), True),
        (col("n").text() + "!", "7!"), (col("n").float() / 2, 3.5), (col("at").year(), 2026),
        (col("d") == Decimal("1.50"), True), (True, True), (None, None), (7, 7),
        (col("at") > datetime(2026, 1, 1, tzinfo=UTC), True), (col("at") < date(2026, 1, 1), False),
        (col("at") + timedelta(days=1) == START + timedelta(days=1), True),
    ],
)  # fmt: skip
def test_expressions_are_those_of_sql(expression, value):
    @dataclass
    class Row:
        n: int
        x: float
        b: bool
        t: str
        at: datetime
        d: Decimal

    env = StreamEnvironment()
    row = Row(7, 1.5, False, "it's", START, Decimal("1.5"))
    table = env.table(env.from_collection([row]), name="rows")

    assert table.select(value=expression).preview() == [{"value": value}]


# --- record types --------------------------------------------------------------------------------


class Level(NamedTuple):
    name: str
    value: float
    day: date


class Reading(TypedDict):
    name: str
    price: Decimal
    tags: list[str]
    details: NotRequired[dict[str, Any]]


@dataclass
class Cents:
    price: Annotated[Decimal, "DECIMAL(10, 2)"]
    kind: Literal["a", "b"]
    is_new: bool


READING = Reading(name="n", price=Decimal("1.25"), tags=["x", "y"], details={"a": [1]})


@pytest.mark.parametrize(
    ("record", "columns"),
    [
        (Level("n", 1.5, date(2026, 1, 2)), {"name": "VARCHAR", "value": "DOUBLE", "day": "DATE"}),
        (READING, {"name": "VARCHAR", "price": "DECIMAL(38,9)", "tags": "VARCHAR[]",
                   "details": "JSON"}),
        (Cents(Decimal("1.25"), "a", True), {"price": "DECIMAL(10,2)", "kind": "VARCHAR",
                                             "is_new": "BOOLEAN"}),
    ],
)  # fmt: skip
def test_records_of_any_declared_type_pass_through_a_table(record, columns):
    kind = Reading if isinstance(record, dict) else type(record)
    env = StreamEnvironment()
    table = env.table(env.from_collection([record]), name="t", type=kind)

    assert table.columns == columns
    assert table.preview() == [record]
    assert table.where("TRUE").to_stream(kind).preview() == [record]


class Color(Enum):
    RED = 1


@dataclass
class Bytes:
    data: bytes


@dataclass
class Either:
    value: int | str


@dataclass
class Colored:
    color: Color


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (Bytes, "field data: bytes is not the type of a column; expected str, int"),
        (Either, "field value: int | str is not the type of a column"),
        (Colored, "field color: .*Color is not the type of a column"),
        (str, "str has no columns; expected a dataclass, NamedTuple or TypedDict"),
    ],
)
def test_types_without_columns_are_rejected_at_planning(kind, problem):
    env = StreamEnvironment()
    with raises(StreamDefinitionError, match=problem) as caught:
        env.table(env.from_collection([]), name="t", type=kind)

    assert caught.value.facts["location"].startswith(__file__)


def test_the_differences_to_a_record_type_are_listed():
    @dataclass
    class Wrong:
        id: str
        amount: int
        color: str
        at: datetime
        extra: int = 0

    env = StreamEnvironment()
    orders = env.table(env.from_collection([]), name="orders", type=Order)

    with raises(StreamDefinitionError) as caught:
        orders.to_stream(Wrong)

    assert caught.value.facts["problem"].split("; ") == [
        "column id is BIGINT, the field is VARCHAR",
        "column amount may be NULL, the field may not be None",
        "use coalesce or WHERE amount IS NOT NULL, or annotate the field with | None",
        "field color has no column",
        "column shop is not a field",
    ]


@pytest.mark.parametrize(
    ("column", "is_nullable"),
    [
        ("id", False), ("amount", True), ("coalesce(amount, 0)", False), ("id + amount", True),
        ("id * 2 + length(shop)", False), ("CASE WHEN id > 1 THEN id ELSE 0 END", False),
        ("CASE WHEN id > 1 THEN id END", True), ("try_cast(shop AS BIGINT)", True),
        ("nullif(id, 1)", True), ("amount IS NULL", False), ("CAST(id AS VARCHAR)", False),
        ("id > 1 AND amount > 1", True), ("string_split(shop, ',')[9]", True),
        ("half(id)", False), ("half(amount)", True), ("described(shop)", True),
        ("squared(id)", True),
    ],
)  # fmt: skip
def test_a_column_is_nullable_unless_it_is_proven_otherwise(column, is_nullable):
    env = StreamEnvironment()
    env.table(env.from_collection([]), name="orders", type=Order)
    for name in ("half", "described", "squared"):
        env.sql(f"CREATE FUNCTION {name} AS 'tests.unit.tables.user_functions:{name}'")

    assert _may_be_null(env.sql(f"SELECT {column} AS x FROM orders")) is is_nullable


@pytest.mark.parametrize(
    ("join", "column", "is_nullable"),
    [
        ("CROSS JOIN", "x", True), ("CROSS JOIN", "n", False), ("CROSS JOIN", "id", False),
        ("LEFT JOIN", "n", True),
    ],
)  # fmt: skip
def test_an_item_may_be_null_and_its_number_only_without_items(join, column, is_nullable):
    env = StreamEnvironment()
    env.table(env.from_collection([]), name="orders", type=Order)
    on = " ON TRUE" if join == "LEFT JOIN" else ""
    source = f"orders {join} UNNEST(string_split(shop, ',')) WITH ORDINALITY AS u (x, n){on}"
    assert _may_be_null(env.sql(f"SELECT {column} AS x FROM {source}")) is is_nullable


def _may_be_null(table):
    """Return whether a field that may not be None refuses the only column."""
    row = make_dataclass("Row", [("x", python_type(table.columns["x"]))])
    try:
        return not table.to_stream(row)
    except StreamDefinitionError as error:
        return "may be NULL" in str(error)


def test_functions_and_items_are_read_by_calls_of_a_program():
    env = StreamEnvironment()
    env.sql("CREATE FUNCTION half AS 'tests.unit.tables.user_functions:half'")
    env.table(env.from_collection(orders_of(3)), name="orders")
    items = env.sql("SELECT id, x FROM orders CROSS JOIN UNNEST([id, id + 1]) AS u (x)")

    found = items.select(y="half(x)").to_stream().preview(10)

    assert sorted(row["y"] for row in found) == [0.0, 0.5, 0.5, 1.0, 1.0, 1.5]


def test_a_text_with_a_problem_defines_no_function():
    env = StreamEnvironment()
    created = "CREATE FUNCTION half AS 'tests.unit.tables.user_functions:half'"
    with raises(SQL_TEXT_INVALID):
        env.sql(f"{created}; CREATE VIEW v AS SELECT half(id) AS x FROM nowhere")

    env.sql(created)  # It is not defined twice.


def test_a_filter_proves_that_a_column_is_not_null():
    env = StreamEnvironment()
    orders = env.table(env.from_collection(orders_of(40)), name="orders")

    @dataclass
    class Amount:
        amount: float

    found = orders.where("id >= 0 AND amount IS NOT NULL").select("amount").to_stream(Amount)

    assert {type(each.amount) for each in found.preview(30)} == {float}


# --- imports -------------------------------------------------------------------------------------

WORKER = """
import sys
sys.modules["sqlglot"] = None
import pickle
for payload in pickle.load(open(sys.argv[1], "rb")):
    pickle.loads(payload)
print("bicycle_runtime.tables.functions" in sys.modules)
"""


FILE = """CREATE TABLE bids (item BIGINT, price DECIMAL(10, 2), at TIMESTAMP(3),
    WATERMARK FOR at AS at) WITH (kind = 'file', path = 'bids');
  CREATE TABLE out (item BIGINT, n BIGINT) WITH (kind = 'file', path = 'out');
  INSERT INTO out SELECT item, count(*) FROM TUMBLE(bids, at, INTERVAL '1' HOUR)
    WHERE price > 1 GROUP BY item, window_start"""


@pytest.mark.parametrize("build", [program, lambda env: build_tables(env, FILE, file="v.sql")])
def test_a_worker_loads_the_functions_of_tables_without_a_parser(build, tmp_path):
    import cloudpickle

    env = built(build)
    env.execute("job")
    file = tmp_path / "payloads"
    file.write_bytes(cloudpickle.dumps([cloudpickle.dumps(each) for each in env.payloads.values()]))

    done = subprocess.run(
        [sys.executable, "-c", WORKER, str(file)], capture_output=True, text=True, check=False
    )

    assert done.stdout == "True\n", done.stderr


def test_a_program_without_sql_imports_neither_tables_nor_a_parser():
    program = """
import sys
from bicycle_sdk import StreamEnvironment, col
from bicycle_runtime.testing import Harness
env = StreamEnvironment()
env.from_collection([{"a": 1}]).filter(col("a") > 0).print()
with Harness(env) as harness:
    harness.run()
names = ("sqlglot", "bicycle_sdk.tables", "bicycle_runtime.tables.session")
print([name for name in names if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert done.stdout.splitlines()[-1] == "[]", done.stderr
