"""Records and state values as bytes: whatever the annotation says, what comes back is the same."""

import dataclasses
import enum
import threading
from typing import Any, Literal, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.records.codecs import AnyCodec, RecordCodec, codec_name_of, type_name_of
from bicycle_runtime.records.errors import RECORD_UNENCODABLE, RecordDecodingError
from bicycle_runtime.state.values.codecs import ValueCodec
from tests.raising import raises


class Shout(str):
    __slots__ = ()


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    label: str = ""


@dataclasses.dataclass(frozen=True)
class Point3(Point):
    z: int = 0


class Row(TypedDict):
    name: str


class Colour(enum.Enum):
    RED = 1


plain = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary(),
    st.just("no utf-8: \ud800"),
)  # fmt: skip
anything = st.recursive(
    plain | st.just(Shout("a")) | st.just(Point(1)) | st.just(Point3(1, z=2)) | st.just(Colour.RED),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.sets(st.integers(), max_size=3)
    ),
    max_leaves=6,
)
DECLARED = [None, str, int, float, bool, bytes, tuple[str, int], list[int], Point, Row, int | None]


def exact(value):
    """A value together with its types, all the way down: True is not 1 here."""
    if isinstance(value, list | tuple):
        return type(value), [exact(part) for part in value]
    if isinstance(value, dict):
        return type(value), [(exact(k), exact(v)) for k, v in value.items()]
    return type(value), value


@pytest.mark.parametrize("declared", [None, str, int, float, bool, bytes, Point], ids=type_name_of)
def test_flat_records_come_back_exactly_whatever_is_declared(declared):
    codec = RecordCodec(declared)

    @given(st.lists(plain | st.just(Shout("a")) | st.just(Point3(1, z=2)), max_size=6))
    def check(values):
        name, data = codec.encode(values)
        assert exact(codec.decode(name, data)) == exact(values)

    check()


@given(st.lists(anything, max_size=5))
def test_undeclared_records_come_back_exactly(values):
    codec = RecordCodec(None)
    name, data = codec.encode(values)

    assert exact(codec.decode(name, data)) == exact(values)


@pytest.mark.parametrize(
    ("declared", "values"),
    [
        (str, ["a"]),
        (tuple[str, int], [("a", 1)]),
        (list[int], [[1], []]),
        (Point, [Point(1, "a")]),
        (Row, [{"name": "a"}]),
        (int | None, [1, None]),
        (Literal["a", "b"], ["a"]),
    ],
)
def test_records_of_the_declared_type_are_typed(declared, values):
    codec = RecordCodec(declared)
    name, data = codec.encode(values)

    assert (name, codec.decode(name, data)) == ("typed", values)


@pytest.mark.parametrize("declared", [Any, object, list, dict, tuple, list[Any], "Point", None])
def test_a_type_that_says_nothing_is_not_typed(declared):
    assert codec_name_of(declared) == "pickle"


def test_an_annotation_that_lies_inside_costs_time_and_changes_nothing():
    codec = RecordCodec(tuple[str, int])
    name, data = codec.encode([("a", "not a number")])

    assert (name, codec.decode(name, data)) == ("pickle", [("a", "not a number")])


def test_records_that_are_not_of_the_type_that_reads_them_are_an_error_that_names_it():
    name, data = RecordCodec(tuple[str, str]).encode([("a", "not a number")])

    with pytest.raises(RecordDecodingError) as caught:
        RecordCodec(tuple[str, int]).decode(name, data)
    assert caught.value.facts["declared"] == "tuple[str, int]"


def test_a_record_that_cannot_travel_is_named():
    with raises(RECORD_UNENCODABLE) as caught:
        RecordCodec(None).encode([1, threading.Lock()])

    assert caught.value.facts["type_name"] == "lock"


@given(st.lists(anything, max_size=5))
def test_state_keys_and_values_come_back_exactly(values):
    codec = AnyCodec()

    assert exact(codec.decode_list(codec.encode_list(values))) == exact(values)


pairs = st.tuples(st.text(max_size=2) | st.integers(), st.tuples(st.integers(), st.integers()))


@given(st.lists(pairs, max_size=4) | st.lists(pairs | st.tuples(st.none()) | anything, max_size=4))
def test_many_keys_at_once_have_the_bytes_of_each_by_itself(values):
    codec = AnyCodec()
    found = codec.encode_items(values)

    assert [b"\x91" + bytes(item) for item in found] == [codec.encode_list([v]) for v in values]


@pytest.mark.parametrize("declared", DECLARED, ids=type_name_of)
def test_state_survives_an_annotation_that_lies(declared):
    codec = ValueCodec(declared)

    @given(st.lists(anything, max_size=4))
    def check(values):
        assert exact(codec.decode_list(codec.encode_list(values))) == exact(values)

    check()


@dataclasses.dataclass
class Holder:
    items: list[str]


@dataclasses.dataclass(eq=False)
class Opaque:
    items: list[str]


@pytest.mark.parametrize("cls", [Holder, Opaque])
def test_state_survives_a_field_that_lies(cls):
    codec = ValueCodec(cls)
    (found,) = codec.decode_list(codec.encode_list([cls(items=("a", "b"))]))

    assert exact(found.items) == exact(("a", "b"))


@given(st.lists(st.integers(-(2**70), 2**70) | st.booleans() | st.text(), max_size=6))
def test_values_encoded_by_different_epochs_can_be_read_as_one_list(values):
    import msgspec

    codec = ValueCodec(int)
    parts = [msgspec.Raw(codec.encode_list([value])[1:]) for value in values]
    joined = msgspec.msgpack.encode(parts)

    assert exact(codec.decode_list(joined)) == exact(values)
