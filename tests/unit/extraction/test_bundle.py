"""A bundle is read as it was written, or not at all."""

from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.extraction.bundle import JobBundle, bundle_digest
from bicycle_runtime.extraction.errors import BUNDLE_UNREADABLE
from bicycle_sdk.environment import StreamEnvironment
from tests.raising import raises

PAYLOADS = st.dictionaries(st.text(max_size=5), st.binary(max_size=20), max_size=4)


def graph_of(name="job"):
    environment = StreamEnvironment()
    environment.from_collection([1]).print()
    return environment.build_graph(name)


def bundle_of(payloads, **changes):
    graph = graph_of()
    fields = {
        "graph": graph,
        "payloads": payloads,
        "shipping": dict.fromkeys(payloads, "by value"),
        "digest": bundle_digest(graph, payloads),
        "plugin": "p",
        "plugin_version": "1",
        "dist": "p 1",
        "sdk_version": "1",
        "python_version": "3.11.7",
    }
    return JobBundle(**{**fields, **changes})


@given(PAYLOADS)
def test_what_is_written_is_read_again(payloads):
    bundle = bundle_of(payloads)

    assert JobBundle.from_bytes(bundle.to_bytes()) == bundle


@given(PAYLOADS, st.data())
def test_a_changed_byte_is_noticed(payloads, data):
    stored = bytearray(bundle_of(payloads).to_bytes())
    position = data.draw(st.integers(0, len(stored) - 1))
    stored[position] ^= data.draw(st.integers(1, 255))

    with raises(BUNDLE_UNREADABLE):
        JobBundle.from_bytes(bytes(stored))


@given(PAYLOADS, st.data())
def test_a_bundle_cut_short_is_noticed(payloads, data):
    stored = bundle_of(payloads).to_bytes()
    size = data.draw(st.integers(0, len(stored) - 1))

    with raises(BUNDLE_UNREADABLE):
        JobBundle.from_bytes(stored[:size])


def test_a_digest_that_is_not_of_its_content_is_noticed():
    with raises(BUNDLE_UNREADABLE):
        JobBundle.from_bytes(bundle_of({"a": b"1"}, digest="0" * 64).to_bytes())


@given(PAYLOADS, PAYLOADS)
def test_the_digest_tells_payloads_apart_whatever_their_borders(left, right):
    graph = graph_of()

    assert (bundle_digest(graph, left) == bundle_digest(graph, right)) == (left == right)


def test_the_digest_depends_on_the_graph_and_not_on_the_order_of_payloads():
    one, two = {"a": b"1", "b": b"2"}, {"b": b"2", "a": b"1"}

    assert bundle_digest(graph_of(), one) == bundle_digest(graph_of(), two)
    assert bundle_digest(graph_of("x"), one) != bundle_digest(graph_of("y"), one)
