"""Maps and filters over JSON lines write the same bytes on columns as record by record."""

import copy
import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bicycle_runtime.connectors.files.decoding import field_decoder, json_decoder
from bicycle_runtime.connectors.lines import LineBlock, json_lines
from bicycle_runtime.expressions.evaluation import evaluate, mask_of
from bicycle_runtime.expressions.function_reading import read
from bicycle_runtime.expressions.mapping import mapped
from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.frames.vectors import Refused
from tests.examples import examples

NAMES = ["n", "t", "other", "ß", "a b", 'quoted"']


def sets_new_fields(record):
    record["double"] = record["n"] * 2
    record["is_large"] = record["double"] > 10
    return record


def sets_known_fields(record):
    record["t"] = record["n"]
    record["n"] = 7
    return record


def sets_both(record):
    record["more"] = record["n"]
    record["n"] = record["t"]
    return record


def merges(record):
    return record | {"n": 1, "ß": record["n"]}


def unpacks(record):
    return {**record, "t": record["t"], "last": None}


def copies(record):
    return {**record}


MAPS = [sets_new_fields, sets_known_fields, sets_both, merges, unpacks, copies]


def keeps_some(record):
    return record["t"] != "dropped"


VALUES = st.recursive(
    st.one_of(
        st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False),
        st.booleans(), st.none(), st.just("dropped"),
        st.text(st.sampled_from('a"\\/\n\r\t\x01{}:, ß\u2028😀'), max_size=5),
    ),
    lambda parts: st.lists(parts, max_size=2) | st.dictionaries(st.sampled_from(NAMES), parts),
    max_leaves=4,
)  # fmt: skip


@st.composite
def alike(draw):
    """Return lines of documents that mostly have the same fields, as other programs write them."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=4).map(lambda n: [*n, "n"]))
    names = list(dict.fromkeys([*names, "t"]))
    kinds = {name: draw(st.sampled_from([VALUES, st.integers(0, 9)])) for name in names}
    documents = draw(
        st.lists(st.fixed_dictionaries({name: kinds[name] for name in names}), min_size=1)
    )
    lines = [
        json.dumps(
            document, ensure_ascii=draw(st.booleans()),
            separators=draw(st.sampled_from([(",", ":"), (",", ":"), (", ", ": ")])),
        ).encode()
        for document in documents
    ]  # fmt: skip
    return lines


ODD = st.sampled_from([
    b"", b" ", b"[1]", b"7", b"{}", b'{"n":1}', b'{"n":1,"t":"a","n":2}', b'{"t":1,"n":2}',
    b'{"n":1e3,"t":-0}', b'{"n":1.50,"t":"\\u0061"}', b'{"n":1,"t":"\xff"}', b'{"n":1,"t":2',
    b'{"n":1,"t":2} {"n":1,"t":2}', b"\xef\xbb\xbf{}", b'{"n":1,"t":{"b":1,"b":2}}',
])  # fmt: skip


@st.composite
def blocks(draw):
    lines = draw(alike())
    for line in draw(st.just([]) | st.lists(ODD, max_size=2)):
        lines.insert(draw(st.integers(0, len(lines))), line)
    data = draw(st.sampled_from([b"\n", b"\n", b"\r\n"])).join(lines)
    data += draw(st.sampled_from([b"\n", b""]))
    return data


def on_records(function, data):
    """Return the bytes that calls of the functions write, or the type of their error."""
    decoded = json_decoder(Any)(LineBlock(0, data, len(data)))
    try:
        found = [each for each in map(function, list(decoded.values)) if keeps_some(each)]
    except Exception as error:  # noqa: BLE001 - whatever a function raises
        return type(error)
    return json_lines(found)


def on_columns(function, data):
    """Return the records that the expressions of the functions leave.

    Raises:
        Refused: the functions must be called.
    """
    updated = mapped(read(function, may_change=True), _decoded(data))
    return updated.take(mask_of(evaluate(read(keeps_some), updated)))


def _decoded(data):
    decoded = field_decoder(Any)(LineBlock(0, data, len(data)))
    if not isinstance(decoded.values, Frame):
        raise Refused
    return decoded.values


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from(MAPS), blocks())
@example(sets_both, b'{"n":1,"t":"a"}\n{"n":2,"t":"dropped"}\n')
@example(merges, b'{"n":1,"t":"a"}\r\n{"n": 2, "t": "b"}')
def test_the_same_bytes_are_written(function, data):
    expected = on_records(function, data)

    try:
        found = on_columns(function, data)
    except Refused:
        return

    assert json_lines(found) == expected


@pytest.mark.parametrize("function", MAPS)
def test_fields_that_no_function_reads_stay_in_their_rows(function, monkeypatch):
    data = b"".join(b'{"n":%d,"t":"x","list":[1,{"a":2}]}\n' % n for n in range(9))
    monkeypatch.setattr(Frame, "records", None)

    found = on_columns(function, data)

    assert "list" not in found._vectors
    assert len(found) == 9
    assert json_lines(found) == on_records(function, data)


def test_a_map_of_documents_with_one_field():
    data = b'{"n":1}\n{"n":2}\n'

    found = mapped(read(lambda record: {**record, "n": record["n"] + 1}), _decoded(data))
    kept = mapped(read(lambda record: {**record}), _decoded(data))

    assert json_lines(found) == b'{"n":2}\n{"n":3}\n'
    assert json_lines(kept) == data


@pytest.mark.parametrize("function", MAPS)
def test_records_and_columns_of_changed_documents(function):
    data = b"".join(b'{"n":%d,"t":"x","list":[%d]}\n' % (n, n) for n in range(3))
    found = on_columns(function, data)
    expected = [json.loads(line) for line in on_records(function, data).splitlines()]

    twice = mapped(read(lambda record: {**record, "n": record["n"], "new": 1}), found)
    copied = found.copy()

    assert found.records == expected
    assert [found.form.names, found.field("list").items] == [tuple(expected[0]), [[0], [1], [2]]]
    assert twice.records == [{**each, "new": 1} for each in copy.deepcopy(expected)]
    for each in copied:
        each["list"].append("changed")
    assert found.records == expected
