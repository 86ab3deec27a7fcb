"""The size of epochs over a large file: pacer and source together, at durations that are given."""

import statistics

import pytest

from bicycle_runtime.contract import Budget, ConnectorSpec
from bicycle_runtime.engine.loop.pacing import Pacer
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.testing.connectors import SourceRun, services_in

_LINE = b"a short line\n"
_LINE_COUNT = 5_000_000


@pytest.fixture(scope="module")
def large_file(tmp_path_factory):
    """A file of 5 M short lines."""
    path = tmp_path_factory.mktemp("large") / "lines.txt"
    with path.open("wb") as stream:
        for _ in range(50):
            stream.write(_LINE * (_LINE_COUNT // 50))
    return path


def epochs_over(path, folder, *, record_ms):
    """Return the number of lines in each epoch that the planner makes of a file."""
    spec = ConnectorSpec(vertex_id="v", connector_type="text", properties={"path": str(path)})
    source = SourceRun(spec, services_in(folder)).start().source
    pacer, counts = Pacer(EngineOptions()), []
    while source.poll().has_input:
        slices = source.plan(
            Budget(
                record_count=pacer.record_count,
                byte_count=pacer.byte_count,
                parallelism=2,
                is_approximate=pacer.is_approximate,
            )
        )
        counts.append(sum(part.end - part.start for part in slices) // len(_LINE))
        source.sealed({slices[-1].shard: slices[-1].end})
        pacer.learn(
            duration_ms=30 + record_ms * counts[-1],
            record_count=counts[-1],
            has_backlog=source.poll().has_input,
        )
    source.stop()
    return counts


@pytest.mark.parametrize("record_ms", [0.002, 0.0075, 0.02])
def test_the_second_epoch_over_five_million_lines_has_the_full_size(
    large_file, tmp_path, record_ms
):
    counts = epochs_over(large_file, tmp_path, record_ms=record_ms)

    full = statistics.median(counts[1:-1])
    assert sum(counts) == pytest.approx(_LINE_COUNT, abs=len(counts))
    assert counts[1] >= 0.75 * full
    assert 0.75 * full <= 2_000 / record_ms <= 1.3 * full
