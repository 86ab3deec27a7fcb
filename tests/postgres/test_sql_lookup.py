"""Lookup joins of SQL: rows of a PostgreSQL table, found by key."""

from dataclasses import dataclass

import pytest

from bicycle_runtime.testing import Harness
from bicycle_sdk import StreamEnvironment
from tests.unit.tables.sql_runs import built

TABLES = """
    CREATE TABLE bids (id BIGINT, seller BIGINT, at TIMESTAMP(3), WATERMARK FOR at AS at)
      WITH (kind = 'file', path = 'bids');
    CREATE TABLE sellers (id BIGINT PRIMARY KEY, name VARCHAR NOT NULL, fee DECIMAL(6, 2),
      facts JSON, since TIMESTAMP(3), double_fee AS fee * 2)
      WITH (kind = 'postgres', url = '{url}', table = '{table}', {more});
    CREATE TABLE o (id BIGINT, name VARCHAR, fee DECIMAL(38, 2), city VARCHAR, since TIMESTAMP(3))
      WITH (kind = 'file', path = 'out');
    INSERT INTO o SELECT b.id, s.name, s.double_fee, s.facts ->> 'city', s.since
      FROM bids AS b {how} JOIN sellers FOR SYSTEM_TIME AS OF PROCTIME() AS s
      ON b.seller = s.id{condition};
"""
BIDS = [{"id": at, "seller": [1, 2, 3, None][at % 4], "at": at * 1_000} for at in range(9)]


@pytest.fixture
def sellers(server, table):
    server.query(f"create table {table} (id bigint primary key, name text, fee numeric(6, 2), "
                 "facts jsonb, since timestamptz)")  # fmt: skip
    server.query(f"insert into {table} values (1, 'ada', 1.25, '{{\"city\": \"Ulm\"}}', "
                 "'2026-01-02 03:04:05+00'), (2, 'bob', null, null, null)")  # fmt: skip
    return table


def text_of(server, sellers, *, how="", condition="", more="cache_ms = 1000"):
    return TABLES.format(url=server.url, table=sellers, how=how, condition=condition, more=more)


def ran(text, *, epochs=(9,), faults=(), between=None, parallelism=1):
    """Return the rows of ``o`` by id, and the number of crashes."""
    with Harness(built(text), scripted=["bids-source"], parallelism=parallelism) as harness:
        for point in faults:
            harness.fail_at(point)
        begin = 0
        for end in epochs:
            harness.push(BIDS[begin:end], source="bids-source")
            harness.run()
            if between is not None:
                between()
            begin = end
        harness.end()
        harness.run()
        rows = sorted(harness.results("o"), key=lambda row: row["id"])
        letters = harness.dead_letters
        return rows, harness.crash_count, letters


def shown(rows):
    return [
        (row["id"], row["name"], str(row["fee"]), row["city"], str(row["since"])) for row in rows
    ]


ADA = ("ada", "2.50", "Ulm", "2026-01-02 03:04:05+00:00")
BOB, NOBODY = ("bob", "None", None, "None"), (None, "None", None, "None")


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("point", ["read", "before_seal", "after_seal", "half_published"])
def test_each_row_gets_its_match_once_through_a_crash(server, sellers, point, parallelism):
    found, crashes, _ = ran(
        text_of(server, sellers), epochs=(4, 9), faults=[point], parallelism=parallelism
    )

    expected = [(at, *(ADA, BOB)[at % 4]) for at in range(9) if at % 4 < 2]
    assert shown(found) == expected
    assert crashes == 1


def test_a_left_join_keeps_rows_without_a_match(server, sellers):
    found, _, _ = ran(text_of(server, sellers, how="LEFT"))

    assert shown(found) == [(at, *(ADA, BOB, NOBODY, NOBODY)[at % 4]) for at in range(9)]


def test_conditions_of_the_left_side_and_filters_hold(server, sellers):
    left, _, _ = ran(text_of(server, sellers, how="LEFT", condition=" AND b.id > 4"))
    inner, _, _ = ran(text_of(server, sellers, condition=" AND s.name <> 'bob' AND b.id > 4"))

    assert [row["name"] for row in left] == [None] * 5 + ["bob", None, None, "ada"]
    assert [row["id"] for row in inner] == [8]


