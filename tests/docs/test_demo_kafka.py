"""The Kafka demo tells a right result from a wrong one."""

from collections import Counter

import pytest

from tests.docs.scripts import load


@pytest.fixture(scope="module")
def demo():
    return load("docs/demo/demo_kafka.py")


def all_counts(demo):
    seen = Counter()
    return [count for line in demo.LINES for count in sorted(demo.missing_counts(line, seen))]


def test_what_must_come_out_for_a_line_goes_on_from_the_lines_before(demo):
    seen = Counter()

    assert demo.missing_counts("a b A", seen) == {"a:1", "b:1", "a:2"}
    assert demo.missing_counts("a", seen) == {"a:3"}


def test_all_counts_once_and_in_order_are_right(demo):
    assert demo.report(all_counts(demo)) == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found[1:],
        lambda found: [*found, found[-1]],
        lambda found: found[::-1],
        lambda found: [*found, "stranger:1"],
        lambda found: [],
    ],
)
def test_a_count_that_is_missing_repeated_early_or_foreign_is_called_wrong(demo, change):
    assert demo.report(change(all_counts(demo))) == 1
