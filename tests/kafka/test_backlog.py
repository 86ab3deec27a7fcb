"""A job that comes back after a long time: bounded epochs, flat memory, and it catches up.

While it works off what waits for it, new lines keep coming.
"""

from __future__ import annotations

import contextlib
import signal
import statistics
import sys
import time
from dataclasses import dataclass

import pytest

from tests.spark.jobsite import JobSite, Life, resident_bytes

pytestmark = pytest.mark.spark

EPOCHS_MIN = 12
SECONDS_BETWEEN_SAMPLES = 0.2
MIB = 1 << 20
LIMITS_MIB = {"driver": 500, "java": 1_800, "workers": 700}
GROWTH_MAX, SLACK_MIB = 0.15, 24
# Java's heap takes minutes to settle: it has a limit, but may grow below it.
FLAT = ("driver", "workers")


@dataclass(frozen=True, slots=True)
class Sample:
    """How far the job was, and the memory of its processes in MiB."""

    epoch: int
    record_count: int
    memory: dict[str, float]


@pytest.mark.timeout(0)
def test_a_backlog_is_worked_off_in_bounded_epochs_and_flat_memory(
    spark_site, load, backlog_messages, capsys
):
    load.lines.fill(backlog_messages)
    records_max = max(1, backlog_messages // EPOCHS_MIN)
    load.start()
    begun = time.monotonic()
    life = spark_site.start("--max-records-per-epoch", str(records_max))
    samples = _watch(spark_site, life, backlog_messages)
    duration_s = time.monotonic() - begun
    load.finish()
    life.process.send_signal(signal.SIGTERM)
    assert life.wait() == 0, life.stderr

    with capsys.disabled():
        _show(samples, backlog_messages, duration_s)
    assert max(_records_per_epoch(samples)) <= records_max
    for name, limit in LIMITS_MIB.items():
        assert max(sample.memory[name] for sample in samples) <= limit, name
    size = len(samples) // 4
    for name in FLAT:
        second, fourth = (
            statistics.median(sample.memory[name] for sample in part)
            for part in (samples[size : 2 * size], samples[3 * size :])
        )
        assert fourth <= second * (1 + GROWTH_MAX) + SLACK_MIB, name


def _watch(site: JobSite, life: Life, record_count: int) -> list[Sample]:
    """Look at the job until it has read the backlog."""
    samples: list[Sample] = []
    while not samples or samples[-1].record_count < record_count:
        assert life.process.poll() is None, life.stderr
        with contextlib.suppress(
            OSError, ValueError
        ):  # It is about to start, or writes its status.
            status = site.status()
            if status["epoch"]:
                sample = Sample(status["epoch"], status["record_count"], _memory(site))
                samples.append(sample)
        time.sleep(SECONDS_BETWEEN_SAMPLES)
    assert len(samples) >= 8
    return samples


def _memory(site: JobSite) -> dict[str, float]:
    groups = site.by_role()
    return {name: sum(map(resident_bytes, pids)) / MIB for name, pids in groups.items()}


def _records_per_epoch(samples: list[Sample]) -> list[float]:
    """Return the records of each epoch, on average between two looks; also from the start on."""
    first = Sample(0, 0, {})
    pairs = zip([first, *samples], samples, strict=False)
    return [
        (new.record_count - old.record_count) / (new.epoch - old.epoch)
        for old, new in pairs
        if new.epoch > old.epoch
    ]


def _show(samples: list[Sample], backlog: int, duration_s: float) -> None:
    size = len(samples) // 4
    sys.stdout.write(
        f"\nbacklog of {backlog}: read in {duration_s:.0f} s with the start of Spark, "
        f"{samples[-1].epoch} epochs of at most {max(_records_per_epoch(samples)):.0f} records\n"
    )
    for name in LIMITS_MIB:
        values = [sample.memory[name] for sample in samples]
        quarters = [statistics.median(values[i * size : (i + 1) * size]) for i in range(4)]
        cells = "".join(f"{value:8.0f}" for value in quarters)
        sys.stdout.write(f"{name:8} MiB by quarter {cells}, at most {max(values):.0f}\n")
