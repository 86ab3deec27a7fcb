"""Addresses of streams: what is one, what it means, and what is said of what is none."""

import pytest

from bicycle_streams import StreamerUri, StreamKey, StreamKeyError, StreamUrl
from bicycle_streams.errors import StreamUrlError


@pytest.mark.parametrize(
    ("text", "protocol", "nodes", "keys"),
    [
        (
            "kafka://node-a:1234,node-b:1234/a,b",
            "kafka",
            ("node-a:1234", "node-b:1234"),
            ["a", "b"],
        ),
        ("redis://localhost/a,b", "redis", ("localhost",), ["a", "b"]),
        ("redis://localhost/", "redis", ("localhost",), []),
        ("redis://a,,redis://b/k", "redis", ("a", "b"), ["k"]),
        ("stdio:///a,b", "stdio", ("",), ["a", "b"]),
        ("stdio:///", "stdio", ("",), []),
        ("file://./path/to/file/a,,b", "file", ("./path/to/file",), ["a", "b"]),
        ("file:///tmp/events.ss/a", "file", ("/tmp/events.ss",), ["a"]),
        ("WS://localhost:1/a", "ws", ("localhost:1",), ["a"]),
        ("localhost/a", None, ("localhost",), ["a"]),
    ],
)
def test_an_address_of_streams_is_read_and_written(text, protocol, nodes, keys):
    url = StreamUrl.parse(text)

    assert (url.streamer.protocol, url.streamer.nodes) == (protocol, nodes)
    assert list(url.stream_keys) == keys
    assert StreamUrl.parse(str(url)) == url


@pytest.mark.parametrize(
    ("text", "protocol", "nodes"),
    [
        ("kafka://a:1,b:2", "kafka", ("a:1", "b:2")),
        ("kafka://a:1,kafka://b:2/", "kafka", ("a:1", "b:2")),
        ("stdio://", "stdio", ("",)),
        ("stdio:///", "stdio", ("",)),
        ("file://./events.ss", "file", ("./events.ss",)),
        ("localhost", None, ("localhost",)),
    ],
)
def test_an_address_of_a_streamer_needs_no_slash(text, protocol, nodes):
    uri = StreamerUri.parse(text)

    assert (uri.protocol, uri.nodes) == (protocol, nodes)
    assert StreamerUri.parse(str(uri)) == uri


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("redis://localhost", "BIC-2602"),
        ("localhost", "BIC-2602"),
        ("/key", "BIC-2603"),
        ("://localhost/key", "BIC-2603"),
        ("", "BIC-2604"),
        (",,/key", "BIC-2604"),
        ("redis:///key", "BIC-2604"),
        ("file:///key", "BIC-2604"),
        ("kafka://a,redis://b/key", "BIC-2606"),
        ("9p://host/key", "BIC-2601"),
        ("proto://host/stream?", "BIC-2607"),
    ],
)
def test_a_wrong_address_of_streams_is_told(text, code):
    with pytest.raises((StreamUrlError, StreamKeyError)) as caught:
        StreamUrl.parse(text)

    assert caught.value.code == code


@pytest.mark.parametrize(("text", "code"), [("", "BIC-2604"), ("redis://", "BIC-2604")])
def test_an_address_without_a_node_is_told(text, code):
    with pytest.raises(StreamUrlError) as caught:
        StreamerUri.parse(text)

    assert caught.value.code == code


def test_an_address_gives_its_only_stream():
    assert StreamUrl.parse("redis://localhost/a").stream_key == "a"


@pytest.mark.parametrize(("text", "count"), [("redis://h/", 0), ("redis://h/a,b", 2)])
def test_an_address_with_none_or_several_has_no_only_stream(text, count):
    with pytest.raises(StreamUrlError) as caught:
        _ = StreamUrl.parse(text).stream_key

    assert (caught.value.code, caught.value.facts["key_count"]) == ("BIC-2605", count)


@pytest.mark.parametrize("name", ["a", "A.b_c-1", "x" * 249])
def test_a_key_is_a_text(name):
    assert StreamKey(name) == name


@pytest.mark.parametrize("name", ["", "x" * 250, "a b", "a/b", "é", "a?", "a\n"])
def test_what_no_key_can_be_is_told(name):
    with pytest.raises(StreamKeyError) as caught:
        StreamKey(name)

    assert caught.value.facts["key"] == name
