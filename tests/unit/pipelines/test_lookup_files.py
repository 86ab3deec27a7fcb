"""Lookup files with rows that do not fit, and keys that are null."""

import pytest

from bicycle_runtime.pipelines.errors import LOOKUP_FILE_UNUSABLE
from tests.raising import raises
from tests.unit.pipelines.pipeline_runs import run
from tests.unit.pipelines.test_operators import SINK, collection, graph_of


def completed(path, records, more="", fields=""):
    source = collection("in", records)
    text = graph_of(
        source.replace("properties: {", f"properties: {{{fields}"),
        f"{{id: e, operator: enrich, config: {{path: '{path}', key: id{more}}}}}",
        SINK,
        edges=[("in", "e"), ("e", "sink")],
    )
    return run(text, "yaml")


def test_a_row_with_too_many_cells_is_refused_with_its_line(tmp_path):
    path = tmp_path / "towns.csv"
    path.write_text('id,town\n1,"a\nb"\n2,Ulm,118\n')

    with raises(LOOKUP_FILE_UNUSABLE, match="line 4 has more cells than the header"):
        completed(path, [{"id": "1"}])


def test_a_row_with_too_few_cells_is_refused_with_its_line_and_columns(tmp_path):
    path = tmp_path / "towns.csv"
    path.write_text("id,town,code\n1,Rom,\n\n2,Ulm\n")

    with raises(LOOKUP_FILE_UNUSABLE, match="line 4 has no cell for 'code'"):
        completed(path, [{"id": "1"}])


@pytest.mark.parametrize("fields", ["", "fields: {id: 'string?'}, "])
@pytest.mark.parametrize("name", ["towns.csv", "towns.jsonl"])
def test_a_null_key_has_no_row(tmp_path, name, fields):
    path = tmp_path / name
    csv = "id,town\nnull,Ulm\n"
    rows = '{"id": null, "town": "Rom"}\n{"id": "null", "town": "Ulm"}\n'
    path.write_text(csv if name.endswith("csv") else rows + '{"id": null, "town": "Rom"}\n')
    records = [{"id": None}, {"id": "null"}]

    for own in ("", ", fields: [town]"):
        assert completed(path, records, own, fields) == [
            {"id": None},
            {"id": "null", "town": "Ulm"},
        ]
        assert completed(path, records, f"{own}, how: inner", fields) == [
            {"id": "null", "town": "Ulm"}
        ]
