"""Parts of a checked expression are computed once for each record, however a condition divides."""

from collections import Counter

import pytest

from bicycle_runtime.expressions.evaluation import evaluate
from bicycle_runtime.expressions.mapping import mapped
from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.frames.vectors import Refused
from bicycle_sdk.expressions import Expression, col, lit

RECORDS = [{"n": number, "word": f"w{number}"} for number in range(10)]


def frame():
    return Frame.of_dicts(RECORDS)


def choice(condition, first, second):
    return Expression("if", condition, first, second)


@pytest.fixture
def calls():
    return Counter()


@pytest.fixture
def shout(calls):
    def function(word):
        calls[word] += 1
        return word.upper()

    return Expression("apply", function, col("word"))


@pytest.mark.parametrize("low", [0, 4, 10])
def test_a_part_of_both_is_computed_once_for_each_record(shout, calls, low):
    value = choice(
        col("n") >= lit(low), shout + lit("!"), choice(col("n") > lit(1), shout, lit(""))
    )
    checked = Expression("checked", shout, value)

    found = evaluate(checked, frame()).items

    words = [record["word"].upper() for record in RECORDS]
    assert found == [
        word + "!" if n >= low else word if n > 1 else "" for n, word in enumerate(words)
    ]
    assert set(calls.values()) == {1}
    assert len(calls) == 10


def test_records_of_a_map_share_parts_with_what_is_checked_before(shout, calls):
    record = Expression("record", ("loud", "louder"), shout, shout + lit("!"))

    made = mapped(Expression("checked", shout, record), frame())

    assert made.field("louder").items[3] == "W3!"
    assert set(calls.values()) == {1}


def test_what_fails_where_it_is_checked_is_refused_though_nothing_uses_it():
    failing = lit(1) / (col("n") - lit(5))

    with pytest.raises(Refused):
        evaluate(Expression("checked", failing, col("n")), frame())
    assert evaluate(choice(col("n") != lit(5), failing, lit(0.0)), frame()).items[5] == 0.0
