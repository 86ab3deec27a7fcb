"""An upgrade of a real job, without Spark: nothing lost, nothing twice, whatever goes wrong."""

import os
from dataclasses import replace

import pytest

from bicycle_runtime.jobs.control.ending import stop_job
from bicycle_runtime.jobs.errors import (
    STATE_WOULD_BE_LOST,
    UPGRADE_FAILED,
    UPGRADE_STUCK,
    UPGRADE_UNDERWAY,
)
from bicycle_runtime.jobs.operations.operation import OperationCall
from bicycle_runtime.jobs.savepoints.commands import known_savepoints, savepoint_of
from bicycle_runtime.jobs.status import JobState
from bicycle_runtime.jobs.upgrading.notes import (
    forget_ended,
    noted_requests,
    require_no_upgrade,
)
from bicycle_runtime.jobs.upgrading.upgrade import (
    UpgradeOptions,
    _Upgrade,
    upgrade_job,
)
from bicycle_runtime.recovery.savepoints import read_savepoint
from bicycle_runtime.service.operations.upgrading import UPGRADE
from bicycle_runtime.service.plugins.errors import PLUGIN_IN_USE
from bicycle_runtime.service.plugins.uploaded_plugins import require_unused
from bicycle_sdk.clock import SystemClock
from tests.raising import raises
from tests.unit.jobs.upgrading.versions import Site
from tests.waiting import until

SHORT = UpgradeOptions(epochs=1, watch_ms=1_500, skip_savepoint=True)


class Killed(BaseException):
    """The process that upgrades dies here."""


@pytest.fixture
def site(tmp_path):
    found = Site(tmp_path)
    yield found
    found.end()


def running(site, **version):
    """Start version 1 and let it count two words."""
    first = site.install("1.0")
    site.start(site.request(first))
    site.feed("ada", "bob")
    until(lambda: site.status.record_count == 2, "two words")
    return first


def upgrade(site, digest, *, token="t", options=SHORT, start=None, prepare=None, **more):
    return upgrade_job(
        site.home, "job", site.request(digest, **more), options, token=token, clock=SystemClock(),
        start=start or site.start, prepare=prepare,
    )  # fmt: skip


class Ahead:
    """A start that was prepared; ``told`` is what became of it, and what the job did then."""

    def __init__(self, site):
        self.site, self.told = site, []

    def wait(self):
        self.told.append(("wait", self.site.status.state))
        return True

    def start(self, request, *, is_trial=False):
        self.told.append(("start", self.site.status.state))
        return self.site.start(request)

    def drop(self):
        self.told.append(("drop", self.site.status.state))


def counted(site, count):
    """Stop the job, and return its counts by word, and which version said them."""
    until(lambda: site.status.event_count >= count, "all words")
    stop_job(site.home, "job")
    rows = site.rows()
    assert len(rows) == count
    return sorted((row["word"], row["count"]) for row in rows), {row["by"] for row in rows}


def test_a_job_goes_on_with_another_version_where_it_stopped(site):
    running(site)
    second = site.install("2.0")

    report = upgrade(site, second, options=UpgradeOptions(epochs=1, watch_ms=1_500))
    site.feed("ada", "eve")
    found, versions = counted(site, 4)

    assert found == [("ada", 1), ("ada", 2), ("bob", 1), ("eve", 1)]
    assert versions == {"1.0", "2.0"}
    verdicts = {each["operator"]: each["verdict"] for each in report["changes"]["operators"]}
    assert verdicts == {"count": "kept", "lines": "kept"}
    assert report["plugin_version"] == "2.0"
    assert report["savepoint"].endswith("/upgrade-t")
    require_no_upgrade(site.home, "job")


