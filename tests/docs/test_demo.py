"""The demo tells a right result from a wrong one."""

import pytest

from tests.docs.scripts import load


@pytest.fixture(scope="module")
def demo():
    return load("docs/demo/demo.py")


def test_counts_are_read_from_all_parts(demo, tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "a.jsonl").write_text('{"word":"x","count":2}\n{"word":"y","count":1}\n')
    (tmp_path / "deep/b.jsonl").write_text('{"word":"x","count":1}\n')

    assert demo.read_counts(tmp_path) == {"x": [1, 2], "y": [1]}


def test_the_table_shows_the_most_frequent_first(demo):
    lines = demo.table({"a": [1], "the": [1, 2], "b": [1]})

    assert [line.split()[:2] for line in lines] == [["the", "2"], ["a", "1"], ["b", "1"]]


@pytest.mark.parametrize(
    ("counts", "status"),
    [
        ({"a": [1, 2], "b": [1]}, 0),
        ({"a": [1], "b": [1]}, 1),
        ({"a": [1, 1, 2], "b": [1]}, 1),
        ({"a": [1, 2], "b": [1], "c": [1]}, 1),
        ({}, 1),
    ],
)
def test_a_result_that_lacks_or_repeats_a_count_is_called_wrong(demo, counts, status):
    assert demo.report(counts, "A b\na") == status


def test_the_text_of_the_demo_is_there(demo):
    assert len((demo.ROOT / demo.TEXT).read_text(encoding="utf-8").split()) > 500
