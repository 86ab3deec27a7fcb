"""Functions in Python that the tests of SQL call."""

import itertools
import math
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any

import pyarrow
import pyarrow.compute as pc

from bicycle_sdk.sql_functions import aggregate_function, scalar_function
from bicycle_sdk.windows import AggregateFunction

_numbers = itertools.count()


@scalar_function(deterministic=True)
def half(value: float) -> float:
    return value / 2


def reciprocal(value: int) -> float:
    return 1 / value


@scalar_function
def described(name: str | None, number: int = 7) -> str | None:
    return None if number == 0 else f"{name} {number}"


def positive(number: int) -> int:
    return number or None


@scalar_function
def later(moment: datetime, seconds: int) -> datetime:
    return moment + timedelta(seconds=seconds)


def joined(*parts: str) -> str:
    return "-".join(parts)


def sized(document: dict[str, Any]) -> list[str]:
    return sorted(document)


def doubled(price: Decimal) -> Annotated[Decimal, "DECIMAL(12, 2)"]:
    return price * 2


@scalar_function(on_columns=True, deterministic=True)
def squared(
    values: Annotated[pyarrow.Array, "BIGINT"],
) -> Annotated[pyarrow.Array, "BIGINT"]:
    return pc.multiply_checked(values, values)


@scalar_function(on_columns=True)
def shortened(values: Annotated[pyarrow.Array, "BIGINT"]) -> Annotated[pyarrow.Array, "BIGINT"]:
    return values[:-1]


@scalar_function
def numbered() -> int:
    return next(_numbers)


def lying(value: int) -> int:
    return f"{value}"


@aggregate_function
class Product(AggregateFunction[int, int, float]):
    """The product of values."""

    def create_accumulator(self) -> int:
        return 1

    def add(self, accumulator: int, value: int) -> int:
        return accumulator * value

    def merge(self, a: int, b: int) -> int:
        return a * b

    def get_result(self, accumulator: int) -> float:
        return float(accumulator)


class Latest(AggregateFunction[Any, list, int]):
    """The number of values, with NULLs, whose accumulators do not merge."""

    def create_accumulator(self) -> list:
        return []

    def add(self, accumulator: list, value: int | None) -> list:
        return [*accumulator, value]

    def get_result(self, accumulator: list) -> int:
        return len(accumulator)


def unannotated(value) -> int:
    return value


def strange(value: complex) -> int:
    return int(value.real)


def with_keyword(*, value: int) -> int:
    return value


async def waiting(value: int) -> int:
    return value


def decimal_without_digits(value: int) -> Decimal:
    return Decimal(value)


NUMBER = math.pi
