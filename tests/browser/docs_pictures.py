"""Write the screenshots of the docs: ``python -m tests.browser.docs_pictures``.

The service shows a home with six jobs, an hour of samples, and no Spark. The pictures are
``docs/images/dashboard.png`` and ``docs/images/job.png``; write them again when labels change.
"""

from __future__ import annotations

import math
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.status import (
    GuaranteeStatus,
    HotKey,
    JobState,
    OperatorStatus,
    RestartNote,
    ShardLag,
)
from bicycle_runtime.operators.metrics import FailureCount
from bicycle_runtime.service.store.history import HISTORY, TIERS
from bicycle_streams.access.database import prepare
from tests.browser.conftest import CHROMIUM, is_live, serving
from tests.browser.fleets import Fleet, fleet_in, keep_journal, now_ms

IMAGES = Path(__file__).parents[2] / "docs/images"
_JOB = "clicks-per-page"
_PARSE = "clicks/parse.py:12 in parse"
_ROWS = "INSERT INTO samples (job_number, tier, slot, at_s, records_per_second, lag_records, "
_ROWS += "lag_ms, state_bytes, errors, late) VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


def operators() -> dict[str, OperatorStatus]:
    """Return the operators of the job on the picture."""
    watermark_ms = now_ms() - 5_200
    failure = FailureCount(count=12, example="invalid literal for int(): 'a-1' (clicks/3 at 88)")
    return {
        "clicks": OperatorStatus(records_out=48_200_117, parallelism=4, watermark_ms=watermark_ms),
        "parse": OperatorStatus(
            records_in=48_200_117, records_out=48_200_105, failed=12, parallelism=4,
            failures={f"ValueError at {_PARSE}": failure}, busy_share=0.31, record_p99_ms=0.02,
            watermark_ms=watermark_ms,
        ),
        "count-by-page": OperatorStatus(
            records_in=48_200_105, records_out=912_404, parallelism=8, busy_share=0.12,
            record_p99_ms=0.09, state_bytes=41_402_341, state_keys=382_104, state_growth=2_100.0,
            hot_keys=[HotKey(key="/home", share=0.22)], watermark_ms=watermark_ms,
            slowest_input="clicks/3",
        ),
    }  # fmt: skip


def fill(fleet: Fleet) -> None:
    """Add six jobs in four states."""
    started = now_ms() - 26 * 3_600_000
    fleet.put(
        _JOB, plugin="clicks", plugin_version="1.4.0", has_begun=True, started_ms=started,
        operators=operators(), epoch=88_110, epoch_count=88_110, record_count=48_200_117,
        event_count=48_200_117, records_per_second=12_410.0, lag_records=3_120, lag_ms=260,
        lags={"clicks": {"3": ShardLag(records=3_120, waiting_ms=260)}}, state_bytes=41_402_341,
        state_growth=2_100.0, watermark_ms=now_ms() - 5_200, epoch_p50_ms=212.0,
        epoch_p99_ms=460.0,
        phases_ms={"plan": 1.2, "run": 180.3, "publish_wait": 9.0, "seal": 20.9},
        guarantee=GuaranteeStatus(guarantee="exactly-once", weakest="lake", role="sink"),
        checkpoint="/data/checkpoints/clicks-per-page",
    )  # fmt: skip
    keep_journal(fleet.home.folder(_JOB), last=88_110)
    failed_ms = now_ms() - 190_000
    message = "ValueError: invalid literal for int() with base 10: 'n/a' at report.py:44 in cents"
    fleet.put(
        "daily-report", plugin="report", plugin_version="0.9.2", state=JobState.FAILED, epoch=1_204,
        error={"code": "BIC-1401", "message": message, "fix": "correct the function", "facts": {}},
        ended_ms=failed_ms,
    )  # fmt: skip
    note = RestartNote(
        time_ms=now_ms() - 40_000, code="BIC-1752", epoch=7_701, attempt=2, delay_ms=10_000,
        message="vertex 'payments': Kafka brokers 'kafka:9092' did not respond within 30 s",
    )  # fmt: skip
    fleet.put(
        "payments", plugin="payments", plugin_version="2.1.0", state=JobState.RESTARTING,
        restarts=[note], restart_count=2, epoch=7_701,
    )  # fmt: skip
    fleet.put(
        "sessions", plugin="sessions", plugin_version="3.0.1", has_begun=True, lag_ms=2_100,
        records_per_second=847.0, lag_records=18, epoch=40_112, state_bytes=18_000_000,
    )  # fmt: skip
    fleet.put(
        "orders-to-lake", plugin="orders", plugin_version="1.0.0", has_begun=True, epoch=9_310,
        records_per_second=2_304.0, lag_records=0,
    )  # fmt: skip
    fleet.put("backfill-2025", state=JobState.FINISHED, ended_ms=failed_ms, record_count=9_999_120)


def samples(end_s: int) -> Iterator[tuple[Any, ...]]:
    """Yield an hour of samples, in which a backlog grows and is processed."""
    number, step_s, slot_count = TIERS["5s"]
    for at_s in range(end_s - 3_600, end_s, step_s):
        age = (at_s - end_s) / 3_600 + 1
        backlog = max(0.0, 1 - abs(age - 0.55) / 0.12)
        wave = math.sin(age * 40) + math.sin(age * 97)
        rate = 12_400 + 450 * wave + 5_200 * max(0.0, 1 - abs(age - 0.63) / 0.1)
        lag = 3_000 + 400 * wave + 410_000 * backlog
        size = 33_900_000 + 7_500_000 * age
        yield (
            number, at_s // step_s % slot_count, at_s, rate, int(lag), int(lag / 12.4), int(size),
            int(12 * age), 0,
        )  # fmt: skip


def store_samples(home: Home) -> None:
    """Write the samples into the database of the service, before the service starts."""
    path = home.path / "service/history.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        prepare(connection, path, HISTORY)
        connection.execute("INSERT INTO job_numbers (job) VALUES (?)", (_JOB,))
        connection.executemany(_ROWS, samples(now_ms() // 5_000 * 5))


def keep(page: Page, url: str, *, name: str, wait_for: str) -> None:
    """Write the screenshot of a page, without the areas below its first screen."""
    page.goto(url)
    is_live(page)
    page.wait_for_selector(wait_for)
    page.wait_for_timeout(3_000)  # Two updates, so that no value is from before the start.
    page.screenshot(path=str(IMAGES / f"{name}.png"))


def main() -> int:
    """Write both pictures."""
    with tempfile.TemporaryDirectory() as folder, fleet_in(Home(Path(folder))) as fleet:
        fill(fleet)
        store_samples(fleet.home)
        with serving(fleet.home) as url, sync_playwright() as playwright:
            arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
            browser = playwright.chromium.launch(executable_path=CHROMIUM[0], args=arguments)
            page = browser.new_page(viewport={"width": 1180, "height": 800}, color_scheme="light")
            keep(page, url, name="dashboard", wait_for=f"text={_JOB}")
            keep(page, f"{url}/jobs/{_JOB}", name="job", wait_for="canvas, svg")
            browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
