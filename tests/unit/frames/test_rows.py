"""Rows hold what a record's attributes would show, or there are none."""

import json
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple, NotRequired, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.frames.rows import OpenRows, field_names, plain_fields, row_type_of


@dataclass
class Plain:
    sensor: str
    at: int
    share: float = 0.5
    notes: list[str] = field(default_factory=list)
    rank: Annotated[int, msgspec.Meta(ge=0)] = 0


@dataclass(frozen=True, slots=True)
class Frozen:
    sensor: str
    at: int = 7


class Struct(msgspec.Struct, frozen=True):
    sensor: str
    at: int


class Child(Struct):
    value: int = 3


@pytest.mark.parametrize(
    ("record_type", "fields"),
    [
        (Plain, {"sensor": str, "at": int, "share": float, "rank": int}),
        (Frozen, {"sensor": str, "at": int}),
        (Struct, {"sensor": str, "at": int}),
        (Child, {"sensor": str, "at": int, "value": int}),
    ],
)
def test_plain_types_have_rows(record_type, fields):
    assert plain_fields(record_type) == fields
    row = msgspec.json.decode(b'{"sensor":"a","at":1,"more":[]}', type=row_type_of(record_type))
    record = msgspec.json.decode(b'{"sensor":"a","at":1}', type=record_type)
    assert {name: getattr(row, name) for name in row.__struct_fields__} == {
        name: getattr(record, name) for name in row.__struct_fields__
    }


@dataclass
class Checking:
    at: int

    def __post_init__(self):
        self.at += 1


class CheckingStruct(msgspec.Struct):
    at: int

    def __post_init__(self):
        self.at += 1


class Doubled:
    def __get__(self, record, kind=None):
        return 5 if record is None else record.__dict__["at"] * 2

    def __set__(self, record, value):
        record.__dict__["at"] = value


@dataclass
class Computing:
    at: int = Doubled()


@dataclass
class Intercepting:
    at: int

    def __getattribute__(self, name):
        return 1


@dataclass
class Uninitialised:
    at: int = field(init=False, default=3)


class Renamed(msgspec.Struct, rename="camel"):
    event_time: int


class Tagged(msgspec.Struct, tag="t"):
    at: int


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    at: int


class Listed(msgspec.Struct, array_like=True):
    at: int


class Document(TypedDict):
    at: int
    share: NotRequired[float]
    notes: list[str] | None


class Pair(NamedTuple):
    at: int


@dataclass
class Unresolved:
    at: "NoSuchName"  # noqa: F821  # the point


@pytest.mark.parametrize(
    "record_type",
    [
        Checking, CheckingStruct, Computing, Intercepting, Uninitialised, Renamed, Tagged, Strict,
        Listed, Pair, Unresolved, dict, int, dict[str, int], Plain | None, None,
    ],
)  # fmt: skip
def test_types_that_could_show_something_else_have_none(record_type):
    assert row_type_of(record_type) is None
    assert plain_fields(record_type) == {}


@dataclass
class Defaulted:
    at: int = None
    flag: int = True
    text: str = "none"
    number: int | None = 3


def test_a_default_of_another_type_makes_a_field_no_plain_one():
    assert plain_fields(Defaulted) == {"text": str}


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=3), st.lists(st.text(max_size=2), max_size=2),
)  # fmt: skip
DOCUMENTS = st.dictionaries(
    st.sampled_from(["sensor", "at", "share", "notes", "rank", "other"]), VALUES
)


def decoded(text, kind):
    try:
        found = msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as error:
        return str(error)
    return [getattr(found, name) for name in ("sensor", "at", "share", "notes", "rank")]


@given(document=DOCUMENTS | st.fixed_dictionaries({"sensor": st.text(), "at": st.integers()}))
def test_rows_take_and_refuse_the_documents_that_records_do(document):
    text = json.dumps(document)

    assert decoded(text, row_type_of(Plain)) == decoded(text, Plain)


def test_a_dict_with_declared_fields_has_rows_and_what_it_lacks_shows():
    assert plain_fields(Document) == {"at": int}
    assert field_names(Document) == {"at", "share", "notes"}
    row = msgspec.json.decode(b'{"at":1,"notes":null,"more":2}', type=row_type_of(Document))
    assert (row.at, row.share, row.notes) == (1, msgspec.UNSET, None)
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"at":1.5,"notes":null}', type=row_type_of(Document))


