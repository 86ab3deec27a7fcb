"""Whatever is declared, what arrives is what was sent: equal, and of one type at every depth."""

import collections
import dataclasses
import datetime
import decimal
import enum
import functools
import typing
import uuid
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.records.codecs import RecordCodec, codec_name_of, same_bytes
from bicycle_runtime.records.exactness import fit_of, once_a_type
from bicycle_runtime.state.values.codecs import ValueCodec

UTC, SUMMER = datetime.UTC, datetime.timezone(datetime.timedelta(hours=2))
LOCAL = datetime.datetime(2020, 1, 1)  # noqa: DTZ001  # a time of nowhere
BIG = 2**53 + 1
Part = typing.TypeVar("Part")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Text(str):
    __slots__ = ()


class Pair(NamedTuple):
    left: int
    right: Any = None


class Triple(Pair):
    """A named tuple with room for more."""


Loose = collections.namedtuple("Loose", "a b")  # its parts have no types


class Row(TypedDict):
    name: str
    amount: float
    note: NotRequired[str]


@dataclasses.dataclass
class Point:
    x: int
    label: str = ""


@dataclasses.dataclass
class Point3(Point):
    z: int = 0


@dataclasses.dataclass
class Held:
    point: Point
    weight: float = 0.0
    rest: Any = None


@dataclasses.dataclass(frozen=True, slots=True)
class Slim:
    at: datetime.datetime
    parts: tuple[int, ...] = ()


@dataclasses.dataclass
class Counted:
    """Counts how often it was made."""

    made: int = 0

    def __post_init__(self):
        self.made += 1


@dataclasses.dataclass
class Tree:
    value: int
    below: list["Tree"] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Cached:
    x: int

    @functools.cached_property
    def double(self):
        return 2 * self.x


@dataclasses.dataclass
class Broken(Exception):
    x: int


@dataclasses.dataclass
class Box(typing.Generic[Part]):
    value: Part


class Fast(msgspec.Struct):
    x: float
    names: list[str] = []


class Open(msgspec.Struct, dict=True, omit_defaults=True):
    x: int = 1


def with_extra(value, **more):
    vars(value).update(more)
    return value


def itself():
    tree = Tree(1)
    tree.below += [tree, tree]
    return tree


def cached():
    value = Cached(2)
    assert value.double == 4
    return value


# What MessagePack keeps when it is told the type …
KEPT: list[tuple[Any, Any]] = [
    (int, 2**63),
    (float, -0.0),
    (float, float("inf")),
    (str, "é\0"),
    (bytearray, bytearray(b"a")),
    (int | str | None, None),
    (int | float, 1.0),
    (int | float, BIG),
    (tuple[str, int], ("a", 1)),
    (tuple[()], ()),
    (tuple[int, ...], (1, 2)),
    (list[tuple[int, ...]], [(1,), ()]),
    (dict[tuple[int, str], list[float]], {(1, "a"): [0.5]}),
    (set[int], {1, 2}),
    (frozenset[str], frozenset({"a"})),
    (Colour, Colour.RED),
    (dict[Size, int], {Size.SMALL: 1}),
    (Rights, Rights.READ),
    (Literal["a", 1], 1),
    (datetime.date, datetime.date(2020, 1, 1)),
    (datetime.datetime, LOCAL.replace(microsecond=4)),
    (datetime.datetime, datetime.datetime(2020, 1, 1, tzinfo=UTC)),
    (datetime.timedelta, datetime.timedelta(days=-3, microseconds=1)),
    (decimal.Decimal, decimal.Decimal("1E+5")),
    (uuid.UUID, uuid.UUID(int=5)),
    (Pair, Pair(1, [2, {"a": None}])),
    (Row, {"name": "a", "amount": 1.0}),
    (Row, {"name": "a", "amount": 1.0, "note": "b"}),
    (Point, Point(1)),
    (Held, Held(Point(1), 1.0, {"deep": [1, 2.0]})),
    (Slim, Slim(datetime.datetime(2020, 1, 1, tzinfo=UTC), (1,))),
    (Tree, Tree(1, [Tree(2), Tree(3, [Tree(4)])])),
    (Box[int], Box(1)),
    (Fast, Fast(1.0, ["a"])),
    (Open, Open(2)),
]
# … and what it would change.
CHANGED: list[tuple[Any, Any]] = [
    (int, 2**64),
    (int, True),
    (float, 1),
    (float, BIG),
    (str, Text("a")),
    (str, "\ud800"),
    (bytes, bytearray(b"a")),
    (tuple[str, float], ("a", 1)),
    (tuple[str, int], ["a", 1]),
    (tuple[str, int], ("a", "b")),
    (tuple[str, int], ("a", 1, 2)),
    (list[float], [1.0, BIG]),
    (list[int], [1, True]),
    (list[str], ["a", Text("b")]),
    (list[tuple[int, int]], [Pair(1, 2)]),
    (dict[str, float], {"a": BIG}),
    (dict[str, int], collections.Counter("aab")),
    (dict[str, int], collections.defaultdict(int, a=1)),
    (dict[str, Any], {"a": (1, 2)}),
    (dict[str, Any], {"a": [{"b": {3}}]}),
    (dict[str, object], {"at": datetime.date(2020, 1, 1)}),
    (dict[str, object], {"size": Size.SMALL}),
    (dict[str, object], {"amount": decimal.Decimal("1.5")}),
    (list[Any] | None, [bytearray(b"a")]),
    (list[Any] | None, [Pair(1)]),
    (collections.abc.Mapping[str, int], collections.OrderedDict(a=1)),
    (collections.abc.Sequence[int], (1, 2)),
    (set[int], frozenset({1})),
    (Colour, "red"),
    (Size, 1),
    (Rights, Rights.READ | Rights.WRITE),
    (Literal["a", 1], True),
    (datetime.date, LOCAL),
    (datetime.datetime, "2020-01-01T00:00:00"),
    (datetime.datetime, datetime.datetime(2020, 1, 1, tzinfo=SUMMER)),
    (datetime.datetime, LOCAL.replace(fold=1)),
    (datetime.time, datetime.time(1, fold=1)),
    (decimal.Decimal, 1),
    (Pair, Pair(1, (2, 3))),
    (Pair, (1, 2)),
    (Pair, with_extra(Triple(1, 2), more=3)),
    (Loose, Loose((1,), {2})),
    (Row, {"name": "a", "amount": 1.0, "more": 2}),
    (Row, {"name": "a", "amount": 1}),
    (Row, {"name": "a"}),
    (Point, Point3(1, z=2)),
    (Point, Point(True)),
    (Point, with_extra(Point(1), more=2)),
    (Held, Held(Point3(1, z=2))),
    (Held, Held(Point(1), 1)),
    (Held, Held(Point(1), 1.0, (1,))),
    (list[Point], [Point(1), Point3(2)]),
    (dict[str, Point], {"a": Point3(1)}),
    (Slim, Slim(datetime.datetime(2020, 1, 1, tzinfo=SUMMER))),
    (Slim, Slim(datetime.datetime(2020, 1, 1, tzinfo=UTC), [1])),
    (Counted, Counted()),
    (list[Counted], [Counted(3)]),
    (Counted | None, Counted()),
    (Tree, Tree(1, [Tree(2, [Tree(True)])])),
    (Cached, cached()),
    (Broken, Broken(1)),
    (Box[int], Box("a")),
    (Fast, Fast(1)),
    (Fast, Fast(1.0, ("a",))),
    (Open, with_extra(Open(), more=1)),
    (Annotated[int, msgspec.Meta(gt=3)], 1),
]


