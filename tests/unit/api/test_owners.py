"""A token that counts for one owner: nothing of another owner is there for it, whatever it asks.

The routes of the API, the pages and the calls of gRPC are walked as their tables have them. An
admin of all owners walks the same: what shows them nothing of the other owner must be named here,
so that a new route is either walked with something to find, or looked at by who adds it.
"""

import asyncio
import re
import sqlite3
import subprocess
from contextlib import closing

import grpc
import msgspec
import pytest

from bicycle_runtime.api.openapi import paths_of
from bicycle_runtime.api.routes import ROUTES
from bicycle_runtime.api.rpc.calls import JobManagerStub
from bicycle_runtime.api.rpc.generated import jobmanager_pb2 as shapes
from bicycle_runtime.base.processes import start_ticks
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.options import JobOptions, JobRequest
from bicycle_runtime.jobs.savepoints.paths import SAVEPOINT_FILES
from bicycle_runtime.jobs.status import JobState, OperatorStatus
from bicycle_runtime.service.plugins.wheels import UploadedPlugin
from bicycle_runtime.service.service import Service
from bicycle_runtime.service.store.history import SAMPLED
from bicycle_runtime.service.users.owners import Quota
from bicycle_runtime.service_process.rpc import serve_rpc
from bicycle_runtime.webui.rendering import Site
from bicycle_runtime.webui.site import PAGES, page_routes
from bicycle_sdk.clock import SystemClock
from bicycle_streams.access.authentication import Authenticator, is_open
from bicycle_streams.access.doors import Doors
from bicycle_streams.access.limits import Limits
from bicycle_streams.access.roles import LOCAL, Identity, Role
from tests.unit.api.asking import DAY_MS, MANY, Asked
from tests.unit.jobs.job_samples import put_job
from tests.waiting import PATIENCE_S, until

OWN, FOREIGN, NOBODYS = "zebra", "wombat", "wallaby"  # Jobs; the own one comes last in any order.
OTHER = "quokka"  # Their owner, and a word in all that they say.
NUMBER = 987_654  # A figure of the foreign job.
CANARIES = (OTHER, FOREIGN, NOBODYS, str(NUMBER))
DIGEST = {"ada": "a" * 64, OTHER: "b" * 64}
# What shows nobody a job: nothing can be found there.
SILENT = {"GET /health", "GET /slots", "GET /cluster"}
SILENT_PAGES = {"/login", "/logout", "/bulk/stop", "/live/metrics"}


def put_plugin(home, owner):
    plugin = UploadedPlugin(
        digest=DIGEST[owner], name=f"{owner}-plugin", version="1.0", file="a.whl", byte_count=1,
        plugins={f"{owner}-plugin": "a:b"}, libraries=[], has_lock=False, python="3.11",
        platform="linux", owner=owner, uploaded_ms=1,
    )  # fmt: skip
    folder = home.path / "plugins" / plugin.digest
    folder.mkdir(parents=True)
    (folder / "plugin.json").write_bytes(msgspec.json.encode(plugin))


def put_jobs(home, pid):
    for name, word in ((FOREIGN, OTHER), (NOBODYS, OTHER), (OWN, "ada")):
        is_over = name == NOBODYS
        place = home.path / "checkpoints" / name
        (place / "savepoints" / f"{word}-savepoint").mkdir(parents=True)
        (place / "savepoints" / f"{word}-savepoint" / SAVEPOINT_FILES[0]).write_text("{}")
        failure = {"code": "BIC-1", "message": f"no {word}", "fix": word, "facts": {}}
        folder = put_job(
            home, name, plugin=f"{word}-plugin", checkpoint=str(place), started_ms=5,
            pid=0 if is_over else pid, pid_started=0 if is_over else start_ticks(pid),
            state=JobState.FAILED if is_over else JobState.RUNNING,
            error=failure if is_over else None, operators={f"{word}-operator": OperatorStatus()},
        )  # fmt: skip
        folder.log_path.write_text(f"a line of {word}\n")


