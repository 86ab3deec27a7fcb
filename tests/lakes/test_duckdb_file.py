"""Tables in a DuckDB file: types, keys, readers between epochs, and files that are none."""

import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal

import duckdb
import pytest

from bicycle_runtime.connectors.errors import (
    LAKE_HISTORY_AHEAD,
    LAKE_UNREACHABLE,
    TABLE_DIFFERS,
)
from bicycle_runtime.testing import Harness
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.sinks import duckdb_sink
from tests.raising import raises
from tests.sink_runs import Order

PLAIN = {"columns": {"id": "int", "user": "str"}}
ROWS = [{"id": 1, "user": "ada"}, {"id": 2, "user": "bob"}]


def test_values_of_all_types_come_back(duckdb_file):
    order = Order(
        1, "ada", 0.5, True, datetime(2026, 3, 1, tzinfo=UTC), date(2026, 3, 1), Decimal("1.5"),
        b"raw", ["a", "b"],
    )  # fmt: skip
    duckdb_file.start(Order).run_epoch([[order, Order(2, None)]])

    [first, second] = duckdb_file.read().sort_by("id").to_pylist()
    assert {**first, "price": Decimal("1.5")} == vars(order) | {"tags": ["a", "b"]}
    assert second["user"] is None


def test_a_crash_within_a_transaction_loses_and_repeats_no_row(duckdb_file):
    rows = [{"id": number, "user": "ada"} for number in range(30)]
    sink = duckdb_file.descriptor(columns={"id": int, "user": str}, roll_rows=7)

    with Harness(
        lambda env: env.from_collection(rows).sink_to(sink).uid("out"),
        real_sinks=["out"],
        parallelism=2,
    ) as harness:
        harness.fail_at("transaction_marked")
        harness.run()
        assert harness.crash_count == 1

    assert duckdb_file.read().sort_by("id").to_pylist() == rows
    [marker] = duckdb_file.read("bicycle_epochs").to_pylist()
    assert marker["job"] == "harness"


def test_keys_replace_rows_and_the_table_has_them_as_primary_key(duckdb_file):
    run = duckdb_file.start(**PLAIN, keys=["id"])
    run.run_epoch([ROWS])
    run.run_epoch([[{"id": 2, "user": "eve"}, {"id": 3, "user": "dan"}, {"id": 3, "user": "fay"}]])

    assert duckdb_file.read().sort_by("id").column("user").to_pylist() == ["ada", "eve", "fay"]
    with pytest.raises(duckdb.ConstraintException):
        duckdb_file.execute("insert into a values (1, 'gus')")


def test_values_of_other_columns_stay_when_the_job_has_fewer(duckdb_file):
    duckdb_file.execute('create table a (id bigint primary key, "user" varchar, more varchar)')
    duckdb_file.execute("insert into a values (1, 'a', 'x'), (2, 'b', 'y')")
    duckdb_file.start(**PLAIN, keys=["id"]).run_epoch([[{"id": 2, "user": "c"}, ROWS[0]]])
    duckdb_file.start(**PLAIN, keys=["id"]).run_epoch([[{"id": 3, "user": "d"}]])

    found = [tuple(row.values()) for row in duckdb_file.read().sort_by("id").to_pylist()]
    assert found == [(1, "ada", "x"), (2, "c", "y"), (3, "d", None)]


def test_a_key_without_value_is_refused_before_the_seal(duckdb_file):
    duckdb_file.execute('create table a (id bigint unique, "user" varchar)')
    run = duckdb_file.start(**PLAIN, keys=["id"])

    with pytest.raises(ValueError, match="'id' is None"):
        run.stage(0, [[{"id": None, "user": "ada"}]])


def test_a_table_without_a_key_of_exactly_these_columns_is_refused(duckdb_file):
    duckdb_file.execute('create table a (id bigint, "user" varchar)')

    with raises(TABLE_DIFFERS) as caught:
        duckdb_file.start(**PLAIN, keys=["id"])
    assert "no primary key or unique constraint (id)" in caught.value.facts["problem"]


def test_a_schema_and_quoted_names_are_kept(duckdb_file):
    properties = {**PLAIN, "columns": {"select": "int"}, "table": 'shop.a "b"'}
    duckdb_file.start(**properties).run_epoch([[{"select": 1}]])

    assert duckdb_file.execute('from shop."a ""b"""').to_pylist() == [{"select": 1}]


def test_a_restored_epoch_behind_the_file_is_refused_or_written_again(duckdb_file):
    run = duckdb_file.start(**PLAIN)
    run.run_epoch([ROWS])
    state, epoch = run.state, run.epoch
    run.run_epoch([[{"id": 3, "user": "dan"}]])
    run.stop()

    with raises(LAKE_HISTORY_AHEAD):
        duckdb_file.start(**PLAIN, state=state, epoch=epoch)
    again = duckdb_file.start(**PLAIN, state=state, epoch=epoch, on_rewind="publish_again")
    again.run_epoch([[{"id": 3, "user": "dan"}]])
    assert duckdb_file.read().num_rows == 4


def test_rows_that_are_held_for_another_table_are_written_there(duckdb_file):
    rows = {**PLAIN, "roll_rows": 100}
    run = duckdb_file.start(**rows)
    run.run_epoch([ROWS])
    run.stop()
    other = duckdb_file.start(name="b", state=run.state, epoch=run.epoch, **rows)
    other.run_epoch([[{"id": 3, "user": "dan"}]], is_last=True)
    other.publish()

    assert sorted(duckdb_file.read()["id"].to_pylist()) == [row["id"] for row in ROWS]
    assert duckdb_file.read("b")["id"].to_pylist() == [3]


def test_a_restored_epoch_is_refused_for_another_table_whose_epochs_are_in_the_file(duckdb_file):
    run = duckdb_file.start(**PLAIN)
    run.run_epoch([ROWS])
    state, epoch = run.state, run.epoch
    run.run_epoch([[{"id": 3, "user": "dan"}]])
    run.stop()

    with raises(LAKE_HISTORY_AHEAD):
        duckdb_file.start(name="b", **PLAIN, state=state, epoch=epoch)


def test_a_locked_file_names_the_process_that_holds_it(duckdb_file):
    duckdb_file.start(**PLAIN).run_epoch([ROWS])
    path = duckdb_file.folder / "lake.duckdb"
    code = f"import duckdb, sys; c = duckdb.connect({str(path)!r}); print(1, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout.readline()
        with raises(LAKE_UNREACHABLE) as caught:
            duckdb_file.start(**PLAIN)
        assert "lock" in caught.value.facts["reason"]
        assert str(holder.pid) in caught.value.facts["reason"]
        holder.communicate(b"\n")


def test_a_file_of_another_kind_is_refused_and_kept(duckdb_file):
    path = duckdb_file.folder / "lake.duckdb"
    path.write_text("no database")

    with raises(LAKE_UNREACHABLE) as caught:
        duckdb_file.start(**PLAIN)
    assert "not a valid DuckDB" in caught.value.facts["reason"]
    assert path.read_text() == "no database"


def test_a_database_in_memory_is_refused():
    with pytest.raises(StreamDefinitionError, match="in memory"):
        duckdb_sink(":memory:", "a")
