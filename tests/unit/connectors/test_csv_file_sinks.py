"""Parts of CSV, and records that have no text form."""

from dataclasses import dataclass
from enum import Enum

import pytest

from bicycle_runtime.connectors.lines import UnencodableError
from bicycle_runtime.contract import WriterTask
from tests.unit.connectors.file_parts import parts


@dataclass
class Row:
    id: int
    note: str | None
    tags: list[str]


def test_csv_parts_have_one_header_and_quote_what_needs_it(sink, out):
    run = sink("csv_file", record_type=Row)
    run.run_epoch([[Row(1, 'a "b", c', ["x"])], [Row(2, None, [])]])
    run.run_epoch([[Row(3, "two\nlines", ["y", "z"])]], is_last=True)

    (text,) = parts(out)
    assert text == (
        'id,note,tags\n1,"a ""b"", c","[""x""]"\n2,,[]\n3,"two\nlines","[""y"",""z""]"\n'
    )


class Kind(Enum):
    QUOTED = 'a "b"'
    LINES = "two\nlines"


class Size(int, Enum):
    SMALL = 1


def test_csv_cells_of_enums_are_their_values(sink, out):
    row = {"a": Kind.QUOTED, "b": Size.SMALL, "c": Kind.LINES}
    sink("csv_file").run_epoch([[row]], is_last=True)

    assert parts(out) == ['a,b,c\n"a ""b""",1,"two\nlines"\n']


def test_csv_records_of_another_shape_begin_another_part(sink, out):
    run = sink("csv_file")
    run.run_epoch([[{"a": 1}], [{"b": 2}]], is_last=True)

    assert parts(out) == ["a\n1\n", "b\n2\n"]


@pytest.mark.parametrize(
    ("word", "records", "text"),
    [
        ("jsonl_file", [1, object()], "1\n"),
        ("text_file", ["a", object()], "a\n"),
        ("text_file", ["a", 1, "\ud800"], "a\n1\n"),
        ("csv_file", [{"a": 1}, {"b": 2}], "a\n1\n"),
        ("csv_file", [{"a": 1}, {"a": object()}], "a\n1\n"),
        ("csv_file", [(1, 2), (3,)], "field_1,field_2\n1,2\n"),
        ("csv_file", ["a", "\ud800"], "value\na\n"),
    ],
)
def test_a_record_without_a_text_form_is_found_before_its_batch_is_written(
    sink, word, records, text
):
    run = sink(word)
    task = WriterTask(storage=run.services.storage, prefix="staged/x", epoch=0, subtask=0)
    writer = run.sink.writer().open(task)

    with pytest.raises(UnencodableError):
        writer.prepare(records, None)
    good = [writer.prepare_one(record, None) for record in records[:-1]]
    with pytest.raises(UnencodableError):
        writer.prepare_one(records[-1], None)
    writer.write(good)
    (staged,) = writer.finish()

    assert staged.record_count == len(records) - 1
    assert run.services.storage.read(staged.path).decode() == text


def test_csv_takes_its_columns_from_the_first_record_that_can_be_written(sink, out):
    run = sink("csv_file")
    task = WriterTask(storage=run.services.storage, prefix="staged/x", epoch=0, subtask=0)
    writer = run.sink.writer().open(task)
    with pytest.raises(UnencodableError):
        writer.prepare_one({"bad": object()}, None)
    writer.write([writer.prepare_one({"good": 1}, None)])

    assert writer.finish()[0].details == {"header": "good\n"}
