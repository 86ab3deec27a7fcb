"""A blue-green upgrade of a real job, without Spark: each result once, whatever is killed when."""

import os
import signal

import pytest

from bicycle_runtime.base.storage import LocalStorage, StorageError
from bicycle_runtime.base.storage_urls import open_storage
from bicycle_runtime.jobs.control.ending import stop_job
from bicycle_runtime.jobs.errors import (
    BLUE_GREEN_REFUSED,
    SHADOW_FAILED,
    UPGRADE_FAILED,
    UPGRADE_UNDERWAY,
)
from bicycle_runtime.jobs.shadow_note import read_shadow
from bicycle_runtime.jobs.status import JobState
from bicycle_runtime.jobs.upgrading.notes import require_no_upgrade
from bicycle_runtime.jobs.upgrading.upgrade import (
    UpgradeOptions,
    upgrade_job,
)
from bicycle_runtime.layouts.paths import SHADOW
from bicycle_sdk.clock import SystemClock
from tests.raising import raises
from tests.unit.jobs.upgrading.versions import LightAhead, Site
from tests.waiting import until

QUICK = {"epochs": 1, "watch_ms": 1_500, "skip_savepoint": True, "strategy": "blue-green"}


class Killed(BaseException):
    """The process that upgrades dies here."""


@pytest.fixture
def site(tmp_path):
    found = Site(tmp_path)
    yield found
    found.end()


def running(site):
    """Start version 1 and let it count two words."""
    site.start(site.request(site.install("1.0")))
    site.feed("ada", "bob")
    until(lambda: site.status.record_count == 2, "two words")


def upgrade(site, digest, *, token="t", start=None, prepare=None, request=None, **options):
    return upgrade_job(
        site.home, "job", request or site.request(digest), UpgradeOptions(**{**QUICK, **options}),
        token=token, clock=SystemClock(), start=start or site.start,
        prepare=prepare or site.prepare,
    )  # fmt: skip


class Fed(LightAhead):
    """Gives the job words once this version follows it, and more when its turn has come."""

    def __init__(self, site, *words, then=()):
        super().__init__(site)
        self.site, self.words, self.then = site, words, then

    @property
    def is_running(self):
        note = read_shadow(self.site.home.folder("job"))
        if note is not None and note.first:
            self.site.feed(*self.words)
            self.words = ()
        return super().is_running

    def start(self, request, *, is_trial=False):
        self.site.feed(*self.then)
        return super().start(request)


def counted(site, count):
    """Stop the job, and return its counts by word, and which version said them."""
    until(lambda: site.status.event_count >= count, "all words")
    stop_job(site.home, "job")
    return rows_of(site, count)


def rows_of(site, count):
    rows = site.rows()
    assert len(rows) == count
    return sorted((row["word"], row["count"]) for row in rows), {row["by"] for row in rows}


def assert_nothing_is_left(site):
    require_no_upgrade(site.home, "job")
    assert read_shadow(site.home.folder("job")) is None
    assert open_storage(site.status.checkpoint).list(SHADOW) == []


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_a_job_goes_on_with_a_version_that_has_followed_it(site, backend):
    site.engine["state_backend"] = backend
    running(site)
    second = site.install("2.0")

    report = upgrade(
        site, second, watch_ms=60_000, prepare=lambda: Fed(site, "ada", "eve", then=["ada", "eve"])
    )
    found, versions = counted(site, 6)

    assert found == [("ada", 1), ("ada", 2), ("ada", 3), ("bob", 1), ("eve", 1), ("eve", 2)]
    assert versions == {"1.0", "2.0"}
    assert (report["strategy"], report["plugin_version"]) == ("blue-green", "2.0")
    assert report["gap_ms"] > 0
    assert "shadow_taken_over" in (site.root / "driver.log").read_text()
    assert_nothing_is_left(site)


def test_the_new_version_goes_on_with_what_it_has_counted_itself(site):
    running(site)
    second = site.install("2.0", body="return line.upper()")

    upgrade(
        site, second, watch_ms=60_000, prepare=lambda: Fed(site, "ada", "ada", then=["ada"])
    )  # fmt: skip
    found, _ = counted(site, 5)

    # The former version has counted and published "ada" three times; the new one has seen two of
    # them, as "ADA", before its turn, and says what comes behind.
    assert found == [("ADA", 3), ("ada", 1), ("ada", 2), ("ada", 3), ("bob", 1)]


@pytest.mark.extended
def test_a_version_that_fails_while_it_follows_touches_nothing(site):
    running(site)
    before = site.status.pid
    broken = site.install("6.6", body="raise ValueError(line)")

    with raises(SHADOW_FAILED) as caught:
        upgrade(site, broken, prepare=lambda: Fed(site, "eve"), watch_ms=60_000)
    site.feed("ada")
    until(lambda: site.status.event_count == 4, "all words")

    assert site.status.pid == before
    assert "ValueError" in caught.value.facts["reason"]
    assert counted(site, 4) == ([("ada", 1), ("ada", 2), ("bob", 1), ("eve", 1)], {"1.0"})
    assert_nothing_is_left(site)


@pytest.mark.extended
def test_one_that_fails_when_its_turn_has_come_is_taken_back(site):
    running(site)
    # It lets pass what it reads while it follows, and fails on what it reads when it runs.
    broken = site.install("6.6", body="return {'bad': {}}.get(line, line).upper().lower()")

    with raises(UPGRADE_FAILED):
        upgrade(site, broken, prepare=lambda: Fed(site, then=["bad"]), epochs=100)
    site.feed("ada")
    found, versions = counted(site, 4)

    assert found == [("ada", 1), ("ada", 2), ("bad", 1), ("bob", 1)]
    assert versions == {"1.0"}
    assert_nothing_is_left(site)


