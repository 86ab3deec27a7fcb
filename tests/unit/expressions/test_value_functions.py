"""The table of functions of values: the examples of each row, for one record and on columns."""

import pytest

from bicycle_runtime.expressions.evaluation import evaluate
from bicycle_runtime.frames.frame import Frame
from bicycle_sdk.expressions import col
from bicycle_sdk.value_functions import ROWS


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_examples_of_a_function_hold_for_records_and_columns(row):
    for arguments, result in row.examples:
        record = {str(index): value for index, value in enumerate(arguments)}
        first, *others = map(col, record)
        expression = getattr(first, row.name)(*others)
        frame = Frame.of_dicts([record, record])

        found = [expression(record), *evaluate(expression, frame).items]

        assert found == [result] * 3
        assert {type(each) for each in found} == {type(result)}
        assert row.returns in (None, type(result))


def test_an_unknown_method_of_an_expression_names_the_nearest():
    with pytest.raises(AttributeError, match="did you mean 'startswith'"):
        col("a").starts_with("b")
