"""The PostgreSQL sink: rows by key, deletions, what a table must be like, and older epochs."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from bicycle_runtime.connectors.errors import (
    COLUMNS_WRONG,
    CONNECTOR_OPTION_WRONG,
    POSTGRES_HISTORY_AHEAD,
    POSTGRES_REFUSED,
    POSTGRES_TABLE_UNSUITABLE,
    POSTGRES_UNREACHABLE,
    PublishInterruptedError,
)
from bicycle_runtime.testing import Harness
from bicycle_sdk import Secret, dead_letter
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.sinks import postgres_sink
from tests.raising import raises
from tests.sink_runs import Order, SinkRuns

AT = datetime(2026, 3, 1, 12, 30, 0, 123_000, tzinfo=UTC)


FULL = Order(7, "ada\\N", 1.5, True, AT, AT.date(), Decimal("2.5"), b"\0\\x", ['a"\\\t', "b"])


@pytest.fixture
def sink(server, table, tmp_path):
    runs = SinkRuns("postgres", tmp_path, url=server.url, table=table)
    yield runs.start
    server.start()
    runs.stop()


def keyed(sink, **properties):
    settings = {"mode": "upsert", "keys": ["id"], "create_table": True, **properties}
    return sink(tuple[int, str], columns={"id": "int", "name": "str", "gone": "bool"},
                delete_field="gone", **settings)  # fmt: skip


def of(number, name, *, gone=False):
    return {"id": number, "name": name, "gone": gone}


@pytest.mark.core
def test_a_job_writes_rows_and_what_does_not_fit_is_a_dead_letter(server, table):
    server.query(f"create table {table} (id int not null, user_name varchar(3), level int2)")
    rows = [
        {"id": 1, "user_name": "ada", "level": 5},
        {"id": 2, "user_name": "grace", "level": 5},
        {"id": 3, "user_name": None, "level": 40_000},
        {"user_name": "bob", "level": None},
        {"id": 5, "user_name": "b\0b", "level": 1},
        {"id": 2**40, "user_name": "bob", "level": 1},
        {"id": 7, "user_name": "bob", "level": None},
    ]

    def job(env):
        columns = {"id": int, "user_name": str, "level": int}
        sink = postgres_sink(server.url, table, columns=columns)
        env.from_collection(rows).sink_to(sink).uid("out").on_error(dead_letter())

    with Harness(job, real_sinks=["out"]) as harness:
        harness.run()
        reasons = [letter["message"] for letter in harness.dead_letters]

    assert server.query(f"select * from {table} order by id") == [(1, "ada", 5), (7, "bob", None)]
    wanted = ["5 characters", "at most 32767", "NOT NULL", "zero byte", "at most 2147483647"]
    assert all(word in reason for word, reason in zip(wanted, reasons, strict=True))


@pytest.mark.core
def test_the_last_record_of_a_key_wins_and_deletions_delete(server, sink, table):
    run = keyed(sink)
    run.run_epoch([[of(1, "a"), of(2, "b"), of(1, "c"), of(3, "d"), of(3, "d", gone=True)]])
    run.run_epoch([[of(2, "e", gone=True), of(4, "f", gone=True), of(4, "g")], [of(5, "h")]])
    run.publish()

    assert server.query(f"select * from {table} order by id") == [(1, "c"), (4, "g"), (5, "h")]
    [[epoch, job]] = server.query(
        "select epoch, job from bicycle_epochs where run = %s", run.state["run"]
    )
    assert (epoch, job) == (run.epoch, "job")


def test_a_deletion_needs_no_values_but_its_keys(server, sink, table):
    server.query(f"create table {table} (id bigint primary key, name text not null)")
    run = keyed(sink)
    run.run_epoch([[of(1, "a"), of(2, "b"), of(3, None, gone=True)]])
    run.run_epoch([[{"id": 2, "gone": True}, {"id": 4, "name": "d"}]])

    assert server.query(f"select * from {table} order by id") == [(1, "a"), (4, "d")]
    for unset in (False, None):
        with pytest.raises(ValueError, match="'name' is None"):
            run.stage(
                5, [[of(1, None, gone=True), of(2, None, gone=unset), of(3, "c"), of(4, "d")]]
            )
    with pytest.raises(ValueError, match="'id' is None"):
        run.stage(5, [[{"gone": True}]])


def test_a_key_without_value_is_refused_where_the_table_would_take_it(server, sink, table):
    server.query(f"create table {table} (id bigint unique, name text)")

    with pytest.raises(ValueError, match="'id' is None"):
        keyed(sink).stage(5, [[of(None, "a")]])


def test_values_of_other_columns_stay_when_the_job_has_fewer(server, sink, table):
    server.query(f"create table {table} (id bigint primary key, name text, more text default 'z')")
    server.query(f"insert into {table} values (1, 'a', 'x'), (2, 'b', 'y')")
    keyed(sink).run_epoch([[of(2, "c"), of(3, "d")]])

    found = server.query(f"select * from {table} order by id")
    assert found == [(1, "a", "x"), (2, "c", "y"), (3, "d", "z")]


def test_each_type_of_field_has_its_column(server, sink, table):
    sink(Order, create_table=True).run_epoch([[FULL, Order(8, None)]])

    [full, empty] = server.query(f'select * from {table} order by "id"')
    assert full == (
        7,
        "ada\\N",
        1.5,
        True,
        AT,
        AT.date(),
        Decimal("2.5"),
        b"\0\\x",
        ['a"\\\t', "b"],
    )
    assert empty == (8, *[None] * 8)


def test_words_of_an_enumeration_are_checked(server, sink, table):
    server.query(f"create type {table}_size as enum ('s', 'm')")
    server.query(f"create table {table} (size {table}_size)")
    run = sink(None, columns={"size": "str"})
    run.run_epoch([[{"size": "m"}]])

    with pytest.raises(ValueError, match="must be one of s, m"):
        run.stage(5, [[{"size": "xl"}]])
    assert server.query(f"select size::text from {table}") == [("m",)]


@pytest.mark.parametrize(
    ("definition", "problem"),
    [
        ("", "is missing"),
        ("id bigint", "no column 'name'"),
        ("id text, name text", "column 'id' is text"),
        ("id bigint, name text", "no unique index with exactly the columns id"),
        ("id bigint, name text, more int not null, unique (id)", "column 'more' is NOT NULL"),
        ("id bigint unique, name text generated always as ('x') stored", "'name' is generated"),
    ],
)
def test_a_table_that_does_not_fit_is_told_before_the_start(
    server, sink, table, definition, problem
):
    if definition:
        server.query(f"create table {table} ({definition})")

    with raises(POSTGRES_TABLE_UNSUITABLE) as caught:
        keyed(sink, create_table=False)
    assert problem in caught.value.facts["problem"]


@pytest.mark.parametrize(
    ("properties", "error"),
    [
        ({"mode": "upsert"}, CONNECTOR_OPTION_WRONG),
        ({"mode": "upsert", "keys": ["no"]}, COLUMNS_WRONG),
        ({"delete_field": "paid"}, CONNECTOR_OPTION_WRONG),
        ({"mode": "upsert", "keys": ["paid"], "delete_field": "paid"}, CONNECTOR_OPTION_WRONG),
        ({"url": "postgresql://ada:secret@host/db"}, CONNECTOR_OPTION_WRONG),
        ({"url": "nonsense nonsense"}, CONNECTOR_OPTION_WRONG),
        ({"password": "secret"}, CONNECTOR_OPTION_WRONG),
    ],
)
def test_options_that_cannot_be_are_refused_without_a_server(sink, properties, error):
    with raises(error) as caught:
        sink(**properties)
    assert "secret" not in str(caught.value.facts).replace("a secret", "")


def test_a_password_is_taken_from_where_its_reference_says(server, sink, table, monkeypatch):
    server.query("drop role if exists eve")
    server.query("create role eve login superuser password 'open sesame'")
    url = server.url.replace("ada@", "eve@")
    monkeypatch.setenv("SESAME", "open sesame")
    run = sink(url=url, password=Secret.env("SESAME").to_json(), create_table=True)
    run.run_epoch([[Order(1, "a")]])
    assert server.query(f"select count(*) from {table}") == [(1,)]
    monkeypatch.setenv("SESAME", "wrong")

    with raises(POSTGRES_UNREACHABLE) as caught:
        sink(url=url, password=Secret.env("SESAME").to_json())
    assert "password authentication failed" in caught.value.facts["reason"]


def test_a_server_that_never_answers_is_an_error(server, sink):
    with raises(POSTGRES_UNREACHABLE):
        sink(url="postgresql://ada@127.0.0.1:1/postgres", connect_timeout_ms=1_000)


def test_rows_that_a_constraint_refuses_stay_sealed_until_it_is_gone(server, sink, table):
    server.query(f"create table {table} (id int, name text, constraint few check (id < 10))")
    columns = {"id": "int", "name": "str"}
    run = sink(None, columns=columns)
    run.seal([[of(1, "a"), of(11, "b")]])
    with raises(POSTGRES_REFUSED) as caught:
        run.publish()
    assert "few" in caught.value.facts["reason"]
    assert server.query(f"select count(*) from {table}") == [(0,)]
    server.query(f"alter table {table} drop constraint few")
    run.restart()

    assert server.query(f"select id from {table} order by id") == [(1,), (11,)]


def test_an_older_epoch_than_was_written_is_refused_unless_it_may_come_again(server, sink, table):
    run = keyed(sink)
    run.run_epoch([[of(1, "a")]])
    older, epoch = run.state, run.epoch
    run.run_epoch([[of(2, "b")]])

    with raises(POSTGRES_HISTORY_AHEAD) as caught:
        keyed(sink, state=older, epoch=epoch)
    assert (caught.value.facts["epoch"], caught.value.facts["published"]) == (epoch, epoch + 1)
    again = keyed(sink, state=older, epoch=epoch, on_rewind="publish_again")
    again.run_epoch([[of(2, "c")]])
    assert server.query(f"select * from {table} order by id") == [(1, "a"), (2, "c")]


def test_two_jobs_of_one_savepoint_both_write(server, sink, table, tmp_path):
    first = keyed(sink)
    first.run_epoch([[of(1, "a")]])
    second = keyed(sink, state=first.state, epoch=first.epoch, place="other")
    first.run_epoch([[of(2, "b")]])
    second.run_epoch([[of(3, "c")]])

    assert server.query(f"select * from {table} order by id") == [(1, "a"), (2, "b"), (3, "c")]


def test_a_new_job_of_the_same_name_does_not_take_old_epochs_for_its_own(server, sink, table):
    keyed(sink).run_epoch([[of(1, "a")]])
    keyed(sink).run_epoch([[of(2, "b")]])

    assert server.query(f"select * from {table} order by id") == [(1, "a"), (2, "b")]


def test_a_driver_that_stands_still_within_a_transaction_holds_nobody_up(server, sink, table):
    run = keyed(sink)
    run.run_epoch([[of(1, "a")]])
    frozen = run.sink._server.connection()
    frozen.execute("begin")
    frozen.execute("select * from bicycle_epochs where run = %s for update", [run.state["run"]])
    run.lose()
    run.run_epoch([[of(2, "b")]])

    assert server.query(f"select * from {table} order by id") == [(1, "a"), (2, "b")]


def test_a_job_that_must_end_does_not_wait_for_the_server(server, sink):
    run = keyed(sink)
    run.seal([[of(1, "a")]])
    server.kill()
    run.sink.interrupt()

    with raises(PublishInterruptedError):
        run.publish()
    server.start()


def test_the_call_says_what_the_connector_needs():
    password = Secret.env("PASSWORD")
    found = postgres_sink("postgresql://h/d", "t", password=password, keys=["a"], delete_field="b")

    assert found.properties == {
        "url": "postgresql://h/d", "table": "t", "mode": "upsert", "keys": ["a"],
        "password": {"secret": {"env": "PASSWORD"}}, "delete_field": "b",
    }  # fmt: skip
    with pytest.raises(StreamDefinitionError, match="keys must be a tuple, got the text 'id'"):
        postgres_sink("postgresql://h/d", "t", keys="id")
