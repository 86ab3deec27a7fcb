"""Uploaded plugins: real wheels in real environments, built without a network."""

import json
import signal
import subprocess

import pytest

from bicycle_runtime.extraction.errors import (
    ENVIRONMENT_CONFLICT,
    PLUGIN_RAISED,
    PLUGIN_TIMED_OUT,
)
from bicycle_runtime.extraction.extract import extract
from bicycle_runtime.extraction.limits import ExtractionLimits
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.options import JobOptions, JobRequest
from bicycle_runtime.jobs.plugins.environments import find_plugin
from bicycle_runtime.jobs.status import JobState
from bicycle_runtime.jobs.upgrading.notes import UpgradeNote, UpgradeStep, write_upgrade
from bicycle_runtime.service.address import queue_folder
from bicycle_runtime.service.errors import OPERATION_FACTS_INVALID, OPERATION_KEY_REUSED
from bicycle_runtime.service.plugins import builder_child
from bicycle_runtime.service.plugins.building import BuildLimits, build_environment
from bicycle_runtime.service.plugins.errors import (
    ENVIRONMENT_NOT_BUILT,
    LOCK_INCOMPLETE,
    PLUGIN_IN_USE,
    PLUGIN_UNKNOWN,
    UPLOAD_GONE,
    WHEEL_REFUSED,
)
from bicycle_runtime.service.plugins.uploaded_plugins import (
    Plugins,
    environment_of,
    install_plugin,
    remove_plugin,
    uploaded_plugins,
)
from bicycle_runtime.service.plugins.wheels import file_digest
from bicycle_runtime.service.service import Service
from bicycle_sdk.clock import SystemClock
from bicycle_streams.access.control import CONTROL
from bicycle_streams.access.opening import database_of
from bicycle_streams.access.roles import LOCAL
from tests.cluster.wheels import write_wheel
from tests.raising import raises
from tests.unit.jobs.job_samples import put_job
from tests.unit.service.test_service import put_open
from tests.waiting import PATIENCE_S, until

JOB = """
from bicycle_sdk import StreamEnvironment, bicycle_plugin
{before}
@bicycle_plugin(name="demo", version="{version}")
def demo(env: StreamEnvironment) -> None:
    env.from_collection(["{version}"]).collect("out")
"""


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    home.prepare()
    return home


def demo(folder, version="1.0", *, before="", **more):
    text = JOB.format(version=version, before=before)
    return write_wheel(
        folder, "demo", version, {"demo/__init__.py": text}, plugins={"demo": "demo:demo"}, **more
    )


def receive(home, wheel, lock=None):
    with wheel.open("rb") as stream:
        return Plugins(home).receive(wheel.name, stream, lock, owner="ada")


def installed(home, wheel, lock=None, **more):
    return install_plugin(home, receive(home, wheel, lock), clock=SystemClock(), **more)


def names(home, folder):
    return sorted(path.name for path in (home.path / folder).iterdir())


def test_a_wheel_becomes_an_environment_and_the_same_one_again_is_the_same(home, tmp_path):
    wheel = demo(tmp_path)

    first, is_new = installed(home, wheel)
    again, is_new_again = installed(home, wheel)

    assert (is_new, is_new_again) == (True, False)
    assert first == again
    assert (first.name, first.version, first.owner) == ("demo", "1.0", "ada")
    assert first.plugins == {"demo": "demo:demo"}
    assert names(home, "plugins") == sorted([first.digest, "uploads"])
    assert names(home, "plugins/uploads") == []
    options = JobOptions(plugin="demo", plugin_env=environment_of(home, first.digest))
    bundle = extract(find_plugin(options, home).ref, {})
    assert bundle.plugin_version == "1.0"


def test_a_version_stays_what_it_is_while_another_is_installed(home, tmp_path):
    first, _ = installed(home, demo(tmp_path / "a"))
    options = JobOptions(plugin="demo", plugin_env=environment_of(home, first.digest))
    before = extract(find_plugin(options, home).ref, {})

    second, _ = installed(home, demo(tmp_path / "b", "2.0"))
    after = extract(find_plugin(options, home).ref, {})

    assert first.digest != second.digest
    assert [each.version for each in uploaded_plugins(home)] == ["2.0", "1.0"]
    assert (before.digest, before.plugin_version) == (after.digest, after.plugin_version)


def locked(*wheels):
    lines = []
    for wheel in wheels:
        name, version, *_ = wheel.name.split("-")
        lines.append(f"{name}=={version} --hash=sha256:{file_digest(wheel)}")
    return ("\n".join(lines) + "\n").encode()


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A folder that stands for an index, and is all that the installer sees."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    return folder


