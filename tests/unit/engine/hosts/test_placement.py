from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.engine.hosts.placement import assign_tasks

SLOTS = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 4), min_size=1)
PARALLELISMS = st.integers(1, 40)


def is_even(assigned, slots):
    """Tell whether each host has its share of tasks, rounded down or up."""
    total = sum(slots.values())
    counts = Counter(assigned)
    exact = {host: len(assigned) * count / total for host, count in slots.items()}
    return all(int(exact[host]) <= counts[host] <= int(exact[host]) + 1 for host in slots)


@given(parallelism=PARALLELISMS, slots=SLOTS)
def test_every_task_has_a_host_and_every_host_its_share(parallelism, slots):
    assigned = assign_tasks(parallelism, slots)

    assert len(assigned) == parallelism
    assert set(assigned) <= slots.keys()
    assert is_even(assigned, slots)


@given(parallelism=PARALLELISMS, before=SLOTS, after=SLOTS)
def test_when_hosts_change_the_share_stays_even_and_no_task_moves_without_need(
    parallelism, before, after
):
    former = assign_tasks(parallelism, before)

    assigned = assign_tasks(parallelism, after, former)

    assert is_even(assigned, after)
    counts = Counter(assigned)
    for task, host in enumerate(assigned):
        home = former[task]
        # A task that left a host which stays was more than the share of that host.
        assert (
            host == home
            or home not in after
            or counts[home] >= parallelism * after[home] // sum(after.values())
        )


@given(parallelism=PARALLELISMS, slots=SLOTS)
def test_the_same_hosts_keep_the_same_tasks(parallelism, slots):
    assigned = assign_tasks(parallelism, slots)

    assert assign_tasks(parallelism, slots, assigned) == assigned


def test_tasks_of_a_lost_host_go_elsewhere_and_come_back_with_it():
    both = {"a": 1, "b": 1}
    assigned = assign_tasks(4, both)

    alone = assign_tasks(4, {"a": 1}, assigned)
    again = assign_tasks(4, both, alone)

    assert alone == ["a"] * 4
    assert Counter(again) == {"a": 2, "b": 2}


@given(parallelism=st.integers(1, 12), factor=st.integers(1, 4), slots=SLOTS)
def test_tasks_that_are_divided_or_joined_stay_with_their_keys(parallelism, factor, slots):
    """As long as every host can have its even share of them."""
    parallelism *= sum(slots.values())
    few = assign_tasks(parallelism, slots)

    many = assign_tasks(parallelism * factor, slots, few)

    assert many == [host for host in few for _ in range(factor)]
    assert assign_tasks(parallelism, slots, many) == few


@given(before=PARALLELISMS, after=PARALLELISMS, slots=SLOTS)
def test_another_parallelism_is_shared_evenly_too(before, after, slots):
    assert is_even(assign_tasks(after, slots, assign_tasks(before, slots)), slots)
