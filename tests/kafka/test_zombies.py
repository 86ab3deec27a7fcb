"""Drivers and workers that stand still in the middle of their work and wake up when others do it.

A driver that is frozen within a transaction is replaced by one of another host: another home, and
a lock that does not reach it. When it wakes up it ends, and the counts stay exactly once and in
order. A worker does not outlive its Java (the kernel hangs up what is stopped when its parent is
gone), so one that wakes up behind its time is on a host that stood still as a whole. It goes on as
if nothing had been, but what it writes is nothing until a driver seals it, and its own cannot.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
from pathlib import Path

import pytest

from bicycle_runtime.base.faults import TRANSACTION_POINTS
from tests.kafka.strikes import Strikes
from tests.spark.jobsite import JobSite, Life, Process
from tests.waiting import until

pytestmark = pytest.mark.crash

PUBLISHING_POINTS = ("after_seal", "before_publish", *TRANSACTION_POINTS, "half_published")
# It meets the lease, marker or manifest of the other, or misses files that the other has removed.
FENCED = ("BIC-1541", "BIC-1770", "BIC-1503", "BIC-1130", "BIC-1132", "BIC-1302")
EPOCHS = 4
# One worker runs both levels of an epoch in turn. It stands still behind the last of these points:
# when it has read, and when it has begun to stage what it counted.
READING = ("read",)
STAGING = ("read", "delta_written", "operator")
ONE_WORKER = ("--master", "local[1,4]", "--parallelism", "1", "--lease-beat-ms", "500")


@pytest.mark.parametrize("point", PUBLISHING_POINTS)
def test_a_frozen_driver_that_wakes_up_is_fenced(light_site, load, point):
    load.start()
    zombie = _frozen(light_site.start(faults=f"{point}@5=hold"), f"{point}@5=hold")
    epoch = _newest_epoch(light_site)
    other = light_site.start(parallelism=3)
    until(lambda: _newest_epoch(light_site) >= epoch + EPOCHS, "epochs of the other")

    _wake(zombie)
    assert zombie.wait() == 1
    assert any(f" {code} " in zombie.stderr for code in FENCED), zombie.stderr
    load.counts.wait_for_more(100)
    load.finish()
    light_site.stop(other)


@pytest.mark.spark
def test_a_frozen_driver_on_spark_is_fenced_by_one_of_another_host(spark_site, load, tmp_path):
    load.start()
    fault = "transaction_marked@5=hold"
    zombie = _frozen(spark_site.start("--json", faults=fault), fault)
    epoch = _newest_epoch(spark_site)
    _take_to_another_host(spark_site, tmp_path / "other-home")
    other = spark_site.start()
    until(lambda: _newest_epoch(spark_site) >= epoch + EPOCHS, "epochs of the other")

    _wake(zombie)
    assert zombie.wait() > 0, zombie.stderr
    assert zombie.answer["code"] in FENCED, zombie.answer
    load.counts.wait_for_more(100)
    load.finish()
    other.process.send_signal(signal.SIGTERM)
    assert other.wait() == 0, other.stderr
    until(lambda: not spark_site.processes(), "the end of both")


@pytest.mark.spark
@pytest.mark.parametrize("path", [READING, STAGING], ids=["reading", "staging"])
def test_a_worker_that_wakes_up_when_its_epoch_is_long_done_changes_nothing(
    spark_site, load, tmp_path, path
):
    load.start()
    strikes = Strikes(spark_site, dict.fromkeys(STAGING, "hold"), "--json", *ONE_WORKER)
    load.counts.wait_for_more()
    worker = _led_to(path, strikes)
    host = spark_site.processes()
    _signal(host, signal.SIGSTOP)
    epoch = _newest_epoch(spark_site)
    _take_to_another_host(spark_site, tmp_path / "other-home")
    other = spark_site.start(*ONE_WORKER)
    until(lambda: _newest_epoch(spark_site) >= epoch + EPOCHS, "epochs of the other")

    before = _files(spark_site)
    strikes.release(path[-1])
    driver = strikes.life.process
    _signal([process for process in host if process.pid != driver.pid], signal.SIGCONT)
    if path == STAGING:
        until(lambda: _has_written(worker, spark_site, epoch + 1, before), "what the worker does")
    driver.send_signal(signal.SIGCONT)
    assert strikes.life.wait() > 0, strikes.life.stderr
    assert strikes.life.answer["code"] in FENCED, strikes.life.answer
    now = _files(spark_site)
    assert [file for file, data in before.items() if now.get(file, data) != data] == []
    load.counts.wait_for_more(100)
    load.finish()
    other.process.send_signal(signal.SIGTERM)
    assert other.wait() == 0, other.stderr
    until(lambda: not spark_site.processes(), "the end of both")


def _led_to(path: tuple[str, ...], strikes: Strikes) -> int:
    """Lead the one worker from point to point; return its id when it is held at the last."""
    pid = strikes.meet(path[0])
    for here, there in itertools.pairwise(path):
        strikes.arm(there)
        strikes.release(here)
        assert strikes.wait(there) == pid
    return pid


def _frozen(life: Life, fault: str) -> Life:
    life.wait_for_fault(fault)
    life.process.send_signal(signal.SIGSTOP)
    return life


def _wake(zombie: Life) -> None:
    zombie.release()
    zombie.process.send_signal(signal.SIGCONT)


def _newest_epoch(site) -> int:
    """Return the last sealed epoch, no matter which driver sealed it."""
    paths = (site.storage / "epochs").glob("[0-9]*.manifest")
    return max((int(path.stem) for path in paths), default=0)


def _take_to_another_host(site, home) -> None:
    """Give the next driver a home of its own, and a lock that knows nothing of the former one."""
    home.mkdir()
    (home / "cache").symlink_to(site.cache)  # What makes Java start faster, and nothing else.
    site.environment["BICYCLE_HOME"] = str(home)
    (site.storage / "lock").unlink()


def _signal(processes: list[Process], number: int) -> None:
    for process in processes:
        os.kill(process.pid, number)


def _files(site: JobSite) -> dict[Path, bytes]:
    """Return what is whole of manifests, staged records and state, as far as it is still there."""
    found = {}
    for pattern in ("epochs/*.manifest", "staged/**/[!.]*", "state/**/[!.]*"):
        for path in site.storage.glob(pattern):
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):  # Old ones are removed.
                found[path] = path.read_bytes()
    return found


def _has_written(worker: int, site: JobSite, epoch: int, before: dict[Path, bytes]) -> bool:
    """Tell whether there is something new for an epoch that others have sealed long ago."""
    assert Path(f"/proc/{worker}").exists()
    return any(f"{epoch:012}" in str(path) for path in _files(site).keys() - before.keys())
