"""Tokens, logins and roles: who is let in, and who is not."""

import asyncio
import hashlib
import re
import sqlite3
from contextlib import closing

import pytest

from bicycle_runtime.api.openapi import document, paths_of
from bicycle_runtime.api.routes import ROUTES
from bicycle_runtime.webui.rendering import Site
from bicycle_runtime.webui.site import PAGES, page_routes
from bicycle_streams.access.authentication import is_open
from bicycle_streams.access.roles import Role
from tests.unit.api.asking import HOST, asked_of

ROLES = [Role.NOBODY, Role.VIEWER, Role.OPERATOR, Role.ADMIN]


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """A service that asks everybody who they are."""
    with asked_of(tmp_path_factory.mktemp("who") / "home", needs_login=True) as found:
        found.tokens = {role: found.token(role, name=role.name.lower()) for role in ROLES[1:]}
        yield found


def bearer(ask, role):
    return {} if role is Role.NOBODY else {"authorization": f"Bearer {ask.tokens[role]}"}


def filled(path):
    path = path.replace("{job_id}", "job").replace("{job}", "job").replace("{kind}", "stop")
    return re.sub(r"\{\w+(:int)?\}", "1", path)


# Pages that change something, or ask whether to.
ACTING = re.compile("/actions/|^/bulk/|^/queue/|^/plugins/[^/]+/(start|remove)$")


def test_every_path_of_the_document_is_walked_below():
    walked = {(path, r.method.lower()) for r in ROUTES for path in paths_of(r)}
    told = {(path, m) for path, methods in document()["paths"].items() for m in methods}

    assert told - walked == {("/api/openapi.json", "get")}


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_a_route_answers_those_whose_role_is_enough_and_nobody_else(ask, route, role):
    is_endless = route.media == "text/event-stream" and role >= route.role
    for path in () if is_endless else paths_of(route):
        found = ask(route.method, filled(path), b"{}", **bearer(ask, role))
        if role is Role.NOBODY and route.role > Role.NOBODY:
            assert (found.code, found.json["code"]) == (401, "BIC-2320")
            assert found.headers["www-authenticate"].startswith("Bearer")
        elif role < route.role:
            assert (found.code, found.json["code"]) == (403, "BIC-2322")
        else:
            assert found.code not in (401, 403, 500)
        if found.code >= 400:
            assert found.json.keys() == {"code", "message", "fix", "location"}


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_a_page_answers_those_whose_role_is_enough_and_nobody_else(ask, role):
    acting = 0
    for route in page_routes(Site(ask.service, PAGES)):
        path, methods = filled(route.path), route.methods - {"HEAD"}
        if path.startswith("/live/") and role is not Role.NOBODY:
            continue
        found = (
            ask.page(path, {"job": "job"}, **bearer(ask, role))
            if "POST" in methods else ask.page(path, **bearer(ask, role))
        )  # fmt: skip
        if is_open(path):
            assert found.code in (200, 401, 404), path
        elif role is Role.NOBODY:
            assert found.code == (401 if "POST" in methods else 303), path
        elif ACTING.search(path) or ("POST" in methods and path == "/plugins"):
            acting += 1
            assert (found.code == 403) == (role < Role.OPERATOR), path
        elif path == "/audit":
            assert found.code == (200 if role is Role.ADMIN else 403), path
        else:
            assert found.code in (200, 303, 404), path
    assert acting == (0 if role is Role.NOBODY else 11)


def test_a_person_is_led_to_the_login_and_back_and_out_again(ask):
    away = ask.page("/jobs?text=a%26b")
    refused = ask.page("/login", {"token": "bic_0_nonsense", "next": "/jobs"})
    good = ask.page("/login", {"token": f" {ask.tokens[Role.VIEWER]}\n", "next": "/jobs?text=a"})
    assert good.code == 303, good.data[-900:]
    cookie, words = good.headers["set-cookie"].split(";", 1)
    inside = ask.page("/jobs", cookie=cookie)
    out = ask.page("/logout", {}, cookie=cookie)

    assert (away.code, away.headers["location"]) == (303, "/login?next=%2Fjobs%3Ftext%3Da%2526b")
    assert (refused.code, b"BIC-2321" in refused.data) == (401, True)
    assert "set-cookie" not in refused.headers
    assert (good.code, good.headers["location"]) == (303, "/jobs?text=a")
    assert {w.strip().lower() for w in words.split(";")} >= {"httponly", "samesite=strict"}
    assert inside.code == 200
    assert b"viewer" in inside.data
    assert b"/actions/" not in inside.data
    assert out.code == 303
    assert ask.page("/jobs", cookie=cookie).code == 303


