"""Durations and sizes as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.base.quantities import parse_duration_ms, parse_size_bytes


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
