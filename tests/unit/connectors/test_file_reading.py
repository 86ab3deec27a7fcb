"""Bytes of files to records: slices, bad records, long lines, compression, CSV."""

import gzip
import io
import pickle
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import json

from bicycle_runtime.connectors.errors import (
    CONNECTOR_PAYLOAD_WRONG,
    CSV_HEADER_AMBIGUOUS,
    INPUT_DAMAGED,
)
from bicycle_runtime.connectors.files.blocks import ByteCursor, LineRange, line_blocks
from bicycle_runtime.connectors.files.decoding import field_decoder, json_decoder
from bicycle_runtime.connectors.files.reader import SliceReader
from bicycle_runtime.connectors.lines import LineBlock, decode_lines_apart, text_decoder
from bicycle_runtime.connectors.registry import create_source
from bicycle_runtime.contract import Budget, ConnectorSpec
from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.testing.connectors.running import SourceRun, services_in
from tests.raising import raises


def read_all(tmp_path, word, name, data, record_type=None):
    """Return (values, offsets, failures) of a whole file."""
    path = tmp_path / name
    path.write_bytes(data)
    spec = ConnectorSpec(
        vertex_id="v",
        connector_type=word,
        properties={"path": str(path), "line_bytes_max": 1 << 20},
        record_type=record_type,
    )
    run = SourceRun(spec, services_in(tmp_path)).start()
    epochs = run.drain(Budget(record_count=10_000_000, byte_count=1 << 30, parallelism=1))
    batches = [batch for epoch in epochs for part in epoch.batches for batch in part]
    run.stop()
    return (
        [value for batch in batches for value in batch.values],
        [offset for batch in batches for offset in batch.offsets],
        [failure for batch in batches for failure in batch.failures],
    )


@given(
    data=st.binary(max_size=200).map(lambda data: data.replace(b"\x00", b"\n")),
    cuts=st.lists(st.integers(0, 200), max_size=6),
)
def test_neighbouring_slices_neither_share_nor_lose_a_line(data, cuts):
    bounds = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    found = []
    for start, end in pairwise(bounds):
        aligned = start == 0
        position = start if aligned else start - 1
        cursor = ByteCursor("x", io.BytesIO(data), 0)
        cursor.skip_to(position)
        lines = LineRange(
            start=start, end=end, limit=len(data), is_aligned=aligned, line_bytes_max=1 << 20
        )
        found += [(block.offset, block.data) for block in line_blocks(cursor, lines)]

    mark = 3 if data.startswith(b"\xef\xbb\xbf") else 0
    assert b"".join(piece for _, piece in found) == data[mark:]
    assert all(data[offset : offset + len(piece)] == piece for offset, piece in found)
    assert all(offset == mark or data[offset - 1 : offset] == b"\n" for offset, _ in found)


@given(st.lists(st.text(st.characters(exclude_characters="\n\r", codec="utf-8"))))
def test_offsets_of_lines_lead_back_to_them(lines):
    data = "".join(f"{line}\n" for line in lines).encode()

    batch = text_decoder(LineBlock(100, data, 100 + len(data)))

    assert batch.values == lines
    assert len(batch.offsets) == len(lines)
    for line, offset in zip(lines, batch.offsets, strict=True):
        assert data[offset - 100 :].startswith(line.encode() + b"\n")


def test_only_newlines_end_a_line_and_one_carriage_return_before_it_is_dropped(tmp_path):
    data = "a\u2028b\x0bc\rd\r\ne\r\r\n\nf".encode()

    assert read_all(tmp_path, "text", "x.txt", data)[0] == ["a\u2028b\x0bc\rd", "e\r", "", "f"]


def test_a_byte_order_mark_is_no_part_of_the_first_record(tmp_path):
    values, offsets, _ = read_all(tmp_path, "text", "x.txt", b"\xef\xbb\xbfone\ntwo\n")

    assert (values, offsets) == (["one", "two"], [3, 7])


def test_a_line_that_is_not_utf_8_is_a_bad_record_between_good_ones(tmp_path):
    values, offsets, failures = read_all(tmp_path, "text", "x.txt", b"one\n\xff\xfe\ntwo\n")

    assert (values, offsets) == (["one", "two"], [0, 7])
    assert [(failure.offset, failure.raw) for failure in failures] == [(4, b"\xff\xfe")]


def test_a_line_that_is_not_json_is_a_bad_record_and_blank_lines_are_none(tmp_path):
    data = b'{"a":1}\n\n{"a":\n{"a":2} {"a":3}\n[4]\n{"a":5}'

    values, offsets, failures = read_all(tmp_path, "jsonl", "x.jsonl", data)

    assert (values, offsets) == ([{"a": 1}, {"a": 5}], [0, 35])
    assert [failure.offset for failure in failures] == [9, 15, 31]


