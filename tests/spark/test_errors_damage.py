"""Checkpoints that rot: found by checksum, told, and left for the epoch before. Nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.spark.jobsite import (
    JobSite,
    Life,
    expected_counts,
    leftovers,
    visible_counts,
)

pytestmark = pytest.mark.spark

STATE = 5
LINES = [f"w{number % 7} w{number % 31} w{number % 101}" for number in range(3_000)]
WORDS = " ".join(LINES).split()


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _newest_manifest(site: JobSite) -> Path:
    return site.manifest_paths()[-1]


def _newest_state_file(site: JobSite) -> Path:
    files = [ref for part in site.manifest().states["counter-v1"].ranges for ref in part.files]
    return site.storage / files[-1].path


DAMAGES: list[tuple[Callable[[Path], None], Callable[[JobSite], Path]]] = [
    (_flip, _newest_manifest),
    (_cut, _newest_manifest),
    (_flip, _newest_state_file),
    (Path.unlink, _newest_state_file),
]


def _warnings(life: Life) -> list[dict[str, Any]]:
    return [event for event in life.log_events if event["event"] == "manifest_damaged"]


def _crash(site: JobSite, passage: int) -> Life:
    """Run some small epochs, of which the last one is sealed, published and then cut off."""
    fault = f"after_publish@{passage}=kill"
    life = site.start("--max-records-per-epoch", "50", "--json", faults=fault)
    life.wait_for_fault(fault)
    life.wait()
    site.wait_for_no_process()
    return life


def test_a_damaged_epoch_is_told_and_run_again(site: JobSite):
    (site.input / "in.txt").write_text("".join(f"{line}\n" for line in LINES))
    _crash(site, passage=4)

    for damage, target in DAMAGES:
        epoch = site.newest_epoch()
        event_count = site.manifest(-2).event_count
        damage(target(site))

        life = _crash(site, passage=3)

        [warning] = _warnings(life)
        assert warning["level"] == "WARNING"
        [recovered] = [event for event in life.log_events if event["event"] == "job_recovered"]
        assert recovered["epoch"] == epoch - 1
        assert recovered["event_count"] == event_count
        assert (site.storage / f"epochs/{epoch:012}.manifest.damaged").is_file()

    site.finish("--parallelism", "2")
    assert visible_counts(site.output) == expected_counts(WORDS)
    assert leftovers(site) == []


def test_a_finished_job_whose_last_epoch_is_damaged_comes_to_the_same_result(site: JobSite):
    (site.input / "in.txt").write_text("".join(f"{line}\n" for line in LINES))
    site.finish("--max-records-per-epoch", "1000")
    _flip(_newest_manifest(site))

    life = site.finish()

    assert len(_warnings(life)) == 1
    assert visible_counts(site.output) == expected_counts(WORDS)


def test_a_checkpoint_with_no_readable_epoch_is_refused_and_left_as_it_is(site: JobSite):
    (site.input / "in.txt").write_text("once upon a time\n")
    site.finish()
    for path in site.manifest_paths():
        _flip(path)
    before = {path: path.read_bytes() for path in site.manifest_paths()}

    life = site.run()

    assert life.process.returncode == STATE, life.stderr
    assert life.answer["code"] == "BIC-1504"
    assert life.answer["facts"]["count"] == len(before)
    assert {path: path.read_bytes() for path in site.manifest_paths()} == before
