"""Locations that requests name: no spelling of one leads to what belongs to another owner."""

import os
import sqlite3
from contextlib import closing

import msgspec
import pytest

from bicycle_runtime.jobs.options import JobOptions, JobRequest
from bicycle_runtime.jobs.savepoints.paths import SAVEPOINT_FILES
from bicycle_runtime.jobs.status import JobState
from bicycle_runtime.service.users.roles import Role
from tests.unit.api.asking import DAY_MS, asked_of
from tests.unit.api.test_owners import DIGEST, FOREIGN, OTHER, OWN, bearer, put_plugin
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
        found.service.owners.load()
        found.service.watcher.wake()
        until(lambda: found.service.fleet.view.get(OWN), "the look at its jobs")
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
