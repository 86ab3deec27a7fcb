"""The jobs of the benchmarks, written as a job author would; the word count is our own plugin.

The module is found on the import path of the workers, like that of an installed plugin.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from hashlib import blake2b
from typing import Any

from bicycle_sdk import (
    AsyncFunction,
    Context,
    KeyedProcessContext,
    KeyedProcessFunction,
    StreamEnvironment,
    ValueStateDescriptor,
    bicycle_plugin,
    file_sink,
)
from bicycle_sdk.windows import Average, Count, Sum

__all__ = [
    "AwaitableSplitter",
    "Event",
    "FolderParams",
    "Order",
    "PlainSplitter",
    "Reading",
    "WindowParams",
    "events_as_dicts",
    "events_of_keys",
    "events_typed",
    "keys_counted",
    "profile_of",
    "profiles_kept",
    "readings_by_window",
    "readings_by_window_unfolded",
    "slow_calls",
]

_BOUGHT = ("cart", "buy")


@dataclass(frozen=True, kw_only=True)
class FolderParams:
    """Where a job reads and writes."""

    input: str
    output: str


@dataclass
class Event:
    """What happened in a shop."""

    id: int
    user: str
    kind: str
    cents: int
    quantity: int
    at: int


@dataclass
class Order:
    """What a user pays."""

    id: int
    user: str
    total: int


def is_bought(event: Event) -> bool:
    return event.kind in _BOUGHT


def to_order(event: Event) -> Order:
    return Order(event.id, event.user, event.cents * event.quantity)


@bicycle_plugin(name="events_typed", version="1")
def events_typed(env: StreamEnvironment, params: FolderParams) -> None:
    """Events and orders are dataclasses."""
    events = env.read_jsonl(params.input, type=Event).uid("events")
    orders = events.filter(is_bought).uid("bought").map(to_order).uid("orders")
    orders.sink_to(file_sink(params.output)).uid("out")


def is_bought_dict(event: dict[str, Any]) -> bool:
    return event["kind"] in _BOUGHT


def to_order_dict(event: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": event["id"], "user": event["user"], "total": event["cents"] * event["quantity"],
    }  # fmt: skip


@bicycle_plugin(name="events_as_dicts", version="1")
def events_as_dicts(env: StreamEnvironment, params: FolderParams) -> None:
    """Events and orders are dicts, as in the plain loop."""
    events = env.read_jsonl(params.input).uid("events")
    orders = events.filter(is_bought_dict).uid("bought").map(to_order_dict).uid("orders")
    orders.sink_to(file_sink(params.output)).uid("out")


@dataclass(slots=True)
class Reading:
    """What a sensor saw."""

    sensor: str
    at: int
    value: int


def sensor_of(reading: Reading) -> str:
    return reading.sensor


def time_of(reading: Reading) -> int:
    return reading.at


def value_of(reading: Reading) -> int:
    return reading.value


@dataclass(frozen=True, kw_only=True)
class WindowParams(FolderParams):
    """The same, and how long a window is."""

    window_ms: int = 10_000


@bicycle_plugin(name="readings_by_window", version="1")
def readings_by_window(env: StreamEnvironment, params: WindowParams) -> None:
    """Count, sum and average by sensor and window, up to 5 s out of order."""
    _by_window(env, params, is_folded=True)


@bicycle_plugin(name="readings_by_window_unfolded", version="1")
def readings_by_window_unfolded(env: StreamEnvironment, params: WindowParams) -> None:
    """The same, with every reading sent to the subtask of its sensor."""
    _by_window(env, params, is_folded=False)


def _by_window(env: StreamEnvironment, params: WindowParams, *, is_folded: bool) -> None:
    readings = env.read_jsonl(params.input, type=Reading).uid("readings")
    timed = readings.assign_timestamps(time_of).uid("times")
    windows = timed.key_by(sensor_of).tumbling_window(params.window_ms).pre_combine(is_folded)
    results = windows.aggregate(Count(), Sum(value_of), Average(value_of)).uid("windows")
    results.sink_to(file_sink(params.output)).uid("out")


class CountOfKey(KeyedProcessFunction[str, str, dict[str, Any]]):
    """Counts the events of a key in value state."""

    count = ValueStateDescriptor("count", int, default=0)

    def open(self, ctx: KeyedProcessContext[str]) -> None:
        """Get the state once."""
        self.counted = ctx.get_value_state(self.count)

    def process_element(self, value: str, ctx: KeyedProcessContext[str]) -> list[dict[str, Any]]:  # noqa: ARG002  # contract
        """Give the count so far."""
        count = self.counted.value() + 1
        self.counted.update(count)
        return [{"word": value, "count": count}]


@bicycle_plugin(name="events_of_keys", version="1")
def events_of_keys(env: StreamEnvironment, params: FolderParams) -> None:
    """Each line is a key; each gives how often it has come so far."""
    keys = env.read_text(params.input).uid("lines").key_by(str)
    keys.process_fn(CountOfKey()).uid("count").sink_to(file_sink(params.output)).uid("out")


def is_counted_twice(counted: tuple[str, int]) -> bool:
    return counted[1] > 1


@bicycle_plugin(name="keys_counted", version="1")
def keys_counted(env: StreamEnvironment, params: FolderParams) -> None:
    """Each line is a key; only keys that come again are written."""
    counts = env.read_text(params.input).uid("lines").key_by(str).count().uid("count")
    counts.filter(is_counted_twice).uid("again").sink_to(file_sink(params.output)).uid("out")


def profile_of(user: str) -> str:
    """Return about 100 characters that no compression makes much shorter."""
    return f"{user} {blake2b(user.encode(), digest_size=44).hexdigest()}"


def user_in(profile: str) -> str:
    return profile.partition(" ")[0]


def seen_again(kept: str, _: str) -> str:
    return f"{kept}!"


def is_seen_again(profile: str) -> bool:
    return profile.endswith("!")


@bicycle_plugin(name="profiles_kept", version="1")
def profiles_kept(env: StreamEnvironment, params: FolderParams) -> None:
    """Each line is a user; the first profile of each is kept, and written when she comes again."""
    profiles = env.read_text(params.input).uid("users").map(profile_of).uid("profiles")
    kept = profiles.key_by(user_in).reduce(seen_again).uid("keep")
    out = file_sink(params.output, roll_bytes=1)  # What an epoch writes is visible behind it.
    kept.filter(is_seen_again).uid("again").sink_to(out).uid("out")


class AwaitableSplitter(AsyncFunction[str, str]):
    """A coroutine function that never suspends."""

    async def process(self, value: str, ctx: Context) -> list[str]:  # noqa: ARG002  # contract
        return [value]


class PlainSplitter(AsyncFunction[str, str]):
    """The same, as a plain method."""

    def process(self, value: str, ctx: Context) -> list[str]:  # noqa: ARG002  # contract
        return [value]


class SlowCall(AsyncFunction[str, str]):
    """Waits for 3 s, as for a model."""

    async def process(self, value: str, ctx: Context) -> list[str]:  # noqa: ARG002  # the signature of the base class
        await asyncio.sleep(3)
        return [value]


@bicycle_plugin(name="slow_calls", version="1")
def slow_calls(env: StreamEnvironment, params: FolderParams) -> None:
    """Make a call of 3 s for each line, a thousand at a time."""
    called = env.read_text(params.input).process_ordered(
        SlowCall(), timeout=timedelta(seconds=30), capacity=1_000
    )
    called.sink_to(file_sink(params.output))
