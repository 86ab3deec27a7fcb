"""Keys of records: how often the key function of a job is called, and what follows its errors."""

import pytest

from bicycle_runtime.testing import Harness, script_source

ASKED = []


def noted_key(record):
    ASKED.append(record)
    return record[0]


def refusing_key(record):
    ASKED.append(record)
    if record[0] == "bad":
        raise ValueError("no such key")
    return record[0]


def counted_by(key_of, *, combines):
    """Return a job that counts by key and ten milliseconds."""

    def job(env):
        timed = env.add_source(script_source()).assign_timestamps(lambda record: record[1])
        keyed = timed.key_by(key_of).uid("keys").on_error("skip")
        keyed.tumbling_window(10).pre_combine(combines).count().map(tuple).collect("out")

    return job


def counts(job, records):
    """Return what a job gives, how often it asked for a key, and how many failed by operator."""
    ASKED.clear()
    with Harness(job) as harness:
        harness.push(records)
        harness.end()
        stats = harness.run_epoch()
        harness.run()
        failed = {uid: count.failed for uid, count in stats.counts.items() if count.failed}
        return sorted(harness.results("out")), len(ASKED), failed


RECORDS = [(key, time) for time in range(20) for key in ("ada", "bob")]
COUNTS = [(key, start, start + 10, 10) for key in ("ada", "bob") for start in (0, 10)]


def test_a_record_that_is_folded_before_it_travels_is_asked_for_its_key_once():
    found, asked, _ = counts(counted_by(noted_key, combines=True), RECORDS)

    assert found == COUNTS
    assert asked == len(RECORDS) + 1  # One of them is in the sample of frequent keys.


@pytest.mark.parametrize("combines", [True, False])
def test_a_record_without_a_key_is_told_once_and_the_others_keep_theirs(combines):
    records = [*RECORDS[:7], ("bad", 3), *RECORDS[7:]]
    found, _, failed = counts(counted_by(refusing_key, combines=combines), records)

    assert found == COUNTS
    assert failed == {"keys": 1}


@pytest.mark.parametrize("combines", [True, False])
def test_records_that_are_their_own_keys_are_counted_under_them(combines):
    job = counted_by(lambda record: record, combines=combines)
    found, _, _ = counts(job, [("ada", 1), ("bob", 1), ("ada", 1)])

    assert found == [(("ada", 1), 0, 10, 2), (("bob", 1), 0, 10, 1)]
