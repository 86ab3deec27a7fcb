"""The rows of joins whose records have fields of one name, with and without a match."""

import pytest

from bicycle_runtime.pipelines.errors import PIPELINE_INVALID
from tests.raising import raises
from tests.unit.pipelines.pipeline_runs import checked, run
from tests.unit.pipelines.test_operators import SINK, collection, graph_of

LEFT = [{"id": 1, "at": 1_000, "v": 1}, {"id": 2, "at": 1_000, "v": 2}]
RIGHT = [{"id": 1, "at": 2_000, "v": 7, "w": 8}, {"id": 3, "at": 2_000, "v": 9, "w": 0}]
FIELDS = "fields: {id: int, at: int, v: int}, "


def joined(config, *, fields=FIELDS, right_fields=""):
    left = collection("l", LEFT, "at").replace("properties: {", f"properties: {{{fields}")
    right = collection("r", RIGHT, "at").replace("properties: {", f"properties: {{{right_fields}")
    return graph_of(
        left,
        right,
        "{id: lt, operator: time}",
        "{id: rt, operator: time}",
        f"{{id: j, operator: join, config: {config}}}",
        SINK,
        edges=[("l", "lt"), ("r", "rt"), ("lt", "j"), ("rt", "j"), ("j", "sink")],
    )


@pytest.mark.parametrize("kind", ["upper: 10s", "type: window, size: 1m"])
@pytest.mark.parametrize("how", ["right", "full"])
def test_a_right_row_without_a_match_has_the_names_of_a_matched_row(kind, how):
    rows = run(joined(f"{{on: [id], {kind}, how: {how}}}"), "yaml")

    found = sorted(rows, key=lambda row: row["id"])
    unmatched = [LEFT[1]] if how == "full" else []
    assert found == [
        {**LEFT[0], "right_at": 2_000, "right_v": 7, "w": 8},
        *unmatched,
        {"id": 3, "right_at": 2_000, "right_v": 9, "w": 0},
    ]


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
def test_right_rows_without_a_match_need_the_fields_of_left_rows(how):
    text = joined(f"{{on: [id], upper: 10s, how: {how}}}", fields="")

    if how in ("inner", "left"):
        assert checked(text, "yaml")
        return
    message = rf"p.yaml:6:\d+: vertices\[4\].config.how is {how}, but the fields of the left"
    with raises(PIPELINE_INVALID, match=message):
        checked(text, "yaml")
