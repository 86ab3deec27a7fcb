"""Equal values give equal bytes, however they were put together, and load as what they were."""

import pickle
import sys
import types

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.extraction.imports import ImportSearch
from bicycle_runtime.extraction.pickling import (
    CANONICAL_OBJECT_COUNT_MAX,
    NotShippableError,
    PayloadWriter,
)

ATOMS = st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.binary(max_size=4)
HASHABLE = st.recursive(
    ATOMS, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=4), max_leaves=8
)
VALUES = st.recursive(
    HASHABLE | st.sets(HASHABLE, max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(HASHABLE, inner, max_size=3),
    max_leaves=10,
)


def write(value):
    return PayloadWriter(ImportSearch()).write(value)


@given(VALUES)
def test_plain_data_loads_as_what_it_was_and_carries_no_code(value):
    written = write(value)

    assert pickle.loads(written.data) == value
    assert written.shipping == "by reference"


@given(st.lists(HASHABLE, max_size=6), st.randoms(use_true_random=False))
def test_the_order_in_which_a_set_was_filled_does_not_show(items, random):
    # True, 1 and 1.0 are one member of a set, and which of them stays is not a matter of order.
    items = [item for item in items if not isinstance(item, bool)]
    shuffled = list(items)
    random.shuffle(shuffled)
    unique = {pickle.dumps(item): item for item in items}
    if len(set(items)) < len(unique):
        return

    assert write(set(items)).data == write(set(shuffled)).data
    assert write(frozenset(items)).data == write(frozenset(shuffled)).data


def test_whether_equal_strings_are_one_object_does_not_show():
    text = "some text"
    copy = "".join(["some", " text"])
    assert text is not copy

    assert write([text, text]).data == write([text, copy]).data
    assert (
        write([b"some bytes"] * 2).data
        == write([b"some bytes", bytes(bytearray(b"some bytes"))]).data
    )


def test_a_set_that_holds_what_refers_to_it_is_written():
    node = types.SimpleNamespace()

    class Node:
        pass

    first, second = Node(), Node()
    first.peers = second.peers = node.all = {first, second}

    loaded = cloudpickle.loads(write(first).data)

    assert loaded in loaded.peers
    assert len(loaded.peers) == 2


def test_large_data_is_written_by_the_fast_pickler_and_loads_as_it_was():
    value = [(number, str(number)) for number in range(CANONICAL_OBJECT_COUNT_MAX)]

    assert pickle.loads(write(value).data) == value


def test_a_large_set_does_not_take_for_ever():
    value = set(range(CANONICAL_OBJECT_COUNT_MAX + 1))

    assert pickle.loads(write(value).data) == value


def test_deeply_nested_functions_are_written():
    def wrap(function):
        return lambda value: function(value) + 1

    function = abs
    for _ in range(20):
        function = wrap(function)

    assert cloudpickle.loads(write(function).data)(-1) == 21


def test_ids_of_classes_come_from_the_content_of_the_whole_job():
    def classes(number):
        return {"a": type("Local", (), {"number": number, "__module__": "nowhere"})}

    def data(payloads):
        return {
            name: one.data
            for name, one in PayloadWriter(ImportSearch()).write_all(payloads).items()
        }

    assert data(classes(1)) == data(classes(1))
    assert data(classes(1)) != data(classes(2))


def test_two_payloads_share_the_classes_they_have_in_common():
    local = type("Local", (), {"__module__": "nowhere"})
    written = PayloadWriter(ImportSearch()).write_all({"a": local, "b": local()})

    cls, instance = cloudpickle.loads(written["a"].data), cloudpickle.loads(written["b"].data)

    assert type(instance) is cls


def test_a_function_keeps_its_file_only_when_it_asks_for_it():
    namespace = {"__name__": "nowhere", "__file__": "/some/place.py"}
    exec("def plain(): return 1\ndef asks(): return __file__", namespace)

    assert b"/some/place.py" not in write(namespace["plain"]).data
    assert cloudpickle.loads(write(namespace["asks"]).data)() == "/some/place.py"


def test_a_module_that_only_this_process_can_import_is_refused():
    search = ImportSearch()
    module = types.ModuleType("conjured")
    exec("def step(value): return value", module.__dict__)
    sys.modules["conjured"] = module
    try:
        with pytest.raises(NotShippableError):
            PayloadWriter(search).write(module.step)
        with pytest.raises(NotShippableError):
            PayloadWriter(search).write(lambda value: module.step(value) + 1)
    finally:
        del sys.modules["conjured"]
