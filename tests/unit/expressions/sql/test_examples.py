"""The table of SQL functions: the examples of each row, as text, as a tree, and over a frame."""

import math

import pyarrow
import pytest

from bicycle_runtime.expressions.evaluation import evaluate
from bicycle_runtime.expressions.sql.compiling import compile_text
from bicycle_runtime.expressions.sql.table import FUNCTIONS, ROWS
from bicycle_runtime.expressions.sql.tree import cast, type_of
from bicycle_runtime.frames.frame import Frame

EXAMPLES = [(row.name, *example) for row in ROWS for example in row.examples]
FRAME = Frame.of_arrow(pyarrow.record_batch({"n": [1, 2, 3]}))


def value(text):
    tree = compile_text(text, {})
    if type_of(tree) == "TIMESTAMP":
        tree = cast(tree, "VARCHAR")
    found = evaluate(tree, FRAME).items
    assert found[1:] == found[:1] * 2 or math.isnan(found[0])
    return found[0]


@pytest.mark.parametrize(("name", "text", "expected"), EXAMPLES)
def test_a_function_returns_the_results_of_its_examples(name, text, expected):
    found = value(text)

    assert type(found) is type(expected)
    assert found == (pytest.approx(expected) if isinstance(expected, float) else expected)


def test_each_name_means_one_function():
    assert len(FUNCTIONS) == sum(len(row.names) for row in ROWS)
    assert all(name == name.lower() for name in FUNCTIONS)


def test_at_least_120_functions_are_in_the_table():
    assert len(ROWS) >= 120