LINES = st.dictionaries(
    st.sampled_from(["a", "b-c", "d e", "ß", 'q"', ""]),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
        lambda parts: st.one_of(st.lists(parts), st.dictionaries(st.text(max_size=2), parts)),
        max_leaves=3,
    ),
)


@given(first=LINES, second=LINES, cut=st.integers(0, 60), noise=st.binary(max_size=3))
def test_rows_of_any_fields_hold_what_dicts_hold(first, second, cut, noise):
    document = json.dumps(second).encode()
    document = document[:cut] + noise + document[cut:]
    found = OpenRows().like(json.dumps(first).encode())
    if found is None:
        return
    getter = found.getter
    try:
        expected = msgspec.json.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError):
        with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
            found.decode(lambda decoder: [decoder.decode(document)])
        return
    try:
        [row] = found.decode(lambda decoder: [decoder.decode(document)])
    except msgspec.ValidationError:
        assert not isinstance(expected, dict) or set(expected) - set(first)
        return
    for name in first:
        assert repr(getter(name)(row)) == repr(expected.get(name, msgspec.UNSET))
    assert getter("other")(row) is msgspec.UNSET


def rows_of(found, text):
    return found.decode(lambda decoder: decoder.decode_lines(text))


ORDERED = st.dictionaries(
    st.sampled_from(["a", "b-c", "d e", "de", "ß"]),
    st.one_of(
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(),
        st.lists(st.text(max_size=2)),
    ),
    min_size=1,
)


@given(
    first=ORDERED,
    others=st.lists(st.tuples(st.integers(0, 3), st.booleans())),
    data=st.data(),
    has_end=st.booleans(),
)
def test_the_names_that_rows_tell_are_those_of_all_dicts_in_their_order(
    first, others, data, has_end
):
    documents = [first]
    for missing, is_mixed in others:
        items = list(first.items())[missing // 3 :]
        documents.append(dict(data.draw(st.permutations(items)) if is_mixed else items))
    how = data.draw(st.sampled_from([{}, {"ensure_ascii": False}, {"separators": (",", ":")}]))
    text = "\n".join(json.dumps(each, **how) for each in documents).encode()
    found = OpenRows().like(json.dumps(first).encode())
    assert found is not None

    names = found.names_in(rows_of(found, text), text + b"\n" * has_end)

    alike = all(tuple(each) == tuple(first) for each in documents)
    assert names in (None, tuple(first))
    assert alike or names is None
    assert found.is_needless == (names is None)


def test_lines_as_programs_write_them_tell_their_names_whatever_spaces_they_have():
    for how in ({}, {"separators": (",", ":")}):
        text = "".join(json.dumps({"a": n, "b": "x y", "c": [1, {"d": 2.5}]}, **how) + "\r\n"
                       for n in range(3)).encode()  # fmt: skip
        rows = OpenRows()
        found = rows.like(text.split(b"\n")[0])

        assert found.names_in(rows_of(found, text), text) == (
            "a",
            "b",
            "c",
        )
        assert rows.like(text.split(b"\n")[0]) is found


def test_rows_are_no_longer_made_where_documents_are_in_another_order():
    rows, text = OpenRows(), b'{"a":1,"b":2}\n{"b":1,"a":2}\n'
    found = rows.like(b'{"a":1,"b":2}')

    assert found.names_in(rows_of(found, text), text) is None
    assert rows.like(b'{"a":1,"b":2}') is None


def test_documents_that_lack_a_field_have_rows_that_tell_no_names():
    rows, text = OpenRows(), b'{"a":1,"b":2}\n{"a":1}\n'
    found = rows.like(b'{"a":1,"b":2}')

    assert [found.getter("b")(row) for row in rows_of(found, text)] == [2, msgspec.UNSET]
    assert found.names_in(rows_of(found, b'{"a":1,"b":2}'), b'{"a":1,"b":2}') is None
    with pytest.raises(msgspec.ValidationError):
        rows_of(found, b'{"a":1,"c":2}')
