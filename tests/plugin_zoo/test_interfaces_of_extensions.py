"""Routes and pages of installed distributions, in a real service."""

import json

import pytest

from bicycle_sdk.clock import SystemClock
from bicycle_streams.access.roles import Role
from bicycle_streams.access.tokens import tokens_of
from tests.plugin_zoo.extensions import install_extension, install_page
from tests.unit.service_process.served import Served

FAULTY = {
    "lost": ("import nowhere_at_all", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
    "leaving": ("raise SystemExit(3)", "SystemExit: 3"),
    "wrong": (
        "def bicycle_pages():\n    return {'wrong': 'os:sep'}",
        "'wrong': '/' is not a SitePage",
    ),
    "greedy": (
        "from bicycle_runtime.webui.rendering import SitePage\n"
        "PAGES = [SitePage(path='/jobs/{job}', handler=print)]\n"
        "def bicycle_pages():\n    return {'greedy': 'greedy:PAGES'}",
        "ValueError: GET /jobs/{job} is already used by /jobs/{job}",
    ),
    "hidden": (
        "from bicycle_runtime.api.route import Route\n"
        "ROUTES = [Route(method='GET', path='/jobs/mine', summary='s', handler=print, answer=str)]\n"
        "def bicycle_routes():\n    return {'hidden': 'hidden:ROUTES'}",
        "ValueError: GET /api/v1/jobs/mine is already used by /api/v1/jobs/{job_id}",
    ),
    "failing": (
        "from bicycle_runtime.api.route import Route\n"
        "async def fail(call):\n    raise ZeroDivisionError('tide')\n"
        "ROUTES = [Route(method='GET', path='/fail', summary='s', handler=fail, answer=str)]\n"
        "def bicycle_routes():\n    return {'failing': 'failing:ROUTES'}",
        "",
    ),
}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A service whose installation has the distribution of the page, and faulty ones."""
    root = tmp_path_factory.mktemp("interfaces")
    site = root / "site"
    install_page(site)
    for name, (source, _) in FAULTY.items():
        install_extension(
            site, {f"{name}.py": source}, name=f"{name}-parts", points={name: name}, version="2.1"
        )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        found = Served(root / "home").start()
    yield found
    found.end()


def test_routes_of_a_distribution_answer_and_check_what_they_get(served):
    tide = {"harbor": "Dover", "time": "15:10"}
    code, _, data = served.ask("POST", "/api/v1/tides", tide)
    wrong = served.ask("POST", "/api/v1/tides", {"harbour": "Dover"})

    assert served.get("/api/v1/tides/Dover") == {"harbor": "Dover", "time": "14:05"}
    assert (code, json.loads(data)) == (200, tide)
    assert wrong[0] == 400
    assert served.ask("GET", "/api/v1/tides/Dover?day=1")[0] == 400


def test_routes_of_a_distribution_are_in_the_openapi_document(served):
    document = served.get("/api/openapi.json")

    assert (
        document["paths"]["/api/v1/tides/{harbor}"]["get"]["summary"] == "Show the next high tide."
    )
    body = document["paths"]["/api/v1/tides"]["post"]["requestBody"]["content"]
    assert body["application/json"]["schema"] == {"$ref": "#/components/schemas/Tide"}
    assert document["components"]["schemas"]["Tide"]["required"] == ["harbor", "time"]


def test_a_page_of_a_distribution_is_shown_and_linked_at_the_head_of_all_pages(served):
    code, headers, data = served.ask("GET", "/tides", accept="text/html")
    jobs = served.ask("GET", "/jobs", accept="text/html")[2].decode()

    assert (code, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "<dt>Dover</dt><dd>14:05</dd>" in data.decode()
    assert '<a href="/tides" aria-current="page">Tides</a>' in data.decode()
    assert '<a href="/tides" >Tides</a>' in jobs
    assert jobs.index(">Audit</a>") < jobs.index(">Tides</a>")


def test_a_faulty_extension_is_logged_with_its_distribution_and_stops_no_other(served):
    log = (served.home.path / "served.log").read_text()
    lines = [line for line in log.splitlines() if "extension_refused" in line]

    for name, (_, reason) in FAULTY.items():
        found = [line for line in lines if f"{name} of {name}-parts 2.1" in line]
        assert len(found) == bool(reason), name
        assert all(reason in line for line in found), found
    assert served.get("/api/v1/jobs")["items"] == []


def test_an_error_of_a_handler_ends_its_request_alone(served):
    code, _, data = served.ask("GET", "/api/v1/fail")

    assert (code, json.loads(data)["code"]) == (500, "BIC-2499")
    assert served.get("/api/v1/tides/Dover")["time"] == "14:05"


def test_the_role_of_a_route_and_of_a_page_is_required(tmp_path, monkeypatch):
    install_page(tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    served = Served(tmp_path / "home", needs_login=True).start()
    try:
        with tokens_of(served.home.path, SystemClock()) as tokens:
            viewer = tokens.create("ada", role=Role.VIEWER, lifetime_ms=60_000, by="test")[1]
            operator = tokens.create("bob", role=Role.OPERATOR, lifetime_ms=60_000, by="test")[1]
        tide = {"harbor": "Dover", "time": "15:10"}
        codes = [
            served.ask("POST", "/api/v1/tides", tide, authorization=f"Bearer {token}")[0]
            for token in (viewer, operator)
        ]
        seen = served.ask("GET", "/api/v1/tides/Dover", authorization=f"Bearer {viewer}")[0]
        nobody = served.ask("GET", "/api/v1/tides/Dover")[0], served.ask("GET", "/tides")[0]
    finally:
        served.end()

    assert codes == [403, 200]
    assert seen == 200
    assert nobody == (401, 401)
