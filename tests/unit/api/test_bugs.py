"""Bugs behind a route: told in the one shape of errors, and with their traceback in the log."""

import contextlib
import errno
import logging
import sqlite3

import pytest
from starlette.responses import StreamingResponse
from starlette.routing import Route

from tests.unit.api.asking import HOST, asked_of


async def broken(_request):
    raise ZeroDivisionError("a bug of ours")


async def half(_request):
    async def pieces():
        yield b"the first half"
        raise ZeroDivisionError("a bug of ours")

    return StreamingResponse(pieces())


PAGES = [Route("/broken", broken, methods=["GET", "POST"]), Route("/half", half)]


@pytest.fixture
def ask(tmp_path):
    with asked_of(tmp_path / "home", pages=PAGES) as found:
        yield found


def tracebacks(caplog):
    return [each for each in caplog.records if each.getMessage() == "request_broke"]


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_bug_is_told_in_the_shape_of_every_error(ask, caplog, method):
    with caplog.at_level(logging.ERROR):
        found = ask(method, "/broken", b"{}", origin=f"http://{HOST}")

    assert found.code == 500
    assert found.json.keys() == {"code", "message", "fix", "location"}
    assert found.json["code"] == "BIC-2499"
    assert "/broken" in found.json["message"]
    assert "ZeroDivisionError" in found.json["message"]
    assert "a bug of ours" not in found.data.decode()
    assert found.headers["content-security-policy"].startswith("default-src 'none'")
    [logged] = tracebacks(caplog)
    assert logged.exc_info[0] is ZeroDivisionError
    assert ask("GET", "/nothing").json["code"] == "BIC-2401"


async def full(_request):
    raise OSError(errno.ENOSPC, "No space left on device")


async def full_database(_request):
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.execute("PRAGMA max_page_count = 1")
        database.execute("CREATE TABLE a (b)")


def test_a_full_disk_is_told_as_that(tmp_path):
    pages = [Route("/full", full), Route("/database", full_database)]
    with asked_of(tmp_path / "home", pages=pages) as ask:
        found = [ask("GET", path) for path in ("/full", "/database")]

    assert [(each.code, each.json["code"]) for each in found] == [(503, "BIC-2411")] * 2
    assert all(int(each.headers["retry-after"]) for each in found)


def test_a_bug_of_a_route_of_the_api_is_told_so_too(ask, caplog, monkeypatch):
    monkeypatch.setattr(ask.service, "fleet", None)
    found = ask("GET", "/api/v1/jobs")

    assert (found.code, found.json["code"]) == (500, "BIC-2499")
    assert len(tracebacks(caplog)) == 1


def test_an_answer_that_breaks_off_is_not_ended_as_if_it_were_whole(ask, caplog):
    with pytest.raises(ZeroDivisionError):
        ask("GET", "/half")
    assert len(tracebacks(caplog)) == 1