def test_libraries_come_from_the_lock_file_with_the_hashes_it_names(home, tmp_path, shelf):
    colors = write_wheel(shelf, "colors", "2.0", {"colors.py": "RED = 1\n"})
    before = "import colors"
    wheel = demo(tmp_path, before=before, requires=["colors>=2", "bicycle-sdk"])

    with raises(LOCK_INCOMPLETE) as unlocked:
        receive(home, wheel)
    with raises(ENVIRONMENT_NOT_BUILT) as forged:
        installed(home, wheel, locked(colors).replace(b"sha256:", b"sha256:00")[:-3] + b"\n")
    # What the runtime holds itself is not installed, whatever the lock file says of it.
    lock = locked(colors) + b"pyspark==9.9 --hash=sha256:" + b"0" * 64 + b"\n"
    found, _ = installed(home, wheel, lock)

    assert unlocked.value.facts["missing_text"] == "colors"
    assert "hash" in forged.value.facts["reason"].lower()
    assert (found.libraries, found.has_lock) == (["colors 2.0"], True)


def test_a_lock_file_that_lacks_a_library_is_refused(home, tmp_path, shelf):
    deep = write_wheel(shelf, "deep", "1.0", {"deep.py": ""}, requires=["deeper"])
    wheel = demo(tmp_path, requires=["deep"])

    with raises(LOCK_INCOMPLETE) as caught:
        installed(home, wheel, locked(deep))

    assert caught.value.facts["missing_text"] == "deeper"
    assert uploaded_plugins(home) == []


def test_a_plugin_that_cannot_be_loaded_is_refused_with_the_line_and_leaves_nothing(home, tmp_path):
    wheel = demo(tmp_path, before="raise ValueError('no such table')")

    with raises(PLUGIN_RAISED) as caught:
        installed(home, wheel)

    facts = caught.value.facts
    assert facts["location"].startswith("demo/__init__.py:3")
    assert "no such table" in str(caught.value)
    assert facts["dist"] == "demo 1.0"
    assert str(home.path) not in str(caught.value)
    assert names(home, "plugins") == ["uploads"]
    assert names(home, "plugins/uploads") == []


def test_one_that_hangs_when_it_is_imported_is_given_up(home, tmp_path):
    wheel = demo(tmp_path, before="while True: pass")

    with raises(PLUGIN_TIMED_OUT):
        installed(home, wheel, extraction=ExtractionLimits(wall_time_ms=1_500))


def test_one_that_cannot_live_beside_the_runtime_is_refused(home, tmp_path, shelf):
    wheel = demo(tmp_path, requires=["msgspec<0.1"])

    with raises(ENVIRONMENT_CONFLICT):
        installed(home, wheel)


def test_a_name_that_is_a_path_is_refused(home, tmp_path):
    wheel = demo(tmp_path)
    for name in ("../demo-1.0-py3-none-any.whl", "/tmp/demo-1.0-py3-none-any.whl", "", "x"):
        with wheel.open("rb") as stream, raises(WHEEL_REFUSED):
            Plugins(home).receive(name, stream, None, owner="ada")


def test_files_that_went_before_they_were_installed_are_told(home, tmp_path):
    facts = receive(home, demo(tmp_path))
    for path in sorted((home.path / "plugins/uploads").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()

    with raises(UPLOAD_GONE):
        install_plugin(home, facts, clock=SystemClock())


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (BuildLimits(wall_time_ms=100), "100 ms"),
        (BuildLimits(disk_bytes=1 << 20), "bytes of disk"),
    ],
)
def test_a_build_is_given_up_at_its_bounds_and_its_processes_end(tmp_path, shelf, limits, words):
    big = write_wheel(shelf, "big", "1.0", {"big.txt": "x" * (3 << 20)})
    folder = tmp_path / "build"
    folder.mkdir()

    with raises(ENVIRONMENT_NOT_BUILT) as caught:
        build_environment(folder, locked(big).decode().splitlines(), title="big", limits=limits)

    assert words in caught.value.facts["reason"] or "File too large" in str(caught.value)