def test_a_changed_row_is_seen_when_its_cached_row_expires(server, sellers):
    def change():
        server.query(f"update {sellers} set name = 'eve' where id = 1")

    cached, _, _ = ran(
        text_of(server, sellers, more="cache_ms = 86400000"), epochs=(4, 9), between=change
    )
    server.query(f"update {sellers} set name = 'ada' where id = 1")
    fresh, _, _ = ran(text_of(server, sellers, more="cache_ms = 0"), epochs=(4, 9), between=change)

    assert [row["name"] for row in cached if row["id"] % 4 == 0] == ["ada", "ada", "ada"]
    assert [row["name"] for row in fresh if row["id"] % 4 == 0] == ["ada", "eve", "eve"]


def test_a_wrong_row_is_one_dead_letter(server, sellers):
    server.query(f"insert into {sellers} values (3, null, 1, null, null)")

    found, _, letters = ran("SET on_error = 'dead_letter';" + text_of(server, sellers))

    assert [row["id"] for row in found] == [0, 1, 4, 5, 8]
    assert [each["value"] for each in letters]
    assert len(letters) == 2


@pytest.fixture
def fees(server, table):
    server.query(f"create table {table} (country text, seller int, since date, fee int, "
                 "primary key (country, seller, since))")  # fmt: skip
    server.query(f"insert into {table} values ('de', 1, '2026-01-01', 10), ('fr', 1, '2026-01-01', "
                 "11), ('de', 2, '2026-01-01', 12), ('de', 1, '2026-02-01', 13)")  # fmt: skip
    return table


def test_a_row_is_found_by_a_key_of_several_columns(server, fees):
    text = f"""
        CREATE TABLE bids (id BIGINT, seller BIGINT, country VARCHAR)
          WITH (kind = 'file', path = 'bids');
        CREATE TABLE fees (country VARCHAR, seller BIGINT, since DATE, fee BIGINT,
          PRIMARY KEY (country, seller, since))
          WITH (kind = 'postgres', url = '{server.url}', table = '{fees}');
        CREATE TABLE o (id BIGINT, fee BIGINT) WITH (kind = 'file', path = 'out');
        INSERT INTO o SELECT b.id, f.fee FROM bids AS b
          LEFT JOIN fees FOR SYSTEM_TIME AS OF PROCTIME() AS f
          ON f.seller = b.seller AND f.since = DATE '2026-01-01' AND b.country = f.country;
    """
    bids = [("de", 1), ("fr", 1), ("fr", 2), ("de", 2), ("de", None), (None, 1), ("de", 1)]
    with Harness(built(text), scripted=["bids-source"]) as harness:
        for at, (country, seller) in enumerate(bids):
            bid = {"id": at, "country": country, "seller": seller}
            harness.push([bid], source="bids-source")
        harness.end()
        harness.run()
        found = {row["id"]: row["fee"] for row in harness.results("o")}

    assert found == {0: 10, 1: 11, 2: None, 3: 12, 4: None, 5: None, 6: 10}


def test_the_plan_names_the_lookup(server, sellers):
    found = built(text_of(server, sellers, how="LEFT")).execute("v")

    assert "LEFT LOOKUP JOIN sellers ON b.seller = s.id" in [each.name for each in found.vertices]


@dataclass
class Bid:
    number: int
    id: int


def test_the_table_api_completes_rows(server, sellers):
    env = StreamEnvironment()
    env.sql(f"""CREATE TABLE sellers (id BIGINT PRIMARY KEY, name VARCHAR)
        WITH (kind = 'postgres', url = '{server.url}', table = '{sellers}')""")
    bids = env.table(env.from_collection([Bid(1, 2), Bid(2, 7)]), name="bids")

    found = bids.lookup_join("sellers", on="id", how="left").to_stream().preview()

    assert found == [{"number": 1, "id": 2, "name": "bob"}, {"number": 2, "id": 7, "name": None}]


@dataclass
class Offer:
    country: str
    seller: int


def test_the_table_api_completes_rows_by_several_columns(server, fees):
    env = StreamEnvironment()
    env.sql(f"""CREATE TABLE fees (country VARCHAR, seller BIGINT, fee BIGINT,
        PRIMARY KEY (country, seller))
        WITH (kind = 'postgres', url = '{server.url}', table = '{fees}')""")
    offers = env.table(env.from_collection([Offer("fr", 1), Offer("fr", 2)]), name="offers")

    found = offers.lookup_join("fees", on=["seller", "country"]).to_stream().preview()

    assert found == [{"country": "fr", "seller": 1, "fee": 11}]