def test_a_json_document_over_two_lines_is_two_bad_records(tmp_path):
    values, _, failures = read_all(tmp_path, "jsonl", "x.jsonl", b'{"a":\n1}\n{"b":2}\n')

    assert values == [{"b": 2}]
    assert [failure.offset for failure in failures] == [0, 6]


PIECES = [b'{"a":1}', b'{"a":', b'[{"a":1},', b"1", b"-2", b"]", b"}", b'"a"', b" ", b"\r\n", b"\n"]


@given(st.lists(st.sampled_from(PIECES), min_size=1).map(b"".join))
@example(b'{"a":1}{"a":2}\n{"a":3}\n')
@example(b'{"a":1}{"a":2}\n\n{"a":3}\n')
@example(b'{"a":1} {"a":2}\n{"a":\n3}\n')
@example(b'\n{"a":1}{"a":2}')
@example(b'\n{"a":1}\n')
@example(b"1 2\r\n \r\n3\r\n")
@example(b"[1,\n2]3\n4")
@example(b'{"a":1}\n\r')
@example(b"\r\n1 2")
def test_a_json_line_is_decoded_the_same_whatever_lines_are_near(data):
    block = LineBlock(0, data, len(data))
    for record_type in (dict, Any):
        alone = decode_lines_apart(block, json.Decoder(record_type).decode, skips_blank=True)
        expected = list(alone.values), list(alone.offsets), alone.failures
        for decode in filter(None, (json_decoder(record_type), field_decoder(record_type))):
            found = decode(block)
            assert (list(found.values), list(found.offsets), list(found.failures)) == expected


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b" \t\n"])
def test_a_block_with_a_json_document_in_each_line_is_decoded_at_once(line_end):
    data = line_end.join([b'{"a":1}', b' {"a":2}', b'{"a":3}', b""])

    found = field_decoder(dict)(LineBlock(0, data, len(data)))

    assert isinstance(found.values, Frame)
    assert list(found.values) == [{"a": 1}, {"a": 2}, {"a": 3}]


def test_a_json_line_with_two_documents_is_one_bad_record_where_an_epoch_ends(tmp_path):
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"a":1}{"a":2}\n\n{"a":3}\n'))
    spec = ConnectorSpec(vertex_id="v", connector_type="jsonl", properties={"path": str(path)})
    run = SourceRun(spec, services_in(tmp_path)).start()
    epochs = run.drain(Budget(record_count=1, byte_count=1 << 20, parallelism=1))
    run.stop()

    batches = [batch for epoch in epochs for part in epoch.batches for batch in part]
    assert [value for batch in batches for value in batch.values] == [{"a": 3}]
    assert [bad.offset for batch in batches for bad in batch.failures] == [0]


@dataclass
class Item:
    id: int
    price: float | None = None


def test_json_is_checked_against_the_declared_type(tmp_path):
    data = b'{"id":1}\n{"id":"x"}\n{"id":3,"price":2}\n'

    values, _, failures = read_all(tmp_path, "jsonl", "x.jsonl", data, Item)

    assert values == [Item(1), Item(3, 2.0)]
    assert [failure.raw for failure in failures] == [b'{"id":"x"}']


def test_a_record_type_that_cannot_be_decoded_is_refused_before_start():
    spec = ConnectorSpec(
        vertex_id="v", connector_type="jsonl", properties={"path": "x"}, record_type=set | list
    )

    with raises(CONNECTOR_PAYLOAD_WRONG) as caught:
        create_source(spec)

    assert caught.value.facts["role"] == "output_type"


def test_a_line_over_the_bound_is_a_bad_record_and_reading_goes_on(tmp_path):
    long = b"x" * (3 << 20)
    data = b"one\n" + long + b"\ntwo\n" + long

    values, offsets, failures = read_all(tmp_path, "text", "x.txt", data)

    assert (values, offsets) == (["one", "two"], [0, 4 + len(long) + 1])
    assert [failure.offset for failure in failures] == [4, 4 + len(long) + 5]
    assert all(len(failure.raw) <= 1024 for failure in failures)


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_a_cut_compressed_file_is_an_error_that_names_it(tmp_path, suffix):
    compress = gzip.compress if suffix == "gz" else zstandard.compress
    whole = compress(b"".join(b"line %d\n" % number for number in range(10_000)))

    with raises(INPUT_DAMAGED) as caught:
        read_all(tmp_path, "text", f"x.txt.{suffix}", whole[:-20])

    assert caught.value.facts["path"].endswith(f"x.txt.{suffix}")