def test_a_job_that_hangs_is_upgraded_once_it_was_ended_by_force(site):
    hanging = site.install("1.0", body='while line == "bad": pass\n    return line')
    site.start(site.request(hanging, stop_timeout_ms=2_000))
    site.feed("ada", "bob")
    until(lambda: site.status.record_count == 2, "two words")
    site.feed("bad")
    until(lambda: site.status.reading_count or site.status.epoch_began_ms, "the epoch that hangs")

    report = upgrade(
        site, site.install("2.0"), options=UpgradeOptions(epochs=1, watch_ms=1_500),
        prepare=lambda: pytest.fail("a job that hangs waits for the start of its next version"),
    )  # fmt: skip
    site.feed("ada")
    found, _ = counted(site, 4)

    assert found == [("ada", 1), ("ada", 2), ("bad", 1), ("bob", 1)]
    assert report["savepoint"].endswith("/upgrade-t")


def test_what_takes_long_is_done_before_the_former_version_stops(site):
    running(site)
    ahead = Ahead(site)

    upgrade(site, site.install("2.0"), prepare=lambda: ahead)

    assert ahead.told == [
        ("wait", JobState.RUNNING), ("start", JobState.STOPPED), ("drop", JobState.RUNNING),
    ]  # fmt: skip
    assert site.status.plugin_version == "2.0"


def test_a_version_that_fails_at_once_is_rolled_back_before_its_restarts_are_used_up(site):
    running(site)
    broken, seen = site.install("6.6", body="raise ValueError(line)"), []

    def start(request, *, is_trial=False):
        if is_trial:  # There is input for the first epoch.
            site.feed("eve")
        status = site.start(request, is_trial=is_trial)
        seen.append((is_trial, status.state, len(status.restarts)))
        return status

    patient = {"restart_attempts": 20, "restart_delay_ms": 3_600_000}
    with raises(UPGRADE_FAILED) as caught:
        upgrade(site, broken, start=start, **patient)

    trial, back = seen
    assert trial[0] and trial[2] >= 1  # The second restart would come after an hour.
    assert (back[0], site.status.plugin_version) == (False, "1.0")
    assert "ValueError: eve" in caught.value.facts["reason"]
    assert counted(site, 3)[1] == {"1.0"}


@pytest.mark.extended
def test_on_the_way_back_what_was_prepared_is_ended_before_the_former_version_starts(site):
    running(site)
    ahead, broken = Ahead(site), site.install("6.6", body="raise ValueError(line)")

    def feed(request, *, is_trial=False):
        status = site.start(request)
        site.feed("eve")
        return status

    ahead.start = feed
    with raises(UPGRADE_FAILED):
        upgrade(site, broken, prepare=lambda: ahead)

    assert [word for word, _ in ahead.told] == ["wait", "drop"]
    assert site.status.plugin_version == "1.0"


@pytest.mark.extended
def test_the_gap_is_that_between_two_epochs(site):
    running(site)
    second = site.install("2.0")

    def start(request, *, is_trial=False):
        site.feed("eve")  # So that the new version has an epoch at once.
        return site.start(request)

    report = upgrade(site, second, start=start)

    assert report["gap_ms"] > 0


@pytest.mark.extended
def test_a_version_that_does_not_fit_the_state_changes_nothing(site):
    running(site)
    other = site.install("2.0", count_uid="other")
    before = site.status.pid

    with raises(STATE_WOULD_BE_LOST):
        upgrade(site, other)

    assert site.status.pid == before
    require_no_upgrade(site.home, "job")
    upgrade(site, other, allow_dropped_state=True)
    assert site.status.plugin_version == "2.0"


@pytest.mark.extended
@pytest.mark.parametrize("body", ["raise ValueError('broken')", "import os; os._exit(3)"])
def test_one_that_fails_is_taken_back_and_the_former_goes_on(site, body):
    first = running(site)
    broken = site.install("2.0", body=body)

    def start(request, *, is_trial=False):
        if request.options.plugin_env != site.request(first).options.plugin_env:
            site.feed("ada")  # The new one fails on it, the former one does not.
        try:
            return site.start(request)
        except AssertionError:  # The process has ended without a word.
            raise UPGRADE_UNDERWAY(job="job", step="start") from None

    with raises(UPGRADE_FAILED) as caught:
        upgrade(site, broken, start=start)
    site.feed("eve")
    found, versions = counted(site, 4)

    assert found == [("ada", 1), ("ada", 2), ("bob", 1), ("eve", 1)]
    assert versions == {"1.0"}
    assert caught.value.facts["cause"]["code"]
    require_no_upgrade(site.home, "job")


