"""How classes look whose objects are pickled: what is told of each kind, and what fits what."""

import enum
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import NamedTuple

import pytest

from bicycle_runtime.records.codecs import AnyCodec, ClassNotes, noting_classes
from bicycle_runtime.state.values.pickled import noted_class, shape_of, shapes_here
from bicycle_runtime.state.values.schema_changes import compare
from bicycle_runtime.state.values.schemas import words


class Level(enum.Enum):
    LOW = "low"


@dataclass
class Basket:
    numbers: list[int]
    level: Level = Level.LOW
    tags: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Slim:
    number: int
    note: str = ""


class Row(NamedTuple):
    x: int
    y: float = 0.0


class Plain:
    def __init__(self):
        self.whatever = 1


class Restoring(Plain):
    def __setstate__(self, state):
        self.whatever = state["whatever"]


@dataclass
class Odd:
    number: "Unknown"  # noqa: F821  # Nobody can resolve it.


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (Basket, "Basket(numbers: list[int], level: Level = …, tags: set[str])"),
        (Slim, "Slim(number: int, note: str)"),
        (Row, "Row(x: int, y: float)"),
        (Plain, "Plain()"),
        (Odd, "Odd(number: Unknown)"),
        (Level, "Level('low')"),
    ],
)
def test_a_class_is_shown_with_the_fields_that_it_tells_of(cls, text):
    assert words(shape_of(cls)) == text
    assert compare(shape_of(cls), shape_of(cls)).problems == ()


def test_all_classes_of_what_is_pickled_are_noted_and_the_bytes_stay_as_they_were():
    values = [
        {"a": [Basket([1]), Slim(1), Row(1)]}, Level.LOW, Plain(), Decimal(1), date(2026, 1, 1),
    ]  # fmt: skip
    notes = ClassNotes()
    with noting_classes(notes):
        data = AnyCodec().encode_list(values)

    assert data == AnyCodec().encode_list(values)
    noted = {found.name for cls in notes if (found := noted_class(cls))}
    assert noted == {f"class {__name__}:{c.__name__}" for c in (Basket, Slim, Row, Level, Plain)}
    assert shapes_here(noted) == {
        f"class {__name__}:{c.__name__}": shape_of(c) for c in (Basket, Slim, Row, Level, Plain)
    }


def test_a_class_that_travels_by_value_is_not_noted():
    class Local:
        pass

    unknown = type("Unknown", (), {"__module__": "no_such_module"})
    shadowed = type("Basket", (), {"__module__": __name__})
    notes = ClassNotes()
    with noting_classes(notes):
        AnyCodec().encode_list([each() for each in (Local, unknown, shadowed)])

    assert {Local, unknown, shadowed} <= set(notes)
    assert [noted_class(cls) for cls in (Local, unknown, shadowed)] == [None, None, None]


def test_a_class_that_is_gone_is_left_out():
    assert shapes_here(["class no_such_module:A", f"class {__name__}:Nobody"]) == {}


@pytest.mark.parametrize("cls", [Slim, Row])
def test_what_has_no_dict_gets_no_field_from_its_class(cls):
    new = shape_of(cls)
    old = {**new, "fields": new["fields"][:1]}

    assert len(compare(old, new).problems) == 1


def test_a_class_that_restores_itself_fits_whatever_it_was():
    old = {"type": "object", "name": "Restoring", "fields": [{"name": "gone", "type": "int"}]}

    assert compare(old, shape_of(Restoring)).problems == ()
    assert compare(old, shape_of(Plain)).problems == ("field 'gone' was removed from the class",)
