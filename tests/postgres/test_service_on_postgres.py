"""The databases of a service in PostgreSQL: the tests of its SQLite files, and a server that fails.

Tests that are imported here run with the server of this file.
"""

import itertools
import threading

import psycopg
import pytest

from bicycle_runtime.jobs.home import Home
from bicycle_runtime.service.users.owners import Quota
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.errors import SecretError
from bicycle_sdk.secrets import Secret
from bicycle_streams.access.control import CONTROL
from bicycle_streams.access.database import DatabaseServer
from bicycle_streams.access.errors import DATABASE_SERVER_UNAVAILABLE, DATABASE_SERVER_UNUSABLE
from bicycle_streams.access.opening import database_of
from bicycle_streams.access.roles import Role
from bicycle_streams.access.tokens import tokens_of
from tests.kube.api_server import free_port
from tests.lost_answers import LostAnswers
from tests.raising import raises
from tests.unit.service.test_service import (  # noqa: F401 - Collected here, too.
    databases,
    home,
    opened,
    test_a_failure_that_ends_a_job_is_of_the_kind_that_its_restarts_noted,
    test_a_killed_service_finds_of_each_open_operation_what_became_of_it,
    test_a_run_that_is_started_again_begins_a_new_life_in_the_history,
    test_a_second_is_enough_for_a_look_at_two_hundred_running_jobs,
    test_an_impossible_change_is_shown_and_told_as_refused,
    test_an_operation_that_another_version_asked_for_is_interrupted,
    test_facts_are_checked_before_anything_is_promised,
    test_jobs_that_are_removed_leave_the_list_and_keep_their_history,
    test_one_service_at_a_time_has_a_home,
    test_restarts_are_told_once_each,
    test_samples_keep_an_hour_and_seven_days_and_show_gaps,
    test_samples_of_all_jobs_are_sums_but_for_the_age_of_the_lag,
    test_secrets_of_a_start_are_neither_stored_nor_shown,
    test_the_audit_log_cannot_be_changed,
    test_what_happened_before_the_service_came_has_its_own_time,
    test_what_is_written_to_a_closed_database_fails_at_once,
    test_work_that_fails_is_undone_alone,
)
from tests.unit.service.test_tokens import (  # noqa: F401 - Collected here, too.
    clock,
    test_a_given_token_that_is_malformed_or_has_the_id_of_another_is_refused,
    test_a_token_for_some_owners_starts_jobs_of_its_own_name_else_of_the_first,
    test_a_token_is_revoked_once_and_an_unknown_one_is_told,
    test_a_token_says_who_has_it_until_it_expires,
    test_nothing_but_the_whole_token_is_taken,
    tokens,
)

READ_ONLY = psycopg.errors.ReadOnlySqlTransaction
NUMBERS = itertools.count(1)


@pytest.fixture
def schema(server):
    name = f"service_{next(NUMBERS)}"
    server.query(f"CREATE SCHEMA {name}")
    return name


@pytest.fixture
def database_server(server, schema):
    return DatabaseServer(url=url_of(server, schema))


def url_of(server, schema, *, port=None, user="ada"):
    host = f"{user}@127.0.0.1:{port or server.port}"
    return f"postgresql://{host}/postgres?options=-csearch_path%3D{schema}"


def control_of(server, **more):
    return database_of(None, "control", CONTROL, server=server, synchronous="FULL", **more)


def put(database, number):
    """Queue a row with a number."""
    sql = "INSERT INTO owners VALUES (?, ?)"
    return database.write(lambda each: each.execute(sql, (f"job-{number}", "ada")).rowcount)


def numbers_in(server, schema):
    rows = server.query(f"SELECT job FROM {schema}.owners")
    return sorted(int(job.removeprefix("job-")) for (job,) in rows)


def test_rows_outlive_the_home(tmp_path, database_server, opened, home):  # noqa: F811 - A fixture.
    entry = dict.fromkeys(("actor", "address", "target", "outcome"), "x") | {"action": "quota"}
    with opened(home) as service:
        _, text = service.tokens.create("ada", role=Role.VIEWER, lifetime_ms=10**8, by="test")
        for jobs in (7, 8):
            service.owners.set_quota("ada", Quota(jobs=jobs), entry, at_ms=1)

    with tokens_of(tmp_path / "other", SystemClock(), database_server) as others:
        assert others.holder(text).name == "ada"
    with opened(Home(tmp_path / "new")) as service:
        assert service.owners.quota("ada").jobs == 8
        actions = [line.action for line in service.history.audit()]
    assert actions == ["token create", "quota", "quota"]
    assert not list((home.path / "service").glob("*.db"))


