"""Keys as bytes: equality, order, and the values that pin the checkpoint format."""

import dataclasses
import datetime
import enum
import uuid
import zoneinfo
from decimal import Decimal

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.records.errors import KeyEncodingError
from bicycle_runtime.records.keys import (
    GroupCache,
    KeyBytes,
    encode_key,
    key_group,
    part_order,
    range_of,
    task_of,
)

UTC = datetime.UTC


class Colour(enum.Enum):
    RED = 1


class Number(enum.IntEnum):
    ONE = 1


@dataclasses.dataclass(frozen=True)
class Place:
    city: str
    zip_code: int
    note: str = dataclasses.field(default="", compare=False)


# Bytes and key group (of 128) of one key of each type. They are in checkpoints: never change them.
GOLDEN = {
    None: ("01", 27),
    "ada": ("0361646100", 49),
    "": ("0300", 60),
    "a\x00b": ("036100ff6200", 56),
    b"ada": ("0261646100", 1),
    0: ("54", 96),
    1: ("5501", 120),
    255: ("55ff", 99),
    256: ("560100", 81),
    -1: ("53fe", 115),
    1.5: ("21bff8000000000000", 123),
    -1.5: ("214007ffffffffffff", 14),
    ("ada", 1): ("050361646100550100", 120),
    (): ("0500", 58),
    Colour.RED: ("3003656e756d0003436f6c6f757200035245440000", 47),
    datetime.date(2026, 11, 21): ("3003646174650003323032362d31312d32310000", 34),
    uuid.UUID(int=7): (
        "300375756964000200ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff070000",
        122,
    ),
}
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**500), 2**500), st.text(), st.binary(),
    st.floats(allow_nan=False), st.decimals(allow_nan=False),
    st.datetimes(), st.dates(), st.uuids(),
)  # fmt: skip
keys = st.recursive(
    scalars, lambda inner: st.tuples(inner, inner) | st.frozensets(inner), max_leaves=5
)


@given(keys, keys)
def test_equal_keys_have_equal_bytes_and_others_different_ones(one, other):
    assert (encode_key(one) == encode_key(other)) == (one == other)


@given(st.integers(-(2**100), 2**100))
def test_numbers_of_equal_value_have_equal_bytes(number):
    same = [Decimal(number)] + ([float(number)] if float(number) == number else [])

    assert {encode_key(number)} == {encode_key(other) for other in same}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, Number.ONE),
        (0.0, -0.0),
        (0.5, Decimal("0.50")),
        (Decimal("1E+3"), 1000),
        (Decimal("0.1"), Decimal("0.10")),
        (1e300, 1e300),
        (("a", 1), ("a", 1.0)),
        (Place("Rome", 1), Place("Rome", 1, note="no part of its equality")),
        (
            datetime.datetime(2026, 1, 1, 12, tzinfo=UTC),
            datetime.datetime(
                2026, 1, 1, 13, tzinfo=datetime.timezone(datetime.timedelta(hours=1))
            ),
        ),
        (frozenset("abc"), frozenset("cba")),
    ],
)
def test_what_python_holds_for_equal_is_one_key(one, other):
    assert one == other
    assert encode_key(one) == encode_key(other)


@pytest.mark.parametrize(
    "strategy",
    [st.text(), st.binary(), st.integers(-(2**500), 2**500), st.tuples(st.text(), st.integers())],
    ids=["text", "bytes", "int", "tuple"],
)
def test_bytes_sort_as_the_keys_do(strategy):
    @given(strategy, strategy)
    def check(one, other):
        assert (encode_key(one) < encode_key(other)) == (one < other)

    check()


@pytest.mark.parametrize(
    "key", [float("nan"), Decimal("nan"), object(), [1], {"a": 1}, 2**600, -(2**600), ("a", [1])]
)
def test_a_key_without_a_stable_encoding_is_refused(key):
    with pytest.raises(KeyEncodingError):
        encode_key(key)


