"""Who begins next: slots, quotas, and fairness between owners, with random arrivals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.base.stored import decode_stored, encode_stored
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.service.operations.admission import (
    Claim,
    KeptUse,
    PastUse,
    Slots,
    WaitingJob,
    admit,
    pool_of,
)
from bicycle_runtime.service.operations.job_queue import JobQueue
from bicycle_runtime.service.operations.starting import SubmitFacts
from bicycle_runtime.service.service import Service
from bicycle_runtime.service.users.owners import Quota
from bicycle_runtime.service.watching.fleet import Fleet
from bicycle_runtime.service.watching.states import State
from bicycle_sdk.clock import SystemClock
from tests.unit.service.fleets import known

MINUTE_MS = 60_000


def job(number, owner="ada", *, slots=1, asked_ms=0, pool="local"):
    return WaitingJob(
        number=number, job=f"job-{number}", owner=owner, pool=pool, slots=slots, asked_ms=asked_ms
    )


def begun(waiting, running=(), *, total=4, quotas=None, now_ms=0, past=None):
    return admit(
        waiting, running, slots=Slots({"local": total}), quotas=quotas or {}, now_ms=now_ms,
        past=past,
    )  # fmt: skip


def in_order(waiting, *, total, minutes):
    """Run jobs one after the other, each for so long, and return their owners in order."""
    past, running, order, now_ms = PastUse(), [], [], 0
    while len(order) < len(waiting):
        past.note(running, now_s=now_ms / 1_000)
        running = running[1:]  # The one that began first has ended.
        known = [each for each in waiting if each.asked_ms <= now_ms and each not in order]
        for number in begun(known, running, total=total, now_ms=now_ms, past=past).begun:
            [job] = [each for each in waiting if each.number == number]
            past.begin(job, now_ms=now_ms)
            running.append(job.claim())
            order.append(job)
        now_ms += minutes * MINUTE_MS
    return [each.owner for each in order]


def test_with_one_slot_an_owner_who_queued_first_does_not_run_all_jobs_first():
    waiting = [job(n) for n in range(20)] + [job(20, "bob", asked_ms=5), job(21, "bob", asked_ms=5)]

    assert in_order(waiting, total=1, minutes=1)[:5] == ["ada", "bob", "ada", "bob", "ada"]


def test_a_backlog_that_waits_for_ten_minutes_does_not_come_before_other_owners():
    late = [job(100 + n, "bob", asked_ms=15 * MINUTE_MS) for n in range(3)]
    owners = in_order([*(job(n) for n in range(40)), *late], total=1, minutes=1)

    assert owners.index("bob") == 15
    assert owners[15:18] == ["bob", "bob", "bob"]  # It has used nothing in that hour.


def test_past_use_halves_in_an_hour():
    past = PastUse()
    past.note([], now_s=0.0)
    past.note([Claim(job="a", owner="ada", pool="local", slots=2)], now_s=60.0)
    soon = past.slots("ada")
    past.note([], now_s=3_660.0)

    assert soon == pytest.approx(2 * 60 * 0.6931 / 3_600, rel=1e-3)
    assert past.slots("ada") == pytest.approx(soon / 2)
    assert past.slots("bob") == 0.0


def test_past_use_outlives_the_process_that_counted_it():
    past, next_past = PastUse(), PastUse()
    past.begin(job(1), now_ms=500)
    kept = decode_stored(encode_stored(past.keep(now_ms=1_000)), KeptUse, path="past-use.json")
    next_past.restore(kept, now_ms=1_000 + 60 * MINUTE_MS)

    assert next_past.slots("ada") == pytest.approx(past.slots("ada") / 2)
    assert next_past.begun_ms == past.begun_ms == {("ada", "local"): 500}


def test_owners_take_turns_and_of_one_the_first_is_first():
    waiting = [job(1), job(2), job(3), job(4, "bob", asked_ms=9), job(5, "bob", asked_ms=8)]

    found = begun(waiting)

    assert found.begun == [1, 5, 2, 4]
    assert found.reasons == {3: "needs 1 slot; 0 of 4 slots on this machine are free"}


def test_an_owner_waits_for_his_quota_and_nobody_waits_for_him():
    running = [Claim(job="a", owner="ada", pool="local", slots=2)]
    waiting = [job(1, slots=2), job(2, "bob", asked_ms=1)]

    found = begun(waiting, running, quotas={"ada": Quota(slots=3)}, now_ms=30 * MINUTE_MS)

    assert found.begun == [2]
    assert found.reasons == {1: "needs 2 slots; ada uses 2 of a quota of 3"}


def test_a_wide_job_that_waits_for_ten_minutes_gets_the_next_slots():
    running = [Claim(job="a", owner="cy", pool="local", slots=2)]
    waiting = [job(1, slots=4), job(2, "bob", asked_ms=11 * MINUTE_MS)]

    soon = begun(waiting, running, now_ms=5 * MINUTE_MS)
    late = begun(waiting, running, now_ms=12 * MINUTE_MS)

    assert soon.begun == [2]
    assert late.begun == []
    whose = "another owner's job"
    assert late.reasons[2] == f"waits for {whose}, which gets the next slots of local"


def test_a_job_wider_than_its_master_takes_all_of_it_and_unknown_masters_queue_by_themselves():
    assert begun([job(1, slots=9), job(2)]).begun == [1]
    assert begun([job(n, slots=50, pool="yarn") for n in range(3)]).begun == [0, 1, 2]


@pytest.mark.parametrize("master", [None, "local", "local[*]", "local[4,2]"])
def test_embedded_sparks_share_this_machine(master):
    assert pool_of(master) == "local"


@st.composite
def loads(draw):
    owners = ["ada", "bob", "cy"]
    waiting = [
        job(
            number, draw(st.sampled_from(owners)), slots=draw(st.integers(1, 6)),
            asked_ms=draw(st.integers(0, 20)) * MINUTE_MS,
        )
        for number in range(draw(st.integers(0, 12)))
    ]  # fmt: skip
    running = [
        Claim(job=f"r{n}", owner=draw(st.sampled_from(owners)), pool="local", slots=1)
        for n in range(draw(st.integers(0, 4)))
    ]
    quotas = {
        owner: Quota(slots=draw(st.integers(1, 5))) for owner in owners if draw(st.booleans())
    }
    return waiting, running, quotas, draw(st.integers(1, 8))


@given(loads())
def test_bounds_hold_and_what_fits_begins(load):
    waiting, running, quotas, total = load
    now_ms = 20 * MINUTE_MS
    found = begun(waiting, running, quotas=quotas, total=total, now_ms=now_ms)
    by_number = {each.number: each for each in waiting}
    new = [by_number[number].claim() for number in found.begun]
    used = sum(min(claim.slots, total) for claim in [*running, *new])

    assert sorted([*found.begun, *found.reasons]) == sorted(by_number)
    assert used <= max(total, len(running))
    for owner, quota in quotas.items():
        of_owner = [each for each in [*running, *new] if each.owner == owner]
        before = sum(each.owner == owner for each in running)
        # One that is wider than the quota may run alone.
        counted = sum(min(each.slots, total, quota.slots) for each in of_owner)
        assert counted <= max(quota.slots, before)
    if all(now_ms - each.asked_ms < 10 * MINUTE_MS for each in waiting):
        left = [by_number[number] for number in found.reasons]
        again = begun(left, [*running, *new], quotas=quotas, total=total, now_ms=now_ms)
        assert again.begun == []


@given(st.lists(st.tuples(st.sampled_from(["ada", "bob", "cy"]), st.integers(1, 3)), max_size=25))
def test_every_job_begins_at_last_while_others_come_and_go(arrivals):
    """Each minute the oldest job ends, and a small one of another owner arrives."""
    waiting = [job(n, owner, slots=slots) for n, (owner, slots) in enumerate(arrivals)]
    left, running, minute = {each.number for each in waiting}, [], 0
    while left:
        waiting.append(job(1_000 + minute, "dee", asked_ms=minute * MINUTE_MS))
        found = begun(waiting, running, total=3, now_ms=minute * MINUTE_MS)
        running += [each.claim() for each in waiting if each.number in found.begun]
        waiting = [each for each in waiting if each.number in found.reasons]
        left -= set(found.begun)
        running = running[1:]
        minute += 1
        assert minute < 200


def test_owners_with_endless_jobs_get_equal_parts():
    waiting = [job(n, owner) for n, owner in enumerate(["ada"] * 30 + ["bob"] * 30 + ["cy"] * 30)]
    found = begun(waiting, total=9)
    owners = [waiting[number].owner for number in found.begun]

    assert {owner: owners.count(owner) for owner in owners} == {"ada": 3, "bob": 3, "cy": 3}


def test_a_declared_number_wins_over_what_a_master_says():
    slots = Slots({"spark://a:1": 3, "spark://b:1": "http://b:8081"})
    slots.tell("spark://a:1", 9)
    slots.tell("spark://b:1", 9)
    slots.tell("spark://c:1", None)

    told = [slots.of(each) for each in ("spark://a:1", "spark://b:1", "spark://c:1")]
    assert told == [3, 9, None]
    assert slots.pools() == ["local", "spark://a:1", "spark://b:1"]
    assert slots.is_fixed("spark://a:1") and not slots.is_fixed("spark://b:1")


def test_the_service_goes_on_with_the_past_use_that_it_has_stored(tmp_path):
    path = tmp_path / "home/service/past-use.json"
    path.parent.mkdir(parents=True)
    now_ms = SystemClock().now_ms()
    used = KeptUse(at_ms=now_ms, slot_seconds={"ada": 3_600.0}, begun=[("ada", "local", 5)])
    path.write_bytes(encode_stored(used))
    with Service(Home(tmp_path / "home"), clock=SystemClock()):
        path.unlink()
    kept = decode_stored(path.read_bytes(), KeptUse, path=str(path))

    assert 3_000 < kept.slot_seconds["ada"] <= 3_600
    assert kept.begun == [("ada", "local", 5)]


@pytest.mark.parametrize("answer", [None, 0])
def test_jobs_wait_while_a_master_does_not_answer_or_has_no_workers(answer):
    slots, pool = Slots(), "spark://a:1"
    slots.tell(pool, 4)
    slots.tell(pool, answer)
    running = [Claim(job="x", owner="ada", pool=pool, slots=4)]
    waiting = [job(number, slots=4, pool=pool) for number in range(3)]

    assert admit(waiting, running, slots=slots, quotas={}, now_ms=0).begun == []


class NoQuotas:
    def quotas(self):
        return {}


def test_a_job_uses_the_slots_that_it_was_given_while_it_starts(tmp_path):
    begun, fleet = [], Fleet()
    queue = JobQueue(
        tmp_path / "queued", fleet, NoQuotas(), Slots({"local": 8}), clock=SystemClock(),
        begin=lambda number, _facts: begun.append(number),
    )  # fmt: skip
    for number in (1, 2, 3):
        facts = SubmitFacts(plugin="p", options={"parallelism": 4})
        queue.add(number, f"job-{number}", "ada", facts, asked_ms=number)
    queue._look()
    starting = tuple(known(f"job-{n}", state=State.CREATED, started_ms=9) for n in (1, 2))
    fleet.publish(starting, ["job-1", "job-2"], [], as_of_ms=9)
    queue._look()

    assert begun == [1, 2]
    assert [claim.slots for claim in queue.claims()] == [4, 4]
