"""Schemas of declared types, what changes between two of them, and reading by the older one."""

import datetime as dt
import enum
import json
import uuid
from collections import Counter, deque
from dataclasses import dataclass, field, make_dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.layouts.state import UNTYPED, OperatorStateMetadata
from bicycle_runtime.state.values.codecs import ValueCodec
from bicycle_runtime.state.values.schema_changes import compare, compare_keys
from bicycle_runtime.state.values.schema_registry import SchemaRegistry, plain_value
from bicycle_runtime.state.values.schemas import describe, describe_key, is_same, words
from bicycle_runtime.state.values.state_metadata import DeclaredState, evolve
from bicycle_sdk import Aliases


class Color(enum.Enum):
    RED = "r"
    BLUE = "b"


class MoreColors(enum.Enum):
    BLUE = "b"
    GREEN = "g"
    RED = "r"


@dataclass
class Point:
    x: int
    y: float = 0.5


class Row(NamedTuple):
    name: str
    at: dt.datetime
    tags: set[str] = frozenset()


class Told(TypedDict):
    text: str
    note: NotRequired[int]


class Item(msgspec.Struct, array_like=True, tag="item"):
    price: Decimal
    sizes: tuple[int, ...] = ()


@dataclass
class Tree:
    value: int
    children: list["Tree"] = field(default_factory=list)


@dataclass
class WiderTree:
    value: float
    children: list["WiderTree"] = field(default_factory=list)
    note: str = "-"


def rebuilt(old_type, new_type, value, *, old_version=1, new_version=1, hook=None):
    """Return a value that was written with one type as it is read with another."""
    old = DeclaredState(name="s", kind="value", schema=describe(old_type), version=old_version)
    new = DeclaredState(
        name="s", kind="value", schema=describe(new_type), version=new_version,
        migrates=hook is not None,
    )  # fmt: skip
    stored, _ = evolve("op", None, [old])
    sealed = json.loads(msgspec.json.encode(stored))  # as a manifest has it
    known, changes = evolve("op", msgspec.convert(sealed, OperatorStateMetadata), [new])
    assert [change.verdict for change in changes] in (["kept"], ["migrated"]), changes
    written = ValueCodec(old_type).encode_list([value])
    codec = SchemaRegistry("op", known).open(new, new_type, hook).codec
    (found,) = codec.decode_list(written)
    assert codec.decode_list(codec.encode_list([found])) == [found]
    # Values of both forms stand in one file.
    mixed = msgspec.msgpack.encode(
        [
            *msgspec.msgpack.decode(written, type=list[msgspec.Raw]),
            *msgspec.msgpack.decode(codec.encode_list([found]), type=list[msgspec.Raw]),
        ]
    )
    assert codec.decode_list(mixed) == [found, found]
    return found


# --- descriptions ----------------------------------------------------------------------------


def test_a_schema_is_json_and_names_fields_types_and_defaults():
    schema = describe(dict[str, Point])

    assert json.loads(json.dumps(schema)) == schema
    assert schema["values"]["fields"] == [
        {"name": "x", "type": "int"},
        {"name": "y", "type": "float", "is_optional": True, "default": 0.5},
    ]


@pytest.mark.parametrize(
    "declared", [None, Any, list, dict[str, Any], Counter[str], deque[int], list[object], "Point"]
)
def test_what_only_a_pickle_can_hold_is_untyped(declared):
    assert describe(declared) == UNTYPED
    assert not ValueCodec(declared).is_typed


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        (int | None, "int | None"),
        (tuple[int, ...], "tuple[int, ...]"),
        (Literal["a", "b"], "Literal['a', 'b']"),
        (Color, "Color('r', 'b')"),
        (Row, "Row(name: str, at: datetime, tags: set[str] = [])"),
        (Told, "Told(note: int = …, text: str)"),
        (Tree, "Tree(value: int, children: list[itself] = [])"),
        (frozenset[uuid.UUID], "frozenset[uuid]"),
    ],
)
def test_a_schema_reads_as_a_person_writes_the_type(declared, text):
    assert words(describe(declared)) == text


def test_names_of_classes_make_no_difference_but_for_keys():
    other = make_dataclass("Elsewhere", [("x", int), ("y", float, 1.5)], namespace={})

    assert is_same(describe(Point), describe(other))
    assert not is_same(describe_key(Point), describe_key(other))


