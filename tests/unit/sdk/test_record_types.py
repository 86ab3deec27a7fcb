from collections.abc import Awaitable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Generic, Literal, NewType, Protocol, TypedDict, TypeVar

import pytest

from bicycle_sdk import (
    AsyncFunction,
    AsyncIOBatchFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    ReduceFunction,
    StreamEnvironment,
)
from bicycle_sdk.errors import GraphError
from bicycle_sdk.record_types import (
    clash,
    common_item_type,
    function_types,
    pair_type,
    type_name,
)

T = TypeVar("T")
UserId = NewType("UserId", str)


@dataclass
class Click:
    user: str


@dataclass
class FastClick(Click):
    ms: int = 0


class Row(TypedDict):
    user: str


class Sized(Protocol):
    def size(self) -> int: ...


class Split(AsyncFunction[str, str]):
    def process(self, value, ctx):
        return []


class Tag(AsyncFunction[T, tuple[T, int]], Generic[T]):
    def process(self, value, ctx):
        return []


class TagClick(Tag[Click]):
    pass


class Hinted(AsyncFunction):
    async def process(self, value: Click, ctx: Any) -> list[FastClick]:
        return []


class Late(AsyncFunction["Click", "Click"]):
    def process(self, value, ctx):
        return []


class PerKey(KeyedProcessFunction[str, Click, int]):
    def process_element(self, value, ctx):
        return []


class Upper(MapFunction[str, bytes]):
    def map(self, value):
        return value.encode()


class ByUser(KeySelector[Click, str]):
    def get_key(self, value):
        return value.user


class Latest(ReduceFunction[Click]):
    def reduce(self, a, b):
        return b


class Callable_:
    def __call__(self, value: int) -> str:
        return str(value)


def length(text: str) -> int:
    return len(text)


async def later(text: str) -> int:
    return len(text)


def awaitable(text: str) -> Awaitable[int]:
    return later(text)


def parts(text: str) -> Iterator[bytes]:
    yield text.encode()


def unimportable(text: "Nowhere") -> "Nowhere":  # noqa: F821 - it must not be importable.
    return text


@pytest.mark.parametrize(
    ("function", "method", "expected"),
    [
        (Split(), "process", (str, str)),
        (TagClick(), "process", (Click, tuple[Click, int])),
        (Tag(), "process", (None, None)),
        (Hinted(), "process", (Click, FastClick)),
        (Late(), "process", (None, None)),
        (PerKey(), "process_element", (Click, int)),
        (parts, "flat_map", (str, bytes)),
    ],
)
def test_types_of_functions_that_give_many(function, method, expected):
    assert function_types(function, method, gives_many=True) == expected


class Embed(AsyncIOBatchFunction):
    async def async_invoke_batch(self, values: list[str]) -> list[list[float]]:
        return [[0.0] for _ in values]


def test_types_of_functions_of_many_records_are_those_of_one():
    found = function_types(Embed(), "async_invoke_batch", gives_many=True, is_batched=True)

    assert found == (str, float)


@pytest.mark.parametrize(
    ("function", "method", "expected"),
    [
        (length, "map", (str, int)),
        (later, "map", (str, int)),
        (awaitable, "map", (str, int)),
        (lambda value: value, "map", (None, None)),
        (str.upper, "map", (None, None)),
        (len, "map", (None, None)),
        (partial(length), "map", (None, None)),
        (unimportable, "map", (None, None)),
        (int, "map", (None, int)),
        (Click, "map", (None, Click)),
        (Callable_(), "map", (int, str)),
        (Upper(), "map", (str, bytes)),
        (ByUser(), "get_key", (Click, str)),
        (Latest(), "reduce", (Click, Click)),
    ],
)
def test_types_of_functions_that_give_one(function, method, expected):
    assert function_types(function, method) == expected


@pytest.mark.parametrize(
    ("produced", "consumed"),
    [
        (str, int),
        (int, str),
        (Click, str),
        (list[str], list[int]),
        (tuple[str, int], tuple[str, str]),
        (tuple[str, int], tuple[str, int, int]),
        (dict[str, int], list[str]),
        (str | bytes, int),
        (str, int | None),
        (None.__class__, str),
        (Row, list[str]),
        (UserId, int),
        (Literal["a"], int),
        (Annotated[str, "x"], int),
        (float, int | str),
    ],
)
def test_types_that_no_value_shares_clash(produced, consumed):
    assert clash(produced, consumed)


@pytest.mark.parametrize(
    ("produced", "consumed"),
    [
        (str, str),
        (None, int),
        (str, None),
        (str, Any),
        (object, str),
        (bool, int),
        (int, float),
        (FastClick, Click),
        (Click, FastClick),
        (str | int, int),
        (int | None, int),
        (list[str], Iterable[str]),
        (list, list[str]),
        (tuple[int, ...], tuple[int, int]),
        (list[Any], list[int]),
        (Row, dict[str, str]),
        (UserId, str),
        (Click, Sized),
        (Literal["a", 1], bytes),
        (TypeVar("X"), str),
    ],
)
def test_types_that_a_value_could_share_fit(produced, consumed):
    assert not clash(produced, consumed)


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([1, 2], int),
        ([1, True], None),
        ([], None),
        ([Click("a")], Click),
        ([(1, 2)], None),
        ([[1]], None),
        ([{"a": 1}], None),
        ([None], type(None)),
    ],
)
def test_the_type_of_a_collection(items, expected):
    assert common_item_type(items) is expected


def test_names_of_types():
    assert type_name(str) == "str"
    assert type_name(tuple[str, int]) == "tuple[str, int]"
    assert type_name(Click) == f"{__name__}.Click"
    assert type_name(None) is None
    assert pair_type(str, int) == tuple[str, int]
    assert pair_type(None, int) is None


# --- in a graph ------------------------------------------------------------------------------


def output_types(stream, env) -> list[str | None]:
    stream.print()
    return [v.output_type for v in env.execute("job").vertices[:-1]]


def test_types_travel_along_the_stream():
    env = StreamEnvironment()
    stream = env.from_collection(["a"]).filter(bool).map(length).key_by(lambda n: n)

    assert output_types(stream.union(stream), env) == ["str", "str", "int", "int", "int"]


def test_an_aggregation_with_known_key_and_value_has_a_pair_type():
    env = StreamEnvironment()
    clicks = env.from_collection([Click("a")]).key_by(ByUser())

    assert output_types(clicks.count(), env)[-1] == "tuple[str, int]"


def test_the_union_of_different_types_is_unknown():
    env = StreamEnvironment()
    stream = env.from_collection(["a"]).union(env.from_collection([1]))

    assert output_types(stream, env) == ["str", "int", None]


def test_the_known_type_is_a_payload():
    env = StreamEnvironment()
    output_types(env.from_collection(["a"]).map(length).uid("lengths"), env)

    assert env.payloads["lengths/output_type"] is int


def test_a_wrong_chain_names_both_vertices_and_types():
    env = StreamEnvironment()
    env.from_collection([1]).uid("numbers").process(Split()).uid("split").print()

    with pytest.raises(GraphError) as caught:
        env.execute("job")

    (problem,) = caught.value.facts["problems"]
    for word in ("'numbers'", "int", "'split'", "str"):
        assert word in problem


def test_a_key_selector_of_another_type_is_a_wrong_chain():
    env = StreamEnvironment()
    env.from_collection([1]).key_by(ByUser()).count().print()

    with pytest.raises(GraphError):
        env.execute("job")
