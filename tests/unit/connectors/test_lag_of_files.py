"""The lag of files: bytes are known, and records are estimated by the size of lines."""

import pytest

from bicycle_runtime.connectors.registry import create_source
from bicycle_runtime.contract import Budget, ConnectorSpec, Lag
from bicycle_runtime.testing.connectors.running import services_in


@pytest.fixture
def source(tmp_path):
    """A source that follows one file of 1,000 lines of 10 bytes."""
    path = tmp_path / "in.txt"
    path.write_text("".join(f"{number:09}\n" for number in range(1_000)))
    spec = ConnectorSpec(
        vertex_id="v", connector_type="text", properties={"path": str(path), "follow": True}
    )
    found = create_source(spec)
    found.start(services_in(tmp_path), {}, {})
    yield found
    found.stop()


def read(source, record_count):
    budget = Budget(record_count=record_count, byte_count=1 << 30, parallelism=1)
    planned = source.plan(budget)
    source.sealed({part.shard: part.end for part in planned})


def test_unread_lines_are_counted_by_their_mean_size_and_none_are_left_in_the_end(source):
    before = source.poll().lag
    read(source, 400)
    between = source.poll().lag
    read(source, 10_000)

    assert before == Lag(record_count=1_000, byte_count=10_000)
    assert between == Lag(record_count=600, byte_count=6_000)
    assert source.poll().lag == Lag(record_count=0, byte_count=0)