# --- changes ---------------------------------------------------------------------------------


@dataclass
class Closed:
    x: int


class OldRow(msgspec.Struct, omit_defaults=True):
    a: int = 1
    b: int = 2


class NewRow(msgspec.Struct, omit_defaults=True):
    a: int = 10
    b: int = 2


@dataclass
class Renamed:
    left: Annotated[int, Aliases("x")]
    y: float = 0.5


@dataclass
class RenamedByMetadata:
    left: int = field(metadata={"aliases": ["x"]})
    y: float = 0.5


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    bone: int


class WiderDog(msgspec.Struct, tag="Dog"):
    name: Annotated[float, Aliases("bone")]


@pytest.mark.parametrize(
    ("old", "new", "before", "after"),
    [
        (int, float, 3, 3.0),
        (list[int], list[float], [1, 2], [1.0, 2.0]),
        (dict[str, int], dict[str, float], {"a": 1}, {"a": 1.0}),
        (tuple[int, str], tuple[float, str | None], (1, "a"), (1.0, "a")),
        (int, int | None, 3, 3),
        (str, str | list[int], "a", "a"),
        (str | None, int | str | None, None, None),
        (Color, MoreColors, Color.RED, MoreColors.RED),
        (Literal["a"], Literal["a", "b"], "a", "a"),
        (Literal["a"], str, "a", "a"),
        (Closed, Point, Closed(1), Point(1, 0.5)),
        (Point, Closed, Point(1, 2.0), Closed(1)),
        (Point, Renamed, Point(1, 2.0), Renamed(1, 2.0)),
        (Point, RenamedByMetadata, Point(1, 2.0), RenamedByMetadata(1, 2.0)),
        (list[Point], list[Renamed] | None, [Point(1)], [Renamed(1)]),
        (dict[str, Point], dict[str, Renamed], {"a": Point(1)}, {"a": Renamed(1)}),
        (tuple[Point, int], tuple[Renamed, int], (Point(1), 1), (Renamed(1), 1)),
        (Tree, WiderTree, Tree(1, [Tree(2)]), WiderTree(1.0, [WiderTree(2.0)])),
        (OldRow, NewRow, OldRow(), NewRow(a=1, b=2)),
        (Cat | Dog, Cat | WiderDog, Dog(3), WiderDog(3.0)),
        (Cat | Dog, Cat | WiderDog, Cat(9), Cat(9)),
        (int, None, 3, 3),
        (tuple[int, set[str]], None, (1, {"a"}), (1, {"a"})),
        (None, Point, Point(1), Point(1)),
        (Item, Item | None, Item(Decimal("1.5"), (1, 2)), Item(Decimal("1.5"), (1, 2))),
    ],
)
def test_a_compatible_change_is_really_read(old, new, before, after):
    found = rebuilt(old, new, before)

    assert found == after
    assert type(found) is type(after)


class Shorter(NamedTuple):
    at: dt.datetime
    name: str


class Longer(NamedTuple):
    note: str = "new"
    name: str = ""
    tags: set[str] = frozenset()
    at: dt.datetime | None = None
    end: tuple[int, ...] = ()


@pytest.mark.parametrize("new", [Shorter, Longer])
def test_a_row_is_read_by_names(new):
    at = dt.datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=dt.UTC)
    found = rebuilt(Row, new, Row("ada", at, {"x"}))

    assert (found.name, found.at) == ("ada", at)
    assert getattr(found, "tags", {"x"}) == {"x"}


@dataclass
class Required:
    x: int
    z: int


class Strict(TypedDict):
    text: str
    note: int


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (str, int, "it was str and is int"),
        (float, int, "it was float and is int"),
        (int | None, int, "it was int | None and is int"),
        (list[int], set[int], "it was list[int] and is set[int]"),
        (tuple[int, int], tuple[int], "it was tuple[int, int] and is tuple[int]"),
        (MoreColors, Color, "it was MoreColors('b', 'g', 'r') and is Color('r', 'b')"),
        (Point, Required, "field 'z' was added without a default"),
        (Told, Strict, "field 'note' was optional and is now required"),
        (Point, dict[str, int], "it was Point(x: int, y: float = 0.5) and is dict[str, int]"),
        (Point, None, "it was Point(x: int, y: float = 0.5) and no longer has a declared type"),
    ],
)
def test_a_change_that_could_mean_anything_is_a_problem(old, new, problem):
    assert compare(describe(old), describe(new)).problems == (problem,)


