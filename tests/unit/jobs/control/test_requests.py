import json
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from bicycle_runtime.base.errors import STORED_NEWER
from bicycle_runtime.base.processes import start_ticks
from bicycle_runtime.base.stored import STORED_VERSION
from bicycle_runtime.jobs.control.requests import Inbox, ask_job
from bicycle_runtime.jobs.errors import (
    JOB_NOT_FOUND,
    REQUEST_CUT_SHORT,
    REQUEST_TIMED_OUT,
    REQUEST_UNKNOWN,
    JobNotRunningError,
)
from bicycle_runtime.jobs.status import JobState
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.errors import ConfigError
from tests.raising import raises
from tests.unit.jobs.job_samples import put_job
from tests.waiting import PATIENCE_S, until


@pytest.fixture
def inbox(home):
    put_job(home, is_ours=True)
    inbox = Inbox(home.folder("job").path)
    inbox.open()
    return inbox


class CountingClock(SystemClock):
    """Counts how often it is looked at."""

    first, count = None, 0

    def monotonic(self):
        now_s = super().monotonic()
        self.first = self.first or now_s
        self.count += 1
        return now_s


def ask(home, kind="double", timeout_ms=10_000, **facts):
    return ask_job(home, "job", kind, facts, clock=SystemClock(), timeout_ms=timeout_ms)


def files(home):
    return sorted(path.name for path in (home.folder("job").path / "requests").iterdir())


class Driver:
    """Serves in a thread until the test is over."""

    def __init__(self, inbox, **handlers):
        self._inbox, self._handlers, self._ended = inbox, handlers, threading.Event()

    def __enter__(self):
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()

    def _run(self):
        while not self._ended.wait(0.005):
            self._inbox.serve(self._handlers)


def test_a_request_is_met_with_its_facts_and_leaves_no_file(home, inbox):
    with Driver(inbox, double=lambda facts: {"value": 2 * facts["value"]}):
        assert ask(home, value=21) == {"value": 42}
    assert files(home) == []


def test_an_error_of_the_job_is_raised_where_it_was_asked(home, inbox):
    def refuse(_facts):
        raise ConfigError(problem="no", hint="ask for less")

    with Driver(inbox, double=refuse), pytest.raises(ConfigError) as caught:
        ask(home)
    assert caught.value.facts == {"problem": "no", "hint": "ask for less"}


def test_what_the_job_cannot_do_is_told_with_what_it_can(home, inbox):
    with Driver(inbox, halve=dict), raises(REQUEST_UNKNOWN) as caught:
        ask(home)
    assert caught.value.facts == {"kind": "double", "known_text": "halve"}


def test_requests_are_met_in_the_order_in_which_they_were_asked(home, inbox):
    folder, met = home.folder("job").path / "requests", []
    for number in (2, 1, 3):
        asked = {"kind": "note", "facts": {"number": number}}
        (folder / f"{number}.request.json").write_text(json.dumps(asked))

    inbox.serve({"note": lambda facts: met.append(facts["number"]) or {}})

    assert met == [1, 2, 3]


def test_a_file_that_is_no_request_is_answered_with_an_error(home, inbox):
    folder = home.folder("job").path / "requests"
    (folder / "1.request.json").write_text("{")

    inbox.serve({})

    assert json.loads((folder / "1.answer.json").read_text())["error"]["code"] == "BIC-1936"


def test_requests_and_answers_have_a_version_and_newer_ones_are_refused(home, inbox):
    folder, seen = home.folder("job").path / "requests", []

    def look(facts):
        [path] = folder.glob("*.request.json")
        seen.append(json.loads(path.read_text())["format_version"])
        return facts

    with Driver(inbox, double=look):
        ask(home, value=1)
    assert seen == [STORED_VERSION]

    newer = {"format_version": STORED_VERSION + 1, "kind": ["of the next version"]}
    (folder / "1.request.json").write_text(json.dumps(newer))
    inbox.serve({})

    answer = json.loads((folder / "1.answer.json").read_text())
    assert answer["format_version"] == STORED_VERSION
    assert answer["error"]["code"] == STORED_NEWER.code


def test_a_request_that_is_not_met_in_time_is_withdrawn(home, inbox):
    with raises(REQUEST_TIMED_OUT) as caught:
        ask(home, timeout_ms=120)
    assert caught.value.facts["waited_ms"] == 120
    assert files(home) == []


def test_a_request_that_is_not_met_in_time_names_what_the_job_does(home, inbox):
    put_job(home, is_ours=True, epoch=6, epoch_began_ms=1)
    with raises(REQUEST_TIMED_OUT) as caught:
        ask(home, timeout_ms=60)
    assert "; its epoch 7 has run for " in caught.value.summary


