"""Functions in Python that return rows: their types, their calls, and their errors."""

from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, NamedTuple, TypedDict

import pytest

from bicycle_runtime.tables.python_functions import describe_function
from bicycle_sdk.sql_functions import scalar_function
from tests.unit.tables.sql_runs import graph, problems, ran

HERE = "tests.unit.tables.test_table_functions"
TABLES = """
    CREATE TABLE t (id BIGINT NOT NULL, name VARCHAR, doc JSON) WITH (kind = 'file', path = 'in');
    CREATE TABLE o (id BIGINT, a VARCHAR, b DOUBLE) WITH (kind = 'file', path = 'out');
"""


@dataclass
class Word:
    word: str
    weight: float | None


class Pair(NamedTuple):
    a: int
    b: str


class Loose(TypedDict):
    a: int


def words(name: str) -> Iterator[Word]:
    for each in name.split():
        if each == "bad":
            raise ValueError(f"{name!r} is refused")
        yield Word(each, len(each) / 2 if each != "none" else None)


def lines(doc: Any) -> Iterable[dict[str, Any]]:
    return doc["lines"] if doc else []


def money(name: str) -> Iterator[Annotated[Decimal, "DECIMAL(10, 2)"]]:
    yield Decimal("1.50")


async def waiting(name: str) -> AsyncIterator[int]:
    yield 1


def function(name):
    return f"CREATE FUNCTION {name} AS '{HERE}:{name}';"


def rows_of(query, *names, rows, **settings):
    text = f"{TABLES} {' '.join(map(function, names))} INSERT INTO o {query}"
    with ran(text, {"t": rows}, **settings) as harness:
        found = sorted(tuple(row.values()) for row in harness.results("o"))
        return found, [each["message"] for each in harness.dead_letters], harness.crash_count


def columns(target):
    found = describe_function("f", target, "m:f").columns
    return [(each.name, each.type, each.is_nullable) for each in found]


def test_columns_are_those_of_the_annotation():
    def numbers() -> Iterator[int | None]:
        yield 1

    def pairs_of() -> list[Pair]:
        return []

    def loose() -> Iterator[Loose]:
        yield {"a": 1}

    assert columns(words) == [("word", "VARCHAR", False), ("weight", "DOUBLE", True)]
    assert columns(pairs_of) == [("a", "BIGINT", False), ("b", "VARCHAR", False)]
    assert columns(loose) == [("a", "BIGINT", False)]
    assert columns(numbers) == [("", "BIGINT", True)]
    assert columns(lines) == [("", "JSON", False)]
    assert columns(money) == [("", "DECIMAL(10,2)", False)]


def test_a_list_of_values_is_an_array_and_can_be_called_as_rows():
    def digits(number: int) -> list[int]:
        return [number]

    assert columns(digits) == []


@pytest.mark.parametrize("parallelism", [1, 3])
def test_each_row_of_a_call_is_a_row_through_a_crash(parallelism):
    rows = [{"id": 1, "name": "a none"}, {"id": 2, "name": None}, {"id": 3, "name": "bcd"}]

    found, _, crashes = rows_of(
        "SELECT id, word, weight FROM t, LATERAL TABLE(words(name)) AS w", "words", rows=rows,
        epochs=2, parallelism=parallelism, faults=["before_seal"],
    )  # fmt: skip

    assert found == [(1, "a", 0.5), (1, "none", None), (3, "bcd", 1.5)]
    assert crashes == 1


def test_json_is_passed_and_returned_as_values():
    rows = [{"id": 1, "doc": {"lines": [{"sku": "x"}, {"sku": "y"}]}}, {"id": 2, "doc": None}]

    found, _, _ = rows_of(
        "SELECT id, line ->> 'sku', NULL FROM t LEFT JOIN LATERAL TABLE(lines(doc)) AS l (line) "
        "ON TRUE",
        "lines", rows=rows,
    )  # fmt: skip

    assert found[:2] == [(1, "x", None), (1, "y", None)]
    assert found[2] == (2, None, None)


def test_a_call_that_raises_is_one_dead_letter():
    rows = [{"id": 1, "name": "good"}, {"id": 2, "name": "bad"}, {"id": 3, "name": "fine"}]

    found, letters = rows_and_letters(rows)

    assert [row[0] for row in found] == [1, 3]
    assert len(letters) == 1
    assert "words raised ValueError: 'bad' is refused (test_table_functions.py:" in letters[0]


def rows_and_letters(rows):
    query = "SELECT id, word, weight FROM t CROSS JOIN LATERAL TABLE(words(name)) AS w"
    text = f"SET on_error = 'dead_letter'; {TABLES} {function('words')} INSERT INTO o {query}"
    with ran(text, {"t": rows}) as harness:
        found = sorted(tuple(row.values()) for row in harness.results("o"))
        return found, [each["message"] for each in harness.dead_letters]


REJECTED = [
    ("SELECT id, words(name), 1.0 FROM t", "words", "words returns rows: write FROM table CROSS "
     "JOIN LATERAL TABLE(words(…)) AS t"),
    ("SELECT id, word, 1.0 FROM t CROSS JOIN LATERAL TABLE(words(id)) AS w", "words(id)", None),
    ("SELECT id, a, 1.0 FROM t CROSS JOIN LATERAL TABLE(words(name)) AS w (a)", "w (a)",
     "words has 2 columns, got 1 names"),
    ("SELECT id, 'a', 1.0 FROM t RIGHT JOIN LATERAL TABLE(words(name)) AS w ON TRUE", "TABLE(words",
     "UNNEST and LATERAL need CROSS JOIN … or LEFT JOIN … ON TRUE"),
    ("SELECT id, 'a', 1.0 FROM t CROSS JOIN LATERAL TABLE(wordz(name)) AS w", "wordz",
     "wordz is not a function in Python; write CREATE FUNCTION"),
    ("SELECT 1, word, weight FROM TABLE(words('a b')) AS w", "TABLE(words",
     "a function needs a table: FROM table CROSS JOIN LATERAL TABLE(…)"),
]  # fmt: skip


@pytest.mark.parametrize(("query", "part", "text"), REJECTED)
def test_wrong_calls_are_rejected_at_their_position(query, part, text):
    head = f"{TABLES} {function('words')}\nINSERT INTO o\n"

    [(line, column, found)] = problems(head + query)

    assert line == head.count("\n") + 1
    if text is not None:
        assert (column, found) == (query.index(part) + 1, text)
    else:
        assert "words" in found


def test_an_async_function_is_rejected():
    [(_, _, found)] = problems(
        f"{TABLES} {function('waiting')} INSERT INTO o SELECT id, name, 1.0 FROM t"
    )

    assert "waiting' cannot be called by SQL" in found


def test_a_function_on_columns_returns_no_rows():
    @scalar_function(on_columns=True)
    def each(values: Annotated[Any, "BIGINT"]) -> Iterator[int]:
        yield 1

    with pytest.raises(ValueError, match="returns a value for each row"):
        describe_function("each", each, "m:each")


def test_the_plan_names_the_call():
    query = "SELECT id, word, weight FROM t, LATERAL words(name)"
    found = graph(f"{TABLES} {function('words')} INSERT INTO o {query}")

    assert "LATERAL words" in [each.name for each in found.vertices]
