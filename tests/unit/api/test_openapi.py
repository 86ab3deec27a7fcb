"""The OpenAPI document, and real answers held against it: nothing undocumented, no 5xx."""

import asyncio
import json
import re
from urllib.parse import quote, urlencode

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bicycle_runtime.api.application import build_application
from bicycle_runtime.api.openapi import document, paths_of
from bicycle_runtime.api.routes import ALIASES, ROUTES
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.status import JobState, OperatorStatus
from bicycle_runtime.service.service import Service
from bicycle_runtime.service.users.owners import Quota
from bicycle_sdk.clock import SystemClock
from bicycle_streams.access.authentication import Authenticator
from bicycle_streams.access.limits import LimitOptions, Limits
from bicycle_streams.access.roles import LOCAL
from tests.unit.jobs.job_samples import put_job

HOST = "127.0.0.1:9000"
DOCUMENT = document()
STREAMS = {route.path for route in ROUTES if route.media == "text/event-stream"}
WORDS = st.one_of(
    st.text(max_size=20), st.integers().map(str), st.sampled_from(["job", "", "0", "1e9", "true"])
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)


class Site:
    """The application with a service behind it, asked without a socket."""

    def __init__(self, service):
        authenticator = Authenticator(
            service.tokens, service.sessions, needs_login=False, clients={}
        )
        limits = Limits(LimitOptions())
        self.app = build_application(
            service, hosts=[HOST], authenticator=authenticator, limits=limits
        )

    async def ask(self, method, path, query="", body=b"", **headers):
        sent = {"host": HOST, "content-type": "application/json", **headers}
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
            "scheme": "http", "path": path, "raw_path": quote(path).encode(), "root_path": "",
            "query_string": query.encode(), "client": ("127.0.0.1", 1), "server": (HOST, 9_000),
            "headers": [(n.replace("_", "-").encode(), t.encode()) for n, t in sent.items()],
        }  # fmt: skip
        messages = [{"type": "http.request", "body": body, "more_body": False}]
        answers = []

        async def receive():
            if messages:
                return messages.pop()
            await asyncio.Event().wait()

        async def send(message):
            answers.append(message)

        await self.app(scope, receive, send)
        data = b"".join(each.get("body", b"") for each in answers[1:])
        head = {name.decode(): value.decode() for name, value in answers[0]["headers"]}
        return answers[0]["status"], head, data


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    home = Home(tmp_path_factory.mktemp("api") / "home")
    home.prepare()
    operators = {"a": OperatorStatus(records_in=1)}
    place = str(home.path / "checkpoints/job")
    put_job(home, "job", state=JobState.FINISHED, ended_ms=1, operators=operators, checkpoint=place)
    with asyncio.Runner() as runner, Service(home, clock=SystemClock()) as service:
        service.fleet.attach(runner.get_loop())
        # Nobody who resumes the job starts a process.
        service.set_quota("", Quota(jobs=0), identity=LOCAL)
        found = Site(service)
        found.get = lambda *words, **more: runner.run(found.ask(*words, **more))
        yield found


def operation_of(route):
    return DOCUMENT["paths"][paths_of(route)[0]][route.method.lower()]


def test_every_reference_of_the_document_leads_somewhere_and_ids_are_unique():
    text = json.dumps(DOCUMENT)
    names = re.findall(r'"#/components/schemas/([^"]+)"', text)
    operations = [each for path in DOCUMENT["paths"].values() for each in path.values()]
    ids = [each["operationId"] for each in operations]

    assert DOCUMENT["openapi"] == "3.1.0"
    assert set(names) == DOCUMENT["components"]["schemas"].keys()
    assert len(set(ids)) == len(ids)
    assert all(each["responses"] and each["summary"].endswith(".") for each in operations)
    for path, methods in DOCUMENT["paths"].items():
        named = set(re.findall(r"\{(\w+)\}", path))
        for each in methods.values():
            parameters = each.get("parameters", [])
            assert {p["name"] for p in parameters if p["in"] == "path"} == named


