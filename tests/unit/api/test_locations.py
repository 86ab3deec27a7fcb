"""Locations that requests name: no spelling of one leads to what belongs to another owner."""

import json
import os
import sqlite3
from contextlib import closing

import grpc
import msgspec
import pytest

from bicycle_runtime.api.rpc.generated import jobmanager_pb2 as shapes
from bicycle_runtime.jobs.options import JobOptions, JobRequest
from bicycle_runtime.jobs.savepoints.paths import SAVEPOINT_FILES
from bicycle_runtime.jobs.status import JobState
from bicycle_runtime.layouts.paths import JOB_FILE
from bicycle_runtime.layouts.savepoint import SAVEPOINT_VERSION, Savepoint
from bicycle_streams.access.roles import Role
from tests.unit.api.asking import DAY_MS, asked_of
from tests.unit.api.test_owners import (
    DIGEST,
    FOREIGN,
    NOBODYS,
    OTHER,
    OWN,
    bearer,
    call,
    put_plugin,
)
from tests.unit.jobs.job_samples import put_job
from tests.waiting import until


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    with asked_of(tmp_path_factory.mktemp("locations") / "home", needs_login=True) as found:
        home = found.service.home
        for owner in DIGEST:
            put_plugin(home, owner)
        for job in (FOREIGN, OWN):
            place = home.path / "checkpoints" / job
            savepoint = place / "savepoints/quokka-savepoint"
            savepoint.mkdir(parents=True)
            (savepoint / SAVEPOINT_FILES[0]).write_text("{}")
            put_job(home, job, state=JobState.FAILED, checkpoint=str(place), started_ms=5)
        with closing(sqlite3.connect(home.path / "service/control.db")) as control, control:
            control.executemany(
                "INSERT INTO owners VALUES (?, ?)", [(FOREIGN, OTHER), (OWN, "ada")]
            )
        put_job(home, NOBODYS, state=JobState.FAILED, started_ms=5)
        found.service.owners.load()
        found.service.watcher.wake()
        until(lambda: found.service.fleet.view.get(NOBODYS), "the look at its jobs")
        found.ada = found.service.tokens.create(
            "ada", role=Role.ADMIN, lifetime_ms=DAY_MS, by="test", owners=["ada"]
        )[1]
        yield found


def spellings_of(path, folder):
    link, above = folder / "link", folder / "above"
    link.symlink_to(path)
    above.symlink_to(path.parent)
    return [
        str(path), f"{path}/", f"file://{path}", f"FILE://localhost{path}", f"local://{path}",
        f"{path.parent}/../{path.parent.name}/./{path.name}", str(link), f"{above}/{path.name}",
        f"file://{link}/", f"/{path}", os.path.relpath(path),
    ]  # fmt: skip


def test_no_spelling_of_a_savepoint_of_another_owner_is_there(ask, tmp_path):
    place = ask.service.home.path / "checkpoints" / FOREIGN / "savepoints/quokka-savepoint"
    token = bearer(ask.ada)
    for url in spellings_of(place, tmp_path):
        restore = {"url": url, "checkpoint_dir": str(tmp_path / "new"), "name": "new"}
        begin = {"plugin": "wordcount", "name": "new", "options": {"from_": url}}
        for path, body in (("/savepoints/restore", restore), ("/jobs", begin)):
            found = ask("POST", f"/api/v1{path}", msgspec.json.encode(body), **token)
            assert (found.code, found.json["code"]) == (404, "BIC-1530"), (path, url)
    chained = {**restore, "url": f"simplecache::file://{place}"}
    found = ask("POST", "/api/v1/savepoints/restore", msgspec.json.encode(chained), **token)
    assert found.code == 422


def test_no_spelling_of_a_plugin_of_another_owner_is_there(ask, tmp_path):
    plugins = ask.service.home.path / "plugins"
    environment = plugins / DIGEST[OTHER] / "environment"
    environment.mkdir(exist_ok=True)
    token = bearer(ask.ada)
    for place in [*spellings_of(environment, tmp_path), str(environment.parent)]:
        options = {"plugin_env": place}
        body = {"plugin": f"{OTHER}-plugin", "name": "new", "options": options}
        both = {**body, "plugin": "ada-plugin", "digest": DIGEST["ada"]}
        for sent in (body, both):
            found = ask("POST", "/api/v1/jobs", msgspec.json.encode(sent), **token)
            assert (found.code, found.json["code"]) == (404, "BIC-2340"), place


def test_nothing_is_written_where_another_owner_has_checkpoints(ask, tmp_path):
    place = ask.service.home.path / "checkpoints" / FOREIGN
    token = bearer(ask.ada)
    for url in spellings_of(place, tmp_path):
        within = {"plugin": "wordcount", "name": "new", "options": {"checkpoint_dir": url}}
        beside = f"/jobs/{OWN}/savepoints"
        for path, body in (
            ("/jobs", within),
            (beside, {"name": "planted", "to": f"{url}/savepoints"}),
        ):
            found = ask("POST", f"/api/v1{path}", msgspec.json.encode(body), **token)
            assert (found.code, found.json["code"]) == (409, "BIC-2332"), (path, url)
    above = {"checkpoint_dir": str(ask.service.home.path), "name": "checkpoints", "url": "/none"}
    found = ask("POST", "/api/v1/savepoints/restore", msgspec.json.encode(above), **token)
    assert (found.code, found.json["code"]) == (409, "BIC-2332")


