"""Look-ups in state by a child process: it stays, may die, and its errors are told as they are."""

import asyncio
import os
import resource
import signal
import threading

import pytest

from bicycle_runtime.base.children import NoAnswerError
from bicycle_runtime.jobs.errors import OPERATOR_UNKNOWN
from bicycle_runtime.recovery.errors import EPOCH_UNKNOWN
from bicycle_runtime.service.errors import READING_TIMED_OUT, SERVICE_BUSY, STATE_READER_ENDED
from bicycle_runtime.service.state_lookups import StateLookups
from bicycle_runtime.testing import Harness
from tests.raising import raises
from tests.unit.cli.state_jobs import every_state
from tests.waiting import until


@pytest.fixture(scope="module")
def harness():
    with Harness(every_state, parallelism=2) as harness:
        harness.push([("tea", 3)], source="prices")
        for number in (1, 2):
            harness.push([("ada", number), ("bob", number)], source="records")
            harness.run_epoch()
        yield harness


@pytest.fixture
def lookups():
    lookups = StateLookups()
    yield lookups
    lookups.close()


def asked(lookups, url, about, **words):
    return asyncio.run(lookups.ask(url, {"about": about, "limit": 5, **words}))


def process_of(lookups, url):
    return lookups._children[url].process


def test_each_question_is_answered_by_the_same_child(lookups, harness):
    url = harness.storage.url
    outline = asked(lookups, url, "outline")
    first = process_of(lookups, url).pid

    assert (outline["epoch"], outline["epochs"]) == (2, [1, 2])
    whole = asked(lookups, url, "operators")["operators"]
    assert [each["operator"] for each in whole] == [
        each["operator"] for each in outline["operators"]
    ]
    found = asked(lookups, url, "entries", operator="counts", key="ada")
    assert [each["key"] for each in found["entries"]] == ["ada"]
    changes = asked(lookups, url, "changes")
    assert changes["epochs"] == [1, 2]
    assert asked(lookups, url, "changes", since=2)["epochs"] == [2, 2]
    assert process_of(lookups, url).pid == first


def test_what_only_the_plugin_could_load_is_shown_by_its_type(lookups, harness):
    found = asked(lookups, harness.storage.url, "entries", operator="memory", state="baskets")
    [value, *_] = [each["value"] for each in found["entries"]]
    assert value["$opaque"].endswith("state_jobs.Basket")


def test_errors_are_those_of_the_commands(lookups, harness):
    with raises(OPERATOR_UNKNOWN):
        asked(lookups, harness.storage.url, "entries", operator="nobody")
    with raises(EPOCH_UNKNOWN):
        asked(lookups, harness.storage.url, "entries", epoch=10**30)


def test_a_child_that_was_killed_is_followed_by_another(lookups, harness):
    url = harness.storage.url
    asked(lookups, url, "outline")
    child = process_of(lookups, url)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()

    assert asked(lookups, url, "outline")["epoch"] == 2
    assert process_of(lookups, url).pid != child.pid


def test_three_children_at_most_and_none_at_the_end(harness, tmp_path):
    lookups = StateLookups()
    places = [tmp_path / name for name in "abcd"]
    for place in places:
        for path in harness.storage.list(""):
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_bytes(harness.storage.read(path))
    asked(lookups, str(places[0]), "outline")
    oldest = process_of(lookups, str(places[0]))
    for place in places[1:]:
        asked(lookups, str(place), "outline")
    others = [process_of(lookups, str(place)) for place in places[1:]]

    assert oldest.poll() is not None
    lookups.close()
    assert all(each.poll() is not None for each in others)


def test_a_child_that_hangs_is_ended_and_told(lookups, harness, monkeypatch):
    url = harness.storage.url
    asked(lookups, url, "outline")
    child = process_of(lookups, url)
    os.kill(child.pid, signal.SIGSTOP)
    monkeypatch.setattr("bicycle_runtime.service.state_lookups._TIMEOUT_S", 0.2)

    with raises(READING_TIMED_OUT):
        asked(lookups, url, "outline")
    assert child.poll() is not None


PREPARED = """
import os
import sys
from bicycle_runtime.base.pipes import Questions
questions = Questions(sys.argv[1])
questions.next()
"""


def child_that(monkeypatch, tmp_path, last):
    """Take a module of the test in place of the child's."""
    (tmp_path / "state_child_of_a_test.py").write_text(PREPARED + last)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("bicycle_runtime.service.state_lookups._MODULE", "state_child_of_a_test")


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        ("sys.exit(3)", "exit code 3: no output"),
        ("sys.exit('the disk is gone')", "exit code 1: the disk is gone"),
        ("os.kill(os.getpid(), 9)", "SIGKILL"),
        ("questions.send(b'oops')", "b'oops' is not the start of a frame"),
        ("questions.send(b'BXF1' + (1 << 40).to_bytes(8, 'little') + bytes(4))", "1099511627776"),
        ("questions.send(b'BXF1' + bytes(2))", "exit code 0"),
    ],
)
def test_children_that_end_without_an_answer_are_told_as_that(
    lookups, tmp_path, monkeypatch, last, reason
):
    child_that(monkeypatch, tmp_path, last)

    with raises(STATE_READER_ENDED) as raised:
        asked(lookups, str(tmp_path), "outline")
    assert raised.value.facts["attempts"] == 2
    assert reason in raised.value.facts["reason"]
    assert not lookups._children


def test_descriptors_above_those_that_select_knows_are_read(lookups, harness):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4_096, hard), hard))
    taken = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while taken[-1] < 1_100:
            taken.append(os.dup(taken[0]))
        assert asked(lookups, harness.storage.url, "outline")["epoch"] == 2
        [child] = lookups._children.values()
        assert child._answers > 1_023
    finally:
        for each in taken:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_too_many_questions_are_refused(lookups, harness, monkeypatch):
    monkeypatch.setattr("bicycle_runtime.service.state_lookups._WAITING_MAX", 0)
    with raises(SERVICE_BUSY):
        asked(lookups, harness.storage.url, "outline")


class SlowChild:
    """A child whose answer takes the time in the question, unless it is ended."""

    def __init__(self, _module, url):
        self.url, self.has_ended = url, threading.Event()

    def answer_to(self, question, *, timeout_s):
        if self.has_ended.wait(question["takes_s"]):
            raise NoAnswerError("SIGKILL")
        return {"answer": {"url": self.url}}, ()

    def end(self, *, within_s=0.0):
        self.has_ended.set()
        return "SIGKILL"


def test_a_child_that_answers_is_not_ended_for_others(lookups, monkeypatch):
    monkeypatch.setattr("bicycle_runtime.service.state_lookups.Child", SlowChild)

    async def both():
        slow = asyncio.create_task(lookups.ask("large", {"takes_s": 0.5}))
        await asyncio.to_thread(until, lambda: lookups._children, "the child")
        for name in "abcdabcd":
            await lookups.ask(name, {"takes_s": 0.01})
        return await slow

    assert asyncio.run(both()) == {"url": "large"}
    assert len(lookups._children) == 3
