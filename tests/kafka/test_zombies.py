"""Drivers that stand still in the middle of their work and wake up when others do it.

A driver that is frozen within a transaction is replaced by one of another host: another home, and
a lock that does not reach it. When it wakes up it ends, and the counts stay exactly once and in
order. Workers can not be such zombies: they end with their Java, and what they write is nothing
until a driver seals it.
"""

from __future__ import annotations

import signal

import pytest

from bicycle_runtime.base.faults import TRANSACTION_POINTS
from tests.spark.jobsite import Life
from tests.waiting import until

pytestmark = pytest.mark.crash

PUBLISHING_POINTS = ("after_seal", "before_publish", *TRANSACTION_POINTS, "half_published")
# It meets the lease, marker or manifest of the other, or misses files that the other has removed.
FENCED = ("BIC-1541", "BIC-1770", "BIC-1503", "BIC-1130", "BIC-1132", "BIC-1302")
EPOCHS = 4


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


def _frozen(life: Life, fault: str) -> Life:
    life.wait_for_fault(fault)
    life.process.send_signal(signal.SIGSTOP)
    return life


def _wake(zombie: Life) -> None:
    zombie.release()
    zombie.process.send_signal(signal.SIGCONT)


def _newest_epoch(site) -> int:
    """Return the last sealed epoch, whoever sealed it."""
    paths = (site.storage / "epochs").glob("[0-9]*.manifest")
    return max((int(path.stem) for path in paths), default=0)


def _take_to_another_host(site, home) -> None:
    """Give the next driver a home of its own, and a lock that knows nothing of the former one."""
    site.environment["BICYCLE_HOME"] = str(home)
    (site.storage / "lock").unlink()