def test_a_plugin_that_a_job_names_in_another_spelling_is_not_removed(ask, tmp_path):
    home, digest = ask.service.home, DIGEST["ada"]
    environment = home.path / "plugins" / digest / "environment"
    environment.mkdir(exist_ok=True)
    for place in spellings_of(environment, tmp_path):
        if ":" in place or not place.startswith("/"):
            continue  # No command keeps these.
        options = JobOptions(plugin="ada-plugin", plugin_env=place, name=OWN)
        home.folder(OWN).write_request(JobRequest(options=options))
        kept = ask("DELETE", f"/api/v1/plugins/{digest}", **bearer(ask.ada))
        assert (kept.code, kept.json["code"]) == (409, "BIC-2341"), place
    home.folder(OWN).request_path.unlink()


def put_savepoint(place, job):
    """Write the description of a savepoint of a job, without any files."""
    place.mkdir(parents=True)
    savepoint = Savepoint(
        format_version=SAVEPOINT_VERSION, name=place.name, job=job, created_ms=1, epoch=1,
        sealed_ms=1, event_count=1, bundle_digest="", byte_count=0, file_count=0, files=(),
    )  # fmt: skip
    (place / SAVEPOINT_FILES[0]).write_bytes(msgspec.json.encode(savepoint))


def put_checkpoint(place, job):
    """Write the identity file of a checkpoint directory."""
    place.mkdir(parents=True)
    (place / JOB_FILE).write_text(json.dumps({"job": job}))


def reading(place, folder):
    """Return the requests of the REST API that begin a job with what is at a location."""
    begin = {"plugin": "wordcount", "name": "new", "options": {"from_": str(place)}}
    restore = {"url": str(place), "checkpoint_dir": str(folder / "restored"), "name": "new"}
    return (("/jobs", begin), ("/savepoints/restore", restore))


@pytest.mark.parametrize("put", [put_savepoint, put_checkpoint])
@pytest.mark.parametrize("job", [FOREIGN, NOBODYS])
def test_what_a_job_of_others_wrote_elsewhere_is_not_there_either(ask, tmp_path, put, job):
    place = tmp_path / "elsewhere/backup"
    put(place, job)
    for path, body in reading(place, tmp_path):
        found = ask("POST", f"/api/v1{path}", msgspec.json.encode(body), **bearer(ask.ada))
        assert (found.code, found.json["code"]) == (404, "BIC-1530"), path
    method = shapes.DESCRIPTOR.services_by_name["JobManager"].methods_by_name["SubmitJob"]
    sent = {"plugin": "wordcount", "name": "new", "options": {"from_": f"file://{place}"}}
    assert ask.runner.run(call(ask, ask.ada, method, **sent)) == (b"", grpc.StatusCode.NOT_FOUND)


@pytest.mark.parametrize("put", [put_savepoint, put_checkpoint])
def test_nothing_is_written_over_what_a_job_of_others_wrote_elsewhere(ask, tmp_path, put):
    place = tmp_path / "elsewhere/new"
    put(place, FOREIGN)
    begin = {"plugin": "wordcount", "name": "new", "options": {"checkpoint_dir": str(place.parent)}}
    for path, body in (
        ("/jobs", begin),
        (f"/jobs/{OWN}/savepoints", {"name": "planted", "to": str(place)}),
    ):
        found = ask("POST", f"/api/v1{path}", msgspec.json.encode(body), **bearer(ask.ada))
        assert (found.code, found.json["code"]) == (409, "BIC-2332"), path
    form = {"savepoint": "quokka-savepoint", "name": "new", "checkpoint_dir": str(place.parent)}
    page = ask.page(f"/jobs/{OWN}/actions/restore", form, **bearer(ask.ada))
    assert page.code == 409
    assert b"BIC-2332" in page.data


@pytest.mark.parametrize("put", [put_savepoint, put_checkpoint])
@pytest.mark.parametrize("job", [OWN, "of-another-machine"])
def test_what_an_own_job_or_an_unknown_one_wrote_elsewhere_can_be_used(ask, tmp_path, put, job):
    place = tmp_path / "elsewhere/backup"
    put(place, job)
    _, (path, body) = reading(place, tmp_path)
    sent = msgspec.json.encode({**body, "name": f"{job}-{put.__name__}"})
    assert ask("POST", f"/api/v1{path}", sent, **bearer(ask.ada)).code == 202


def test_a_savepoint_elsewhere_is_there_for_who_sees_all_owners(ask, tmp_path):
    place = tmp_path / "elsewhere/backup"
    put_savepoint(place, FOREIGN)
    root = bearer(ask.token(Role.ADMIN, name="root"))
    _, (path, body) = reading(place, tmp_path)
    sent = msgspec.json.encode({**body, "name": "new-of-root"})
    assert ask("POST", f"/api/v1{path}", sent, **root).code == 202
