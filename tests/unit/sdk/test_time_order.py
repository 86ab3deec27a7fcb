"""Which functions can see records in the order of event time, and what others are told."""

from datetime import timedelta

import pytest

from bicycle_sdk import (
    AsyncFunction,
    BroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
    RichAsyncFunction,
    StreamEnvironment,
)
from bicycle_sdk.errors import StreamDefinitionError


class Keyed(KeyedProcessFunction[str, str, str]):
    def process_element(self, value, ctx):
        return [value]


class Plain(ProcessFunction[str, str]):
    def process_element(self, value, ctx):
        return [value]


class Rich(RichAsyncFunction[str, str]):
    def process(self, value, ctx):
        return [value]


class Stateless(AsyncFunction[str, str]):
    def process(self, value, ctx):
        return [value]


class Two(KeyedCoProcessFunction[str, str, str, str]):
    def process_element1(self, value, ctx):
        return [value]

    process_element2 = process_element1


class Rules(BroadcastProcessFunction[str, str, str]):
    def process_element(self, value, ctx):
        return [value]

    process_broadcast_element = process_element


def pair(left, right):
    return (left, right)


def streams():
    env = StreamEnvironment()
    words = env.from_collection(["a", "b"]).assign_timestamps(lambda word: 0)
    return words, words.key_by(lambda word: word)


ORDERED = {
    "keyed": lambda words, keyed: keyed.process_fn(Keyed()),
    "plain with a key": lambda words, keyed: keyed.process_fn(Plain()),
    "rich": lambda words, keyed: keyed.process_rich(Rich()),
    "two": lambda words, keyed: keyed.connect(keyed).process(Two()),
    "table": lambda words, keyed: keyed.table_join(keyed, pair),
}
REFUSED = {
    "no function": (lambda words, keyed: words.map(lambda word: word), "not a function with state"),
    "stateless": (lambda words, keyed: keyed.process(Stateless()), "not a function with state"),
    "no key": (lambda words, keyed: words.process_fn(Plain()), "has no key"),
    "in flight": (
        lambda words, keyed: keyed.process_ordered(
            Rich(), timeout=timedelta(seconds=1), capacity=2
        ),
        "calls in flight",
    ),
    "broadcast": (
        lambda words, keyed: keyed.connect(words.broadcast()).process(Rules()),
        "broadcast stream",
    ),
    "joins": (
        lambda words, keyed: keyed.interval_join(keyed, 0, 1, pair),
        "already follow event time",
    ),
}


@pytest.mark.parametrize("name", ORDERED)
def test_keyed_functions_can_be_in_order(name):
    words, keyed = streams()

    stream = ORDERED[name](words, keyed).in_event_time_order().uid("f")

    stream.print()
    assert stream._vertex.details["in_event_time_order"] is True


@pytest.mark.parametrize("name", REFUSED)
def test_others_are_refused_with_the_reason(name):
    make, problem = REFUSED[name]

    with pytest.raises(StreamDefinitionError) as caught:
        make(*streams()).in_event_time_order()

    assert caught.value.facts["call"] == "in_event_time_order"
    assert problem in caught.value.facts["problem"]
