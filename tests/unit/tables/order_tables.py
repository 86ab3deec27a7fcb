"""A job with streams and tables, of which workers import the records and the functions."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from bicycle_sdk import col


@dataclass(frozen=True)
class Order:
    id: int
    shop: str
    amount: int | None
    at: datetime


@dataclass(frozen=True)
class Total:
    shop: str
    window_start: datetime
    total: int | None
    orders: int


@dataclass(frozen=True)
class Doubled:
    shop: str
    twice: int


def program(env):
    """Convert in both directions twice: orders, totals, doubled totals, counts."""
    stream = env.from_collection(list[Order]()).uid("input")
    orders = env.table(
        stream, name="orders", type=Order, watermark="at", delay=timedelta(seconds=5), key="id"
    )
    totals = (
        orders.where(col("amount").is_null() | (col("amount") > 2))
        .window("at", tumble=timedelta(seconds=10))
        .group_by("shop")
        .agg(total=col("amount").sum(), orders="count(*)")
        .uid("totals")
    )
    alerts = totals.select("shop", "window_start", "total", "orders").to_stream(Total)
    alerts.collect("totals")
    doubled = alerts.filter(lambda total: total.total is not None).map(double).uid("double")
    env.table(doubled, name="doubled", type=Doubled)
    env.sql("""
        CREATE TABLE large (shop VARCHAR, twice BIGINT) WITH (kind = 'file', path = 'large');
        INSERT INTO large SELECT shop, twice FROM doubled WHERE twice > 40;
    """)
    totals.select("shop", twice=col("orders") * 100).insert_into("large")


def double(total: Total) -> Doubled:
    return Doubled(total.shop, (total.total or 0) * 2)
