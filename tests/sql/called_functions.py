"""Functions in Python that test files of this folder call, here and in DuckDB."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import pyarrow
import pyarrow.compute as pc

from bicycle_sdk.sql_functions import scalar_function


@scalar_function(deterministic=True)
def half(number: float) -> float:
    return number / 2


def initials(name: str) -> str:
    return "".join(word[0] for word in name.split())


def labeled(name: str | None) -> str:
    return f"<{name}>"


def digits(number: int) -> list[int]:
    return [int(digit) for digit in str(abs(number))]


def even(number: int) -> bool | None:
    return None if number == 0 else number % 2 == 0


@scalar_function(on_columns=True)
def squared(
    numbers: Annotated[pyarrow.Array, "BIGINT"],
) -> Annotated[pyarrow.Array, "BIGINT"]:
    return pc.multiply_checked(numbers, numbers)


def refused(number: int) -> int:
    raise ValueError(f"{number} is refused")


@dataclass
class Part:
    number: int
    word: str | None


def numbers_to(count: int) -> Iterator[int]:
    yield from range(1, count + 1)


def parts_of(name: str, sign: str = " ") -> Iterator[Part]:
    for number, word in enumerate(name.split(sign), 1):
        yield Part(number, word or None)