def arrived(codec, value):
    name, data = codec.encode([value])
    return name, codec.decode(name, data)[0]


@pytest.mark.parametrize("pairs", [KEPT, CHANGED], ids=["kept", "changed"])
def test_records_arrive_as_they_were_sent(pairs):
    for declared, value in pairs:
        name, found = arrived(RecordCodec(declared), value)

        assert name == ("typed" if pairs is KEPT else "pickle"), (declared, value)
        assert same_bytes(found) == same_bytes(value), (declared, value)


def test_state_comes_back_as_it_was_put():
    for declared, value in KEPT + CHANGED:
        codec = ValueCodec(declared)
        (found,) = codec.decode_list(codec.encode_list([value]))
        mixed = codec.decode_list(codec.encode_list([value, KEPT[0][1], value]))

        assert same_bytes(found) == same_bytes(value), (declared, value)
        assert same_bytes(mixed) == same_bytes([value, KEPT[0][1], value]), (declared, value)


def test_what_holds_itself_arrives_with_the_same_shape():
    _, tree = arrived(RecordCodec(Tree), itself())
    _, listed = arrived(RecordCodec(list[Any]), (again := [1], again.append(again))[0])

    assert tree.below[0] is tree.below[1] is tree
    assert listed[1] is listed


def test_post_init_is_not_run_again_on_the_way():
    for declared in (Counted, list[Counted], tuple[Counted, int], dict[str, Counted]):
        assert codec_name_of(declared) == "pickle"
    assert codec_name_of(Counted | None) == "typed"
    assert arrived(RecordCodec(Counted), Counted()) == ("pickle", Counted(0))