def test_the_cookie_of_a_login_over_tls_is_secure_and_of_this_host_alone(ask):
    found = ask.page(
        "/login", {"token": ask.tokens[Role.VIEWER]}, scheme="https", origin=f"https://{HOST}"
    )  # fmt: skip

    words = found.headers["set-cookie"].lower()
    assert words.startswith("__host-bicycle-9000=")
    assert "secure" in words
    assert "path=/" in words
    assert "domain" not in words


@pytest.mark.parametrize(
    "wanted",
    ["//evil.example", "/\\evil.example", "https://evil.example", "/a\r\nset-cookie: a=b", "jobs",
     "/login", "/logout", "/live/jobs", "/\u20ac", "/" + "a" * 2_000, ""],
)  # fmt: skip
def test_a_login_leads_nowhere_else(ask, wanted):
    found = ask.page("/login", {"token": ask.tokens[Role.VIEWER], "next": wanted})

    assert (found.code, found.headers["location"]) == (303, "/")


def test_a_revoked_token_is_worth_nothing_and_neither_is_a_login_with_it(ask):
    text = ask.token(Role.ADMIN)
    cookie = ask.page("/login", {"token": text}).headers["set-cookie"].split(";")[0]
    assert ask("GET", "/api/v1/jobs", authorization=f"Bearer {text}").code == 200
    assert ask("GET", "/api/v1/jobs", cookie=cookie).code == 200

    ask.service.tokens.revoke(text.split("_")[1], by="test")

    refused = ask("GET", "/api/v1/jobs", authorization=f"Bearer {text}")
    assert (refused.code, refused.json["code"]) == (401, "BIC-2321")
    assert ask("GET", "/api/v1/jobs", cookie=cookie).code == 401
    assert ask.page("/login", {"token": text}).code == 401


def test_a_stream_ends_when_the_token_of_its_reader_is_revoked(ask):
    text = ask.token(Role.VIEWER)

    async def read():
        reading = asyncio.ensure_future(
            ask.ask("GET", "/api/v1/events", authorization=f"Bearer {text}")
        )
        await asyncio.wait({reading}, timeout=0.2)
        assert not reading.done()
        await asyncio.to_thread(ask.service.tokens.revoke, text.split("_")[1], by="test")
        return await asyncio.wait_for(reading, 30)

    assert ask.runner.run(read()).code == 200


def test_an_expired_token_is_worth_nothing(ask):
    text = ask.token(Role.ADMIN)
    late = ask.service.clock.now_ms() + 2 * 86_400_000
    [entry] = [e for e in ask.service.tokens.list() if e.id == text.split("_")[1]]

    assert entry.is_good(late - 2 * 86_400_000)
    assert not entry.is_good(late)


def test_the_database_holds_no_token_and_no_cookie(ask):
    text = ask.token(Role.VIEWER)
    cookie = ask.page("/login", {"token": text}).headers["set-cookie"].split(";")[0]
    secrets = [text.split("_", 2)[2], cookie.partition("=")[2]]

    path = ask.service.home.path / "service/control.db"
    with closing(sqlite3.connect(path)) as database:
        whole = "\n".join(database.iterdump())

    for secret in secrets:
        assert secret not in whole
        assert hashlib.sha256(secret.encode()).hexdigest().upper() in whole.upper()


def test_without_demand_a_local_request_needs_no_token_but_a_wrong_one_is_refused(tmp_path):
    with asked_of(tmp_path / "home") as ask:
        text = ask.token(Role.VIEWER)

        assert ask("GET", "/api/v1/audit").code == 200
        assert ask("GET", "/api/v1/audit", authorization=f"Bearer {text}").code == 403
        assert ask("GET", "/api/v1/jobs", authorization="Bearer bic_1_2").code == 401
        assert ask("GET", "/api/v1/jobs", authorization="Basic YTpi").code == 401
        assert ask("GET", "/api/v1/jobs", cookie="bicycle-9000=nonsense").code == 200
