"""Catalogues and tables that are damaged, locked, gone or created again while a job runs.

Each of them is an error with a code, the output is kept, and nothing is lost or written twice once
the damage is repaired.
"""

import sqlite3
from pathlib import Path

import pyarrow
import pytest

from bicycle_runtime.connectors.errors import (
    LAKE_REFUSED,
    LAKE_TABLE_REPLACED,
    LAKE_UNREACHABLE,
)
from bicycle_sdk.errors import BicycleError
from tests.lakes.conftest import DeltaLake, Iceberg
from tests.raising import raises

IDS = {"columns": {"id": "int"}, "publish_timeout_ms": 1_000}


class Damage:
    """Files that were damaged, and their content before."""

    def __init__(self):
        self._before = {}
        self._connection = None

    def write(self, file, data):
        self._before[file] = file.read_bytes()
        file.unlink()
        if data is not None:
            file.write_bytes(data)

    def lock(self, file):
        self._connection = sqlite3.connect(file)
        self._connection.execute("begin exclusive")

    def repair(self):
        if self._connection is not None:
            self._connection.close()
        for file, data in self._before.items():
            file.write_bytes(data)


def cut(data):
    return data[: len(data) // 2]


def metadata_of(folder):
    """Return the file of metadata that the catalogue names."""
    connection = sqlite3.connect(folder / "lake.db")
    [[place]] = connection.execute("select metadata_location from iceberg_tables")
    connection.close()
    return Path(place.removeprefix("file://"))


def entry_of(folder, number):
    return sorted((folder / "a" / "_delta_log").glob("*.json"))[number]


# The lake, and how it is damaged in a folder.
DAMAGES = {
    "catalogue-locked": (Iceberg, lambda d, f: d.lock(f / "lake.db")),
    "catalogue-rubbish": (Iceberg, lambda d, f: d.write(f / "lake.db", b"rubbish" * 3_000)),
    "metadata-rubbish": (Iceberg, lambda d, f: d.write(metadata_of(f), b"rubbish")),
    "metadata-empty": (Iceberg, lambda d, f: d.write(metadata_of(f), b"")),
    "metadata-foreign": (Iceberg, lambda d, f: d.write(metadata_of(f), b'{"format-version": 2}')),
    "metadata-missing": (Iceberg, lambda d, f: d.write(metadata_of(f), None)),
    "manifests": (
        Iceberg,
        lambda d, f: [d.write(file, b"rubbish") for file in (f / "warehouse").rglob("*.avro")],
    ),
    "entry-rubbish": (DeltaLake, lambda d, f: d.write(entry_of(f, -1), b"rubbish")),
    "entry-cut": (
        DeltaLake,
        lambda d, f: d.write(entry_of(f, -1), cut(entry_of(f, -1).read_bytes())),
    ),
    "entry-missing": (DeltaLake, lambda d, f: d.write(entry_of(f, 1), None)),
    "first-entry-missing": (DeltaLake, lambda d, f: d.write(entry_of(f, 0), None)),
    "last-entry-missing": (DeltaLake, lambda d, f: d.write(entry_of(f, -1), None)),
}


def ids(lake):
    return sorted(lake.read()["id"].to_pylist())


@pytest.fixture
def opened(tmp_path):
    """Return a lake of a class in the folder of the test."""
    lakes = []

    def open_one(word):
        lakes.append(word(tmp_path))
        return lakes[-1]

    yield open_one
    for lake in lakes:
        lake.stop()


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damage_is_an_error_with_a_code_and_its_repair_loses_nothing(opened, tmp_path, name):
    word, act = DAMAGES[name]
    lake, damage = opened(word), Damage()
    run = lake.start(**IDS)
    for number in (1, 2):
        run.run_epoch([[{"id": number}]])
    run.seal([[{"id": 3}]])
    act(damage, tmp_path)

    with pytest.raises(BicycleError) as caught:
        run.publish()
    assert caught.value.code in {
        LAKE_UNREACHABLE.code, LAKE_REFUSED.code, LAKE_TABLE_REPLACED.code,
    }  # fmt: skip
    damage.repair()
    run.restart()
    run.run_epoch([[{"id": 4}]])

    assert ids(lake) == [1, 2, 3, 4]


@pytest.mark.parametrize("name", ["metadata-rubbish", "metadata-missing", "entry-rubbish"])
def test_a_start_with_a_damaged_table_is_refused(opened, tmp_path, name):
    word, act = DAMAGES[name]
    lake = opened(word)
    run = lake.start(**IDS)
    for number in (1, 2):
        run.run_epoch([[{"id": number}]])
    act(Damage(), tmp_path)

    with raises(LAKE_UNREACHABLE):
        lake.start(**IDS)


@pytest.mark.parametrize("is_log", [False, True])
def test_storage_that_cannot_be_written_is_an_outage_with_its_reason(delta, tmp_path, is_log):
    run = delta.start(partition_by=("id",), **IDS | {"columns": {"id": "int", "n": "int"}})
    run.run_epoch([[{"id": 1, "n": 0}]])
    run.seal([[{"id": 2, "n": 0}]])
    blocked, kept = tmp_path / "a" / ("_delta_log" if is_log else "id=2"), tmp_path / "kept"
    if is_log:
        blocked.rename(kept)
        blocked.symlink_to("_delta_log")  # To itself: the system opens nothing below it.
    else:
        blocked.write_text("not a folder")

    with raises(LAKE_UNREACHABLE) as caught:
        run.publish()
    assert "(os error " in caught.value.facts["reason"]
    blocked.unlink()
    if is_log:
        kept.rename(blocked)
    run.restart()
    run.run_epoch([[{"id": 3, "n": 0}]])

    assert ids(delta) == [1, 2, 3]


def drop(lake):
    if isinstance(lake, Iceberg):
        lake.opened().drop_table("shop.a")
    else:
        (lake.folder / "a").rename(lake.folder / "dropped")


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_table_that_is_dropped_while_the_job_runs_stops_it_and_a_start_continues(
    lake, is_made_again
):
    run = lake.start(**IDS)
    run.run_epoch([[{"id": 1}]])
    run.seal([[{"id": 2}]])
    drop(lake)
    if is_made_again:
        lake.make(pyarrow.schema([("id", pyarrow.int64())]))

    with raises(LAKE_TABLE_REPLACED) as caught:
        run.publish()
    assert ("lost epoch 0" in caught.value.facts["problem"]) is is_made_again
    run.restart()
    run.run_epoch([[{"id": 3}]])

    assert ids(lake) == [2, 3]


def test_a_column_that_the_table_lost_while_the_job_runs_costs_no_values(iceberg):
    run = iceberg.start(columns={"id": "int", "name": "str"}, publish_timeout_ms=1_000)
    run.run_epoch([[{"id": 1, "name": "a"}]])
    run.seal([[{"id": 2, "name": "b"}]])
    with iceberg.table().update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("name")

    with raises(LAKE_REFUSED) as caught:
        run.publish()
    assert "no column 'name'" in caught.value.facts["reason"]
    assert ids(iceberg) == [1]