def test_every_route_is_in_the_document_with_its_aliases(site):
    served = json.loads(site.get("GET", "/api/openapi.json")[2])

    assert served == json.loads(json.dumps(DOCUMENT))
    for route in ROUTES:
        for path in paths_of(route):
            assert route.method.lower() in served["paths"][path]
    assert {route.path for route in ROUTES} >= ALIASES
    aliases = {f"/api{path}" for path in ALIASES}
    assert all(each["deprecated"] for path in aliases for each in served["paths"][path].values())


@pytest.mark.parametrize(
    "route",
    [r for r in ROUTES if r.method == "GET" and r.path not in STREAMS],
    ids=lambda route: route.path,
)
def test_a_good_answer_has_the_documented_shape(site, route):
    path = re.sub(r"\{operation_id:int\}", "1", paths_of(route)[0].replace("{job_id}", "job"))
    path = path.replace("{operation_id}", "1")

    code, headers, data = site.get("GET", path)

    assert str(code) in operation_of(route)["responses"]
    assert code < 500
    if code == 200 and route.answer is not str:
        msgspec.convert(json.loads(data), route.answer)
    if code != 200:
        assert json.loads(data).keys() == {"code", "message", "fix", "location"}
    assert headers["x-content-type-options"] == "nosniff"


@given(st.data())
def test_whatever_is_sent_is_answered_as_documented_and_never_with_5xx(site, data):
    send_anything(site, data)


@pytest.mark.extended
@settings(max_examples=3_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_much_that_is_sent_is_answered_as_documented_and_never_with_5xx(site, data):
    send_anything(site, data)


def send_anything(site, data):
    """Send a request that may make no sense, and hold the answer against the document."""
    route = data.draw(st.sampled_from([r for r in ROUTES if r.path not in STREAMS]))
    job = data.draw(st.sampled_from(["job", "job", "nowhere"]) | st.text(max_size=9))
    path = paths_of(route)[0].replace("{job_id}", job.replace("/", "")).replace(
        "{operation_id}", str(data.draw(st.integers(0, 10**9)))
    )  # fmt: skip
    for name in ("{operator}", "{state}"):
        word = data.draw(WORDS.filter(bool)).replace("/", "")
        path = path.replace(name, word or "counts")
    names = st.sampled_from([*route.query.__struct_fields__, "other"])
    query = data.draw(st.dictionaries(names, WORDS, max_size=3))
    query.pop("follow", None)  # A stream is asked for elsewhere.
    query["wait"] = "0" if "wait" in query else None
    words = {name: text for name, text in query.items() if text is not None}
    body = b""
    if route.body is not None:
        fields = st.sampled_from([*route.body.__struct_fields__, "other"])
        whole = st.dictionaries(fields, JSON, max_size=4).map(json.dumps)
        body = data.draw(whole | JSON.map(json.dumps) | st.text(max_size=9)).encode()

    code, _headers, answer = site.get(route.method, path, query=urlencode(words), body=body)

    assert code < 500, (path, words, body, answer)
    if path.rstrip("/") in (path, ""):
        known = operation_of(route)["responses"].keys() | {"404", "405"}
        assert str(code) in known, (route.method, path, words, body, answer)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"name": "a", "timeout_ms": 2000.0}', 202), (b'{"timeout_ms": "2000"}', 400),
        (b"[]", 400), (b"NaN", 400), (b'{"x": 1}', 400), (b"{", 400), (b"\xff", 400),
        (b"[" * 100_000, 400), (b'{"to": "../..", "name": "../a"}', 422),
    ],
)  # fmt: skip
def test_bodies_are_read_strictly_but_for_whole_floats(site, body, code):
    found, _headers, data = site.get("POST", "/api/v1/jobs/job/savepoints", body=body)

    assert found == code, data


def test_a_path_that_is_not_there_and_a_wrong_method_are_told_as_such(site):
    assert site.get("GET", "/api/v1/nothing")[0] == 404
    code, headers, data = site.get("POST", "/api/v1/cluster")
    assert (code, headers["allow"]) == (405, "GET, HEAD")
    assert json.loads(data)["code"] == "BIC-2402"
    assert site.get("GET", "/api/v1/jobs/..%2f..%2fetc")[0] == 404
    assert site.get("GET", f"/api/v1/operations/{'9' * 5_000}")[0] == 404
