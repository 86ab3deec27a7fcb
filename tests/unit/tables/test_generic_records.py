"""Records of generic types with arguments, in tables and in expressions."""

from dataclasses import dataclass
from typing import Generic, TypedDict, TypeVar

import pytest

from bicycle_sdk import StreamEnvironment, col
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.windows import WindowResult

T = TypeVar("T")


@dataclass
class Pair(Generic[T]):
    first: T
    rest: list[T]


class Entry(TypedDict, Generic[T]):
    first: T


@pytest.mark.parametrize(
    ("kind", "record", "columns"),
    [
        (
            WindowResult[str, int],
            WindowResult("k", 0, 10, 2),
            {"key": "VARCHAR", "start": "BIGINT", "end": "BIGINT", "value": "BIGINT"},
        ),
        (Pair[int], Pair(1, [2]), {"first": "BIGINT", "rest": "BIGINT[]"}),
        (Entry[float], {"first": 1.5}, {"first": "DOUBLE"}),
    ],
)
def test_the_arguments_of_a_generic_type_are_the_types_of_columns(kind, record, columns):
    env = StreamEnvironment()
    table = env.table(env.from_collection([record]), name="t", type=kind)

    assert table.columns == columns
    assert table.preview() == [record]
    [made] = table.where("TRUE").to_stream(kind).preview()
    assert made == record
    assert not hasattr(made, "__orig_class__")


def test_an_expression_is_checked_against_the_arguments_of_a_generic_type():
    def word(pair: tuple[str, int]) -> str:
        return pair[0]

    pairs = StreamEnvironment().from_collection([("a", 1)]).assign_timestamps(lambda _: 0)
    counts = pairs.key_by(word).tumbling_window(10).count()

    with pytest.raises(StreamDefinitionError) as caught:
        counts.filter(col("value") > "1")

    assert "compares a text with a number" in caught.value.facts["problem"]