def test_a_builder_ends_with_its_parent(tmp_path):
    folder = tmp_path / "build"
    folder.mkdir()
    words = [builder_child.sys.executable, "-m", builder_child.__name__]
    child = subprocess.Popen(
        [*words, "0,1,2", "build", str(folder), str(1 << 31), str(1 << 31)],
        stdin=subprocess.PIPE, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip

    child.stdin.close()  # As when the parent is killed.

    assert child.wait(PATIENCE_S) == -signal.SIGKILL


def test_uv_is_taken_where_it_is_installed(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    by_pip = builder_child.installer("python")
    program = tmp_path / "uv"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    by_uv = builder_child.installer("python")

    assert by_uv[:4] == [str(program), "pip", "install", "--python"]
    for command in (by_pip, by_uv):
        assert command[-4:] == ["--require-hashes", "--no-deps", "--only-binary", ":all:"]


def test_a_plugin_stays_while_a_job_may_go_on_with_it(home, tmp_path):
    plugin, _ = installed(home, demo(tmp_path))
    environment = environment_of(home, plugin.digest)
    folder = put_job(home, "job", state=JobState.STOPPED, ended_ms=1)
    options = JobOptions(plugin="demo", plugin_env=environment, name="job")
    (folder or home.folder("job")).write_request(JobRequest(options=options))

    with raises(PLUGIN_IN_USE) as caught:
        remove_plugin(home, plugin.digest)
    assert "it is used by 1 job" in str(caught.value)
    assert Plugins(home).get(plugin.digest).jobs == ["job"]
    put_job(home, "job", state=JobState.FINISHED, ended_ms=1)
    home.folder("job").write_request(JobRequest(options=options))
    remove_plugin(home, plugin.digest)

    assert uploaded_plugins(home) == []
    with raises(PLUGIN_UNKNOWN):
        environment_of(home, plugin.digest)


def test_a_plugin_stays_while_a_waiting_start_or_an_upgrade_needs_it(home, tmp_path):
    plugin, _ = installed(home, demo(tmp_path))
    path = queue_folder(home) / "7.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"plugin": "demo", "digest": plugin.digest, "name": "later"}))
    with raises(PLUGIN_IN_USE):
        remove_plugin(home, plugin.digest)
    assert Plugins(home).get(plugin.digest).jobs == ["later"]
    path.unlink()

    former = put_job(home, "job").read_request().to_json()
    options = JobOptions(plugin="demo", plugin_env=environment_of(home, plugin.digest), name="job")
    wanted = JobRequest(options=options).to_json()
    note = UpgradeNote(token="t", step=UpgradeStep.FOLLOW, former=former, wanted=wanted, plan={})
    write_upgrade(home, "job", note)
    with raises(PLUGIN_IN_USE):
        remove_plugin(home, plugin.digest)


@pytest.mark.parametrize("digest", ["..", "", "uploads", "0" * 64, "../plugins"])
def test_a_digest_is_no_path(home, digest):
    with raises(PLUGIN_UNKNOWN):
        environment_of(home, digest)


def opened(home):
    return Service(home, clock=SystemClock())


def over(service, operation):
    def look():
        found = service.operations.get(operation.id)
        return found if found.is_over else None

    return until(look, f"operation {operation.id}")


def asked(service, wheel, **more):
    with wheel.open("rb") as stream:
        facts = service.plugins.receive(wheel.name, stream, None, owner="ada")
    plain = {"digest": facts.digest, "file": facts.file, "owner": "ada", "has_lock": False}
    return service.operations.ask("install", None, plain, identity=LOCAL, **more)


def test_a_killed_service_installs_what_it_had_begun_and_removes_the_rest(home, tmp_path):
    with opened(home):
        pass
    facts = receive(home, demo(tmp_path))
    plain = {"digest": facts.digest, "file": facts.file, "owner": "ada", "has_lock": False}
    tables = database_of(
        home.path / "service", "control", CONTROL, server=None, synchronous="NORMAL"
    )
    with tables as control:
        put_open(control, "install", "", plain)
    (home.path / "plugins" / f".building-{facts.digest}").mkdir()
    (home.path / "plugins/uploads" / ("0" * 64)).mkdir()

    with opened(home) as service:
        found = over(service, service.operations.get(1))

    assert found.state == "done", found
    assert [each.version for each in uploaded_plugins(home)] == ["1.0"]
    assert names(home, "plugins") == sorted([facts.digest, "uploads"])
    assert names(home, "plugins/uploads") == []


def test_a_key_is_for_one_upload(home, tmp_path):
    first, second = demo(tmp_path / "a"), demo(tmp_path / "b", "2.0")
    with opened(home) as service:
        one = asked(service, first, key="k")
        same = asked(service, first, key="k")
        with raises(OPERATION_KEY_REUSED):
            asked(service, second, key="k")
        done = over(service, one)

    assert one.id == same.id
    assert done.result["is_new"]


def test_a_job_names_a_digest_that_is_there_and_no_environment_beside(home, tmp_path):
    plugin, _ = installed(home, demo(tmp_path))
    with opened(home) as service:
        with raises(PLUGIN_UNKNOWN):
            service.operations.ask(
                "submit", None, {"plugin": "demo", "digest": "0" * 64}, identity=LOCAL
            )
        with raises(OPERATION_FACTS_INVALID):
            facts = {
                "plugin": "demo", "digest": plugin.digest, "options": {"plugin_env": "/x"},
            }  # fmt: skip
            service.operations.ask("submit", None, facts, identity=LOCAL)
        gone = service.operations.ask(
            "remove_plugin", None, {"digest": plugin.digest}, identity=LOCAL
        )
        assert over(service, gone).state == "done"
        actions = [(each.action, each.target) for each in service.history.audit()]

    assert actions == [("remove_plugin", "")]
