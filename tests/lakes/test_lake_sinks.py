"""The sinks of lakes: what others read, rows by key, tables that do not fit, older epochs."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

import duckdb
import polars
import pyarrow
import pytest

from bicycle_runtime.base.faults import arm_fault
from bicycle_runtime.connectors.errors import (
    COLUMNS_WRONG,
    CONNECTOR_OPTION_WRONG,
    LAKE_HISTORY_AHEAD,
    LAKE_TABLE_REPLACED,
    LAKE_UNREACHABLE,
    TABLE_DIFFERS,
    PublishInterruptedError,
)
from bicycle_runtime.testing import Harness
from bicycle_sdk import Secret, dead_letter
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.sinks import IcebergCatalog, Rolling, delta_sink, iceberg_sink
from tests.raising import raises
from tests.sink_runs import Order

AT = datetime(2026, 3, 1, 12, 30, 0, 123_456, tzinfo=UTC)
KEYED = {"mode": "upsert", "keys": ["id"], "columns": {"id": "int", "name": "str"}}
PLAIN = {"columns": {"id": "int", "name": "str"}}


@dataclass(frozen=True)
class Inner:
    x: int
    word: str


@dataclass(frozen=True)
class NestedOrder(Order):
    counts: dict[str, int] | None = None
    inner: Inner | None = None


def of(number, name):
    return {"id": number, "name": name}


def pairs(lake, name="a"):
    return sorted((row["id"], row["name"]) for row in lake.read(name).to_pylist())


# --- what others read -----------------------------------------------------------------------


@pytest.mark.core
@pytest.mark.filterwarnings("ignore::polars.exceptions.PerformanceWarning")
def test_a_job_that_is_killed_writes_each_row_once_and_others_read_them(lake):
    rows = [{"id": number, "city": f"city {number % 3}"} for number in range(30)]
    columns = {"id": int, "city": str}

    def job(env):
        sink = lake.descriptor(columns=columns, partition_by=["city"], rolling=Rolling(rows=7))
        env.from_collection([*rows, {"id": "no number"}]).sink_to(sink).uid("out").on_error(
            dead_letter()
        )

    with Harness(job, real_sinks=["out"], parallelism=2) as harness:
        harness.fail_at("transaction_marked")
        harness.run()
        assert harness.crash_count == 1
        assert len(harness.dead_letters) == 1

    sums = duckdb.from_arrow(lake.read()).aggregate("count(*), sum(id), count(distinct city)")
    assert sums.fetchall() == [(30, sum(range(30)), 3)]
    scan = polars.scan_delta if lake.word == "delta" else polars.scan_iceberg
    place = str(lake.folder / "a") if lake.word == "delta" else lake.table()
    assert scan(place).sort("id").collect().to_dicts() == rows
    facts = lake.last_facts()
    assert facts["bicycle.job"] == "harness"
    assert int(facts["bicycle.epoch"]) >= 0


def test_each_type_of_field_has_its_column(lake):
    plain = (7, "ada", 1.5, True, AT, AT.date(), Decimal("2.5"), b"\0x", ["a", "b"])
    full = NestedOrder(*plain, {"k": 1}, Inner(3, "w"))
    lake.start(NestedOrder).run_epoch([[full, NestedOrder(8, None)]])

    [first, second] = sorted(lake.read().to_pylist(), key=lambda row: row["id"])
    assert first == {
        "id": 7, "user": "ada", "cents": 1.5, "paid": True, "at": AT, "day": AT.date(),
        "price": Decimal("2.500000000"), "raw": b"\0x", "tags": ["a", "b"], "counts": [("k", 1)],
        "inner": {"x": 3, "word": "w"},
    }  # fmt: skip
    assert set(second.values()) == {8, None}


def test_the_event_time_and_the_payload_are_columns_where_records_have_none(delta):
    def job(env):
        times = env.from_collection([{"ms": 5}]).assign_timestamps(lambda record: record["ms"])
        times.sink_to(delta.descriptor()).uid("out")

    with Harness(job, real_sinks=["out"]) as harness:
        harness.run()

    [row] = delta.read().to_pylist()
    assert (row["event_time"].timestamp(), row["payload"]) == (0.005, '{"ms":5}')


def test_a_key_that_is_the_event_time_takes_no_record_without_one(lake):
    def job(env):
        records = env.from_collection([{"ms": 5}])
        records.sink_to(lake.descriptor(keys=("event_time",))).on_error("dead_letter").uid("out")

    with Harness(job, real_sinks=["out"]) as harness:
        harness.run()
        [letter] = harness.dead_letters
    assert "no event time for the column 'event_time'" in letter["message"]


def test_a_long_epoch_is_staged_in_one_file_however_few_rows_are_committed(lake):
    run = lake.start(**PLAIN)
    numbers = range(10_000)
    [file] = run.stage(5, [[of(number, "a") for number in numbers]])

    assert file.record_count == len(numbers)


def test_small_epochs_are_one_commit(lake):
    run = lake.start(roll_rows=1_000, roll_ms=86_400_000, **PLAIN)
    for number in range(40):
        run.run_epoch([[of(number, "a")], [of(1_000 + number, "b")]])
        run.collect()
    assert lake.read().num_rows == 0
    run.restart()
    run.run_epoch([], is_last=True)

    assert len(pairs(lake)) == 80
    log = lake.table().version() if lake.word == "delta" else len(lake.table().snapshots())
    assert log == 1  # The table itself is version 0 of a Delta table.


# --- rows by key ----------------------------------------------------------------------------


@pytest.mark.core
def test_the_last_record_of_a_key_wins(lake):
    run = lake.start(**KEYED)
    run.run_epoch([[of(1, "a"), of(2, "b"), of(1, "c"), of(3, "d")]])
    run.run_epoch([[of(2, "e"), of(4, "f"), of(4, "g")], [of(5, "h")]])
    run.publish()

    assert pairs(lake) == [(1, "c"), (2, "e"), (3, "d"), (4, "g"), (5, "h")]


def test_many_rows_are_replaced_by_two_keys(lake):
    columns = {"id": "int", "part": "str", "name": "str"}
    run = lake.start(mode="upsert", keys=["part", "id"], columns=columns, partition_by=["part"])
    for epoch in range(3):
        numbers = range(epoch * 5_000, epoch * 5_000 + 10_000)
        run.run_epoch([
            [{"id": n // 4, "part": f"p{n % 4}", "name": f"{epoch} {n}"} for n in numbers]
        ])  # fmt: skip

    found = {(row["id"], row["part"]): row["name"] for row in lake.read().to_pylist()}
    assert len(found) == lake.read().num_rows == 20_000
    assert all(
        name == f"{min(number // 5_000, 2)} {number}"
        for number, name in (
            (ident * 4 + int(part[1:]), name) for (ident, part), name in found.items()
        )
    )


def test_values_of_other_columns_stay_when_the_job_has_fewer(lake):
    tags = pyarrow.list_(pyarrow.string())
    lake.make(
        pyarrow.schema([("id", "int64"), ("more", "string"), ("name", "string"), ("t", tags)])
    )
    for number, name in enumerate("abcd", 1):
        more = {"more": [None, f"{name} more"], "t": [["one"], [name]]}
        lake.append(pyarrow.table({"id": [-number, number], **more, "name": [name, name]}))
    run = lake.start(**KEYED)
    run.run_epoch([[of(5, "E"), of(2, "B"), of(-1, "A"), of(4, "D")]])
    run.run_epoch([[of(2, "B2"), of(6, "F")]])

    rows = sorted(lake.read().to_pylist(), key=lambda row: row["id"])
    assert [tuple(row[name] for name in ("id", "name", "more", "t")) for row in rows] == [
        (-4, "d", None, ["one"]), (-3, "c", None, ["one"]), (-2, "b", None, ["one"]),
        (-1, "A", None, ["one"]), (1, "a", "a more", ["a"]), (2, "B2", "b more", ["b"]),
        (3, "c", "c more", ["c"]), (4, "D", "d more", ["d"]), (5, "E", None, None),
        (6, "F", None, None),
    ]  # fmt: skip


def test_a_key_without_value_is_a_dead_letter(lake):
    def job(env):
        sink = lake.descriptor(keys=["id"], columns={"id": int, "name": str})
        rows = env.from_collection([of(1, "a"), of(None, "b")])
        rows.sink_to(sink).uid("out").on_error(dead_letter())

    with Harness(job, real_sinks=["out"]) as harness:
        harness.run()
        [letter] = harness.dead_letters

    assert "'id' is None" in letter["message"]
    assert pairs(lake) == [(1, "a")]


# --- tables that do not fit -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"id": "int64"}, "no column 'name'"),
        ({"id": "string", "name": "string"}, "'id' is"),
    ],
)
def test_a_table_of_other_columns_is_refused_before_the_start(lake, schema, problem):
    lake.make(pyarrow.schema(schema.items()))

    with raises(TABLE_DIFFERS) as caught:
        lake.start(**PLAIN)
    assert problem in caught.value.facts["problem"]


def test_a_column_that_is_never_null_there_is_asked_of_records(lake):
    fields = [pyarrow.field("id", "int64"), pyarrow.field("name", "string", nullable=False)]
    lake.make(pyarrow.schema(fields))
    run = lake.start(**PLAIN)
    with pytest.raises(ValueError, match="'name' is None"):
        run.stage(0, [[of(1, None)]])

    with raises(TABLE_DIFFERS) as caught:
        lake.start(columns={"id": "int"})
    assert "'name' must not be null" in caught.value.facts["problem"]


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"mode": "upsert", "keys": ["no"]}, "'no' is not a column"),
        ({"partition_by": ["no"]}, "'no' is not a column"),
        ({"mode": "upsert", "keys": ["x"], "columns": {"x": "float"}}, "'x' has the type double"),
    ],
)
def test_options_that_cannot_be_are_refused(lake, properties, problem):
    with raises(COLUMNS_WRONG) as caught:
        lake.start(**{**PLAIN, **properties})
    assert problem in caught.value.facts["problem"]


@pytest.mark.parametrize("properties", [{"mode": "upsert"}, {"mode": "append", "keys": ["id"]}])
def test_a_mode_that_contradicts_the_keys_is_refused(lake, properties):
    with raises(CONNECTOR_OPTION_WRONG) as caught:
        lake.start(**{**PLAIN, **properties})
    assert caught.value.facts["name"] == "keys"


def test_a_type_that_tables_lack_is_refused(delta, iceberg):
    with raises(COLUMNS_WRONG) as caught:
        delta.start(columns={"id": "int", "at": "time"})
    assert "'at' has the type time64" in caught.value.facts["problem"]
    iceberg.start(columns={"id": "int", "at": "time"})


@pytest.mark.parametrize(
    "properties",
    [
        {"catalog": "no address"},
        {"catalog": "mysql://host/db"},
        {"catalog": "postgresql://ada:geheim@host/db"},
        {"table": "payments"},
        {"catalog_password": "geheim"},
    ],
)
def test_a_catalogue_that_cannot_be_is_refused_without_showing_a_password(iceberg, properties):
    with raises(CONNECTOR_OPTION_WRONG) as caught:
        iceberg.start(**PLAIN, **properties)
    assert "geheim" not in str(caught.value)


# --- runs and epochs ------------------------------------------------------------------------


def test_an_older_epoch_than_was_written_is_refused_unless_it_may_come_again(lake):
    run = lake.start(**KEYED)
    run.run_epoch([[of(1, "a")]])
    older, epoch = run.state, run.epoch
    run.run_epoch([[of(2, "b")]])

    with raises(LAKE_HISTORY_AHEAD) as caught:
        lake.start(state=older, epoch=epoch, **KEYED)
    assert (caught.value.facts["epoch"], caught.value.facts["published"]) == (epoch, epoch + 1)
    again = lake.start(state=older, epoch=epoch, on_rewind="publish_again", **KEYED)
    again.run_epoch([[of(2, "c")]])
    assert pairs(lake) == [(1, "a"), (2, "c")]


def test_two_jobs_of_one_savepoint_both_write(lake):
    first = lake.start(**PLAIN)
    first.run_epoch([[of(1, "a")]])
    second = lake.start(state=first.state, epoch=first.epoch, place="two", **PLAIN)
    first.run_epoch([[of(2, "b")]])
    second.run_epoch([[of(3, "c")]])

    assert pairs(lake) == [(1, "a"), (2, "b"), (3, "c")]


def test_an_epoch_that_was_sealed_for_another_table_is_written_there(lake):
    run = lake.start(**PLAIN)
    run.seal([[of(1, "a")]])
    other = lake.start(name="b", state=run.state, epoch=run.epoch, **PLAIN)
    other.publish()
    other.run_epoch([[of(2, "b")]])

    assert (pairs(lake), pairs(lake, "b")) == ([(1, "a")], [(2, "b")])


def test_rows_that_are_held_for_another_table_are_written_there(lake):
    rows = {"roll_rows": 100}
    run = lake.start(**PLAIN, **rows)
    run.run_epoch([[of(1, "a")]])
    other = lake.start(name="b", state=run.state, epoch=run.epoch, **PLAIN, **rows)
    other.seal([[of(2, "b")]])
    third = lake.start(name="c", state=other.state, epoch=other.epoch, **PLAIN, **rows)
    third.publish()
    third.run_epoch([[of(3, "c")]], is_last=True)

    found = [pairs(lake, name) for name in "abc"]
    assert found == [[(1, "a")], [(2, "b")], [(3, "c")]]


def test_rows_that_are_held_for_an_upsert_are_written_by_its_keys(lake):
    rows = {"roll_rows": 100}
    run = lake.start(**KEYED, **rows)
    run.run_epoch([[of(1, "a")]])
    run.run_epoch([[of(1, "b")]])
    other = lake.start(state=run.state, epoch=run.epoch, **PLAIN, **rows)
    other.run_epoch([[of(2, "c"), of(2, "d")]], is_last=True)
    other.publish()

    assert pairs(lake) == [(1, "b"), (2, "c"), (2, "d")]


def test_rows_that_are_held_for_another_table_are_not_written_twice(lake):
    rows = {"roll_rows": 100}
    run = lake.start(**PLAIN, **rows)
    run.run_epoch([[of(1, "a")]])
    older, epoch = run.state, run.epoch
    run.run_epoch([[of(2, "b")]], is_last=True)

    with raises(LAKE_HISTORY_AHEAD) as caught:
        lake.start(name="b", state=older, epoch=epoch, **PLAIN, **rows)
    assert caught.value.facts["published"] == epoch + 1


def test_held_rows_are_written_when_the_job_has_one_column_more(lake):
    lake.make(pyarrow.schema([("id", "int64"), ("name", "string"), ("more", "int64")]))
    rows = {"roll_rows": 100}
    run = lake.start(**PLAIN, **rows)
    run.run_epoch([[of(1, "a")]])
    columns = {"id": "int", "name": "str", "more": "int"}
    other = lake.start(state=run.state, epoch=run.epoch, columns=columns, **rows)
    other.run_epoch([[{**of(2, "b"), "more": 5}]], is_last=True)

    assert pairs(lake) == [(1, "a"), (2, "b")]
    assert sorted(lake.read()["more"].to_pylist(), key=str) == [5, None]


@pytest.mark.parametrize("properties", [PLAIN, KEYED])
def test_a_commit_that_another_writer_was_faster_than_is_made_again(lake, properties):
    run = lake.start(**properties)
    run.run_epoch([[of(1, "a")]])
    theirs = pyarrow.table({"id": [9], "name": ["theirs"]})
    arm_fault("transaction_produced", act=lambda: lake.append(theirs))
    run.run_epoch([[of(2, "b")]])

    assert pairs(lake) == [(1, "a"), (2, "b"), (9, "theirs")]


def test_a_commit_beside_one_of_the_same_run_is_not_made(lake):
    run = lake.start(**PLAIN)
    run.seal([[of(1, "a")]])
    old, epoch, state = run.sink, run.epoch, run.state
    arm_fault("transaction_produced", act=run.lose)  # Another driver starts, and publishes.
    old.publish(epoch, state)

    assert pairs(lake) == [(1, "a")]


def test_a_job_that_must_end_does_not_wait_for_its_turn(lake):
    run = lake.start(**KEYED)
    run.run_epoch([[of(1, "a")]])
    run.seal([[of(2, "b")]])
    run.sink.interrupt()
    theirs = pyarrow.table({"id": [9], "name": ["theirs"]})
    arm_fault("transaction_produced", act=lambda: lake.append(theirs))

    with raises(PublishInterruptedError):
        run.publish()


def test_a_table_that_is_gone_keeps_the_output_sealed(delta):
    run = delta.start(**PLAIN)
    run.run_epoch([[of(1, "a")]])
    run.seal([[of(2, "b")]])
    place = delta.folder / "a"
    place.rename(delta.folder / "moved")
    with raises(LAKE_TABLE_REPLACED) as caught:
        run.publish()
    assert "does not exist" in caught.value.facts["problem"]
    (delta.folder / "moved").rename(place)
    run.restart()

    assert pairs(delta) == [(1, "a"), (2, "b")]


def test_a_path_that_is_empty_is_refused(delta):
    with raises(CONNECTOR_OPTION_WRONG):
        delta.start(path=" ", **PLAIN)


def test_a_catalogue_that_cannot_be_opened_is_an_error_at_the_start(iceberg):
    with raises(LAKE_UNREACHABLE) as caught:
        iceberg.start(catalog="sqlite:////no/such/folder/lake.db", **PLAIN)
    assert "unable to open" in caught.value.facts["reason"]


# --- the calls ------------------------------------------------------------------------------


def test_the_calls_say_what_the_connectors_need():
    found = delta_sink(
        "lake", keys=["a"], partition_by=["b"], rolling=Rolling(age_ms=5), compression="zstd"
    )
    assert (found.connector_type, found.properties) == (
        "delta",
        {
            "path": "lake", "mode": "upsert", "keys": ["a"], "partition_by": ["b"], "roll_ms": 5,
            "compression": "zstd",
        },
    )  # fmt: skip
    catalog = IcebergCatalog(
        address="postgresql://h/d", warehouse="s3://w", password=Secret.env("P"), name="n"
    )
    found = iceberg_sink(catalog, "shop.t", columns={"a": int}, rolling=Rolling(size_bytes=7))
    assert (found.connector_type, found.properties) == (
        "iceberg",
        {
            "catalog": "postgresql://h/d", "warehouse": "s3://w", "table": "shop.t",
            "catalog_password": {"secret": {"env": "P"}}, "catalog_name": "n",
            "columns": [["a", "int"]], "roll_bytes": 7,
        },
    )  # fmt: skip


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda: delta_sink("a", keys="id"), "keys must be a tuple, got the text 'id'"),
        (
            lambda: delta_sink("a", partition_by="id"),
            "partition_by must be a tuple, got the text 'id'",
        ),
        (lambda: delta_sink("a", rolling=Rolling(rows=0)), "roll_rows is 0"),
        (
            lambda: iceberg_sink(IcebergCatalog(address="sqlite:///a", warehouse="b"), "t"),
            "no namespace",
        ),
    ],
)
def test_a_call_that_cannot_be_is_refused_where_it_stands(call, problem):
    with pytest.raises(StreamDefinitionError, match=problem):
        call()
