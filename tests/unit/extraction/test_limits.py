"""Limits are checked, and read from the forms that options have."""

import pytest

from bicycle_runtime.extraction.limits import ExtractionLimits
from bicycle_sdk.errors import OptionError
from bicycle_sdk.options import from_mapping


@pytest.mark.parametrize(
    "field", ["wall_time_ms", "memory_bytes", "result_bytes", "output_bytes", "output_line_count"]
)
def test_a_limit_of_nothing_is_refused(field):
    with pytest.raises(OptionError) as caught:
        ExtractionLimits(**{field: 0})

    assert caught.value.facts["name"] == field


def test_limits_are_read_from_texts():
    limits = from_mapping(ExtractionLimits, {"wall_time_ms": "5s", "memory_bytes": "1GiB"})

    assert (limits.wall_time_ms, limits.memory_bytes) == (5_000, 1 << 30)