@pytest.fixture(scope="module")
def sleeping():
    """A process that does nothing, and stands for drivers."""
    process = subprocess.Popen(["sleep", "3600"])
    yield process.pid
    process.kill()
    process.wait()


@pytest.fixture(scope="module")
def ask(tmp_path_factory, sleeping):
    home = Home(tmp_path_factory.mktemp("owners") / "home")
    home.prepare()
    put_jobs(home, sleeping)
    for owner in DIGEST:
        put_plugin(home, owner)
    with Service(home, clock=SystemClock()):
        pass  # It has made its databases.
    with closing(sqlite3.connect(home.path / "service/control.db")) as control, control:
        control.executemany("INSERT INTO owners VALUES (?, ?)", [(FOREIGN, OTHER), (OWN, "ada")])
    with (
        asyncio.Runner() as runner,
        Service(home, clock=SystemClock(), slots={"local": 1}) as service,
    ):
        service.fleet.attach(runner.get_loop())
        found = Asked(service, runner, needs_login=True)
        found.numbers = live(service, Identity(name=OTHER, role=Role.OPERATOR), FOREIGN)
        own = Identity(name="ada", role=Role.OPERATOR, owners=("ada",))
        found.own_numbers = live(service, own, OWN)
        found.root = found.token(Role.ADMIN, name="root")
        found.ada = {
            role: service.tokens.create(
                "ada", role=role, lifetime_ms=DAY_MS, by="test", owners=["ada"]
            )[1]
            for role in (Role.VIEWER, Role.OPERATOR, Role.ADMIN)
        }
        found.eve = service.tokens.create(  # She owns nothing, and tries.
            "eve", role=Role.ADMIN, lifetime_ms=DAY_MS, by="test", owners=["eve"]
        )[1]
        yield found


def live(service, identity, job):
    """Do what leaves traces of a job everywhere; return numbers of operations."""
    operations = service.operations
    over = operations.ask(
        "savepoint", job, {"name": f"{identity.name}-x", "timeout_ms": 1_000}, identity=identity
    )
    waits = operations.ask(
        "submit", None, {"plugin": f"{identity.name}-plugin", "name": f"{job}-next"},
        identity=identity,
    )  # fmt: skip
    until(lambda: operations.get(over.id).state != "running", "the savepoint")
    service.set_quota(identity.owner, Quota(jobs=7), identity=LOCAL)
    value = NUMBER if job == FOREIGN else 0  # So that a sum of both shows it.
    sample = {name: value for name in SAMPLED}
    at_s = service.clock.now_ms() // 5_000 * 5 - 60
    service.history.note_samples([(job, sample, {})], at_s=at_s).result()
    return {"over": over.id, "waits": waits.id}


def bearer(token):
    return {"authorization": f"Bearer {token}"}


def filled(path, ask, *, job, owner, kind="stop"):
    numbers = ask.own_numbers if owner == "ada" else ask.numbers
    words = {
        "job_id": job, "job": job, "kind": kind, "digest": DIGEST[owner], "owner": owner,
        "operation_id": str(numbers["waits"]), "number": str(numbers["waits"]),
        "name": f"{owner}-savepoint", "operator": f"{owner}-operator", "state": "s",
        "letter": "1",
    }  # fmt: skip
    return re.sub(r"\{(\w+)(:int)?\}", lambda each: words[each[1]], path)


def found_in(data, canaries=CANARIES):
    return [word for word in canaries if word.encode() in data]