def test_a_record_that_is_not_exact_does_not_change_those_beside_it():
    values = [Point(1), Point3(2), Point(3)]
    codec = RecordCodec(Point)
    name, data = codec.encode(values)

    assert same_bytes(codec.decode(name, data)) == same_bytes(values)


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**66), 2**66), st.floats(), st.text(max_size=3),
    st.binary(max_size=3), st.binary(max_size=3).map(bytearray), st.text(max_size=3).map(Text),
    st.dates(), st.datetimes(timezones=st.sampled_from([None, UTC, SUMMER])), st.times(),
    st.timedeltas(), st.decimals(), st.uuids(), st.sampled_from(Colour), st.just(Size.SMALL),
    st.sampled_from([Rights.READ, Rights.READ | Rights.WRITE]),
)  # fmt: skip
keys = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=3), st.just(Colour.RED),
    st.tuples(st.integers(), st.text(max_size=2)), st.dates(),
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(keys, inner, max_size=3), st.dictionaries(st.text(), inner, max_size=2),
        st.sets(st.integers(0, 9), max_size=1), st.frozensets(st.text(max_size=1), max_size=1),
        st.builds(Pair, st.integers(), inner), st.builds(Loose, inner, inner),
        st.builds(Point, inner, inner), st.builds(Point3, st.integers(), st.text(), inner),
        st.builds(Held, st.builds(Point, st.integers()) | inner, st.floats() | inner, inner),
        st.builds(Counted, st.integers()), st.builds(Box, inner), st.builds(Fast, st.floats()),
        st.fixed_dictionaries({"name": st.text(), "amount": st.floats() | inner}),
    ),
    max_leaves=5,
)  # fmt: skip
SCALAR_TYPES = [
    int, float, str, bytes, bool, None, bytearray, Any, object, datetime.date, datetime.datetime,
    datetime.time, datetime.timedelta, decimal.Decimal, uuid.UUID, Colour, Size, Rights,
    Literal["a", 1], Pair, Loose, Row, Point, Held, Slim, Counted, Tree, Fast, Box[int],
]  # fmt: skip


def union_of(parts):
    return functools.reduce(lambda one, other: typing.Union[one, other], parts)  # noqa: UP007  # of any number


declared_types = st.recursive(
    st.sampled_from(SCALAR_TYPES),
    lambda inner: st.one_of(
        inner.map(lambda part: list[part]),
        inner.map(lambda part: tuple[part, ...]),
        st.tuples(inner, inner).map(lambda parts: tuple[*parts]),
        inner.map(lambda part: dict[str, part]),
        st.tuples(st.sampled_from(SCALAR_TYPES), inner).map(lambda p: dict[p[0], p[1]]),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: union_of([*parts, None])),
    ),
    max_leaves=4,
)


leaves = st.builds(Tree, st.integers() | st.booleans())
RECORDS = {
    Pair: st.builds(Pair, st.integers(), values),
    Loose: st.builds(Loose, values, values),
    Row: st.fixed_dictionaries({"name": st.text(), "amount": st.floats() | scalars}),
    Point: st.builds(Point, st.integers(), st.text() | scalars),
    Held: st.builds(Held, st.builds(Point, st.integers()), st.floats() | scalars, values),
    Slim: st.builds(Slim, st.datetimes(timezones=st.sampled_from([UTC, SUMMER]))),
    Counted: st.builds(Counted, st.integers()),
    Tree: st.builds(Tree, st.integers(), st.lists(leaves, max_size=2)),
    Fast: st.builds(Fast, st.floats() | scalars, st.lists(st.text() | scalars, max_size=2)),
    Box[int]: st.builds(Box, st.integers() | scalars),
}


def value_of(declared):
    """Values of a type, and now and then others in some place of them."""
    return st.one_of(of_type(declared), values)


def of_type(declared):  # noqa: PLR0911  # one return for each kind of type
    origin, arguments = typing.get_origin(declared), typing.get_args(declared)
    if declared in (Any, object):
        return values
    if declared is None or declared is type(None):
        return st.none()
    if origin is list:
        return st.lists(value_of(arguments[0]), max_size=3)
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(value_of(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(value_of, arguments))
    if origin is dict:
        return st.dictionaries(st.text(max_size=3) | keys, value_of(arguments[1]), max_size=3)
    if origin is typing.Union:
        return st.one_of(*map(value_of, arguments))
    if origin is Literal:
        return st.sampled_from(arguments)
    return RECORDS[declared] if declared in RECORDS else st.from_type(declared)


@given(st.data())
def test_any_value_of_any_type_arrives_as_it_was_sent_and_comes_back_as_it_was_put(data):
    declared = data.draw(declared_types)
    sent = data.draw(st.lists(value_of(declared), max_size=3))
    codec, stored = RecordCodec(declared), ValueCodec(declared)

    name, encoded = codec.encode(sent)
    assert same_bytes(codec.decode(name, encoded)) == same_bytes(sent)
    assert same_bytes(stored.decode_list(stored.encode_list(sent))) == same_bytes(sent)


def test_a_class_that_reads_its_fields_by_code_has_no_exact_values():
    @dataclasses.dataclass
    class Computed:
        x: int

        def __getattribute__(self, name):
            return 1 if name == "x" else super().__getattribute__(name)

    fit = fit_of(Computed)
    assert fit.is_never
    assert fit_of(list[Computed]).holds([[]])


def test_what_follows_from_a_type_is_found_once_and_not_before_all_of_its_names_are_known():
    asked = []

    @once_a_type("unknown")
    def made(declared):
        asked.append(declared)
        if len(asked) == 1:
            raise NameError("Later")
        return len(asked)

    unhashable = Annotated[int, []]
    assert [made(list[int]) for _ in range(3)] == ["unknown", 2, 2]
    assert [made(unhashable) for _ in range(2)] == [3, 4]
    assert made(list[str]) == 5
    assert fit_of(tuple[str, int]) is fit_of(tuple[str, int])
    assert fit_of(Literal[1]).holds([1])
    assert not fit_of(Literal[True]).holds([1])
