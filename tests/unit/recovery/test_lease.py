"""The lease of a job: one of several drivers advances it, one that slept stays out."""

import logging
import os
import random
import signal
import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from bicycle_runtime.base.process_identity import ProcessIdentity, is_surely_gone, this_process
from bicycle_runtime.base.processes import start_ticks
from bicycle_runtime.base.storage import LocalStorage, StorageError
from bicycle_runtime.recovery.errors import LEASE_LOST, LeaseHeldError
from bicycle_runtime.recovery.lease import Lease, LeaseHolder, LeaseKeeper
from bicycle_sdk.clock import ManualClock, SystemClock
from tests.raising import raises
from tests.waiting import until

ELSEWHERE = ProcessIdentity(host="other", pid=17, started=4, space="another boot")


class Watch:
    """A clock whose pauses pass at once, and do what a test wants to happen meanwhile."""

    def __init__(self):
        self.clock = ManualClock(1_000_000)
        self.meanwhile = []

    def pause(self, seconds):
        self.clock.advance(round(seconds * 1_000))
        if self.meanwhile:
            self.meanwhile.pop(0)()


@pytest.fixture
def storage(tmp_path):
    return LocalStorage(str(tmp_path), is_synced=False)


@pytest.fixture
def watch():
    return Watch()


def lease_of(storage, watch, process=ELSEWHERE, **settings):
    return Lease(
        storage, job="job", clock=watch.clock, source=random.Random(), pause=watch.pause,
        process=process, **settings,
    )  # fmt: skip


def taken(storage, watch, process=ELSEWHERE, **settings):
    lease = lease_of(storage, watch, process, **settings)
    lease.acquire()
    return lease


def gone_process():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        started = start_ticks(child.pid)
        child.kill()
    return replace(this_process(), pid=child.pid, started=started)


def test_the_first_driver_takes_number_one_at_once(storage, watch):
    lease = taken(storage, watch)

    assert (lease.number, lease.is_contested) == (1, False)
    assert watch.clock.now_ms() == 1_000_000
    lease.require()


def test_a_live_driver_is_not_robbed_and_the_error_names_it(storage, watch):
    holder = taken(storage, watch)
    watch.meanwhile = [lambda: None, holder.beat]

    with pytest.raises(LeaseHeldError) as caught:
        taken(storage, watch, this_process())
    facts = caught.value.facts
    assert (facts["host"], facts["pid"], facts["number"]) == ("other", 17, 1)
    assert facts["since"] == "1970-01-01T00:16:40+00:00"
    assert watch.clock.now_ms() <= 1_001_000  # One beat is enough to know.
    holder.require()


def test_a_driver_without_a_sign_of_life_is_replaced_within_four_seconds_and_fenced(storage, watch):
    zombie = taken(storage, watch)
    lease = taken(storage, watch, this_process())

    assert (lease.number, lease.is_contested) == (2, True)
    assert watch.clock.now_ms() == 1_004_000
    with raises(LEASE_LOST) as caught:
        zombie.require()
    assert caught.value.facts["number"] == 2
    assert caught.value.facts["own_number"] == 1
    assert caught.value.facts["pid"] == os.getpid()
    assert not zombie.beat()
    lease.require()


def test_the_beat_of_the_holder_decides_how_long_its_silence_is_watched(storage, watch):
    taken(storage, watch, beat_ms=5_000)
    taken(storage, watch, this_process(), beat_ms=100)

    assert watch.clock.now_ms() == 1_020_000


def test_a_clean_end_lets_the_next_driver_in_at_once(storage, watch):
    taken(storage, watch).release()
    lease = taken(storage, watch, this_process())

    assert (lease.number, lease.is_contested) == (2, False)
    assert watch.clock.now_ms() == 1_000_000


def test_an_end_while_somebody_watches_lets_it_in(storage, watch):
    holder = taken(storage, watch)
    watch.meanwhile = [lambda: None, holder.release]
    lease = taken(storage, watch, this_process())

    assert (lease.number, lease.is_contested) == (2, False)
    assert watch.clock.now_ms() < 1_001_000


def test_a_driver_that_was_killed_on_this_machine_is_not_waited_for(storage, watch):
    taken(storage, watch, gone_process())
    lease = taken(storage, watch, this_process())

    assert (lease.number, lease.is_contested) == (2, False)
    assert watch.clock.now_ms() == 1_000_000


def test_a_stopped_process_of_this_machine_is_not_taken_for_gone():
    us = this_process()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        process = replace(us, pid=child.pid, started=start_ticks(child.pid))
        os.kill(child.pid, signal.SIGSTOP)
        assert not is_surely_gone(process, seen_by=us)
        child.kill()
    assert is_surely_gone(process, seen_by=us)
    assert not is_surely_gone(process, seen_by=replace(us, space="elsewhere"))
    assert not is_surely_gone(replace(process, space=""), seen_by=replace(us, space=""))


