"""Spark's own windows by SQL, in Java alone, with the best of a few settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from measuring import Table, steady_rate
from paces import Lap, best_settings
from peers import SparkWindows, run_spark_windows
from workloads import Readings, scratch

__all__ = ["SPARK", "Settings", "best_spark", "spark_windows"]

SPARK = "Spark SQL windows"
BATCH_SIZES = (100_000, 250_000, 500_000)
_WARM_UP_SIZE = 500_000

Settings = tuple[int, SparkWindows]  # readings in a micro-batch, and the query


def spark_windows(
    readings: Readings, batch_size: int, query: SparkWindows, *, check: Callable[[Path], object]
) -> Lap:
    """Run a query over an input; its Java process has run the same over some readings before.

    Args:
        readings: The input, cut into a file for each micro-batch.
        batch_size: Readings in a micro-batch.
        query: What it computes.
        check: Raises when the output is wrong.
    """
    earlier = replace(readings, count=min(readings.count, _WARM_UP_SIZE)).slices(batch_size)
    with scratch("spark") as place:
        run = run_spark_windows(earlier, readings.slices(batch_size), place / "output", query)
        check(place / "output")
    return Lap(
        count=readings.count, seconds=run.busy_s, startup_s=run.startup_s,
        steady_rate=steady_rate(run.batches),
    )  # fmt: skip


def best_spark(
    title: str, run: Callable[[int, SparkWindows], Lap], query: SparkWindows
) -> tuple[Table, Settings]:
    """Try how many readings are best in a micro-batch, and where state is best.

    Args:
        title: What is tried, on which input.
        run: Takes the readings of a micro-batch, and the query.
        query: What it computes.

    Returns:
        The table of all, and the settings of the fastest.
    """
    settings = {
        f"{size:,} readings in a micro-batch, {'RocksDB' if has_rocksdb else 'state in memory'}": (
            size, replace(query, has_rocksdb=has_rocksdb),
        )
        for size in BATCH_SIZES
        for has_rocksdb in (False, True)
    }  # fmt: skip
    forms = {name: partial(run, *each) for name, each in settings.items()}
    table, best = best_settings(title, "readings", forms)
    return table, settings[best]
