"""Classes that no process can import are the same classes after they went by value."""

import dataclasses
import enum
import pickle
import subprocess
import sys
import typing
from dataclasses import KW_ONLY, dataclass, field, make_dataclass
from typing import Any, ClassVar, NamedTuple, NewType, TypedDict

import msgspec
import pytest

from bicycle_runtime.extraction.imports import ImportSearch
from bicycle_runtime.extraction.pickling import PayloadWriter
from bicycle_runtime.records.by_value import pickle_by_value
from bicycle_runtime.testing import Harness

FACTOR = 10


def written(value: Any) -> bytes:
    return PayloadWriter(ImportSearch()).write_all({"v/type": value})["v/type"].data


WRITERS = [pickle_by_value, written]

_CHILD = """
import pickle, sys
load = pickle.load(sys.stdin.buffer)
value, check = pickle.loads(load[0]), pickle.loads(load[1])
sys.stdout.buffer.write(pickle.dumps(check(value)))
"""


def in_another_process(write: Any, value: Any, check: Any) -> Any:
    """Load a value where it was never known, and return what a check finds there."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD],
        input=pickle.dumps((write(value), pickle_by_value(check))),
        stdout=subprocess.PIPE,
        check=True,
    )
    return pickle.loads(done.stdout)


def decode(cls: Any, text: bytes) -> Any:
    try:
        return repr(msgspec.json.decode(text, type=cls)).rpartition(".")[2]
    except msgspec.ValidationError as error:
        return str(error)


def record_types() -> dict[str, Any]:
    @dataclass
    class Plain:
        a: int
        tags: list[str] = field(default_factory=list)

    @dataclass
    class Keywords:
        a: int
        _: KW_ONLY
        b: int
        limit: ClassVar[int] = 3

    @dataclass(slots=True, frozen=True)
    class Slots:
        a: int
        b: int = 7

    class Named(NamedTuple):
        a: int
        b: str = "x"

    class Keyed(TypedDict, total=False):
        a: typing.Required[int]
        b: str

    class Struct(msgspec.Struct, frozen=True, rename="camel", kw_only=True, tag="s"):
        a: int
        some_list: list[int] = msgspec.field(default_factory=list)
        limit: ClassVar[int] = 3

        def __post_init__(self) -> None:
            if self.a < 0:
                raise ValueError("below zero")

    made = make_dataclass("Made", [("a", int)])
    kinds = (Plain, Keywords, Slots, made, Named, Keyed, Struct)
    return {cls.__name__: cls for cls in kinds}


@pytest.mark.parametrize("write", WRITERS)
def test_a_record_type_keeps_its_fields_and_defaults(write):
    texts = [b"{}", b"[]", b"[1]", b'{"a":1}', b'{"a":1,"b":2}', b'{"a":-1,"type":"s"}']

    def check(loaded: dict[str, Any]) -> dict[str, Any]:
        return {name: [decode(cls, text) for text in texts] for name, cls in loaded.items()}

    assert in_another_process(write, record_types(), check) == check(record_types())


def test_annotations_travel_also_where_a_name_is_undefined():
    # Python 3.14 leaves annotations uncomputed, as the import of ``annotations`` does before.
    lazy = "" if sys.version_info >= (3, 14) else "from __future__ import annotations\n"
    space: dict[str, Any] = {"__name__": "lost"}
    exec(f"{lazy}class Node:\n    size: int\n    next: Missing | None", space)

    found = in_another_process(pickle_by_value, space["Node"], lambda cls: cls.__annotations__)

    assert found == {"size": "int", "next": "Missing | None"}


def test_a_line_without_a_required_field_is_refused_in_another_process():
    @dataclass
    class Order:
        a: int

    found = in_another_process(pickle_by_value, Order, lambda cls: decode(cls, b"{}"))

    assert found == "Object missing required field `a`"


@pytest.mark.parametrize("write", WRITERS)
def test_each_object_gets_a_list_from_its_default_factory(write):
    @dataclass
    class Basket:
        items: list[str] = field(default_factory=list)

    def check(loaded: Any) -> Any:
        first, second = (msgspec.json.decode(b"{}", type=loaded) for _ in range(2))
        first.items.append("x")
        return first.items, second.items, loaded().items

    assert in_another_process(write, Basket, check) == (["x"], [], [])


def test_markers_of_dataclasses_are_the_markers_of_the_process():
    markers = [dataclasses.MISSING, dataclasses.KW_ONLY, dataclasses._HAS_DEFAULT_FACTORY]

    for write in WRITERS:
        loaded = pickle.loads(write(markers))
        assert all(found is marker for found, marker in zip(loaded, markers, strict=True))


def enums() -> dict[str, Any]:
    class Color(enum.Enum):
        RED = 1
        CRIMSON = 1
        BLUE = 2

    class Access(enum.Flag):
        READ = 1
        WRITE = 2
        BOTH = 3
        LOOK = 1

    class Bits(enum.IntFlag, boundary=enum.KEEP):
        A = 1
        HIGH = 12

    class Name(enum.StrEnum):
        X = "x"
        SAME = "x"

    class Coordinate(bytes, enum.Enum):
        def __new__(cls, value: int, label: str) -> "Coordinate":
            made = bytes.__new__(cls, [value])
            made._value_ = value
            made.label = label
            return made

        def __repr__(self) -> str:
            return f"{self.label} {bytes(self)!r}"

        X = (0, "x axis")
        Y = (1, "y axis")

    class Planet(enum.Enum):
        def __init__(self, mass: int, radius: int) -> None:
            self.mass, self.radius = mass, radius

        @classmethod
        def _missing_(cls, value: object) -> "Planet":
            return cls.EARTH

        @property
        def ratio(self) -> float:
            return self.mass / self.radius

        EARTH = (1, 2)

    functional = enum.Enum("Functional", "A B")
    kinds = (Color, Access, Bits, Name, Coordinate, Planet, functional)
    return {cls.__name__: cls for cls in kinds}


def facts_of_enum(cls: Any) -> Any:
    members = cls.__members__
    return (
        [repr(member) for member in cls],
        {key: (repr(member), member.value) for key, member in members.items()},
        [repr(cls(member.value)) for member in members.values()],
        [getattr(member, "ratio", None) for member in members.values()],
        [getattr(member, "label", None) for member in members.values()],
        repr(~cls.READ | cls.READ) if "READ" in members else None,
        repr(cls(9)) if "HIGH" in members else None,
    )


@pytest.mark.parametrize("write", WRITERS)
def test_an_enum_keeps_its_members_and_their_attributes(write):
    def check(loaded: dict[str, Any]) -> dict[str, Any]:
        return {name: facts_of_enum(cls) for name, cls in loaded.items()}

    assert in_another_process(write, enums(), check) == check(enums())


@pytest.mark.parametrize("name", enums())
def test_a_member_is_loaded_as_itself_where_it_was_defined(name):
    for member in enums()[name].__members__.values():
        assert pickle.loads(pickle_by_value(member)) is member


def test_a_type_made_by_newtype_in_a_function_goes_by_value():
    identity = NewType("identity", int)

    for write in WRITERS:
        loaded = pickle.loads(write(identity))
        assert (loaded.__name__, loaded.__supertype__) == ("identity", int)


def test_loading_leaves_a_class_of_this_process_unchanged():
    class Scale:
        calls: ClassVar[list[int]] = []

        def of(self, value: int) -> int:
            return value * FACTOR

    method = Scale.of
    first, second = pickle_by_value(Scale()), pickle_by_value(Scale)
    Scale.calls.append(1)

    assert type(pickle.loads(first)) is pickle.loads(second) is Scale
    assert Scale.of is method
    assert Scale.calls == [1]


def test_a_class_loaded_twice_is_made_once():
    def check(data: bytes) -> Any:
        first = pickle.loads(data)
        first.total = 5
        return pickle.loads(data) is first, first.total

    class Tally:
        total = 0

    data = pickle_by_value(Tally)

    assert in_another_process(pickle_by_value, data, check) == (True, 5)


def test_a_second_run_sees_a_changed_constant_of_the_module(monkeypatch):
    class Scale:
        def map(self, value: int) -> int:
            return value * FACTOR

    method = Scale.map

    def run() -> list[int]:
        def job(env: Any) -> None:
            env.from_collection([1, 2]).map(Scale().map).collect("out")

        with Harness(job) as harness:
            harness.run()
            return harness.results("out")

    assert run() == [10, 20]
    monkeypatch.setitem(globals(), "FACTOR", 100)

    assert run() == [100, 200]
    assert Scale.map is method


def test_records_of_equal_classes_of_two_jobs_are_kept_apart():
    def harness() -> tuple[Any, Harness]:
        @dataclass
        class Point:
            x: int

        def job(env: Any) -> None:
            env.from_collection([1]).map(Point).collect("out")

        return Point, Harness(job)

    (first_class, first), (second_class, second) = harness(), harness()
    with first, second:
        first.run()
        second.run()

        assert first.results("out") == [first_class(1)]
        assert second.results("out") == [second_class(1)]
