"""When anchors are put, and where; Spark is not needed for that."""

import pytest

from bicycle_runtime.engine.spark.anchors import Anchors


@pytest.fixture
def anchors(monkeypatch):
    """Anchors of two levels with two tasks each, that note what they would put."""
    made = Anchors(None, (2, 2), [0, 1], int)
    made.put = []
    monkeypatch.setattr(
        Anchors, "_put", lambda self, level, places: self.put.append((level, list(places)))
    )
    return made


def ids(*names):
    return frozenset(names)


def test_tasks_of_all_levels_are_placed_once_while_executors_stay(anchors):
    for _ in range(3):
        anchors.refresh({"a": 1, "b": 1}, ids("0", "1"))

    assert anchors.put == [(0, ["a", "b"]), (1, ["a", "b"])]


def test_an_executor_in_the_place_of_a_dead_one_gets_its_anchor_again(anchors):
    anchors.refresh({"a": 1, "b": 1}, ids("0", "1"))
    anchors.refresh({"a": 1, "b": 1}, ids("0", "2"))

    assert anchors.put[2:] == anchors.put[:2]


def test_without_executors_nothing_is_put_and_nothing_forgotten(anchors):
    anchors.refresh({"a": 1}, ids("0"))
    anchors.refresh({}, ids())
    anchors.refresh({"a": 1, "b": 1}, ids("0", "1"))

    assert anchors.put == [
        (0, ["a", "a"]), (1, ["a", "a"]), (0, ["a", "b"]), (1, ["a", "b"]),
    ]  # fmt: skip


def test_a_level_without_state_has_no_anchor():
    anchors = Anchors(None, (2, 2), [], int)
    anchors.refresh({"a": 1}, ids("0"))

    assert anchors.seed("plain") == "plain"
    assert anchors.hold(1, "records") == "records"


def test_anchors_of_other_parallelism_begin_where_the_former_ones_were(anchors):
    anchors.task_hosts = {1: ["b", "a"]}
    wider = Anchors(None, (2, 4), [0, 1], int, former=anchors.task_hosts)
    wider.put = []
    wider.refresh({"a": 1, "b": 1}, ids("0", "1"))

    assert wider.put == [(0, ["a", "b"]), (1, ["b", "b", "a", "a"])]