@pytest.mark.extended
def test_one_that_fails_after_an_epoch_is_taken_back_behind_what_it_has_sealed(site):
    running(site)
    body = "return {'bad': {}}.get(line, line).upper().lower()"
    broken = site.install("2.0", body=body)

    def start(request, *, is_trial=False):
        status = site.start(request)
        if request.options.plugin_env == site.request(broken).options.plugin_env:
            site.feed("eve")
            until(lambda: site.status.record_count == 1, "its epoch")
            site.feed("bad")
            until(lambda: site.status.state.is_final, "its failure")
        return status

    options = UpgradeOptions(epochs=100, watch_ms=60_000, skip_savepoint=True)
    with raises(UPGRADE_FAILED) as caught:
        upgrade(site, broken, options=options, start=start)
    found, versions = counted(site, 4)

    assert found == [("ada", 1), ("bad", 1), ("bob", 1), ("eve", 1)]
    assert versions == {"1.0", "2.0"}
    assert "AttributeError" in caught.value.facts["reason"]


@pytest.mark.extended
def test_when_neither_can_run_it_is_told(site):
    running(site)
    broken = site.install("2.0")

    def start(_request, *, is_trial=False):
        raise UPGRADE_UNDERWAY(job="job", step="nothing")

    with raises(UPGRADE_STUCK):
        upgrade(site, broken, start=start)

    assert site.status.state is JobState.STOPPED


@pytest.mark.parametrize("place", ["before the start", "after the start", "before the way back"])
def test_an_upgrade_that_is_killed_in_between_goes_on_at_that_step(site, place):
    first = running(site)
    second = site.install("2.0")
    starts = []

    def start(request, *, is_trial=False):
        starts.append(request)
        if place == "after the start":
            site.start(request)
        if place == "before the way back" and len(starts) == 1:
            raise UPGRADE_UNDERWAY(job="job", step="start")
        raise Killed

    with pytest.raises(Killed):
        upgrade(site, second, start=start)
    with raises(PLUGIN_IN_USE):
        require_unused(site.home, first)  # The way back needs it.
    with raises(UPGRADE_UNDERWAY):
        upgrade(site, second, token="another")
    assert noted_requests(site.home, "job")
    if place == "before the way back":
        with raises(UPGRADE_FAILED):
            upgrade(site, second)
    else:
        upgrade(site, second)
    site.feed("ada", "eve")
    found, versions = counted(site, 4)

    assert found == [("ada", 1), ("ada", 2), ("bob", 1), ("eve", 1)]
    assert versions == ({"1.0"} if place == "before the way back" else {"1.0", "2.0"})
    require_no_upgrade(site.home, "job")


@pytest.mark.parametrize("left", ["a whole savepoint", "an incomplete savepoint"])
def test_an_upgrade_that_is_killed_at_its_savepoint_goes_on(site, monkeypatch, left):
    running(site)
    second = site.install("2.0")
    options = replace(SHORT, skip_savepoint=False)

    def die(_upgrade, _step):
        raise Killed

    with monkeypatch.context() as patches, pytest.raises(Killed):
        patches.setattr(_Upgrade, "_to", die)
        upgrade(site, second, options=options)
    place = savepoint_of(site.home, "job", "upgrade-t")
    taken = read_savepoint(place)
    if left == "an incomplete savepoint":
        place.write("savepoint.unfinished", b"")
        place.delete("savepoint.json")
    report = upgrade(site, second, options=options)

    assert site.status.plugin_version == "2.0"
    assert report["savepoint"] == place.url
    [listed] = known_savepoints(site.home, "job")
    assert (listed.url, listed.problem) == (place.url, None)
    assert read_savepoint(place).epoch >= taken.epoch


