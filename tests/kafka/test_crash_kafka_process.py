"""SIGKILL to the driver at every named point, many times over, while lines keep coming.

One job goes through all of it: each life is killed at another point, and the next one goes on, with
another parallelism. The driver is a light one, without Spark; ``test_crash_kafka_spark`` visits the
same points with the real thing.
"""

from __future__ import annotations

import signal
import sys

import pytest

from bicycle_runtime.base.faults import FAULT_POINTS, TRANSACTION_POINTS

pytestmark = pytest.mark.crash

POINTS = FAULT_POINTS + TRANSACTION_POINTS
ROUNDS_MIN = 3
PARALLELISM = (2, 1, 3, 2)
RECORDS_MAX = (10_000, 30, 200)


def test_a_driver_killed_at_any_point_loses_and_doubles_nothing(
    light_site, load, crash_round_count, capsys
):
    load.start()
    visits = _visits(max(ROUNDS_MIN, crash_round_count))
    for number, (point, passage) in enumerate(visits):
        fault = f"{point}@{passage}=kill"
        life = light_site.start(
            faults=fault,
            parallelism=PARALLELISM[number % len(PARALLELISM)],
            records_max=RECORDS_MAX[number % len(RECORDS_MAX)],
        )
        assert life.wait() == -signal.SIGKILL, (fault, life.stderr)
        assert (life.folder / fault).exists()
        load.counts.look(0.02)

    life = light_site.start()
    load.finish()
    light_site.stop(life)

    copy_count = load.counts.uncommitted_count()
    assert copy_count > 0  # Transactions were cut, or nothing was shown.
    with capsys.disabled():
        sys.stdout.write(
            f"\n{len(visits)} kills at {len(POINTS)} points, {load.counts.count} counts exactly "
            f"once and in order, {copy_count} more in transactions that were aborted\n"
        )


def _visits(round_count: int) -> list[tuple[str, int]]:
    """Return each point once a round; passage 1 may already be in the recovery."""
    return [
        (point, 1 + (number + place) % 3)
        for number in range(round_count)
        for place, point in enumerate(POINTS)
    ]
