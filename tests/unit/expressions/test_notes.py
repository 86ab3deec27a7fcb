"""Values that were computed for a frame are noted on it, and keep nothing alive."""

import gc
import weakref

import pytest

from bicycle_runtime.expressions.evaluation import evaluate, split, sql_rows
from bicycle_runtime.expressions.sql.tree import column
from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.frames.record_forms import RecordForm
from bicycle_runtime.frames.vectors import Vector
from bicycle_sdk import col
from bicycle_sdk.expressions import Expression

RECORDS = [{"a": number} for number in range(5)]


@pytest.fixture
def no_collection():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_a_value_is_computed_once_for_a_frame_and_its_parts():
    total, condition = col("a") + 1, col("a") > 2
    frame = Frame.of_dicts(RECORDS)

    found = evaluate(total, frame)
    mask, some, others = split(condition, frame)

    assert evaluate(total, frame) is found
    assert split(condition, frame)[1] is some
    assert evaluate(total, some) is evaluate(total, some)
    assert (mask.count, evaluate(total, some).items) == (2, [4, 5])
    assert evaluate(total, others).items == [1, 2, 3]


def test_a_part_is_computed_when_its_frame_is_gone():
    total, condition = col("a") + 1, col("a") > 2
    _, some, _ = split(condition, Frame.of_dicts(RECORDS))

    assert evaluate(total, some).items == [4, 5]


@pytest.mark.usefixtures("no_collection")
def test_a_frame_is_freed_without_a_collection_of_garbage():
    chosen = Expression("if", col("a") > 2, col("a") + 1, col("a") - 1)
    frame = Frame.of(RecordForm(dict, ("a",)), [Vector(5, list(range(5)))], 5)
    evaluate(chosen, frame)
    sql_rows(frame).array(column("a", "BIGINT"))
    held = weakref.ref(frame)

    del frame

    assert held() is None