def test_a_schema_has_one_service_and_commands_beside_it(tmp_path, database_server, opened):  # noqa: F811 - A fixture.
    with opened(Home(tmp_path / "one")):
        with tokens_of(tmp_path / "one", SystemClock(), database_server) as found:
            found.create("ada", role=Role.VIEWER, lifetime_ms=10**8, by="test")
        with raises(DATABASE_SERVER_UNUSABLE) as caught:
            opened(Home(tmp_path / "two")).__enter__()

    assert "another service" in caught.value.facts["reason"]


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        (["CREATE TABLE jobs (name TEXT)"], "already exists"),
        (["CREATE TABLE bicycle_versions (other TEXT)"], "does not exist"),
        (["CREATE TABLE bicycle_versions (name TEXT PRIMARY KEY, version BIGINT)",
          "INSERT INTO bicycle_versions VALUES ('control', 99)"], "format version 99"),
    ],
)  # fmt: skip
def test_tables_of_others_are_refused_and_left_alone(
    server, schema, database_server, statements, reason
):
    tables = f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{schema}'"
    for sql in statements:
        server.query(sql.replace("TABLE ", f"TABLE {schema}.").replace("INTO ", f"INTO {schema}."))
    before = server.query(tables)

    with raises(DATABASE_SERVER_UNUSABLE) as caught:
        control_of(database_server).__enter__()

    assert reason in caught.value.facts["reason"]
    assert server.query(tables) == before


def test_an_older_version_is_brought_to_the_newest_one(database_server):
    old = database_of(None, "control", CONTROL[:3], server=database_server, synchronous="FULL")
    with old as database:
        put(database, 1).result()
    with control_of(database_server) as database:
        columns = database.read(lambda each: each.execute("SELECT * FROM tokens").fetchall())
        owners = database.read(lambda each: each.execute("SELECT * FROM owners").fetchall())

    assert (columns, [dict(row) for row in owners]) == ([], [{"job": "job-1", "owner": "ada"}])


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("postgresql://ada:hidden-word@127.0.0.1/postgres", "contains a password"),
        ("not a url", "missing"),
        ("postgresql://127.0.0.1/postgres?colour=red", "colour"),
    ],
)
def test_an_invalid_url_is_refused_and_shows_no_password(url, reason):
    with raises(DATABASE_SERVER_UNUSABLE) as caught:
        control_of(DatabaseServer(url=url))

    assert reason in caught.value.facts["reason"]
    assert "hidden-word" not in str(caught.value)


def test_a_server_that_is_away_is_told():
    server = DatabaseServer(url=f"postgresql://ada@127.0.0.1:{free_port()}/postgres")

    with raises(DATABASE_SERVER_UNAVAILABLE):
        control_of(server).__enter__()


def test_the_password_is_read_from_where_its_reference_points(server, schema, tmp_path):
    file = tmp_path / "password"
    url, secret = url_of(server, schema, user="eve"), Secret.file(file)
    server.query("CREATE USER eve PASSWORD 'a secret of eve'")
    server.query(f"GRANT ALL ON SCHEMA {schema} TO eve")
    found = DatabaseServer(url=url, password=secret)

    with pytest.raises(SecretError):
        control_of(found).__enter__()
    file.write_text("wrong")
    with raises(DATABASE_SERVER_UNAVAILABLE):
        control_of(found).__enter__()
    file.write_text("a secret of eve\n")
    with control_of(found) as database:
        assert put(database, 1).result() == 1


def test_a_server_that_is_killed_loses_and_repeats_no_row(server, schema, database_server):
    with control_of(database_server, is_owned=True) as database:
        done = [put(database, number) for number in range(100)]
        server.kill()
        done += [put(database, number) for number in range(100, 200)]
        threading.Timer(1, server.start).start()
        assert {each.result(120) for each in done} == {1}

    assert numbers_in(server, schema) == list(range(200))


def test_a_commit_whose_answer_is_lost_counts_once(server, schema):
    relay = LostAnswers(server.port)
    try:
        url = url_of(server, schema, port=relay.port)
        with control_of(DatabaseServer(url=url), is_owned=True) as database:
            put(database, 1).result()
            relay.lose(b"COMMIT")
            assert put(database, 2).result(60) == 1
            put(database, 3).result(60)
    finally:
        relay.close()

    assert relay.lost_count == 1
    assert numbers_in(server, schema) == [1, 2, 3]


def test_readers_continue_after_the_server_has_ended_their_sessions(server, database_server):
    sql = "SELECT count(*) AS count FROM owners"
    with control_of(database_server) as database:
        put(database, 1).result()
        for _ in range(3):
            found = database.read(lambda each: each.execute(sql).fetchone())
            server.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                         " WHERE application_name = 'bicycle control'")  # fmt: skip
            assert found["count"] == 1
        assert put(database, 2).result(60) == 1


def test_readers_may_not_write(database_server):
    with (
        control_of(database_server) as database,
        pytest.raises(READ_ONLY),
    ):
        database.read(lambda each: each.execute("DELETE FROM owners"))