@pytest.mark.parametrize("key", GOLDEN, ids=repr)
def test_the_encoding_never_changes(key):
    assert encode_key(key).hex() == GOLDEN[key][0]


@pytest.mark.parametrize("key", GOLDEN, ids=repr)
def test_the_key_group_never_changes(key):
    assert key_group(encode_key(key), group_count=128) == GOLDEN[key][1]


@given(st.integers(1, 300), st.integers(1, 300))
def test_every_group_has_one_owner_and_ranges_differ_by_at_most_one(group_count, parallelism):
    parallelism = min(parallelism, group_count)
    ranges = [
        range_of(task, group_count=group_count, parallelism=parallelism)
        for task in range(parallelism)
    ]

    assert [group for owned in ranges for group in owned] == list(range(group_count))
    assert max(map(len, ranges)) - min(map(len, ranges)) <= 1
    for task, owned in enumerate(ranges):
        for group in owned:
            assert task_of(group, group_count=group_count, parallelism=parallelism) == task


@given(st.lists(keys, max_size=20))
def test_the_cache_gives_what_the_mapping_gives(some):
    groups = GroupCache(128)

    for key in some + some:
        assert groups[key] == key_group(encode_key(key), group_count=128)


plain = st.one_of(st.integers(-(2**80), 2**80), st.text(max_size=3), st.binary(max_size=3))


@given(
    st.sampled_from([int, str, bytes, tuple[int, int], tuple[str, int], tuple[int, ...], None]),
    st.lists(plain | st.tuples(plain) | st.tuples(plain, plain) | keys, max_size=8),
)
def test_keys_of_a_declared_type_and_others_among_them_are_in_the_order_of_their_bytes(
    key_type, some
):
    place, parts = part_order(key_type)
    found = parts(sorted(map(place, some)))

    assert list(map(encode_key, found)) == sorted(map(encode_key, some))


def test_what_cannot_be_a_key_is_refused_whatever_type_was_declared():
    for key_type in (int, tuple[int, int], None):
        with pytest.raises(KeyEncodingError, match="list"):
            part_order(key_type).sort_key([1])


@given(st.lists(keys, max_size=20))
def test_bytes_of_keys_that_come_again_are_those_of_the_first_time(some):
    known = KeyBytes()

    for key in some + some:
        assert known[key] == encode_key(key)


@pytest.mark.parametrize(
    ("key", "name", "call"),
    [
        (numpy.bool_(True), "numpy.bool", "bool(key)"),
        (numpy.int64(1), "numpy.int64", "int(key)"),
        (numpy.datetime64("2026-01-01"), "numpy.datetime64", "key.item()"),
    ],
)
def test_a_scalar_of_numpy_is_refused_with_the_call_that_converts_it(key, name, call):
    with pytest.raises(KeyEncodingError) as caught:
        encode_key(key)

    assert caught.value.facts["type_name"].rstrip("_") == name
    assert caught.value.facts["reason"].endswith(f"convert it with {call}")


def test_keys_of_records_are_refused_where_keys_of_state_are_not():
    class Folded(str):
        __slots__ = ()

        def __eq__(self, other):
            return self.lower() == other.lower()

        __hash__ = str.__hash__

    with pytest.raises(KeyEncodingError) as caught:
        GroupCache(128, of_records=True)[("a", Folded("b"))]

    assert caught.value.facts["type_name"].endswith("Folded")
    assert GroupCache(128)[Folded("ada")] == 49


@pytest.mark.parametrize("wrap", [lambda time: time, lambda time: (time, "a")])
def test_a_time_of_a_refused_zone_is_refused_also_after_an_equal_one(wrap):
    noon = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
    groups = GroupCache(128, of_records=True)

    assert (
        groups[wrap(noon)]
        == groups[wrap(noon)]
        == key_group(encode_key(wrap(noon)), group_count=128)
    )
    with pytest.raises(KeyEncodingError):
        groups[wrap(noon.astimezone(zoneinfo.ZoneInfo("Europe/Berlin")))]
