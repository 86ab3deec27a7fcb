"""Quantities are read and shown as people write them; the facts of errors stay numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.jobs.errors import StalledError
from bicycle_runtime.operators.errors import RUNAWAY_TIMERS
from bicycle_sdk.contexts import WATERMARK_MAX
from bicycle_sdk.quantities import duration_text, moment_text, parse_duration_ms, parse_size_bytes


def test_an_error_shows_durations_and_the_end_of_time_in_words():
    stalled = StalledError(job="j", waited_ms=1_800_000, phase="running", target="epoch 3")
    assert "no progress for 30 min while" in stalled.summary
    assert stalled.to_json()["facts"]["waited_ms"] == 1_800_000

    facts = {"operator": "f", "count": 7, "key": "k", "function": "F", "domain": "event"}
    runaway = RUNAWAY_TIMERS(**facts, time_ms=5, reached_ms=WATERMARK_MAX)
    assert "but that time is already at the end;" in runaway.summary


def test_a_duration_has_no_unit_of_nothing():
    for ms in (1_000, 60_000, 3_600_000, 86_400_000, 7 * 86_400_000):
        assert len(duration_text(ms).split()) == 2
    assert duration_text(90_061_000) == "1 d 1 h"


def test_the_end_of_time_is_no_number():
    assert moment_text(WATERMARK_MAX) == moment_text(WATERMARK_MAX - 1) == "at the end"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("500ms", 500),
        ("30s", 30_000),
        ("5m", 300_000),
        ("1.5 h", 5_400_000),
        ("2d", 172_800_000),
    ],
)
def test_durations_are_milliseconds(text, expected):
    assert parse_duration_ms(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1_000", 1_000), ("64MiB", 64 << 20), ("1GB", 10**9), ("0.5kb", 500), ("7 B", 7)],
)
def test_sizes_are_bytes(text, expected):
    assert parse_size_bytes(text) == expected


@pytest.mark.parametrize(
    "text", ["", "s", "-5s", "5 parsecs", "1M", "1.5 H", "1.2.3s", "1e3", "0.5", "0.0001s"]
)
def test_a_text_that_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        parse_duration_ms(text)


def test_half_a_byte_is_refused():
    with pytest.raises(ValueError, match=r"0\.3kib"):
        parse_size_bytes("0.3kib")


@given(
    st.integers(0, 10**15),
    st.sampled_from([("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)]),
)
def test_a_whole_number_of_a_unit_is_exact(number, unit):
    word, factor = unit

    assert parse_duration_ms(f"{number}{word}") == number * factor