def test_a_compressed_file_is_opened_once_while_its_slices_follow_each_other(tmp_path, monkeypatch):
    opened = []
    original = gzip.GzipFile.__init__

    def counting(self, *args, **kwargs):
        opened.append(args)
        original(self, *args, **kwargs)

    monkeypatch.setattr(gzip.GzipFile, "__init__", counting)
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(b"".join(b"line %d\n" % number for number in range(1_000))))
    opened.clear()
    spec = ConnectorSpec(vertex_id="v", connector_type="text", properties={"path": str(path)})
    run = SourceRun(spec, services_in(tmp_path)).start()

    epochs = run.drain(Budget(record_count=100, byte_count=1 << 20, parallelism=1))
    run.stop()

    assert len(epochs) >= 10
    assert len(opened) == 1


def test_csv_fields_get_their_declared_types(tmp_path):
    data = b"id,price\r\n1,2.5\r\n\r\n2,null\r\nx,1\r\n3\r\n"

    values, offsets, failures = read_all(tmp_path, "csv", "x.csv", data, Item)

    assert (values, offsets) == ([Item(1, 2.5), Item(2, None)], [10, 19])
    assert [failure.offset for failure in failures] == [27, 32]


class Partial(NamedTuple):
    id: int | None
    name: str | None
    price: float | None = 0.5


@pytest.mark.parametrize("record_type", [Partial, tuple[int | None, str | None, float | None]])
def test_an_empty_cell_of_csv_is_none_where_the_type_has_none_and_no_text(tmp_path, record_type):
    data = b'id,name,price\n1,a,2.5\n,,\n"","",3\nx,,\n'

    values, _, failures = read_all(tmp_path, "csv", "x.csv", data, record_type)

    assert list(map(tuple, values)) == [(1, "a", 2.5), (None, "", None), (None, "", 3.0)]
    assert [failure.raw for failure in failures] == [b"x,,"]


@dataclass
class Sparse:
    id: int | None
    name: str | None


