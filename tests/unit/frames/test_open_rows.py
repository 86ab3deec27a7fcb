"""Rows of documents without a declared type: values are what they are in dicts, to the type."""

import json

import msgspec
import pytest

from bicycle_runtime.frames.rows import OpenRows


def decoded(rows, *documents):
    """Return the rows, as dicts, and what is known of their types."""
    raws = [json.dumps(document).encode() for document in documents]
    found = rows.like(raws[0])
    made = found.decode(lambda decoder: list(map(decoder.decode, raws)))
    getters = {name: found.getter(name) for name in documents[0]}
    shown = [{name: getter(row) for name, getter in getters.items()} for row in made]
    return shown, dict(found.kinds(made))


DOCUMENT = {"n": 1, "text": "a", "is_on": True, "share": 0.5, "none": None, "list": [1]}


def test_types_are_known_where_a_value_of_another_one_is_none_of_them():
    shown, kinds = decoded(OpenRows(), DOCUMENT, DOCUMENT | {"n": 2**70, "share": 2})

    assert shown == [DOCUMENT, DOCUMENT | {"n": 2**70, "share": 2}]
    assert type(shown[1]["share"]) is int
    assert kinds == {"n": int, "text": str, "is_on": bool}


@pytest.mark.parametrize("other", [{"n": 1.0}, {"n": True}, {"text": None}, {"is_on": 1}])
def test_a_value_of_another_type_stays_what_it_is(other):
    rows = OpenRows()

    shown, kinds = decoded(rows, DOCUMENT, DOCUMENT | other)

    assert repr(shown) == repr([DOCUMENT, DOCUMENT | other])
    assert kinds == {}
    assert decoded(rows, DOCUMENT) == ([DOCUMENT], {})  # So it may be again.


def test_a_field_that_one_lacks_has_no_value_there():
    shown, kinds = decoded(OpenRows(), {"a": 1, "b": "x"}, {"a": 2})

    assert shown == [{"a": 1, "b": "x"}, {"a": 2, "b": msgspec.UNSET}]
    assert kinds == {}


def test_what_cannot_be_decoded_changes_nothing():
    rows = OpenRows()

    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        decoded(rows, {"a": 1}, {"b": 1})

    assert decoded(rows, {"a": 1}) == ([{"a": 1}], {"a": int})