def test_of_two_that_see_the_same_silence_one_wins(storage, watch):
    taken(storage, watch)
    other = Watch()
    rivals = []

    def another():
        rivals.append(taken(storage, other))
        watch.meanwhile += [rivals[0].beat] * 9

    watch.meanwhile = [another]

    with pytest.raises(LeaseHeldError) as caught:
        taken(storage, watch, this_process())
    assert caught.value.facts["number"] == 2
    rivals[0].require()


def test_doubt_about_an_earlier_driver_is_inherited_until_it_is_settled(storage, watch):
    zombie = taken(storage, watch)
    taken(storage, watch, gone_process())  # It died before it could settle.
    third = taken(storage, watch, gone_process())
    assert third.is_contested

    third.settle()
    assert not third.is_contested
    assert not taken(storage, watch, this_process()).is_contested
    with raises(LEASE_LOST):
        zombie.require()


def test_doubt_outlives_a_clean_end(storage, watch):
    taken(storage, watch)
    taken(storage, watch, replace(ELSEWHERE, space="a third")).release()

    assert taken(storage, watch, this_process()).is_contested


def test_a_damaged_lease_is_watched_like_one_of_an_unknown_host(storage, watch):
    taken(storage, watch, gone_process())
    path = "lease/000000000001"
    storage.write(path, storage.read(path).replace(b"job", b"jab"))
    lease = taken(storage, watch, this_process())

    assert (lease.number, lease.is_contested) == (2, True)
    assert watch.clock.now_ms() == 1_004_000


def test_a_holder_comes_back_as_it_was_and_a_changed_byte_is_seen():
    holder = LeaseHolder(
        number=3, job="jöb", process=ELSEWHERE, since_ms=5, beat_ms=1_000, token="t",
        is_contested=True,
    )  # fmt: skip
    data = holder.to_bytes()

    assert LeaseHolder.from_bytes(data, path="f") == holder
    for position in range(len(data) - 1):
        for bit in range(8):
            changed = data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :]
            assert LeaseHolder.from_bytes(changed, path="f") in (None, holder)
        assert LeaseHolder.from_bytes(data[:position], path="f") is None


def test_what_former_leases_left_goes_but_their_numbers_stay(storage, watch):
    for _ in range(3):
        taken(storage, watch).release()
    lease = taken(storage, watch)
    lease.settle()

    assert storage.list("lease") == [
        "lease/000000000001",
        "lease/000000000002",
        "lease/000000000003",
        "lease/000000000004",
        "lease/000000000004.beat",
    ]


def test_a_driver_that_slept_through_a_thousand_others_is_fenced_by_its_next_beat(storage, watch):
    zombie = taken(storage, watch)
    storage.delete("lease/000000000001")
    storage.create("lease/000000001500", b"")

    assert not zombie.beat()
    with raises(LEASE_LOST):
        zombie.require()


def test_a_fenced_driver_writes_nothing_when_it_ends(storage, watch):
    zombie = taken(storage, watch)
    taken(storage, watch, this_process())
    zombie.beat()
    before = storage.list("lease")
    zombie.release()

    assert storage.list("lease") == before


def test_a_keeper_lets_the_heart_beat_and_tells_once_when_the_lease_is_lost(storage):
    def lease(beat_ms=100):
        return Lease(
            storage, job="job", clock=SystemClock(), source=random.Random(), beat_ms=beat_ms
        )

    lost = threading.Event()
    with LeaseKeeper(lease(), beat_ms=100, on_lost=lost.set) as held:
        with pytest.raises(LeaseHeldError):
            lease().acquire()
        storage.create("lease/000000000002", b"")
        assert lost.wait(5)
        assert held.is_lost
    assert not storage.exists("lease/000000000001.released")


def test_a_beat_that_the_storage_refuses_is_not_the_end(storage, caplog):
    refused, beats = threading.Event(), []

    class Refusing(LocalStorage):
        def write(self, path, data):
            if path.endswith(".beat"):
                beats.append(data)
                if len(beats) in (2, 3, 4):
                    refused.set()
                    raise StorageError(url=self.url, action="write", path=path, reason="a test")
            super().write(path, data)

    refusing = Refusing(storage.root, is_synced=False)
    lease = Lease(refusing, job="job", clock=SystemClock(), source=random.Random(), beat_ms=100)
    caplog.set_level(logging.INFO)
    lost, told = threading.Event(), []
    with LeaseKeeper(lease, beat_ms=10, on_lost=lost.set, on_refused=told.append):
        assert refused.wait(5)
        before = storage.read("lease/000000000001.beat")
        while storage.read("lease/000000000001.beat") == before:
            threading.Event().wait(0.01)
        until(lambda: len(told) == 4, "the beat after the refused ones")
    assert not lost.is_set()
    assert [None if error is None else error.code for error in told] == ["BIC-1130"] * 3 + [None]
    events = [record.msg for record in caplog.records]
    assert [name for name in events if name.startswith("lease_beat")] == [
        "lease_beat_failed", "lease_beats_again",
    ]  # fmt: skip
    assert storage.exists("lease/000000000001.released")
