"""Vectors of Arrow columns have the values and types of lists."""

import numpy
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.frames.vectors import ArrowVector, Mask, Vector, joined_vectors

COLUMNS = [
    (pyarrow.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pyarrow.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pyarrow.uint64(), st.integers(0, 2**64 - 1)),
    (pyarrow.float64(), st.floats()),
    (pyarrow.float32(), st.floats(width=32)),
    (pyarrow.bool_(), st.booleans()),
    (pyarrow.string(), st.text()),
    (pyarrow.large_string(), st.text()),
    (pyarrow.dictionary(pyarrow.int32(), pyarrow.string()), st.text(max_size=2)),
    (pyarrow.date32(), st.dates()),
    (pyarrow.list_(pyarrow.int64()), st.lists(st.integers(0, 9), max_size=2)),
]


def shown(vector):
    array = vector.array
    numbers = None if array is None else (array.dtype.name, repr(array.tolist()))
    return vector.count, set(vector.kinds), repr(vector.items), numbers


@pytest.mark.parametrize(("kind", "values"), COLUMNS, ids=[str(kind) for kind, _ in COLUMNS])
@pytest.mark.parametrize("nulls", [False, True])
@given(data=st.data())
def test_an_arrow_column_is_a_vector_like_the_list_of_its_values(kind, values, nulls, data):
    listed = data.draw(st.lists(st.none() | values if nulls else values, max_size=5))
    column = pyarrow.array(listed, kind)
    mask = Mask(numpy.array(data.draw(st.lists(st.booleans(), min_size=len(column),
                                               max_size=len(column))), bool))  # fmt: skip
    vector, expected = ArrowVector(column), Vector(len(column), column.to_pylist())

    assert shown(vector.take(mask)) == shown(expected.take(mask))
    assert shown(vector) == shown(expected)
    assert shown(joined_vectors([vector, vector])) == shown(joined_vectors([expected, expected]))
    assert vector.as_they_lie is column