def test_the_way_back_from_an_added_field_is_open_and_from_a_renamed_one_is_not():
    assert compare(describe(Point), describe(Closed)).changes == ("field 'y' was removed",)
    assert compare(describe(Renamed), describe(Point)).problems == (
        "field 'x' was added without a default",
    )


@pytest.mark.parametrize(
    ("old", "new", "is_fine"),
    [
        (str, str, True),
        (int, float, True),
        (str, str | None, True),
        (None, str, True),
        (str, int, False),
        (Point, Point, True),
        (Point, Closed, False),
        (Color, MoreColors, False),
        (tuple[int, str], tuple[int, str], True),
        (tuple[int, str], tuple[str, int], False),
    ],
)
def test_keys_may_only_change_where_their_bytes_stay(old, new, is_fine):
    assert (not compare_keys(describe_key(old), describe_key(new)).problems) is is_fine


# --- values ----------------------------------------------------------------------------------


def test_a_hook_sees_plain_data_whatever_the_class_was():
    at = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
    seen = []

    def hook(version, value):
        seen.append((version, value))
        return 1

    rebuilt(Row, int, Row("ada", at, {"x"}), new_version=2, hook=hook)

    assert seen[0] == (1, {"name": "ada", "at": at, "tags": {"x"}})


SCALARS = {
    int: st.integers(-(2**63), 2**63),
    float: st.floats(allow_nan=False),
    str: st.text(),
    bool: st.booleans(),
    bytes: st.binary(),
    Decimal: st.decimals(allow_nan=False),
    uuid.UUID: st.uuids(),
    dt.date: st.dates(),
    dt.timedelta: st.timedeltas(dt.timedelta(0), dt.timedelta(days=900)),
}


@st.composite
def typed_values(draw, depth=2):  # noqa: PLR0911  # one return for each kind
    """Draw a type and a value of it."""
    kind = draw(st.sampled_from(["scalar", "list", "dict", "tuple", "set", "record", "optional"]))
    if kind == "scalar" or depth == 0:
        declared = draw(st.sampled_from(list(SCALARS)))
        return declared, draw(SCALARS[declared])
    inner, value = draw(typed_values(depth=depth - 1))
    match kind:
        case "list":
            return list[inner], [value]
        case "dict":
            return dict[str, inner], {draw(st.text(max_size=3)): value}
        case "tuple":
            return tuple[inner, int], (value, draw(st.integers(0, 9)))
        case "set":
            return set[int], draw(st.sets(st.integers(0, 9)))
        case "optional":
            return inner | None, draw(st.sampled_from([value, None]))
        case _:
            cls = make_dataclass("Drawn", [("a", inner), ("b", int, 7)], namespace={})
            return cls, cls(value)


@given(typed_values())
def test_what_has_a_schema_is_plain_data_without_its_class(typed):
    declared, value = typed
    raw = msgspec.msgpack.decode(msgspec.msgpack.encode(value))

    assert as_plain(value) == plain_value(describe(declared), raw)


@given(typed_values())
def test_a_record_that_got_a_field_is_read_with_all_that_it_had(typed):
    declared, value = typed
    old = make_dataclass("Old", [("kept", declared), ("gone", int)], namespace={})
    new = make_dataclass("New", [("added", str, "x"), ("kept", declared, None)], namespace={})

    assert rebuilt(old, new, old(value, 1)) == new("x", value)


def as_plain(value):
    if hasattr(value, "__dataclass_fields__"):
        return {name: as_plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, list | tuple | set):
        return type(value)(map(as_plain, value))
    return (
        {key: as_plain(part) for key, part in value.items()} if isinstance(value, dict) else value
    )


def test_one_value_that_the_type_cannot_hold_makes_no_pickles_of_the_others():
    @dataclass
    class Special(Point):
        pass

    data = ValueCodec(Point).encode_list([Point(1), Special(2), Point(3)])
    found = msgspec.msgpack.decode(data)

    assert (found[0], found[2]) == ({"x": 1, "y": 0.5}, {"x": 3, "y": 0.5})
    assert isinstance(found[1], msgspec.msgpack.Ext)
