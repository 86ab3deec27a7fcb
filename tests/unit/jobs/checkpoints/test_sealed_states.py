"""Entries of retained epochs, beside a job that goes on."""

import os

import pytest

from bicycle_runtime.jobs.checkpoints.sealed_export import export_entries
from bicycle_runtime.jobs.checkpoints.sealed_queries import Selection, diff_operator, select
from bicycle_runtime.jobs.checkpoints.sealed_states import open_epoch
from bicycle_runtime.jobs.checkpoints.sealed_values import ValueReader
from bicycle_runtime.jobs.errors import EXPORT_REFUSED, STATE_UNLOADABLE
from bicycle_runtime.recovery.errors import EpochGoneError
from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import RichAsyncFunction
from tests.raising import raises

MERGING_EPOCHS = 30  # by then the files of the first epochs have been merged into others


def counting(env):
    words = env.add_source(script_source(str)).uid("words")
    words.key_by(str).count().uid("counts").collect("out")


class Snapshots(RichAsyncFunction):
    """Says itself what its state is."""

    def __init__(self):
        self.seen = []

    def process(self, value, ctx):
        self.seen.append(value)
        return []

    def snapshot_state(self):
        return {"seen": self.seen}

    def restore_state(self, state):
        self.seen = state["seen"]


def counts(sealed, **selected):
    return {p.entry.key: p.entry.value() for p in select(sealed, Selection(**selected))}


def run_epochs(harness, epoch_count):
    for number in range(epoch_count):
        harness.push(["ada", f"word{number}"])
        harness.run_epoch()


def test_an_epoch_stays_as_it_was_while_the_job_goes_on():
    with Harness(counting) as harness:
        run_epochs(harness, 1)
        sealed = open_epoch(harness.storage)
        run_epochs(harness, 2)

        assert counts(sealed) == {"ada": 1, "word0": 1}
        assert counts(open_epoch(harness.storage)) == harness.state("counts")


def test_an_epoch_that_is_collected_while_it_is_read_is_gone():
    with Harness(counting) as harness:
        run_epochs(harness, 1)
        sealed = open_epoch(harness.storage)
        assert counts(sealed) == {"ada": 1, "word0": 1}
        run_epochs(harness, MERGING_EPOCHS)

        with pytest.raises(EpochGoneError) as caught:
            counts(sealed)
        assert caught.value.facts["epoch"] == 1


def test_an_epoch_that_is_collected_before_the_kind_of_operator_is_known_is_gone():
    with Harness(counting) as harness:
        run_epochs(harness, 1)
        sealed = open_epoch(harness.storage)
        run_epochs(harness, MERGING_EPOCHS)

        with pytest.raises(EpochGoneError):
            sealed.kind_of("counts")


def test_crashes_and_merged_files_change_nothing():
    with Harness(counting, parallelism=2) as harness:
        run_epochs(harness, MERGING_EPOCHS)
        harness.crash()
        harness.rescale(3)
        run_epochs(harness, 1)

        assert counts(open_epoch(harness.storage)) == harness.state("counts")


def test_what_a_function_says_its_state_is_is_shown_as_one_value():
    with Harness(snapshots) as harness:
        harness.push(["a", "b"])
        harness.run_epoch()

        [placed] = select(open_epoch(harness.storage), Selection(operator="snapshots"))
        assert (placed.entry.kind, placed.entry.value()) == ("snapshot", {"seen": ["a", "b"]})


class Misleading(RichAsyncFunction):
    """Has attributes that are called like sections of windows."""

    def __init__(self):
        self.p1 = [1, 2]
        self.s2 = {"a": [3]}

    def process(self, value, ctx):
        self.p1.append(value)
        self.s2["a"] = [value]
        return []


def test_attributes_that_are_called_like_sections_of_windows_are_shown_all_the_same():
    def job(env):
        words = env.add_source(script_source(str))
        words.key_by(str).process(Misleading()).uid("misleading").collect("out")

    with Harness(job) as harness:
        harness.push(["x"])
        harness.run_epoch()

        found = select(open_epoch(harness.storage), Selection(operator="misleading"))
        assert [placed.entry.value() for placed in found] == [[1, 2, "x"], ["x"]]


def snapshots(env):
    env.add_source(script_source(str)).process(Snapshots()).uid("snapshots").collect("out")


def test_epochs_without_a_difference_have_no_changes():
    with Harness(counting) as harness:
        run_epochs(harness, 2)
        sealed = open_epoch(harness.storage)

        diff = diff_operator(sealed, sealed, "counts", selection=Selection(), limit=5)
        assert sum(diff.counts.values()) == 0
        assert diff.changes == []


def test_an_operator_that_is_new_has_added_all_that_it_keeps():
    with Harness(counting) as harness:
        run_epochs(harness, 1)
        sealed = open_epoch(harness.storage)
        other = open_epoch(harness.storage)
        other.manifest.states.clear()

        diff = diff_operator(other, sealed, "counts", selection=Selection(), limit=1)
        assert diff.counts == {"added": 2, "removed": 0, "changed": 0}
        assert len(diff.changes) == 1


def test_an_export_of_an_epoch_that_goes_leaves_no_file(tmp_path):
    target = tmp_path / "state.jsonl"
    with Harness(counting) as harness:
        run_epochs(harness, 1)
        sealed = open_epoch(harness.storage)
        run_epochs(harness, MERGING_EPOCHS)

        with pytest.raises(EpochGoneError):
            export_entries(target, select(sealed, Selection()), ValueReader())
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_told(tmp_path):
    target = tmp_path / "state.jsonl"
    target.mkdir()
    with Harness(counting) as harness:
        run_epochs(harness, 1)

        entries = select(open_epoch(harness.storage), Selection())
        with raises(EXPORT_REFUSED) as caught:
            export_entries(target, entries, ValueReader())
    assert caught.value.facts["path"] == str(target)
    assert list(tmp_path.iterdir()) == [target]


class Leaving:
    """Ends the process that loads it."""

    def __reduce__(self):
        return os._exit, (7,)


class Failing:
    """Cannot be loaded."""

    def __reduce__(self):
        return int, ("no number",)


class Keeping(RichAsyncFunction):
    """Keeps an object that is made by a class of the user."""

    def __init__(self, new_object):
        self.kept = {}
        self.new_object = new_object

    def process(self, value, ctx):
        self.kept[value] = self.new_object()
        return []


def rows_of_kept(new_object, plugin):
    def job(env):
        words = env.add_source(script_source(str))
        words.key_by(str).process(Keeping(new_object)).uid("keeping").collect("out")

    with Harness(job) as harness:
        harness.push(["x"])
        harness.run_epoch()
        found = select(
            open_epoch(harness.storage), Selection(operator="keeping", state="kept", key="x")
        )
        return ValueReader(plugin).rows(list(found))


def test_a_value_that_ends_the_process_that_loads_it_ends_no_command():
    with raises(STATE_UNLOADABLE) as caught:
        rows_of_kept(Leaving, "shop")
    assert caught.value.facts["plugin"] == "shop"
    assert "exit code 7" in caught.value.facts["detail"]
    [row] = rows_of_kept(Leaving, None)
    assert row["value"]["$opaque"].endswith("._exit")


def test_a_value_that_cannot_be_loaded_says_why_in_its_place():
    [row] = rows_of_kept(Failing, "shop")

    assert row["value"]["$opaque"] == "builtins.int"
    assert row["value"]["error"].startswith("ValueError: ")
