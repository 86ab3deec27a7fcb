"""Tests on a real broker: their marker, and time for crash tests.

The fixtures `kafka_broker`, `secure_kafka_broker`, `new_kafka_broker`, `kafka_admin` and `topic`
stand in tests/kafka_broker.py, where every test of the repository finds them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_SECONDS_MAX = 180  # The first one may have to fetch the jars.


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what stands here, and give it time to get the broker."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.kafka)
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(_SECONDS_MAX))
