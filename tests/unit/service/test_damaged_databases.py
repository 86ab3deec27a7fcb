"""A database of the service that is damaged: an error with advice, wherever it is met."""

import sqlite3
from contextlib import closing

import pytest

from bicycle_runtime.jobs.home import Home
from bicycle_runtime.service.service import Service
from bicycle_sdk.clock import SystemClock
from bicycle_streams.access.control import CONTROL
from bicycle_streams.access.database import SqliteDatabase
from bicycle_streams.access.errors import DATABASE_UNUSABLE
from bicycle_streams.access.roles import Role
from bicycle_streams.access.tokens import tokens_of
from tests.raising import raises

PAGE = 4_096


@pytest.fixture
def home(tmp_path):
    """A home whose service has run, with enough tokens to fill pages."""
    found = Home(tmp_path / "home")
    with Service(found, clock=SystemClock()) as service:
        for number in range(300):
            service.tokens.create(f"t{number}", role=Role.VIEWER, lifetime_ms=10**8, by="test")
    return found


def damage(path, begin):
    """Overwrite a file from a page on; what is in its log is in the file before."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(path.read_bytes())
    data[begin:] = b"\xa5" * (len(data) - begin)
    path.write_bytes(data)


@pytest.mark.parametrize("begin", [0, 100, PAGE])
@pytest.mark.parametrize("name", ["control.db", "history.db"])
def test_a_service_whose_database_is_damaged_says_what_to_do(home, name, begin):
    path = home.path / "service" / name
    damage(path, begin)

    with raises(DATABASE_UNUSABLE) as caught, Service(home, clock=SystemClock()) as service:
        service.tokens.list()
        service.history.samples("job", tier="5s")
        service.history.note_samples([("job", {}, {})], at_s=5).result()

    assert caught.value.facts["path"] == str(path)
    assert "Jobs and checkpoints are kept" in caught.value.remedy
    assert ("tokens" in caught.value.remedy) == (name == "control.db")


def test_a_command_that_reads_it_says_the_same(home):
    damage(home.path / "service/control.db", PAGE)

    with raises(DATABASE_UNUSABLE), tokens_of(home.path, SystemClock()) as tokens:
        tokens.list()


def test_damage_is_told_to_who_writes(home):
    path = home.path / "service/control.db"
    damage(path, PAGE)

    with raises(DATABASE_UNUSABLE), SqliteDatabase(path, CONTROL, synchronous="FULL") as database:
        database.write(lambda each: each.execute("DELETE FROM tokens")).result()


def test_other_errors_stay_as_they_are(home):
    path = home.path / "service/control.db"
    with (
        SqliteDatabase(path, CONTROL, synchronous="FULL") as database,
        pytest.raises(sqlite3.OperationalError),
    ):
        database.read(lambda each: each.execute("SELECT * FROM nothing"))
