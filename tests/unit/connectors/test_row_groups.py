"""Row groups of several Parquet files in one, as their bytes lie: others read the same rows."""

import io
from functools import partial

import duckdb
import polars
import pyarrow
import pytest
from pyarrow import parquet

from bicycle_runtime.connectors.tables.row_groups import (
    CODECS,
    append_row_groups,
    end_file,
    footer_of,
)

LENGTHS = [50, 3_000, 2, 300]


def rows_of(first, count):
    numbers = range(first, first + count)
    return pyarrow.table(
        {
            "n": pyarrow.array(numbers),
            "half": [number / 2 for number in numbers],
            "word": [None if number % 7 == 3 else f"word {number % 50}" for number in numbers],
            "many": [[number] * (1 + number % 3) for number in numbers],
            "is_even": [number % 2 == 0 for number in numbers],
        }
    )


def file_of(rows, *, compression="snappy", group_rows=97, **more):
    stream = io.BytesIO()
    with parquet.ParquetWriter(
        stream, rows.schema, compression=compression, write_page_checksum=True, **more
    ) as writer:
        if rows.num_rows:
            writer.write_table(rows, row_group_size=group_rows)
    stream.seek(0)
    return stream


def joined(streams):
    out, place, footers = io.BytesIO(), 0, []
    for stream in streams:
        footers.append(footer_of(stream))
        blocks = iter(partial(stream.read, 1_000), b"")
        stream.seek(0)
        place = append_row_groups(out, place, blocks, footers[-1])
    end_file(out, footers)
    return out


@pytest.mark.parametrize("compression", CODECS)
@pytest.mark.parametrize("more", [{}, {"write_page_index": True, "use_dictionary": ["word"]}])
def test_a_file_of_several_has_their_rows_in_order(tmp_path, compression, more):
    tables = [rows_of(1_000 * number, count) for number, count in enumerate(LENGTHS)]
    streams = [file_of(rows, compression=compression, **more) for rows in tables]
    group_count = sum(parquet.ParquetFile(each).num_row_groups for each in streams)

    path = tmp_path / "all.parquet"
    path.write_bytes(joined(streams).getvalue())

    wanted = pyarrow.concat_tables(tables)
    found = parquet.ParquetFile(path, page_checksum_verification=True)
    assert found.read().equals(wanted)
    assert (found.metadata.num_rows, found.num_row_groups) == (sum(LENGTHS), group_count)
    places = [found.metadata.row_group(n).column(0).data_page_offset for n in range(group_count)]
    assert places == sorted(set(places))
    numbers = wanted["n"].to_pylist()
    total = sum(number for number in numbers if 1_900 <= number < 2_200)
    asked = f"select sum(n) from '{path}' where n >= 1900 and n < 2200"
    assert duckdb.sql(asked).fetchall() == [(total,)]
    frame = polars.scan_parquet(path).filter(polars.col("n") >= 3_000).collect()
    assert frame["n"].to_list() == [number for number in numbers if number >= 3_000]


def test_what_was_joined_may_be_joined_again():
    parts = [joined([file_of(rows_of(n, 3)), file_of(rows_of(n + 3, 4))]) for n in (0, 7)]

    assert parquet.read_table(joined(parts)).equals(rows_of(0, 14))


def test_a_file_without_rows_adds_none():
    rows = rows_of(0, 3)
    streams = [file_of(rows.slice(0, 0)), file_of(rows), file_of(rows.slice(0, 0))]

    assert parquet.read_table(joined(streams)).equals(rows)


def test_footers_tell_what_may_lie_in_one_file():
    rows = rows_of(0, 5)
    one, zipped = (footer_of(file_of(rows, compression=name)) for name in ("snappy", "gzip"))

    assert one.is_like(footer_of(file_of(rows_of(7, 200))))
    assert not one.is_like(footer_of(file_of(rows.drop_columns(["half"]))))
    renamed = rows.rename_columns({"n": "m"})
    assert not one.is_like(footer_of(file_of(renamed)))
    assert (one.codecs, zipped.codecs) == ({CODECS["snappy"]}, {CODECS["gzip"]})


def test_a_file_that_became_shorter_is_told():
    stream = file_of(rows_of(0, 500))
    footer = footer_of(stream)

    with pytest.raises(OSError, match="shorter than before"):
        append_row_groups(io.BytesIO(), 0, [stream.getvalue()[:200]], footer)