@pytest.mark.extended
def test_one_that_was_killed_at_the_end_has_only_to_say_so(site):
    running(site)
    second = site.install("2.0")
    upgrade(site, second)
    before = site.status.pid

    again = upgrade(site, second)

    assert again["changes"] is None
    assert site.status.pid == before


@pytest.mark.extended
def test_a_job_that_somebody_ends_meanwhile_stays_ended(site):
    running(site)
    second = site.install("2.0")

    def start(request, *, is_trial=False):
        status = site.start(request)
        stop_job(site.home, "job")
        return status

    upgrade(site, second, start=start)

    assert site.status.state is JobState.STOPPED
    assert site.status.plugin_version == "2.0"


def test_another_plugin_of_the_same_wheel_is_rolled_back(site):
    running(site)
    both = site.install_two("3.0", body="raise ValueError(line)")
    upgrade(site, both)
    assert site.status.plugin_version == "3.0"

    def start(request, *, is_trial=False):
        if is_trial:
            site.feed("eve")
        return site.start(request, is_trial=is_trial)

    patient = {"restart_attempts": 20, "restart_delay_ms": 3_600_000}
    with raises(UPGRADE_FAILED):
        upgrade(site, both, start=start, plugin="second", **patient)

    assert (site.status.plugin, site.status.plugin_version) == ("demo", "3.0")
    assert counted(site, 3)[1] == {"1.0", "3.0"}


def test_a_job_that_runs_another_version_is_not_reported_as_rolled_back(site):
    running(site)
    second = site.install("2.0")

    def start(request, *, is_trial=False):
        if is_trial:
            raise UPGRADE_UNDERWAY(job="job", step="start")
        site.start(site.request(second))  # Another client was faster.
        return site.start(request)

    with raises(UPGRADE_STUCK, match="BIC-1901"):
        upgrade(site, second, start=start)

    assert site.status.plugin_version == "2.0"
    require_no_upgrade(site.home, "job")


def test_a_note_that_cannot_be_written_leads_back_to_the_former_version(site):
    running(site)
    second = site.install("2.0")
    obstacle = site.home.folder("job").path / f".upgrade.json-{os.getpid()}"

    def prepare():  # The job stops after this.
        obstacle.mkdir()
        return Ahead(site)

    with raises(UPGRADE_FAILED, match=obstacle.name):
        upgrade(site, second, prepare=prepare)
    require_no_upgrade(site.home, "job")
    assert (site.status.state, site.status.plugin_version) == (JobState.RUNNING, "1.0")

    obstacle.rmdir()
    upgrade(site, second, token="another")
    assert site.status.plugin_version == "2.0"


def test_the_note_of_an_operation_that_is_over_is_replaced(site):
    first = running(site)
    second = site.install("2.0")

    def start(_request, *, is_trial=False):
        raise Killed

    with pytest.raises(Killed):
        upgrade(site, second, start=start)
    site.start(site.request(first))
    call = OperationCall(
        home=site.home, clock=SystemClock(), job="job", token="new", asked_ms=1,
        open_tokens=lambda _kind: {"t", "new"},
    )  # fmt: skip
    options = UPGRADE.parse({"digest": second})
    with raises(UPGRADE_UNDERWAY):
        UPGRADE.settle(call, options)
    forget_ended(site.home, "job", tokens=call.open_tokens("upgrade"))
    require_no_upgrade(site.home, "job", tokens={"new"})
    assert UPGRADE.settle(replace(call, open_tokens=lambda _kind: {"new"}), options) == options

    forget_ended(site.home, "job", tokens={"new"})
    upgrade(site, second, token="new")
    assert site.status.plugin_version == "2.0"
