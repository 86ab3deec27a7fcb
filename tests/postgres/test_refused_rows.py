"""Rows that a table refuses when their epoch is published are settled as on_error says."""

import json
from dataclasses import dataclass

import pytest

from bicycle_runtime.connectors.errors import POSTGRES_REFUSED
from bicycle_runtime.testing import Harness
from bicycle_sdk import dead_letter, skip
from bicycle_sdk.sinks import postgres_sink
from tests.raising import raises

COLUMNS = {"id": int, "name": str}
LONG = "".join(chr(0x4E00 + n * 7919 % 20_000) for n in range(4_000))  # No compression helps.


def refused(harness):
    """Return the dead letters of rows that the server refused."""
    storage = harness.storage
    paths = [path for path in storage.list("dead_letters/") if "refused" in path]
    return [json.loads(line) for path in paths for line in storage.read(path).splitlines()]


def write(server, table, records, policy, **words):
    """Write records in one epoch; return the dead letters."""

    def job(env):
        sink = postgres_sink(server.url, table, **{"columns": COLUMNS, **words})
        env.from_collection(records).sink_to(sink).uid("out").on_error(policy)

    with Harness(job, real_sinks=["out"]) as harness:
        harness.run()
        return refused(harness)


def rows(server, table):
    return server.query(f"select id, name from {table} order by id")


RECORDS = [{"id": n, "name": f"n{n}"} for n in range(50)]
BAD = [{"id": 100, "name": "x"}, {"id": 101, "name": "y"}]


@pytest.mark.parametrize("policy", [dead_letter(), skip()])
@pytest.mark.parametrize("keys", [(), ("id",)])
def test_rows_that_a_constraint_refuses_do_not_stop_the_job(server, table, policy, keys):
    server.query(
        f"create table {table} (id int primary key, name text, constraint few check (id < 99))"
    )
    records = [*RECORDS[:20], BAD[0], *RECORDS[20:], BAD[1]]

    letters = write(server, table, records, policy, keys=keys)

    assert rows(server, table) == [(each["id"], each["name"]) for each in RECORDS]
    is_kept = policy == dead_letter()
    assert [letter["exception"] for letter in letters] == ["CheckViolation"] * (2 * is_kept)
    assert all("few" in letter["message"] for letter in letters)


@pytest.mark.parametrize(
    ("definition", "bad"),
    [
        ("name text references {other} (name)", "nobody"),
        ("name text references {other} (name) deferrable initially deferred", "nobody"),
        ("name text unique", "n1"),
        ("name text unique", LONG),
    ],
)
def test_each_reason_of_the_server_is_found_row_by_row(server, table, definition, bad):
    server.query(f"create table {table}_names (name text primary key)")
    server.query(f"insert into {table}_names select 'n' || n from generate_series(0, 9) n")
    server.query(f"create table {table} (id int, {definition.format(other=f'{table}_names')})")
    records = [*RECORDS[:5], {"id": 100, "name": bad}, *RECORDS[5:10]]

    letters = write(server, table, records, dead_letter())

    assert rows(server, table) == [(each["id"], each["name"]) for each in RECORDS[:10]]
    assert len(letters) == 1


def test_letters_of_refused_rows_can_be_replayed(server, table):
    server.query(f"create table {table} (id int, name text, constraint few check (id < 99))")

    def job(env):
        sink = postgres_sink(server.url, table, columns=COLUMNS)
        records = env.from_collection([*RECORDS[:3], BAD[0]])
        records.sink_to(sink).uid("out").on_error(dead_letter())

    with Harness(job, real_sinks=["out"]) as harness:
        harness.run()
        letters = refused(harness)
        server.query(f"alter table {table} drop constraint few")
        harness.replay_letters(letters)
        harness.run()

    assert rows(server, table)[-1] == (100, "x")


def test_the_policy_fail_keeps_the_epoch_sealed(server, table):
    server.query(f"create table {table} (id int, name text, constraint few check (id < 99))")

    def job(env):
        sink = postgres_sink(server.url, table, columns=COLUMNS)
        env.from_collection(BAD).sink_to(sink).uid("out")

    with Harness(job, real_sinks=["out"]) as harness, raises(POSTGRES_REFUSED):
        harness.run()


@dataclass
class Tagged:
    id: int
    tags: list[str]


def make_tagged(number: int) -> Tagged:
    return Tagged(number, ["\0", "\\u0000", "a"][number : number + 1])


def test_a_zero_character_in_jsonb_is_a_dead_letter_before_the_seal(server, table):
    server.query(f"create table {table} (id int, tags jsonb)")

    def job(env):
        tagged = env.from_collection([0, 1, 2]).map(make_tagged)
        sink = postgres_sink(server.url, table)
        tagged.sink_to(sink).uid("out").on_error(dead_letter())

    with Harness(job, real_sinks=["out"]) as harness:
        harness.run()
        assert len(harness.dead_letters) == 1
    assert server.query(f"select id from {table} order by id") == [(1,), (2,)]
