"""Errors of env.sql, env.table and the calls of tables: location, position and effect."""

from datetime import UTC, datetime

import pytest

from bicycle_runtime.tables.errors import SQL_TEXT_INVALID
from bicycle_sdk import StreamEnvironment, col
from bicycle_sdk.errors import StreamDefinitionError
from tests.raising import raises
from tests.unit.tables.order_tables import Order

START = datetime(2026, 11, 28, tzinfo=UTC)


def call_of(build):
    """Return the environment and the table of orders for a call."""
    env = StreamEnvironment()
    orders = env.table(env.from_collection([]), name="orders", type=Order, watermark="at")
    return lambda: build(env, orders)


@pytest.mark.parametrize(
    ("build", "listing"),
    [
        (lambda env, _: env.sql("SELECT id,\n  amuont FROM orders"),
         ["line 2, column 3: there is no column 'amuont'; did you mean 'amount'? known: id, shop, "
          "amount, at"]),
        (lambda env, _: env.sql("CREATE VIEW v AS SELECT x FROM orders;\nINSERT INTO w SELECT 1"),
         ["line 1, column 25: there is no column 'x'; known: id, shop, amount, at",
          "line 2, column 13: there is no table 'w'; known: orders, v"]),
        (lambda env, _: env.sql("SELECT id FROM orders; SELECT id FROM orders"),
         ["line 1, column 1: only the last statement of a text may be a query; write INSERT INTO"]),
        (lambda _, orders: orders.where(col("shop") + 1),
         ["shop + 1 computes with VARCHAR and BIGINT; cast to a number"]),
        (lambda _, orders: orders.where("id; DROP TABLE orders"), ["expected ) at 'id'"]),
        (lambda _, orders: orders.insert_into("orders"),
         ["orders is a stream; rows are inserted into tables"]),
        (lambda _, orders: orders.window("id", tumble=1).agg(n="count(*)"),
         ["id is not the event time of orders; its event time is at"]),
        (lambda env, _: env.sql("SET parallelism = 0"),
         ["line 1, column 19: SET.parallelism is 0; expected 1..32768"]),
    ],
)  # fmt: skip
def test_an_error_names_the_line_of_the_program_and_the_position_in_the_text(build, listing):
    with raises(SQL_TEXT_INVALID) as caught:
        call_of(build)()

    assert caught.value.facts["listing"].splitlines() == [f"  {each}" for each in listing]
    assert caught.value.facts["location"].startswith(f"{__file__}:")


@pytest.mark.parametrize(
    ("build", "problem"),
    [
        (lambda env, _: env.sql("SET parallelism = 2").where("x"), "the SQL text has no query"),
        (lambda _, orders: orders.select(col("shop").split(",")), "split has no counterpart"),
        (lambda _, orders: orders.where(col("amount") == None), "is never true in SQL"),  # noqa: E711 - The comparison is the test.
        (lambda _, orders: orders.window("at"), "expected one window, got 0"),
        (lambda _, orders: orders.window("at", tumble=0), "whole milliseconds"),
        (lambda env, _: env.table(env.from_collection([]), name="x"), "the type of the records is"),
        (lambda env, _: env.table(env.from_collection([Order(1, "", 1, START)]), name="ORDERS"),
         "ORDERS is defined twice"),
        (lambda env, _: env.table(env.from_collection([Order(1, "", 1, START)]), name="o",
                                  watermark="when"), "there is no column 'when'"),
        (lambda env, _: env.table(env.from_collection([Order(1, "", 1, START)]), name="o",
                                  key=["idd"]), "there is no column 'idd'; did you mean 'id'"),
        (lambda env, _: env.table(StreamEnvironment().from_collection([1]), name="x"),
         "the stream belongs to another environment"),
        (lambda env, _: env.sql("SELECT id AS a, id AS a FROM orders").to_stream(),
         "two columns are named a"),
    ],
)  # fmt: skip
def test_a_call_that_no_text_expresses_is_an_error_of_its_line(build, problem):
    with raises(StreamDefinitionError, match=problem) as caught:
        call_of(build)()

    assert caught.value.facts["location"].startswith(f"{__file__}:")


def test_a_wrong_text_has_no_effect_and_can_be_repeated():
    env = StreamEnvironment()
    env.table(env.from_collection([]), name="orders", type=Order)
    text = """CREATE TABLE out (id BIGINT) WITH (kind = 'file', path = 'out');
        CREATE VIEW v AS SELECT {column} FROM orders; INSERT INTO out SELECT * FROM v"""
    with raises(SQL_TEXT_INVALID):
        env.sql(text.format(column="idd"))
    assert len(env.vertices) == 1

    env.sql(text.format(column="id"))

    assert [vertex.id for vertex in env.execute("job").vertices][-1] == "out"


def test_a_table_is_read_once_also_after_a_text_that_defines_it_again():
    env = StreamEnvironment()
    env.table(env.from_collection([]), name="orders", type=Order)
    env.sql("SELECT id FROM orders").to_stream()
    with raises(SQL_TEXT_INVALID, match="orders is defined twice"):
        env.sql("CREATE TABLE orders (id BIGINT) WITH (kind = 'file', path = 'orders')")

    env.sql("SELECT id FROM orders WHERE id > 1").to_stream()

    assert [vertex.final_id for vertex in env.vertices if "rows" in vertex.final_id] == [
        "orders-rows"
    ]


def test_an_option_of_an_earlier_text_keeps_its_place():
    env = StreamEnvironment()
    env.sql("\n\nCREATE TABLE a (id BIGINT) WITH (kind = 'file', path = 'a', formt = 'csv')")

    with raises(SQL_TEXT_INVALID) as caught:
        env.sql("SELECT id FROM a")

    assert "unknown key a.formt; did you mean 'format'?" in caught.value.facts["listing"]


def test_settings_change_only_what_a_text_names():
    env = StreamEnvironment.builder().parallelism(3).checkpoint_interval(500).build()

    env.sql("SET max_restarts = 7; SET 'properties.region' = 'eu'")

    assert (env.config.parallelism, env.config.checkpoint_interval_ms) == (3, 500)
    assert env.config.restart_strategy.max_attempts == 7
    assert env.config.properties == {"region": "eu"}


@pytest.mark.parametrize("read", ["to_stream", "preview", "explain"])
def test_rows_of_a_window_function_are_grouped_before_they_are_read(read):
    text = "SELECT * FROM TUMBLE(orders, at, INTERVAL '1' HOUR)"
    table = call_of(lambda env, _: env.sql(text))()

    with raises(StreamDefinitionError, match="TUMBLE needs GROUP BY window_start, window_end"):
        getattr(table, read)()
