"""Rows that a table of a lake does not take are found before the epoch is sealed."""

from datetime import UTC, date, datetime
from decimal import Decimal
from urllib.parse import quote

import pyarrow
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from bicycle_runtime.connectors.errors import COLUMNS_WRONG
from bicycle_runtime.expressions.conditions import Conditions
from bicycle_runtime.testing import Harness
from bicycle_sdk import dead_letter
from bicycle_sdk.sinks import IcebergCatalog, Rolling, delta_sink, iceberg_sink
from tests.raising import raises


class Lake:
    """One table, by the name of its kind, and jobs that write to it."""

    def __init__(self, kind, folder):
        self.kind, self.folder = kind, folder
        self.catalog = f"sqlite:///{folder}/catalog.db"

    def sink(self, **words):
        words = {"rolling": Rolling(rows=1), **words}
        if self.kind == "delta":
            return delta_sink(self.folder / "table", **words)
        catalog = IcebergCatalog(address=self.catalog, warehouse=f"file://{self.folder}/warehouse")
        return iceberg_sink(catalog, "shop.table", **words)

    def write(self, records, **words):
        """Write records one by one in a job; return the reasons of its dead letters."""

        def job(env):
            stream = env.from_collection(records)
            stream.sink_to(self.sink(**words)).uid("out").on_error(dead_letter())

        with Harness(job, real_sinks=["out"]) as harness:
            harness.run()
            return [letter["message"] for letter in harness.dead_letters]

    def column(self, name):
        if self.kind == "delta":
            found = DeltaTable(self.folder / "table").to_pyarrow_table()
        else:
            catalog = SqlCatalog(
                "bicycle", uri=self.catalog, warehouse=f"file://{self.folder}/warehouse"
            )
            found = catalog.load_table("shop.table").scan().to_arrow()
        return found.column(name).to_pylist()


@pytest.fixture(params=["delta", "iceberg"])
def lake(request, tmp_path):
    return Lake(request.param, tmp_path)


@pytest.fixture
def delta(tmp_path):
    return Lake("delta", tmp_path)


ROOM = 255 - len("city=")


@pytest.mark.parametrize("letter", ["x", "/", "ü", "\N{BICYCLE}", "\0"])
def test_a_value_that_is_too_long_for_the_name_of_a_folder_is_a_dead_letter(lake, letter):
    count = ROOM // len(quote(letter, safe=""))
    cities = [letter * count, letter * (count + 1), "brest", letter * 4_000]

    reasons = lake.write(
        [{"city": city} for city in cities], columns={"city": str, "n": int}, partition_by=["city"]
    )

    assert sorted(lake.column("city")) == sorted([letter * count, "brest"])
    assert len(reasons) == 2
    assert all("bytes as a folder name" in reason for reason in reasons)


def test_a_table_that_others_put_into_folders_is_looked_at(delta):
    schema = pyarrow.schema({"city": pyarrow.string(), "n": pyarrow.int64()})
    DeltaTable.create(delta.folder / "table", schema, partition_by=["city"])

    reasons = delta.write([{"city": "x" * 300}, {"city": "brest"}], columns={"city": str, "n": int})

    assert (delta.column("city"), len(reasons)) == (["brest"], 1)


def test_a_column_of_the_folders_that_records_lack_is_null(lake):
    columns = {"n": int, "region": str}
    lake.write([{"n": 1, "region": "north"}], columns=columns, partition_by=["region"])

    reasons = lake.write([{"n": 2}, {"n": 3}], columns={"n": int})

    assert reasons == []
    found = dict(zip(lake.column("n"), lake.column("region"), strict=True))
    assert found == {1: "north", 2: None, 3: None}


def test_a_new_key_without_the_column_of_the_folders_is_added(lake):
    columns = {"n": int, "m": int, "region": str}
    lake.write([{"n": 1, "m": 1, "region": "north"}], columns=columns, partition_by=["region"])

    reasons = lake.write([{"n": 2, "m": 2}], columns={"n": int, "m": int}, keys=["n"])

    assert reasons == []
    assert sorted(zip(lake.column("n"), lake.column("m"), strict=True)) == [(1, 1), (2, 2)]


FAR = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "values", "refused"),
    [
        (float, [1.5, -0.0, 1e300, 1e-300, float("inf"), None], {"delta": [1e300, 1e-300]}),
        ("decimal(12,2)", [Decimal("-2"), Decimal("-0.5"), Decimal("1.5")],
         {"delta": [Decimal("-0.5")]}),
        (int, [-(2**63), 2**63 - 1, None], {}),
        (datetime, [FAR, datetime(1, 1, 1, tzinfo=UTC)], {}),
        (date, [date(1, 1, 1), date(9999, 12, 31)], {}),
        (bool, [True, False, None], {}),
    ],
)  # fmt: skip
def test_values_of_each_type_name_folders_or_are_dead_letters(lake, kind, values, refused):
    bad = refused.get(lake.kind, [])

    reasons = lake.write(
        [{"k": value} for value in values], columns={"k": kind, "n": int}, partition_by=["k"]
    )

    assert sorted(lake.column("k"), key=repr) == sorted(set(values) - set(bad), key=repr)
    assert len(reasons) == len(bad)


def test_nan_is_no_folder_of_iceberg(tmp_path):
    lake = Lake("iceberg", tmp_path)

    reasons = lake.write(
        [{"k": float("nan")}, {"k": 1.5}], columns={"k": float, "n": int}, partition_by=["k"]
    )

    assert (lake.column("k"), len(reasons)) == ([1.5], 1)


def test_bytes_put_no_table_of_delta_into_folders(delta):
    with raises(COLUMNS_WRONG):
        delta.write([], columns={"k": bytes, "n": int}, partition_by=["k"])


def test_a_table_of_delta_has_a_column_beside_those_of_its_folders(delta):
    with raises(COLUMNS_WRONG):
        delta.write([], columns={"k": str}, partition_by=["k"])


def test_a_row_that_breaks_a_constraint_of_the_table_is_a_dead_letter(delta):
    delta.write([{"n": 1, "Name": "a"}], columns={"n": int, "Name": str})
    table = DeltaTable(delta.folder / "table")
    table.alter.add_constraint({"positive": "n > 0", "named": "Name <> ''"})
    records = [{"n": 2, "Name": "b"}, {"n": 0, "Name": "c"}, {"n": 3, "Name": ""}, {"Name": "d"}]

    reasons = delta.write(records, columns={"n": int, "Name": str})

    assert sorted(delta.column("n")) == [1, 2]
    assert ["positive" in reason for reason in reasons] == [True, False, True]
    assert "named" in reasons[1]


def test_a_constraint_that_cannot_be_computed_is_an_error_before_the_start():
    schema = pyarrow.schema({"n": pyarrow.int64()})

    with pytest.raises(ValueError, match="odd"):
        Conditions({"odd": "unknown(n) = 1"}, schema)


@pytest.mark.parametrize("time_ms", [2**60, -(2**60)])
def test_an_event_time_that_columns_have_no_room_for_is_a_dead_letter(lake, time_ms):
    def job(env):
        records = env.from_collection([(1, 5), (2, time_ms)])
        stamped = records.assign_timestamps(lambda pair: pair[1]).map(lambda pair: {"n": pair[0]})
        sink = lake.sink(columns={"n": int}, timestamp_field="at")
        stamped.sink_to(sink).uid("out").on_error(dead_letter())

    with Harness(job, real_sinks=["out"]) as harness:
        harness.run()
        assert len(harness.dead_letters) == 1
    assert lake.column("n") == [1]
