"""How an epoch's budget is divided among partitions, and which subtask reads which."""

from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.connectors.kafka.planning import Backlog, fair_shares, plan_slices
from bicycle_runtime.contract import Budget

COUNTS = st.lists(st.integers(0, 1_000), min_size=1, max_size=20)


def plan(counts, *, records=1_000_000, size=1 << 30, parallelism=2):
    backlogs = [Backlog(shard=f"t/{i}", start=100, end=100 + n) for i, n in enumerate(counts)]
    budget = Budget(record_count=records, byte_count=size, parallelism=parallelism)
    return plan_slices(backlogs, budget)


@given(COUNTS, st.integers(0, 5_000))
def test_shares_use_the_budget_up_and_nobody_gets_more_than_wanted(wanted, total):
    shares = fair_shares(wanted, total)

    assert sum(shares) == min(total, sum(wanted))
    assert all(share <= want for share, want in zip(shares, wanted, strict=True))


@given(COUNTS, st.integers(0, 5_000))
def test_who_gets_less_than_wanted_gets_as_much_as_anybody(wanted, total):
    shares = fair_shares(wanted, total)
    short = [share for share, want in zip(shares, wanted, strict=True) if share < want]

    assert all(share >= max(shares) - 1 for share in short)


def test_one_big_partition_does_not_starve_the_others():
    slices = plan([1_000_000, 10, 10], records=100)

    assert {part.shard: part.end - part.start for part in slices} == {
        "t/0": 80,
        "t/1": 10,
        "t/2": 10,
    }


@given(COUNTS, st.integers(1, 7), st.integers(0, 3_000))
def test_a_partition_is_read_by_the_same_subtask_whatever_the_others_hold(counts, width, records):
    slices = plan(counts, records=records, parallelism=width)

    for index, part in enumerate(slices):
        assert index % width == int(part.shard.removeprefix("t/")) % width
    assert len({part.shard for part in slices}) == len(slices)
    assert not slices or slices[-1].start < slices[-1].end


@given(COUNTS, st.integers(0, 3_000), st.integers(0, 10_000))
def test_records_and_bytes_stay_within_the_budget(counts, records, size):
    slices = plan(counts, records=records, size=size)

    assert sum(part.end - part.start for part in slices) == min(records, sum(counts))
    assert sum(part.details["bytes"] for part in slices) <= size


def test_nothing_to_read_gives_no_slices():
    assert plan([0, 0, 0]) == []
    assert plan_slices([], Budget(record_count=1, byte_count=1, parallelism=3)) == []


@given(COUNTS, st.integers(1, 7))
def test_tasks_that_read_on_get_every_partition_of_theirs(counts, width):
    backlogs = [Backlog(shard=f"t/{i}", start=100, end=100 + n) for i, n in enumerate(counts)]
    budget = Budget(record_count=10_000, byte_count=1 << 30, parallelism=width, reads_on=True)

    slices = plan_slices(backlogs, budget)

    assert {part.shard for part in slices} == {backlog.shard for backlog in backlogs}
    for index, part in enumerate(slices):
        assert index % width == int(part.shard.removeprefix("t/")) % width
