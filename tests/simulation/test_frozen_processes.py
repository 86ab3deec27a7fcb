"""Real processes that are stopped by SIGSTOP, replaced, and continued by SIGCONT."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path

import pytest

from bicycle_runtime.engine.epoch.replay_record import decode_record
from tests.simulation.leased_site import LeasedSite, ended
from tests.spark.jobsite import Life

pytestmark = pytest.mark.crash

BEAT_MS = 200
POINTS = ("operator", "before_seal", "after_seal", "half_published")
LINES = [f"ada bob{number % 7} eve" for number in range(900)]


class Site(LeasedSite):
    """A word count that reads a file, its checkpoints, its drivers."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, str(root / "checkpoint"), LINES)

    @property
    def epochs(self) -> Path:
        return self.root / "checkpoint/epochs"

    def start(self, faults: str = "") -> Life:
        return self.launch(faults, str(BEAT_MS), "30")

    def frozen(self, point: str) -> Life:
        """Start a driver and stop it in the middle of its fifth epoch."""
        fault = f"{point}@9=hold"
        life = self.start(fault)
        life.wait_for_fault(fault)
        life.process.send_signal(signal.SIGSTOP)
        return life

    def counts(self) -> Counter[str]:
        found = [
            json.loads(line)
            for path in self.output.rglob("part-*")
            for line in path.read_text().splitlines()
        ]
        assert len({(one["word"], one["count"]) for one in found}) == len(found)
        return Counter(one["word"] for one in found)

    def files(self) -> dict[str, bytes]:
        top = self.root / "checkpoint"
        return {str(p.relative_to(top)): p.read_bytes() for p in top.rglob("*") if p.is_file()}


@pytest.fixture
def site(tmp_path):
    site = Site(tmp_path / "site")
    with ended(site):
        yield site


@pytest.mark.parametrize("point", POINTS)
def test_a_driver_that_was_stopped_and_replaced_ends_and_changes_nothing(site, point):
    zombie = site.frozen(point)
    other = site.start()
    assert other.wait() == 0, other.stdout
    before = site.files()
    counts = site.counts()

    zombie.release()
    zombie.process.send_signal(signal.SIGCONT)
    assert zombie.wait() == 1, zombie.stderr
    error = json.loads(zombie.stdout)
    assert error["code"] == "BIC-1541", error
    assert error["facts"]["pid"] == other.process.pid
    assert counts == Counter(word for line in LINES for word in line.split()) == site.counts()
    after = site.files()
    for_people = before.pop("epochs/begun"), after.pop("epochs/begun")  # It may have failed.
    assert all(decode_record(record) for record in for_people)
    assert {path: after.get(path) for path in before} == before
    # What its tasks had in the making is garbage.
    made = after.keys() - before.keys()
    assert all(path.startswith(("state/", "staged/")) for path in made), made


@pytest.mark.core
def test_of_two_drivers_one_goes_while_the_other_works_and_says_which_runs(site):
    holder = site.start("before_seal@5=hold")
    holder.wait_for_fault("before_seal@5=hold")
    other = site.start()

    assert other.wait() == 1
    error = json.loads(other.stdout)
    assert error["code"] == "BIC-1540", error
    assert error["facts"]["pid"] == holder.process.pid
    holder.release()
    assert holder.wait() == 0, holder.stderr
    assert site.counts() == Counter(word for line in LINES for word in line.split())


def test_a_restart_after_a_kill_does_not_wait(site):
    killed = site.start("after_seal@3=kill")
    assert killed.wait() == -signal.SIGKILL
    other = site.start("before_seal@1=hold")
    other.wait_for_fault("before_seal@1=hold")
    lease = json.loads((site.root / "checkpoint/lease/000000000002").read_text())
    other.release()

    assert other.wait() == 0, other.stderr
    assert lease["is_contested"] is False  # It knew that the other was gone, and watched nothing.