@pytest.mark.parametrize("is_awaited", [True, False])
def test_what_ended_a_driver_is_not_tried_again_by_the_next_one(home, is_awaited):
    put_job(home, is_ours=True)
    path, tried = home.folder("job").path, []
    first = Inbox(path, tried_once=frozenset({"widen"}))
    first.open()

    def die(facts):
        tried.append(facts)
        raise KeyboardInterrupt

    def drivers():
        with pytest.raises(KeyboardInterrupt):
            until(lambda: first.serve({"widen": die, "note": die}), "the end of the driver")
        if not is_awaited:
            for begun in (path / "requests").glob("*.begun.json"):
                begun.write_text(json.dumps({"kind": "widen", "facts": {}, "asker": [1, 1]}))
        second = Inbox(path, tried_once=frozenset({"widen"}))
        second.open(is_again=True)
        second.serve({"widen": die})

    with ThreadPoolExecutor(1) as pool:
        driver = pool.submit(drivers)
        if is_awaited:
            with raises(REQUEST_CUT_SHORT) as caught:
                ask(home, "widen")
            assert caught.value.facts == {"job": "job", "kind": "widen"}
        else:
            with raises(REQUEST_TIMED_OUT):
                ask(home, "widen", timeout_ms=500)
        driver.result()
    assert tried == [{}]
    assert files(home) == []


def test_a_request_that_another_driver_may_begin_again_is_met_by_it(home):
    put_job(home, is_ours=True)
    path = home.folder("job").path
    first = Inbox(path, tried_once=frozenset({"widen"}))
    first.open()
    asked = {"kind": "note", "facts": {}}
    (path / "requests" / "1.request.json").write_text(json.dumps(asked))

    def die(_facts):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        first.serve({"note": die})
    second, met = Inbox(path), []
    second.open(is_again=True)
    second.serve({"note": lambda facts: met.append(facts) or {}})
    assert met == [{}]


def test_a_job_that_has_ended_cannot_be_asked(home):
    put_job(home, state=JobState.STOPPED)
    with pytest.raises(JobNotRunningError) as caught:
        ask(home)
    assert caught.value.facts["state"] == "STOPPED"


def test_a_job_that_ends_before_it_answers_is_an_error(home, inbox):
    put_job(home, pid=2**22 + 1)  # no such process: it was killed
    with pytest.raises(JobNotRunningError):
        ask(home)


def test_an_unknown_job_cannot_be_asked(home):
    with raises(JOB_NOT_FOUND):
        ask(home)


def test_what_was_asked_of_an_earlier_run_is_not_met(home, inbox):
    (home.folder("job").path / "requests" / "1.request.json").write_text("{}")

    inbox.open()

    assert files(home) == []


def test_what_was_asked_of_a_driver_that_died_is_met_by_the_next_one_and_waiting_sleeps(home):
    folder = put_job(
        home, pid=2**22 + 1, supervisor_pid=os.getpid(), supervisor_started=start_ticks(os.getpid())
    )
    clock, timeout_ms = CountingClock(), round(PATIENCE_S * 1_000)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(
            ask_job, home, "job", "double", {"value": 21}, clock=clock, timeout_ms=timeout_ms
        )
        until(lambda: clock.count > 20, "some looks")
        assert clock.monotonic() - clock.first >= 0.5  # Else it would keep a core busy.
        next_inbox = Inbox(folder.path)
        next_inbox.open(is_again=True)
        put_job(home, is_ours=True)
        with Driver(next_inbox, double=lambda facts: {"value": 2 * facts["value"]}):
            assert answer.result(PATIENCE_S) == {"value": 42}
    assert files(home) == []


def test_a_request_of_somebody_who_was_killed_is_not_met(home, inbox):
    met = []
    folder = home.folder("job").path / "requests"
    asked = {"kind": "note", "facts": {}, "asker": [2**22 + 1, 5]}
    (folder / "1.request.json").write_text(json.dumps(asked))

    inbox.serve({"note": lambda facts: met.append(facts) or {}})

    assert (met, files(home)) == ([], [])


def test_a_request_in_work_is_met_again_when_the_driver_dies_meanwhile(home, inbox):
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, home, value=21)
        begun = []
        while not begun:
            inbox.serve({"double": lambda facts: begun.append(facts) or Future()})
        second = Inbox(home.folder("job").path)
        second.open(is_again=True)
        second.serve({"double": lambda facts: {"value": 2 * facts["value"]}})
        assert answer.result(PATIENCE_S) == {"value": 42}


def test_a_request_that_is_still_being_written_is_left_alone(home, inbox):
    half = home.folder("job").path / "requests" / ".1.request.json"
    half.write_text('{"kind": "dou')

    inbox.serve({"double": dict})

    assert files(home) == [half.name]


def test_what_takes_longer_is_answered_when_it_is_done_while_the_job_goes_on(home, inbox):
    later, asked_for = Future(), []

    def start(facts):
        asked_for.append(facts)
        return later

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, home, value=21)
        while not asked_for:
            inbox.serve({"double": start})
        inbox.serve({"double": start})
        assert len(files(home)) == 1
        assert not answer.done()
        later.set_result({"value": 42})
        assert answer.result() == {"value": 42}
    assert asked_for == [{"value": 21}]
    assert files(home) == []


def test_an_error_that_comes_later_is_raised_where_it_was_asked(home, inbox):
    later = Future()
    later.set_exception(ConfigError(problem="no", hint="ask for less"))

    with Driver(inbox, double=lambda _facts: later), pytest.raises(ConfigError):
        ask(home)
