"""Windows as jobs have them: floats, dicts, a filter in front, a key and a value that are computed.

Each job is there twice: ``windows_NAME`` with plain functions, which the runtime may read, and
``windows_NAME_called`` with the same ones as objects, which it must call for each reading.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmark_jobs import FolderParams

from bicycle_sdk import StreamEnvironment, bicycle_plugin, file_sink
from bicycle_sdk.windows import Average, Count, Sum

__all__ = ["KINDS", "Kind", "Measured"]

_WINDOW_MS = 10_000
_LOW = 2.5


@dataclass(slots=True)
class Measured:
    """What a sensor saw, as a number with two decimals."""

    sensor: str
    at: int
    value: float


class Called:
    """A function that nobody can read, so that it is called for each record.

    Args:
        function: The function.
    """

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, record: Any) -> Any:
        return self.function(record)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One way to write the job, and what comes out of a reading in plain Python.

    Args:
        text: What it is.
        record_type: Of the readings; None for dicts.
        at: The time of a record.
        key: Its key.
        value: What is summed up.
        keeps: Lets records through; None for all.
        truth: Key and value of a sensor, time and value; None where it is left out.
        is_read: Whether the runtime can read all functions; one that it cannot is called.
    """

    text: str
    record_type: Any
    at: Callable[[Any], Any]
    key: Callable[[Any], Any]
    value: Callable[[Any], Any]
    truth: Callable[[str, int, float], tuple[str, float] | None]
    keeps: Callable[[Any], Any] | None = None
    is_read: bool = True


def _whole(sensor: str, _: int, value: float) -> tuple[str, float]:
    return sensor, value


def _at(reading: Measured) -> int:
    return reading.at


def _sensor(reading: Measured) -> str:
    return reading.sensor


def _value(reading: Measured) -> float:
    return reading.value


def _with_a_loop(reading: Measured) -> float:
    found = 0.0
    for part in (reading.value, 1.0):
        found += part
    return found


KINDS: Mapping[str, Kind] = {
    "floats": Kind(
        text="floats", record_type=Measured, at=_at, key=_sensor, value=_value, truth=_whole
    ),
    "dicts": Kind(
        text="dicts of floats",
        record_type=None,
        at=lambda reading: reading["at"],
        key=lambda reading: reading["sensor"],
        value=lambda reading: reading["value"],
        truth=_whole,
    ),
    "filtered": Kind(
        text="a filter in front",
        record_type=Measured,
        at=_at,
        key=_sensor,
        value=_value,
        keeps=lambda reading: reading.value >= _LOW,
        truth=lambda sensor, _, value: (sensor, value) if value >= _LOW else None,
    ),
    "keyed": Kind(
        text="a key that is computed",
        record_type=Measured,
        at=_at,
        key=lambda reading: f"{reading.sensor}/{reading.at // 1000 % 2}",
        value=_value,
        truth=lambda sensor, at, value: (f"{sensor}/{at // 1000 % 2}", value),
    ),
    "computed": Kind(
        text="a value that is computed",
        record_type=Measured,
        at=_at,
        key=_sensor,
        value=lambda reading: round(reading.value * 1.8 + 32, 1),
        truth=lambda sensor, _, value: (sensor, round(value * 1.8 + 32, 1)),
    ),
    "looping": Kind(
        text="a function that computes with a loop",
        record_type=Measured,
        at=_at,
        key=_sensor,
        value=_with_a_loop,
        truth=lambda sensor, _, value: (sensor, value + 1.0),
        is_read=False,
    ),
}


def _plugin(kind: Kind, wrapped: Callable[[Any], Any]) -> Callable[..., None]:
    def build(env: StreamEnvironment, params: FolderParams) -> None:
        readings = env.read_jsonl(params.input, type=kind.record_type).uid("readings")
        if kind.keeps is not None:
            readings = readings.filter(wrapped(kind.keeps)).uid("kept")
        timed = readings.assign_timestamps(wrapped(kind.at)).uid("times")
        windows = timed.key_by(wrapped(kind.key)).uid("keys").tumbling_window(_WINDOW_MS)
        value = wrapped(kind.value)
        results = windows.aggregate(Count(), Sum(value), Average(value)).uid("windows")
        results.sink_to(file_sink(params.output)).uid("out")

    return build


def _same(function: Any) -> Any:
    return function


for _name, _kind in KINDS.items():
    for _suffix, _wrapped in (("", _same), ("_called", Called)):
        _full = f"windows_{_name}{_suffix}"
        globals()[_full] = bicycle_plugin(name=_full, version="1")(_plugin(_kind, _wrapped))