def test_an_empty_cell_of_csv_is_none_in_columns_too(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(b"id,name\n1,a\n,\n")
    spec = ConnectorSpec(
        vertex_id="v", connector_type="csv", properties={"path": str(path)}, record_type=Sparse
    )
    run = SourceRun(spec, services_in(tmp_path)).start()
    assert run.reader.give_fields()

    [epoch] = run.drain(Budget(record_count=9, byte_count=1 << 20, parallelism=1))
    run.stop()

    [records] = [batch.values for part in epoch.batches for batch in part if batch.values]
    assert records.field("id").items == [1, None]
    assert records.field("name").items == ["a", ""]
    assert list(records) == [Sparse(1, "a"), Sparse(None, "")]


class Named(NamedTuple):
    price: float
    id: int
    note: str = "none"


def test_csv_rows_become_named_tuples_by_the_names_of_the_fields(tmp_path):
    values, _, failures = read_all(tmp_path, "csv", "x.csv", b"id,price\n1,2.5\nx,1\n", Named)

    assert values == [Named(2.5, 1)]
    assert [failure.offset for failure in failures] == [15]


def test_csv_without_a_type_gives_texts_by_field_name(tmp_path):
    data = b'\xef\xbb\xbfid, name\n1,"a ""b"", c"\n2,\xc3\xa4\n'

    values, _, _ = read_all(tmp_path, "csv", "x.csv", data)

    assert values == [{"id": "1", "name": 'a "b", c'}, {"id": "2", "name": "ä"}]


def test_csv_rows_as_tuples_are_taken_by_place(tmp_path):
    values, _, _ = read_all(tmp_path, "csv", "x.csv", b"id,name\n1,a\n2,b\n", tuple[int, str])

    assert values == [(1, "a"), (2, "b")]


@pytest.mark.parametrize(
    ("header", "record_type", "twice"),
    [
        (b"id,name,id", None, ["id"]),
        (b"id,,name, ", None, [""]),
        (b"id,price,price", Item, ["price"]),
        (b"id,id,price", Named, ["id"]),
    ],
)
def test_a_header_that_gives_two_columns_one_name_is_an_error(tmp_path, header, record_type, twice):
    with raises(CSV_HEADER_AMBIGUOUS) as caught:
        read_all(tmp_path, "csv", "x.csv", header + b"\n1,2,3,4\n", record_type)

    assert caught.value.facts["names"] == twice
    assert caught.value.facts["path"] == str(tmp_path / "x.csv")


def test_columns_that_nobody_takes_by_name_may_have_one_name(tmp_path):
    data = b"id,note,price,note\n1,a,2.5,b\n"

    typed, _, _ = read_all(tmp_path, "csv", "x.csv", data, Item)
    placed, _, _ = read_all(tmp_path, "csv", "y.csv", data, tuple[int, str, float, str])

    assert (typed, placed) == ([Item(1, 2.5)], [(1, "a", 2.5, "b")])


def test_a_quote_that_is_never_closed_is_one_bad_record(tmp_path):
    values, _, failures = read_all(tmp_path, "csv", "x.csv", b'id,name\n1,a\n2,"b\n3,c\n')

    assert values == [{"id": "1", "name": "a"}]
    assert [failure.offset for failure in failures] == [12]


def test_csv_that_is_not_utf_8_is_a_bad_record(tmp_path):
    values, _, failures = read_all(tmp_path, "csv", "x.csv", b"id\n1\n\xff\n2\n")

    assert values == [{"id": "1"}, {"id": "2"}]
    assert [failure.raw for failure in failures] == [b"\xff"]


def test_a_large_plain_file_is_split_among_the_subtasks(tmp_path):
    path = tmp_path / "x.txt"
    lines = [f"line {number}" for number in range(200_000)]
    path.write_text("\n".join(lines))
    spec = ConnectorSpec(vertex_id="v", connector_type="text", properties={"path": str(path)})
    run = SourceRun(spec, services_in(tmp_path)).start()
    run.source.poll()

    epoch = run.read(Budget(record_count=1_000_000, byte_count=1 << 30, parallelism=4))

    assert len(epoch.slices) == 4
    assert epoch.values == lines
    shard, offset = str(path), epoch.batches[2][0].offsets[0]
    number = int(epoch.batches[2][0].values[0].split()[1])
    assert run.source.describe(shard, offset) == f"{path} line {number + 1}"
    run.stop()


def test_files_are_read_side_by_side_and_a_short_one_leaves_its_share(tmp_path):
    for name, count in (("a", 50_000), ("b", 1_000), ("c", 50_000)):
        (tmp_path / f"{name}.txt").write_text("".join(f"{name}\n" for _ in range(count)))
    spec = ConnectorSpec(
        vertex_id="v", connector_type="text", properties={"path": str(tmp_path / "*.txt")}
    )
    run = SourceRun(spec, services_in(tmp_path)).start()
    run.source.poll()

    first = run.read(Budget(record_count=21_000, byte_count=1 << 30, parallelism=2))

    counts = Counter(first.values)
    assert counts["b"] == 1_000
    assert counts["a"] == counts["c"]
    assert 9_000 < counts["a"] <= 10_000  # The lines of a short file are not counted, but bounded.
    run.stop()


@pytest.mark.parametrize("lengths", [[80], [5, 5, 5, 300], [1]])
def test_an_epoch_whose_records_are_a_rough_guess_takes_about_as_many(tmp_path, lengths):
    lines = [f"{number:06}".ljust(lengths[number % len(lengths)], ".") for number in range(200_000)]
    path = tmp_path / "x.txt"
    path.write_text("\n".join(lines))
    spec = ConnectorSpec(vertex_id="v", connector_type="text", properties={"path": str(path)})
    run = SourceRun(spec, services_in(tmp_path)).start()

    budget = Budget(record_count=60_000, byte_count=1 << 30, parallelism=2, is_approximate=True)
    epochs = run.drain(budget)

    assert [value for epoch in epochs for value in epoch.values] == lines
    assert len(epochs) in (4, 5)
    for epoch in epochs[:-1]:
        assert 54_000 < len(epoch.values) < 66_000
    run.stop()


def test_an_epoch_too_small_to_be_divided_reads_the_file_that_waited_longest(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text(f"{name}\n" * 1_000)
    spec = ConnectorSpec(
        vertex_id="v", connector_type="text", properties={"path": str(tmp_path / "*.txt")}
    )
    run = SourceRun(spec, services_in(tmp_path)).start()

    read = []
    for _ in range(4):
        run.source.poll()
        epoch = run.read(Budget(record_count=100, byte_count=1 << 20, parallelism=1))
        run.seal(epoch)
        read.append(set(epoch.values))

    assert read == [{"a"}, {"b"}, {"a"}, {"b"}]
    run.stop()


def test_a_reader_without_open_files_is_small(tmp_path):
    assert len(pickle.dumps(SliceReader("text", str, 100))) < 200
