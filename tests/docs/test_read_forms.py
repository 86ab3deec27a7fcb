"""The table of forms of functions: each is computed as the page states, with equal results."""

import copy
import dataclasses
import math
import re
from datetime import datetime
from pathlib import Path

import pytest

from bicycle_runtime.expressions.function_reading import read
from bicycle_runtime.expressions.map_shapes import (
    flat_mapped_shape,
    mapped_shape,
    with_record_type,
)
from bicycle_runtime.expressions.mapping import flat_mapped, mapped
from bicycle_runtime.expressions.symbols import Reading
from bicycle_runtime.frames.frame import FieldRows, Frame
from bicycle_runtime.frames.record_shapes import RecordShape, shape_of
from bicycle_sdk.value_functions import ROWS

PAGE = Path("docs/explanation/columns.md")
OPEN = RecordShape(form="mapping", names=None)


@dataclasses.dataclass
class Point:
    n: int
    s: str


def helper(value, low=0):
    return low if value < low else value


def tag(record):
    record["tag"] = record["n"] + 1
    return record


NAMES = {
    "LIMIT": 2, "RATES": {"a": 1.5, "c": 2.0}, "datetime": datetime, "helper": helper, "math": math,
    "re": re, "replace": dataclasses.replace, "tag": tag,
}  # fmt: skip
RECORDS = [
    {
        "n": n, "m": n * 5, "x": n / 3, "s": text, "o": None if n % 2 else n, "digits": str(n),
        "items": list(range(n)), "inner": {"id": n}, "time": f"2026-11-28T13:05:0{n}+00:00",
    }
    for n, text in enumerate(["a,b", "c,", "a,a", "cc,d"])
]  # fmt: skip


def rows():
    """Return the forms of the table, and what each is computed on."""
    found = []
    table = PAGE.read_text().partition("| form of a function |")[2].partition("\n\n")[0]
    for line in table.splitlines()[2:]:
        form, computed_on = re.split(r"(?<!\\)\|", line)[1:3]
        found.append((form.strip().replace("\\|", "|"), computed_on.strip()))
    return found


def function_of(form):
    """Return how the function is used, and the function."""
    lines = "\n".join(re.findall(r"`(.+?)`(?!\w)", form)[: form.count("<br>") + 1])
    use, colon, code = lines.partition(": ")
    if not colon or use not in ("filter", "flat_map"):
        use, code = "map", lines
    name = "d" if "dataclass" in form else "e"
    statements = code.replace("; ", "\n").splitlines()
    if not any("return" in each for each in statements):
        statements[-1] = f"return {statements[-1]}"
    names = dict(NAMES)
    exec(f"def function({name}):\n" + "\n".join(f"    {each}" for each in statements), names)
    return use, names["function"]


def points():
    return [Point(record["n"], record["s"]) for record in RECORDS]


@pytest.mark.parametrize(("form", "computed_on"), rows(), ids=[form for form, _ in rows()])
def test_each_form_is_computed_as_the_table_states(form, computed_on):
    use, function = function_of(form)
    is_typed = "dataclass" in form
    shape = shape_of(Point) if is_typed else OPEN
    records = points() if is_typed else copy.deepcopy(RECORDS)
    try:
        expression = with_record_type(read(function, may_change=use != "filter"), shape.record_type)
    except Reading:
        assert computed_on.startswith("records: ")
        return
    found = (flat_mapped_shape if use == "flat_map" else mapped_shape)(expression, shape)
    if computed_on != "columns":
        assert found[1] is not None
        return
    assert found[1] is None
    rows = FieldRows(objects=records, make=lambda: records)
    frame = Frame.of_rows(rows) if is_typed else Frame.of_dicts(records)
    made = flat_mapped(expression, frame)[0] if use == "flat_map" else mapped(expression, frame)
    expected = [function(each) for each in (points() if is_typed else copy.deepcopy(RECORDS))]
    if use == "flat_map":
        expected = [each for result in expected for each in result]
    assert list(made) == expected
    assert records == (points() if is_typed else RECORDS)


def test_the_page_of_expressions_lists_each_function_of_values():
    page = Path("docs/how-to/expressions.md").read_text()
    table = page.partition("| argument | functions |")[2].partition("\n\n")[0]

    assert sorted(re.findall(r"`(\w+)`", table)) == sorted(row.name for row in ROWS)
