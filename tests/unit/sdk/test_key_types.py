"""Keys whose own equality is not that of their encoding are not supported, with the reason."""

import dataclasses
import datetime
import enum
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest

from bicycle_runtime.testing import Harness
from bicycle_sdk import StreamEnvironment
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.key_types import declared_key_problem, key_problem

BERLIN = ZoneInfo("Europe/Berlin")
NIGHT = datetime.datetime(2025, 10, 26, 2, 0, tzinfo=BERLIN)


class Folded(str):
    __slots__ = ()

    def __eq__(self, other):
        return self.lower() == other.lower()

    def __hash__(self):
        return hash(self.lower())


class Word(str):
    __slots__ = ()


class Slow(str):
    __slots__ = ()

    def __hash__(self):
        return super().__hash__()


class Odd(str):
    __slots__ = ()

    def __hash__(self):
        return 7


class Color(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


class Pair(NamedTuple):
    left: str
    right: int


@dataclass(frozen=True)
class Point:
    x: int
    label: str = dataclasses.field(default="", compare=False)


@dataclass(frozen=True, eq=False)
class Identity:
    x: int


@dataclass(frozen=True)
class Rounded:
    x: float

    def __eq__(self, other):
        return round(self.x) == round(other.x)

    def __hash__(self):
        return hash(round(self.x))


@dataclass(frozen=True, eq=False)
class Wider(Point):
    y: int = 0


ACCEPTED = [
    None, True, 1, 1.5, "ada", b"ada", Decimal("1.5"), uuid.UUID(int=1), Word("ada"),
    Slow("ada"), enum.StrEnum("Size", ["S"]).S, enum.IntFlag("Right", ["READ"]).READ,
    datetime.date(2026, 1, 1), datetime.datetime(2026, 1, 1, fold=1),  # noqa: DTZ001  # a time without a zone is the case
    datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    datetime.datetime(2026, 1, 1, tzinfo=ZoneInfo("UTC")),
    datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=2))),
    Color.RED, Level.LOW, Pair("a", 1), Point(1), ("ada", (1, Point(1))), frozenset({1}),
]  # fmt: skip
REFUSED = [
    (Folded("Ada"), "Folded", "its class defines __eq__"),
    (Odd("ada"), "Odd", "it equals a str, but has another hash"),
    (Identity(1), "Identity", "compares by identity (eq=False)"),
    (Rounded(1.2), "Rounded", "its class defines __eq__"),
    (Wider(1, "", 2), "Wider", "its __eq__ is inherited from Point, which compares fewer fields"),
    (NIGHT, "datetime", "time zone Europe/Berlin occur twice"),
    (("a", (1, Identity(1))), "Identity", "compares by identity"),
    (frozenset({Folded("a")}), "Folded", "its class defines __eq__"),
    (dataclasses.make_dataclass("Holder", ["at"], frozen=True)(NIGHT), "datetime", "Berlin"),
]


@pytest.mark.parametrize("key", ACCEPTED, ids=repr)
def test_a_key_that_compares_as_its_encoding_is_accepted(key):
    assert key_problem(key) is None
    assert declared_key_problem(type(key)) is None


@pytest.mark.parametrize(("key", "name", "reason"), REFUSED, ids=lambda part: repr(part)[:40])
def test_a_key_that_compares_otherwise_is_refused(key, name, reason):
    found = key_problem(key)

    assert found is not None
    assert found.type_name == name
    assert reason in found.reason


@pytest.mark.parametrize(
    "declared", [Folded, Identity, Rounded, Wider, tuple[str, Identity], Identity | None]
)
def test_an_annotated_key_type_is_refused_when_the_stream_is_defined(declared):
    def select(value):
        return value

    select.__annotations__["return"] = declared
    stream = StreamEnvironment().from_collection([1])

    with pytest.raises(StreamDefinitionError) as caught:
        stream.key_by(select)

    assert "are not supported" in caught.value.facts["problem"]


def counts(keys, parallelism):
    def job(env):
        env.from_collection(range(len(keys))).key_by(keys.__getitem__).count().collect("out")

    with Harness(job, parallelism=parallelism) as harness:
        harness.run()
        return sorted((repr(key), count) for key, count in harness.results("out"))


@pytest.mark.parametrize(
    "keys",
    [
        [NIGHT.astimezone(datetime.UTC), NIGHT.replace(fold=1).astimezone(datetime.UTC)] * 2,
        [Point(1, "a"), Point(1, "b"), Point(2)],
        [1, True, 1.0, Decimal(1), 2],
        [Color.RED, Level.LOW, 1, Pair("a", 1), ("a", 1)],
    ],
)
def test_groups_do_not_depend_on_the_parallelism(keys):
    numbers = [[count for _, count in counts(keys, parallelism)] for parallelism in (1, 2, 7)]

    assert sorted(numbers[0]) == sorted(numbers[1]) == sorted(numbers[2])


@pytest.mark.parametrize(
    "keys",
    [
        [NIGHT, NIGHT.replace(fold=1)],
        [Folded("Ada"), Folded("ada")],
        [Odd("ada"), Odd("ada")],
        [Identity(1), Identity(1)],
        [Rounded(1.1), Rounded(1.2)],
    ],
)
@pytest.mark.parametrize("parallelism", [1, 4])
def test_records_with_refused_keys_follow_the_policy_of_the_operator(keys, parallelism):
    def job(env):
        records = env.from_collection(range(3))
        keyed = records.key_by(lambda n: keys[n] if n < len(keys) else "good")
        keyed.on_error("skip").count().collect("out")

    with Harness(job, parallelism=parallelism) as harness:
        harness.run()
        assert harness.results("out") == [("good", 1)]
