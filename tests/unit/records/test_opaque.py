"""Encoded values are read without running code: plain data comes out, the rest stays shut."""

import os
import pickle
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import NamedTuple

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.records.codecs import AnyCodec, pickle_any
from bicycle_runtime.records.opaque import Opaque, decode_unloaded, is_pickled
from bicycle_runtime.records.readable import readable

CODEC = AnyCodec()
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec=None), max_size=5)
    | st.binary(max_size=5)
)
KEYS = SCALARS | st.tuples(SCALARS, SCALARS) | st.frozensets(SCALARS, max_size=2)
TIMES = (
    st.dates()
    | st.times()
    | st.datetimes()
    | st.datetimes(timezones=st.just(UTC))
    | st.timedeltas()
    | st.decimals(allow_nan=False)
    | st.uuids()
)
ITEMS = KEYS | TIMES
LISTS = st.lists(ITEMS, max_size=3)
VALUES = (
    ITEMS
    | LISTS
    | st.dictionaries(KEYS, ITEMS | LISTS, max_size=3)
    | st.sets(KEYS, max_size=3)
    | st.tuples(LISTS, ITEMS)
)


class Color(Enum):
    RED = 1


@dataclass(frozen=True)
class Point:
    x: int


class Pair(NamedTuple):
    one: int
    other: int


class Trap:
    """Makes a folder when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@given(st.lists(VALUES, max_size=4))
def test_plain_data_is_read_as_it_was_written(values):
    assert decode_unloaded(CODEC.encode_list(values)) == values


@given(VALUES)
def test_plain_data_is_read_from_pickles_that_refer_back(value):
    assert decode_unloaded(extension(pickle.dumps([value, value], protocol=5))) == [[value, value]]


@pytest.mark.parametrize(
    ("value", "type_name"),
    [
        (Color.RED, f"{__name__}.Color"),
        (Point(1), f"{__name__}.Point"),
        (Pair(1, 2), f"{__name__}.Pair"),
        ([Point(1), Point(2)], f"list with {__name__}.Point"),
        ({"a": Point(1)}, f"dict with {__name__}.Point"),
        (print, "builtins.print"),
        (lambda: 1, "a class or function that was shipped by value"),
    ],
    ids=["enum", "dataclass", "named tuple", "list", "dict", "builtin", "lambda"],
)
def test_what_only_code_can_load_tells_its_type(value, type_name):
    [found] = decode_unloaded(CODEC.encode_list([value]))

    assert type(found) is Opaque
    assert found.type_name == type_name
    assert is_pickled(CODEC.encode_list([value]))


def test_nothing_is_called_that_a_pickle_names(tmp_path):
    [found] = decode_unloaded(CODEC.encode_list([Trap(str(tmp_path / "made"))]))

    assert found.type_name.endswith(".mkdir")
    assert list(tmp_path.iterdir()) == []


def test_a_pickle_that_is_cut_anywhere_stays_shut():
    data = pickle.dumps([date(2026, 1, 1), uuid.UUID(int=1), Decimal(1), {"a": (1,)}], protocol=5)

    for size in range(len(data)):
        assert type(decode_unloaded(extension(data[:size]))[0]) is Opaque


@given(st.binary(max_size=40))
def test_bytes_that_are_no_pickle_are_kept(data):
    [found] = decode_unloaded(extension(data))

    assert type(found) is not Opaque or found.data == data


def extension(data):
    """Return a MessagePack array of one extension of the code of pickles."""
    return b"\x91\xc9" + len(data).to_bytes(4, "big") + b"\x01" + data


def test_a_value_shown_for_people_is_json_whatever_it_is():
    nested = (1.5, {"a": b"\xff"}, {1: "x"}, {2, 1}, Pair(1, 2), Point(3), Color.RED, float("nan"))

    assert readable(nested) == [
        1.5,
        {"a": {"$bytes": "ff"}},
        {"$map": [[1, "x"]]},
        [1, 2],
        {"one": 1, "other": 2},
        {"x": 3},
        "RED",
        "nan",
    ]
    moments = [date(2026, 1, 2), datetime(2026, 1, 2, tzinfo=UTC), time(3), timedelta(days=1)]
    assert readable(moments) == [
        "2026-01-02", "2026-01-02T00:00:00+00:00", "03:00:00", "1 day, 0:00:00",
    ]  # fmt: skip
    assert readable([Decimal("1.50"), uuid.UUID(int=1), "\ud800", UTC]) == [
        "1.50",
        "00000000-0000-0000-0000-000000000001",
        "\\ud800",
        "UTC",
    ]


def test_what_is_opaque_is_shown_by_type_and_size_or_as_the_caller_likes():
    value = [Opaque("shop.Basket", b"12345")]

    assert readable(value) == [{"$opaque": "shop.Basket", "bytes": 5, "crc32": "cbf53a1c"}]
    assert readable(value, lambda opaque: opaque.type_name) == ["shop.Basket"]


def test_a_value_that_holds_itself_is_shown_to_some_depth():
    endless: list = []
    endless.append(endless)

    assert "$opaque" in str(readable(endless))


def test_a_class_shipped_by_value_is_opaque_too():
    local = type("Local", (), {})

    [found] = decode_unloaded(extension(pickle_any(local())))
    assert found.type_name == "a class or function that was shipped by value"
    assert cloudpickle.loads(found.data) is not None
