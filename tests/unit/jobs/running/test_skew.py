"""Frequent keys and busy subtasks: from samples of epochs to what a person sees."""

import logging

import pytest

from bicycle_runtime.cli.job_commands import _operator_text
from bicycle_runtime.jobs.home import JobFolder
from bicycle_runtime.jobs.running.progress import JobProgress
from bicycle_runtime.jobs.running.skew import Skew
from bicycle_runtime.jobs.status import HotKey
from bicycle_runtime.operators.metrics import KeySample, OperatorCounts
from bicycle_sdk.clock import ManualClock
from tests.unit.jobs.job_samples import stats_of, status_of


def test_nothing_is_said_of_shares_before_enough_records_were_looked_at():
    skew = Skew()
    skew.add_keys(KeySample(record_count=99, keys={"'ada'": 99}))
    assert skew.hot_keys() == []

    skew.add_keys(KeySample(record_count=101, keys={"'bob'": 1}))
    assert skew.hot_keys() == [HotKey(key="'ada'", share=0.495), HotKey(key="'bob'", share=0.005)]


def test_shares_are_those_of_now():
    skew = Skew()
    skew.add_keys(KeySample(record_count=4_000, keys={"'ada'": 4_000}))
    for _ in range(40):
        skew.add_keys(KeySample(record_count=1_000, keys={"'bob'": 1_000}))

    assert skew.hot_keys()[0].key == "'bob'"
    assert skew.hot_keys()[0].share > 0.99


def test_many_rare_keys_take_no_room_and_hide_no_frequent_one():
    skew = Skew()
    for number in range(5_000):
        skew.add_keys(KeySample(record_count=2, keys={str(number): 1, "'ada'": 1}))

    assert len(skew._sample.keys) <= 256
    assert skew.hot_keys()[0] == HotKey(key="'ada'", share=pytest.approx(0.5, abs=0.02))


def test_a_subtask_is_compared_with_the_mean_of_all_of_them():
    skew = Skew()
    assert skew.ratio() is None
    skew.add_records({0: 30}, 3)
    assert skew.ratio() == 3.0
    skew.add_records({1: 30, 2: 15}, 3)
    assert skew.ratio() == 1.2
    skew.add_records({0: 5}, 1)  # A rescale: what was before counts no more.
    assert skew.ratio() is None


def progress_in(folder, *, parallelism):
    progress = JobProgress(
        status_of(), folder=JobFolder(folder), clock=ManualClock(), listener=lambda status: None,
        hot_key_percent=40,
    )  # fmt: skip
    progress.take_parallelisms({"sum": parallelism})
    return progress


def epoch_with(keys):
    counts = {"sum": OperatorCounts(records_in=sum(keys.values()))}
    sample = KeySample(record_count=sum(keys.values()), keys=keys)
    return stats_of(1, counts=counts, keys={"sum": sample}, subtask_counts={"sum": {0: 9, 1: 1}})


def test_a_hot_key_is_told_once(tmp_path, caplog):
    progress = progress_in(tmp_path, parallelism=2)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            progress.take_epoch(epoch_with({"'ada'": 500, "'bob'": 390, "'eve'": 110}))

    found = [record.bicycle_fields for record in caplog.records if record.message == "hot_key"]
    assert [(fields["operator"], fields["key"], fields["share"]) for fields in found] == [
        ("sum", "'ada'", 0.5)
    ]
    operator = progress.status.operators["sum"]
    assert (operator.skew, len(operator.hot_keys)) == (1.8, 3)
    text = _operator_text(operator)
    assert "busiest subtask 1.8 times the mean" in text
    assert "frequent keys 'ada' 50 %, 'bob' 39 %, 'eve' 11 %" in text


def test_where_there_is_one_subtask_no_key_is_too_hot(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        progress_in(tmp_path, parallelism=1).take_epoch(epoch_with({"'ada'": 900, "'bob'": 100}))

    assert [record for record in caplog.records if record.message == "hot_key"] == []