async def read_some(ask, path, token, *, mark, **more):
    """Return what an endless answer says until the mark is in it."""
    answers, seen = [], asyncio.Event()

    def look():
        if any(mark in each.get("body", b"") for each in answers):
            seen.set()

    reading = asyncio.ensure_future(
        ask.ask("GET", path, answers=answers, on_answer=look, **bearer(token), **more)
    )
    waiting = asyncio.ensure_future(seen.wait())
    await asyncio.wait({reading, waiting}, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
    reading.cancel()
    waiting.cancel()
    return b"".join(each.get("body", b"") for each in answers)


def streamed(ask, path, token, *, mark, **more):
    return ask.runner.run(read_some(ask, path, token, mark=mark, **more))


JOBLESS = [route for route in ROUTES if "{job_id}" not in route.path]
OF_A_JOB = [route for route in ROUTES if "{job_id}" in route.path]


def name_of(route):
    return f"{route.method} {route.path}"


@pytest.mark.parametrize("route", OF_A_JOB, ids=name_of)
@pytest.mark.parametrize("job", [FOREIGN, NOBODYS, f"{FOREIGN}-next"])
def test_a_job_of_another_owner_is_one_that_there_is_not(ask, route, job):
    for path in paths_of(route):
        asked = filled(path, ask, job=job, owner=OTHER)
        found = ask(route.method, asked, b"{}", **bearer(ask.eve))
        unknown = ask(route.method, asked.replace(job, "nothing", 1), b"{}", **bearer(ask.eve))

        assert (found.code, found.json["code"]) == (404, "BIC-1902")
        assert found.data.replace(job.encode(), b"nothing") == unknown.data


@pytest.mark.parametrize("route", [r for r in JOBLESS if r.method == "GET"], ids=name_of)
def test_no_list_tells_of_another_owner(ask, route):
    for path in paths_of(route):
        foreign = filled(path, ask, job=FOREIGN, owner=OTHER)
        own = filled(path, ask, job=OWN, owner="ada")
        if route.media == "text/event-stream":
            more = {"last_event_id": "0"}
            whole = streamed(ask, own, ask.root, mark=OWN.encode(), **more)
            part = streamed(ask, own, ask.ada[Role.ADMIN], mark=f'"job":"{OWN}"'.encode(), **more)
        else:
            whole = ask("GET", foreign, **bearer(ask.root)).data
            part = ask("GET", own, **bearer(ask.ada[Role.ADMIN])).data
        assert bool(found_in(whole)) == (name_of(route) not in SILENT), path
        assert found_in(part) == [], path
        if "{" in route.path:
            refused = ask("GET", foreign, **bearer(ask.eve))
            assert refused.code in (403, 404), path


def test_every_change_of_another_owner_is_refused_by_what_it_names(ask):
    digest, waits = DIGEST[OTHER], ask.numbers["waits"]
    place = str(ask.service.home.path / "checkpoints" / FOREIGN / "savepoints/quokka-savepoint")
    checkpoint_dir = str(ask.service.home.path / "elsewhere")
    tried = {
        ("POST", "/jobs", "BIC-2328"): {"plugin": "wordcount", "name": FOREIGN},
        ("POST", "/jobs", "BIC-2328 "): {"plugin": "wordcount", "name": NOBODYS},
        ("POST", "/jobs", "BIC-2328  "): {"plugin": "wordcount", "name": f"{FOREIGN}-next"},
        ("POST", "/jobs", "BIC-2340"): {
            "plugin": f"{OTHER}-plugin", "digest": digest, "name": "new"
        },
        ("POST", "/jobs", "BIC-1530"): {
            "plugin": "wordcount", "name": "new", "options": {"from_": place}
        },
        ("POST", "/jobs", "BIC-2340 "): {
            "plugin": "wordcount", "name": "new",
            "options": {"plugin_env": str(ask.service.home.path / f"plugins/{digest}/environment")},
        },
        ("POST", "/savepoints/restore", "BIC-2328"): {
            "url": "/none", "checkpoint_dir": checkpoint_dir, "name": FOREIGN
        },
        ("POST", "/savepoints/restore", "BIC-1530"): {
            "url": place, "checkpoint_dir": checkpoint_dir, "name": "new"
        },
        ("POST", f"/jobs/{OWN}/upgrade", "BIC-2340"): {"digest": digest},
        ("DELETE", f"/plugins/{digest}", "BIC-2340"): None,
        ("DELETE", f"/operations/{waits}", "BIC-2304"): None,
        ("PUT", f"/quotas/{OTHER}", "BIC-2327"): {"jobs": 1},
        ("PUT", "/quotas/ada", "BIC-2327"): {"jobs": 1},
    }  # fmt: skip
    for (method, path, code), body in tried.items():
        token = ask.eve if "quotas" in path else ask.ada[Role.ADMIN]  # Her log stays as it is.
        sent = msgspec.json.encode(body) if body else b""
        found = ask(method, f"/api/v1{path}", sent, **bearer(token))
        assert found.json["code"] == code.strip(), (path, found.json)
        assert found_in(found.data.replace(FOREIGN.encode(), b""), (OTHER, str(NUMBER))) in (
            [], [OTHER] if place in found.json["message"] else []
        )  # fmt: skip
    changing = {name_of(route) for route in JOBLESS if route.method != "GET"}
    walked = {f"{method} {path}" for method, path, _ in tried}
    assert {re.sub(r"\{\w+(:int)?\}", "", each) for each in changing} <= {
        re.sub(f"({digest}|{waits}$|{OTHER}$|ada$)", "", each) for each in walked
    } | {"POST /plugins"}


def test_a_plugin_stays_for_a_foreign_job_which_is_not_named(ask):
    home, digest = ask.service.home, DIGEST["ada"]
    options = JobOptions(
        plugin="ada-plugin", plugin_env=str(home.path / f"plugins/{digest}/environment"),
        name=FOREIGN,
    )  # fmt: skip
    home.folder(FOREIGN).write_request(JobRequest(options=options))

    kept = ask("DELETE", f"/api/v1/plugins/{digest}", **bearer(ask.ada[Role.OPERATOR]))
    seen = ask("GET", f"/api/v1/plugins/{digest}", **bearer(ask.root)).json["jobs"]
    home.folder(FOREIGN).request_path.unlink()

    assert (kept.code, kept.json["code"], seen) == (409, "BIC-2341", [FOREIGN])
    assert "it is used by 1 job" in kept.json["message"]
    assert found_in(kept.data) == []


def test_who_sees_some_owners_starts_jobs_of_theirs(ask):
    named = ask.service.tokens.create(
        "laptop", role=Role.OPERATOR, lifetime_ms=DAY_MS, by="test", owners=["ada", "team"]
    )[1]
    params = {"input": "in", "output": "out"}
    body = msgspec.json.encode({"plugin": "wordcount", "name": "made", "params": params})

    asked = ask("POST", "/api/v1/jobs", body, **bearer(named)).json
    shown = ask("GET", "/api/v1/operations", **bearer(ask.ada[Role.VIEWER])).json["items"]

    assert (asked["actor"], asked["owner"]) == ("laptop", "ada")
    assert asked["id"] in [each["id"] for each in shown]
    assert ask.service.owners.of("made") == "ada"


def test_a_key_of_another_owner_is_no_answer(ask):
    ask.service.operations.ask(
        "savepoint", FOREIGN, {"name": "keyed"}, key="one", identity=Identity(
            name="ada", role=Role.OPERATOR)
    )  # fmt: skip
    found = ask(
        "POST", f"/api/v1/jobs/{OWN}/savepoints", b'{"name": "keyed"}', idempotency_key="one",
        **bearer(ask.ada[Role.OPERATOR]),
    )  # fmt: skip

    assert (found.code, found.json["code"]) == (409, "BIC-2306")
    assert found_in(found.data) == []


def test_the_admin_of_an_owner_reads_the_audit_log_of_that_owner(ask):
    ask("POST", f"/api/v1/jobs/{FOREIGN}/stop", b"{}", **bearer(ask.eve))
    ask.service.operations.ask(
        "savepoint", OWN, {"name": "by-root", "timeout_ms": 1_000}, identity=LOCAL
    )

    lines = ask("GET", "/api/v1/audit?limit=500", **bearer(ask.ada[Role.ADMIN])).json["items"]

    whole = ask("GET", "/api/v1/audit?limit=500", **bearer(ask.root)).json["items"]
    eves = ask("GET", "/api/v1/audit?limit=500", **bearer(ask.eve)).json["items"]
    assert {"ada", "local"} <= {line["actor"] for line in lines} < {each["actor"] for each in whole}
    assert not {line["actor"] for line in lines} & {OTHER, "eve"}
    assert any(line["outcome"] == "refused" and FOREIGN in line["target"] for line in eves)
    assert {line["actor"] for line in eves} == {"eve"}


def pages(ask):
    for route in page_routes(Site(ask.service, PAGES)):
        if not route.path.startswith("/static/"):
            yield route.path, "POST" in route.methods


def page(ask, path, token, *, is_form, **more):
    if path.startswith("/live/"):
        return streamed(ask, path, token, mark=b"event: beat", accept="text/event-stream")
    form = {"job": FOREIGN, "savepoint": f"{OTHER}-savepoint", **more} if is_form else None
    return ask.page(path, form, **bearer(token)).data


def test_no_page_of_another_owners_job_is_there(ask):
    token, walked = ask.eve, 0
    for path, is_form in pages(ask):
        if "{job}" not in path:
            continue
        for job in (FOREIGN, NOBODYS):
            asked = filled(path, ask, job=job, owner=OTHER)
            found = ask.page(asked, {} if is_form else None, **bearer(token))
            unknown = ask.page(
                asked.replace(job, "nothing"), {} if is_form else None, **bearer(token)
            )
            assert found.code == unknown.code == 404, path
            assert not found_in(found.data.replace(job.encode(), b"")), path
            walked += 1
    assert walked >= 40


def test_no_page_tells_of_another_owner(ask):
    for path, is_form in pages(ask):
        own = filled(path, ask, job=OWN, owner="ada", kind="savepoint")
        assert found_in(page(ask, own, ask.ada[Role.ADMIN], is_form=is_form)) == [], path
        named = page(ask, f"{own}?job={FOREIGN}", ask.ada[Role.ADMIN], is_form=is_form)
        assert found_in(named.replace(FOREIGN.encode(), b"")) == [], path
        if "{job}" in path or is_form or path in SILENT_PAGES or "{" in path:
            continue
        whole = page(ask, own, ask.root, is_form=False)
        assert found_in(whole), path


def test_pages_of_what_another_owner_has_are_not_there(ask):
    token = ask.ada[Role.ADMIN]
    for path, is_form in pages(ask):
        if "{" in path and "{job}" not in path:
            asked = filled(path, ask, job=FOREIGN, owner=OTHER)
            found = ask.page(asked, {} if is_form else None, **bearer(token))
            assert found.code in (404, 409), path
            assert not found_in(found.data.replace(DIGEST[OTHER].encode(), b"")), path


def test_the_list_is_filtered_by_owner_and_says_for_whom_it_is(ask):
    every = ask.page("/jobs", **bearer(ask.root)).data
    one = ask.page(f"/jobs?owner={OTHER}", **bearer(ask.root)).data
    own = ask.page("/jobs", **bearer(ask.ada[Role.VIEWER])).data

    assert b"<option >ada</option>" in every
    assert (b"job-" + OWN.encode() in every, b"job-" + OWN.encode() in one) == (True, False)
    assert f"<option selected>{OTHER}</option>".encode() in one
    assert b"(viewer of ada)" in own


def test_a_login_sees_what_its_token_sees(ask):
    cookie = ask.page("/login", {"token": ask.ada[Role.VIEWER]}).headers["set-cookie"]
    found = ask("GET", "/api/v1/jobs", cookie=cookie.split(";")[0])

    assert [job["job_id"] for job in found.json["items"]] == [OWN]


def test_a_list_that_one_has_seen_is_none_that_another_one_has(ask):
    tag = ask("GET", "/api/v1/jobs", **bearer(ask.root)).headers["etag"]

    found = ask("GET", "/api/v1/jobs", if_none_match=tag, **bearer(ask.ada[Role.VIEWER]))

    assert found.code == 200


def test_a_client_with_a_certificate_sees_its_owners(ask):
    doors = Doors(client_roles={"grafana": "viewer:ada", "root": "admin"})
    asked = Asked(ask.service, ask.runner, needs_login=True, clients=doors.clients)

    some = asked("GET", "/api/v1/jobs", state={"client_name": "grafana"}).json["items"]
    every = asked("GET", "/api/v1/jobs", state={"client_name": "root"}).json["items"]

    assert [job["job_id"] for job in some] == [OWN]
    assert {job["job_id"] for job in every} >= {OWN, FOREIGN, NOBODYS}


METHODS = list(shapes.DESCRIPTOR.services_by_name["JobManager"].methods)


async def call(ask, token, method, **fields):
    """Return the bytes of an answer of gRPC, or the status that refuses it."""
    authenticator = Authenticator(ask.service.tokens, None, needs_login=True, clients={})
    doors = Doors(grpc_port=0)
    async with serve_rpc(
        ask.service, "127.0.0.1", doors=doors, authenticator=authenticator, limits=Limits(MANY)
    ) as place, grpc.aio.insecure_channel(place) as channel:  # fmt: skip
        known = {field.name for field in method.input_type.fields}
        given = {name: value for name, value in fields.items() if name in known}
        request = getattr(shapes, method.input_type.name)(**given)
        asked = getattr(JobManagerStub(channel), method.name)(
            request, metadata=(("authorization", f"Bearer {token}"),), timeout=30
        )
        try:
            if not method.server_streaming:
                return (await asked).SerializeToString(), None
            data = b""
            async for each in asked:
                data += each.SerializeToString()
                if each.event.job == OWN:
                    break
            return data, None
        except grpc.aio.AioRpcError as error:
            return b"", error.code()


@pytest.mark.parametrize("method", METHODS, ids=lambda each: each.name)
def test_no_call_of_grpc_tells_of_another_owner(ask, method):
    def called(token, **fields):
        return ask.runner.run(call(ask, token, method, **fields))

    ada = ask.ada[Role.ADMIN]
    own, _ = called(ada, after_event=0, plugin="wordcount", name=OWN, id=ask.own_numbers["over"])
    assert found_in(own) == []
    named = {"job_id": FOREIGN, "job_ids": [FOREIGN], "id": ask.numbers["over"]}
    if {field.name for field in method.input_type.fields} & named.keys():
        data, status = called(ada, **named)
        assert (data, status) == (b"", grpc.StatusCode.NOT_FOUND)
    elif method.name != "SubmitJob":
        whole, _ = called(ask.root)
        assert found_in(whole) or method.name == "GetClusterInfo"
    else:
        data, status = called(ada, plugin="wordcount", name=FOREIGN)
        assert status is grpc.StatusCode.FAILED_PRECONDITION


def test_a_call_about_an_own_job_does_not_start_the_job_of_another_owner(ask):
    method = next(each for each in METHODS if each.name == "StartOperation")
    facts = {"job_id": OWN, "options": {"plugin": "wordcount", "name": FOREIGN}}
    found = ask.runner.run(call(ask, ask.ada[Role.OPERATOR], method, kind="submit", **facts))

    assert found == (b"", grpc.StatusCode.INVALID_ARGUMENT)


def test_what_all_jobs_come_to_is_counted_for_the_own_ones(ask):
    cluster = ask("GET", "/api/v1/cluster", **bearer(ask.ada[Role.VIEWER])).json
    every = ask("GET", "/api/v1/cluster", **bearer(ask.root)).json

    assert (cluster["jobs"], cluster["states"]["FAILED"]) == (1, 0)
    assert every["jobs"] >= 3


def test_figures_over_time_are_summed_for_the_own_jobs(ask):
    some = streamed(ask, "/live/metrics", ask.ada[Role.VIEWER], mark=b"event: beat")
    every = streamed(ask, "/live/metrics", ask.root, mark=b"event: beat")

    assert found_in(some) == []
    assert str(NUMBER).encode() in every


def test_open_pages_are_those_that_tell_nothing(ask):
    walked = {path for path, _ in pages(ask) if is_open(path)}
    assert walked == {"/login"}
