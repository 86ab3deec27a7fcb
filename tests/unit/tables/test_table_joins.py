"""Joins of tables in programs, with the results of the same joins in DuckDB."""

import random
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import duckdb
import pytest

from bicycle_runtime.testing import Harness
from bicycle_sdk import StreamEnvironment, col
from bicycle_sdk.errors import BicycleError
from tests.raising import raises
from tests.unit.tables.sql_runs import split

START = datetime(2026, 11, 28, tzinfo=UTC)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


@dataclass(frozen=True)
class Order:
    id: int
    shop: str | None
    moment: datetime


@dataclass(frozen=True)
class Payment:
    shop: str | None
    amount: int
    paid: datetime


def tables(env):
    """Return two tables of streams that a harness scripts."""
    orders = env.from_collection(list[Order]()).uid("o")
    payments = env.from_collection(list[Payment]()).uid("p")
    return (
        env.table(orders, name="o", type=Order, watermark="moment"),
        env.table(payments, name="p", type=Payment, watermark="paid", key="shop"),
    )


def windowed(table, time, **aggregates):
    return table.window(time, tumble=10 * SECOND).group_by("shop").agg(**aggregates)


def within(how):
    def build(orders, payments):
        near = (-3 * SECOND, timedelta(milliseconds=1500))
        return orders.join(payments, on="shop", how=how, within=near).select("id", "shop", "amount")

    condition = (
        "p.paid BETWEEN o.moment - INTERVAL 3 SECONDS AND o.moment + INTERVAL 1500 MILLISECONDS"
    )
    return build, (
        f"SELECT o.id, coalesce(o.shop, p.shop), p.amount FROM o {how} JOIN p "
        f"ON o.shop = p.shop AND {condition}"
    )


CASES = {
    **{how: within(how) for how in ("inner", "left", "right", "full")},
    "as_of": (
        lambda orders, payments: orders.join(
            payments, on="shop", as_of="moment", how="left"
        ).select("id", "shop", "amount"),
        "SELECT o.id, o.shop, p.amount FROM o ASOF LEFT JOIN p"
        " ON o.shop = p.shop AND o.moment >= p.paid",
    ),
    "windows": (
        lambda orders, payments: windowed(orders, "moment", n="count(*)").join(
            windowed(payments, "paid", total=col("amount").sum()),
            on=["shop", "window_start", "window_end"],
        ).select("n", "shop", "total"),
        """SELECT a.n, a.shop, b.total FROM
             (SELECT shop, time_bucket(INTERVAL 10 SECONDS, moment) w, count(*) n FROM o
                 GROUP BY ALL) a
           JOIN (SELECT shop, time_bucket(INTERVAL 10 SECONDS, paid) w, sum(amount) total FROM p
                 GROUP BY ALL) b ON a.shop = b.shop AND a.w = b.w""",
    ),
}  # fmt: skip


def rows_of(count, seed):
    chance = random.Random(seed)
    shops = ["a", "b", "c", None]
    orders = [Order(at, chance.choice(shops), START + at * SECOND) for at in range(count)]
    moments = sorted(chance.sample(range(count * 1000), count))
    payments = [
        Payment(chance.choice(shops), chance.randint(1, 99), START + timedelta(milliseconds=at))
        for at in moments
    ]
    return orders, payments


def by_duckdb(query, orders, payments):
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE o (id BIGINT, shop VARCHAR, moment TIMESTAMP)")
        connection.execute("CREATE TABLE p (shop VARCHAR, amount BIGINT, paid TIMESTAMP)")
        for name, rows in (("o", orders), ("p", payments)):
            values = [
                [each.replace(tzinfo=None) if isinstance(each, datetime) else each
                 for each in vars(row).values()]
                for row in rows
            ]  # fmt: skip
            connection.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", values)
        return Counter(connection.execute(query).fetchall())


@pytest.mark.parametrize(("parallelism", "epochs"), [(1, 1), (2, 4), (3, 7)])
@pytest.mark.parametrize("case", CASES)
def test_joins_of_tables_equal_duckdb(case, parallelism, epochs):
    build, query = CASES[case]
    orders, payments = rows_of(40, seed=epochs)
    env = StreamEnvironment()
    build(*tables(env)).to_stream().uid("out").collect("out")

    with Harness(env, scripted=["o", "p"], parallelism=parallelism) as harness:
        for some, others in zip(split(orders, epochs), split(payments, epochs), strict=True):
            harness.push(some, source="o")
            harness.push(others, source="p")
            harness.run()
        harness.end()
        harness.run()
        found = Counter(tuple(row.values()) for row in harness.results("out"))

    assert found == by_duckdb(query, orders, payments)
    assert found


@pytest.mark.parametrize(
    ("join", "problem"),
    [
        (
            lambda o, p: o.join(p.select("shop", id=col("amount")), on="shop"),
            "both tables have a column id",
        ),
        (lambda o, p: o.join(p, on="shop"), "has no bound"),
        (lambda o, p: o.join(p, on="amount", within=(0, 1)), "'amount' is not a column of both"),
        (
            lambda o, p: o.join(p.select("shop", "amount"), on="shop", within=(0, 1)),
            "no event time",
        ),
        (lambda o, p: o.join(p, on="shop", within=(-0.5, 1)), "whole milliseconds"),
        (lambda o, p: o.join(p, on="shop", within=("-5s", 1)), "whole milliseconds"),
        (lambda o, p: o.join(p, on="shop", as_of="other"), "no column 'other'"),
        (
            lambda o, p: o.join(p, on="shop", how="full", as_of="moment"),
            "FULL JOIN is not possible",
        ),
    ],
)
def test_wrong_joins_are_rejected_with_the_line_of_the_program(join, problem):
    orders, payments = tables(StreamEnvironment())

    with raises(BicycleError, match="(?s)test_table_joins") as caught:
        join(orders, payments)

    assert problem in str(caught.value)


@dataclass(frozen=True)
class Paid:
    id: int
    shop: str
    amount: int


@dataclass(frozen=True)
class MaybePaid:
    id: int
    shop: str | None
    amount: int | None


@pytest.mark.parametrize("how", ["inner", "left"])
def test_columns_of_a_side_that_may_be_missing_are_nullable(how):
    orders, payments = tables(StreamEnvironment())
    joined = orders.join(payments, on="shop", how=how, within=(0, MINUTE))
    joined = joined.select("id", "shop", "amount")

    joined.to_stream(MaybePaid)
    if how == "inner":  # Keys that are NULL have no match.
        joined.to_stream(Paid)
    else:
        with raises(BicycleError, match="amount.*NULL"):
            joined.to_stream(Paid)