@pytest.mark.extended
def test_a_version_that_reads_something_else_is_refused_before_anything_starts(site, tmp_path):
    running(site)
    second = site.install("2.0")
    wanted = site.request(second)
    (tmp_path / "other.txt").write_text("")
    params = {**wanted.params, "input": str(tmp_path / "other.txt")}

    with raises(BLUE_GREEN_REFUSED):
        upgrade(site, second, request=type(wanted)(options=wanted.options, params=params))

    assert len(site.drivers) == 1
    assert site.status.state is JobState.RUNNING
    assert_nothing_is_left(site)


@pytest.mark.extended
def test_a_version_that_is_killed_while_it_follows_begins_again(site):
    running(site)
    second = site.install("2.0")
    killed = []

    def prepare():
        ahead = site.prepare()
        if not killed:
            ahead.wait()
            ahead.process.kill()
            killed.append(ahead.process.wait())
        site.feed("eve")
        return ahead

    upgrade(site, second, prepare=prepare)
    found, versions = counted(site, 4)

    assert killed == [-signal.SIGKILL]
    assert found == [("ada", 1), ("bob", 1), ("eve", 1), ("eve", 2)]
    assert site.status.plugin_version == "2.0"
    assert versions <= {"1.0", "2.0"}


@pytest.mark.extended
def test_one_that_is_killed_again_and_again_is_given_up(site):
    running(site)
    second = site.install("2.0")

    def prepare():
        ahead = site.prepare()
        ahead.process.kill()
        ahead.process.wait()
        return ahead

    with raises(SHADOW_FAILED):
        upgrade(site, second, prepare=prepare)

    assert site.status.state is JobState.RUNNING
    assert_nothing_is_left(site)


@pytest.mark.extended
def test_a_job_that_is_killed_while_it_is_followed_ends_the_upgrade_and_loses_nothing(site):
    running(site)
    second = site.install("2.0")

    def prepare():
        os.kill(site.status.pid, signal.SIGKILL)
        site.drivers[0].wait()
        return site.prepare()

    with raises(SHADOW_FAILED):
        upgrade(site, second, prepare=prepare)
    site.start(site.request(second))
    site.feed("ada")

    assert counted(site, 3)[0] == [("ada", 1), ("ada", 2), ("bob", 1)]
    assert_nothing_is_left(site)


@pytest.mark.parametrize("place", ["following", "before the start", "after the start"])
def test_an_upgrade_that_is_killed_goes_on_at_its_step(site, place):
    running(site)
    second = site.install("2.0")
    aheads = []

    class Dying(LightAhead):
        """The process that upgrades dies here, and what it has prepared with it."""

        def __init__(self, site):
            super().__init__(site)
            aheads.append(self)

        def wait(self):
            super().wait()
            if place == "following":
                raise Killed
            return True

        def start(self, request, *, is_trial=False):
            if place == "after the start":
                super().start(request)
            raise Killed

        def drop(self):
            if place != "after the start":
                super().drop()

    with pytest.raises(Killed):
        upgrade(site, second, prepare=lambda: Dying(site))
    with raises(UPGRADE_UNDERWAY):
        upgrade(site, second, token="another")
    site.feed("eve")
    upgrade(site, second)
    site.feed("ada")
    found, _ = counted(site, 4)

    assert found == [("ada", 1), ("ada", 2), ("bob", 1), ("eve", 1)]
    assert site.status.plugin_version == "2.0"
    assert_nothing_is_left(site)


@pytest.mark.extended
def test_a_version_that_is_killed_between_stop_and_start_is_started_again(site):
    running(site)
    second = site.install("2.0")

    class Frail(LightAhead):
        def start(self, request, *, is_trial=False):
            self.process.kill()
            self.process.wait()
            return super().start(request)

    upgrade(site, second, prepare=lambda: Frail(site))
    site.feed("ada")

    assert counted(site, 3)[0] == [("ada", 1), ("ada", 2), ("bob", 1)]
    assert "shadow_taken_over" in (site.root / "driver.log").read_text()


@pytest.mark.extended
def test_results_are_read_once_each_while_it_happens(site):
    """A reader looks all the time; what it has seen stays, and nothing is seen twice."""
    running(site)
    second = site.install("2.0")
    seen = []

    def look():
        rows = [(row["word"], row["count"]) for row in site.rows()]
        assert len(rows) == len(set(rows))
        assert set(seen) <= set(rows)
        seen[:] = rows

    class Watched(LightAhead):
        @property
        def is_running(self):
            site.feed(f"w{len(seen)}")
            look()
            return super().is_running

    upgrade(site, second, prepare=lambda: Watched(site), epochs=5)
    words = len(site.input.read_text().split())
    until(lambda: site.status.event_count == words, "all words")
    stop_job(site.home, "job")
    look()

    assert len(seen) == words


@pytest.mark.extended
def test_a_shadow_that_cannot_be_removed_spoils_no_upgrade(site, monkeypatch):
    running(site)
    second = site.install("2.0")

    def refuse(_storage, _prefix):
        raise StorageError(url="file", action="remove", path=SHADOW, reason="no")

    monkeypatch.setattr(LocalStorage, "delete_tree", refuse)
    upgrade(site, second)

    require_no_upgrade(site.home, "job")
    assert site.status.plugin_version == "2.0"
