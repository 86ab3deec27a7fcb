"""Very many small epochs: memory, threads, open files, files on disk and latency stay flat.

The job makes words, counts them by key and writes each count to a file. While it runs, its
processes are looked at again and again; the fourth quarter of the epochs is compared with the
second (the first one warms up). The table of all figures is printed.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.plugin_zoo.zoo import install, whole
from tests.spark.jobsite import JobSite, resident_bytes, visible_lines

pytestmark = [pytest.mark.spark, pytest.mark.soak]

RECORDS_PER_EPOCH = 20
KIB = 1 << 10
SAMPLES_PER_RUN = 120
SECONDS_BETWEEN_SAMPLES_MIN = 0.2
# In `make soak` every figure has had time to settle; in the short form those of Java have not.
LONG_EPOCH_COUNT = 5_000

SOAKING = whole(
    "soaking",
    """
    from dataclasses import dataclass

    from bicycle_sdk import StreamEnvironment, bicycle_plugin, file_sink


    @dataclass(frozen=True, kw_only=True)
    class Params:
        output: str
        words: int


    def itself(word: str) -> str:
        return word


    @bicycle_plugin(name="soaking", version="1.0")
    def job(env: StreamEnvironment, params: Params) -> None:
        words = env.generator_source(rate_ms=0, count=params.words).uid("words")
        words.key_by(itself).count().uid("count").sink_to(file_sink(params.output)).uid("out")
    """,
)


@dataclass(frozen=True, slots=True)
class Figure:
    """Something that must not grow.

    ``share`` and ``slack`` bound the growth from the second to the fourth quarter, as a part of it
    and as an amount; ``limit`` bounds every sample. What takes minutes to settle (Java's heap, and
    what goes when it is collected) is compared in the long form alone.
    """

    name: str
    share: float
    slack: float
    limit: float
    is_steady_at_once: bool = True


FIGURES = (
    Figure("driver MiB", 0.05, 4, 400),
    Figure("java MiB", 0.15, 64, 1_800, is_steady_at_once=False),
    Figure("workers MiB", 0.10, 8, 600),
    Figure("driver threads", 0, 1, 40),
    Figure("java threads", 0.25, 20, 600, is_steady_at_once=False),
    Figure("workers threads", 0, 1, 20),
    Figure("driver files open", 0, 3, 100),
    Figure("java files open", 0.25, 30, 2_000, is_steady_at_once=False),
    Figure("workers files open", 0, 4, 100),
    Figure("worker processes", 0, 1, 4),
    Figure("Spark's local files", 0.5, 500, 20_000, is_steady_at_once=False),
    # State files are merged by eights: there are as many as the epochs since a base have digits.
    Figure("checkpoint files and folders", 0.25, 16, 160),
)


def test_many_small_epochs_leave_every_figure_flat(
    site: JobSite, soak_epoch_count: int, capsys: pytest.CaptureFixture[str]
):
    process, times_path = _start(site, soak_epoch_count)
    samples = _watch(site, process, times_path, soak_epoch_count)
    assert process.returncode == 0, site.lives[0].stderr
    assert len(visible_lines(site.output)) == soak_epoch_count * RECORDS_PER_EPOCH
    latencies_ms = [float(line) for line in times_path.read_text().splitlines()]
    assert len(latencies_ms) >= soak_epoch_count

    second, fourth = (_quarter(samples, soak_epoch_count, number) for number in (2, 4))
    with capsys.disabled():
        _show(samples, soak_epoch_count, latencies_ms)
    for figure in FIGURES:
        before, after = (statistics.median(part[figure.name]) for part in (second, fourth))
        if soak_epoch_count >= LONG_EPOCH_COUNT or figure.is_steady_at_once:
            assert after <= before * (1 + figure.share) + figure.slack, figure.name
        assert max(sample[figure.name] for _, sample in samples) <= figure.limit, figure.name
    first_warm, last = _ends(latencies_ms)
    assert statistics.median(last) <= 1.5 * statistics.median(first_warm)


def _start(site: JobSite, epoch_count: int) -> tuple[subprocess.Popen[bytes], Path]:
    site.plugin = "soaking"
    site.environment = {}  # A long run: Java as a user has it.
    install(site.plugins, SOAKING)
    request = {
        "options": {"plugin": "soaking", "checkpoint_dir": str(site.checkpoints)},
        "params": {"output": str(site.output), "words": str(epoch_count * RECORDS_PER_EPOCH)},
        "engine": {"max_records_per_epoch": RECORDS_PER_EPOCH},
        "spark": {},
    }
    request["options"]["parallelism"] = 2
    request_path, times_path = site.root / "request.json", site.root / "times"
    request_path.write_text(json.dumps(request))
    script = Path(__file__).with_name("soak_driver.py")
    life = site.launch([sys.executable, str(script), str(request_path), str(times_path)])
    return life.process, times_path


def _watch(
    site: JobSite, process: subprocess.Popen[bytes], times_path: Path, epoch_count: int
) -> list[tuple[int, dict[str, float]]]:
    """Look at the job until it ends; returns samples, each with the epoch it was taken at."""
    samples = []
    pause_s = max(SECONDS_BETWEEN_SAMPLES_MIN, epoch_count * 0.05 / SAMPLES_PER_RUN)
    while process.poll() is None:
        epoch = site.newest_epoch()
        if epoch >= 1:
            with contextlib.suppress(OSError, ValueError):  # The job ends in this very moment.
                samples.append((epoch, _sample(site)))
        time.sleep(pause_s)
    return samples


def _sample(site: JobSite) -> dict[str, float]:
    groups = site.by_role()
    sample: dict[str, float] = {"worker processes": len(groups["workers"])}
    for name, pids in groups.items():
        sample[f"{name} MiB"] = sum(map(resident_bytes, pids)) / KIB / KIB
        sample[f"{name} threads"] = sum(_entry_count(pid, "task") for pid in pids)
        sample[f"{name} files open"] = sum(_entry_count(pid, "fd") for pid in pids)
    sample["Spark's local files"] = _tree_size(site.temporary)
    sample["checkpoint files and folders"] = _tree_size(site.storage)
    return sample


def _entry_count(pid: int, folder: str) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/{folder}").iterdir())


def _tree_size(folder: Path) -> int:
    return sum(1 for _ in folder.rglob("*"))


def _quarter(
    samples: list[tuple[int, dict[str, float]]], epoch_count: int, number: int
) -> dict[str, list[float]]:
    """Return the figures of one quarter of the epochs, 1 to 4."""
    low, high = epoch_count * (number - 1) / 4, epoch_count * number / 4
    chosen = [sample for epoch, sample in samples if low < epoch <= high]
    assert len(chosen) >= 3
    return {figure.name: [sample[figure.name] for sample in chosen] for figure in FIGURES}


def _ends(latencies_ms: list[float]) -> tuple[list[float], list[float]]:
    """Return the latencies of the first warm epochs and of the last, a thousand if there are."""
    warm = latencies_ms[len(latencies_ms) // 4 : -1]  # The last epoch closes the output.
    size = min(1_000, len(warm) // 3)
    return warm[:size], warm[-size:]


def _show(
    samples: list[tuple[int, dict[str, float]]], epoch_count: int, latencies_ms: list[float]
) -> None:
    quarters = [_quarter(samples, epoch_count, number) for number in (1, 2, 3, 4)]
    write: Callable[[str], int] = sys.stdout.write
    write(f"\n{epoch_count} epochs, medians of each quarter, and the maximum\n")
    for figure in FIGURES:
        medians = [statistics.median(quarter[figure.name]) for quarter in quarters]
        cells = "".join(f"{value:10.1f}" for value in medians)
        most = max(sample[figure.name] for _, sample in samples)
        write(f"{figure.name:30}{cells}{most:10.1f}\n")
    size = len(latencies_ms) // 4
    cells = [statistics.median(latencies_ms[i * size : (i + 1) * size]) for i in range(4)]
    write(f"{'epoch ms':30}" + "".join(f"{value:10.1f}" for value in cells) + "\n")
