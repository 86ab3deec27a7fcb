"""The PostgreSQL source: rows that are committed late, tables that do not fit, types of columns."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

import psycopg
import pytest

from bicycle_runtime.connectors.errors import POSTGRES_SOURCE_UNSUITABLE
from bicycle_runtime.contract import Budget, ConnectorSpec
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.testing import Harness
from bicycle_runtime.testing.connectors.running import SourceRun, services_in
from bicycle_sdk import Secret, dead_letter
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.sources import postgres_source
from tests.raising import raises

BUDGET = Budget(record_count=1_000, byte_count=1 << 30, parallelism=2)
AT = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)


@dataclass(frozen=True)
class Order:
    id: int
    user: str
    price: Decimal | None = None
    at: datetime | None = None
    tags: list[str] | None = None


@pytest.fixture
def source(server, table, tmp_path):
    runs = []

    def start(record_type=None, **properties):
        spec = ConnectorSpec(
            vertex_id="in",
            connector_type="postgres",
            properties={"url": server.url, "table": table, "column": "id", **properties},
            record_type=record_type,
        )
        run = SourceRun(spec, services_in(tmp_path, clock=SystemClock())).start()
        runs.append(run)
        return run

    yield start
    for run in runs:
        run.stop()


def next_ids(run):
    """Read what can be read now."""
    run.source.poll()
    epoch = run.read(BUDGET)
    run.seal(epoch)
    return [row["id"] for row in epoch.values]


@pytest.mark.core
def test_a_job_that_is_killed_reads_each_row_once(server, table):
    server.query(f'create table {table} (id int primary key, "user" text, price numeric, '
                 "at timestamptz, tags text[])")  # fmt: skip
    for number in range(1, 31):
        server.query(f"insert into {table} values (%s, 'ada', 2.5, %s, '{{a,b}}')", number, AT)
    server.query(f"insert into {table} values (31, null)")

    def job(env):
        rows = env.add_source(postgres_source(server.url, table, "id", type=Order))
        rows.uid("in").on_error(dead_letter()).collect("out")

    with Harness(job, parallelism=2, engine=EngineOptions(max_records_per_epoch=8)) as harness:
        harness.fail_at("before_seal")
        harness.run()
        assert harness.crash_count == 1
        found = sorted(harness.results("out"), key=lambda order: order.id)
        [letter] = harness.dead_letters

    expected = [Order(n, "ada", Decimal("2.5"), AT, ["a", "b"]) for n in range(1, 31)]
    assert found == expected
    assert "user" in letter["message"]


def test_a_row_that_is_committed_behind_one_with_a_larger_number_is_not_lost(server, table, source):
    server.query(f"create table {table} (id serial primary key)")
    run = source(follow=True)
    with psycopg.connect(server.url) as late, psycopg.connect(server.url) as lost:
        late.execute(f"insert into {table} default values")
        lost.execute(f"insert into {table} default values")
        server.query(f"insert into {table} default values")
        assert next_ids(run) == []
        lost.rollback()
        assert next_ids(run) == []
        late.commit()
        assert next_ids(run) == [1, 3]
    server.query(f"insert into {table} default values")

    assert next_ids(run) == [4]


def test_a_row_that_waits_for_a_transaction_holds_event_time_back(server, table, source):
    server.query(f"create table {table} (id serial primary key)")
    run = source(follow=True)
    with psycopg.connect(server.url) as late:
        late.execute(f"insert into {table} default values")
        status = run.source.poll()
        assert (status.has_input, status.waiting_shards) == (False, set())
        server.query(f"insert into {table} default values")

        status = run.source.poll()
        assert (status.has_input, status.waiting_shards) == (False, {"rows"})
    assert next_ids(run) == []  # What was seen first is before them.
    assert next_ids(run) == [1, 2]

    assert run.source.poll().waiting_shards == set()


@pytest.mark.parametrize(("text_size", "count", "most"), [(100_000, 600, 170), (1, 6_000, 4_096)])
def test_rows_are_fetched_in_pieces_that_fit_into_memory(
    server, table, source, text_size, count, most
):
    server.query(f"create table {table} (id serial primary key, text text)")
    server.query(
        f"insert into {table} (text) select repeat('x', {text_size}) "
        f"from generate_series(1, {count})"
    )
    run = source()
    run.source.poll()

    epoch = run.read(Budget(record_count=count, byte_count=1 << 30, parallelism=1))

    sizes = [len(batch.values) for batch in epoch.all_batches]
    assert sum(sizes) == count
    assert 1 <= max(sizes) <= most
    assert len(sizes) <= 8


def test_an_ending_source_ends_with_the_rows_of_its_start(server, table, source):
    server.query(f"create table {table} (id int primary key)")
    run = source()
    assert run.source.poll().is_finished
    server.query(f"insert into {table} values (1), (2), (7)")
    run = source(start_at=2)
    assert next_ids(run) == [2, 7]
    server.query(f"insert into {table} values (8)")

    assert run.source.poll().is_finished


def test_rows_that_are_deleted_before_they_are_read_hold_nobody_up(server, table, source):
    server.query(f"create table {table} (id int primary key)")
    server.query(f"insert into {table} values (1)")
    run = source()
    run.source.poll()
    server.query(f"delete from {table}")
    assert run.source.plan(BUDGET) == []

    assert run.source.poll().is_finished


@pytest.mark.parametrize(
    ("definition", "problem"),
    [
        ("", "is missing"),
        ("other int", "no column 'id'"),
        ("id text primary key", "got text"),
        ("id int not null", "unique"),
        ("id int unique", "NOT NULL"),
    ],
)
def test_a_table_that_cannot_be_read_so_is_told_at_the_start(
    server, table, source, definition, problem
):
    if definition:
        server.query(f"create table {table} ({definition})")

    with raises(POSTGRES_SOURCE_UNSUITABLE) as caught:
        source()
    assert problem in caught.value.facts["problem"]


def test_a_field_without_column_is_told_at_the_start(server, table, source):
    server.query(f"create table {table} (id int primary key)")

    with raises(POSTGRES_SOURCE_UNSUITABLE) as caught:
        source(Order)
    assert '"user"' in caught.value.facts["problem"]


def test_a_password_travels_with_the_reader_and_is_not_shown(server, table, source, monkeypatch):
    server.query(f"create table {table} (id int primary key)")
    server.query("drop role if exists eve")
    server.query("create role eve login superuser password 'open sesame'")
    monkeypatch.setenv("SESAME", "open sesame")
    server.query(f"insert into {table} values (1)")
    run = source(url=server.url.replace("ada@", "eve@"), password=Secret.env("SESAME").to_json())
    run.source.poll()
    [part] = run.source.plan(BUDGET)
    monkeypatch.delenv("SESAME")

    assert "sesame" not in repr(run.reader)
    [batch] = run.reader.read(part)
    assert batch.values == [{"id": 1}]


@pytest.mark.parametrize(
    ("kind", "strange", "usual"),
    [
        ("timestamptz", "infinity", "2026-03-01 12:30+00"),
        ("timestamp", "-infinity", "2026-03-01 12:30"),
        ("timestamp", "10000-01-01 00:00:00", "2026-03-01 12:30"),
        ("date", "0044-03-15 BC", "2026-03-01"),
        ("time", "24:00:00", "12:30"),
        ("date[]", "{2026-03-01,infinity}", "{2026-03-01}"),
        ("tstzrange", '["2026-03-01 12:30:00+00",infinity)', "empty"),
    ],
)
def test_a_time_that_python_does_not_have_makes_its_row_a_bad_record(
    server, table, source, kind, strange, usual
):
    server.query(f"create table {table} (id serial primary key, at {kind})")
    server.query(f"insert into {table} (at) select '{usual}' from generate_series(1, 200)")
    server.query(f"insert into {table} (at) values ('{strange}'), ('{usual}'), ('{strange}')")
    run = source()
    run.source.poll()
    epoch = run.read(BUDGET)

    assert [row["id"] for row in epoch.values] == [*range(1, 201), 202]
    assert [failure.offset for failure in epoch.failures] == [201, 203]
    assert len({repr(row["at"]) for row in epoch.values}) == 1
    for failure in epoch.failures:
        assert "'at'" in failure.reason
        assert b'"id":20' in failure.raw


def test_the_call_says_what_the_connector_needs():
    found = postgres_source("postgresql://h/d", "t", "id", password=Secret.env("P"), start_at=5)

    assert (found.connector_type, found.properties) == (
        "postgres",
        {
            "url": "postgresql://h/d", "table": "t", "column": "id", "follow": False,
            "password": {"secret": {"env": "P"}}, "start_at": 5,
        },
    )  # fmt: skip
    with pytest.raises(StreamDefinitionError, match="start_at is -1"):
        postgres_source("postgresql://h/d", "t", "id", start_at=-1)
