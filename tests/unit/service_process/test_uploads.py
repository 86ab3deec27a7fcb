"""Wheels through the door: a real service, real requests, and the command that sends them."""

import json
import signal
import uuid

import msgspec
import pytest
from click.testing import CliRunner

from bicycle_runtime.api import shapes
from bicycle_runtime.cli import remote
from bicycle_runtime.cli.root import main
from bicycle_runtime.service.plugins.uploaded_plugins import environment_of
from bicycle_runtime.service.plugins.wheels import UploadedPlugin
from tests.unit.service.test_plugins import demo
from tests.unit.service_process.served import Served

PLUGINS = "/api/v1/plugins"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    service = Served(tmp_path_factory.mktemp("door") / "home").start()
    yield service
    service.end(signal.SIGKILL)


def upload(served, wheel, **headers):
    """Return the last answer: a service that is busy first answers that the upload goes on."""
    body, kind = remote._form({"wheel": wheel})
    sent = {"content_type": kind, "idempotency_key": uuid.uuid4().hex, **headers}
    while (answer := served.ask("POST", PLUGINS, body, **sent))[0] == 202:
        served.ended(json.loads(answer[2])["id"])
    return answer


def test_a_wheel_is_uploaded_listed_and_removed(served, tmp_path):
    wheel = demo(tmp_path)

    made = upload(served, wheel, idempotency_key="one")
    again = upload(served, wheel)
    repeated = upload(served, wheel, idempotency_key="one")
    reused = upload(served, demo(tmp_path / "other", "1.1"), idempotency_key="one")
    digest = json.loads(made[2])["digest"]
    listed = msgspec.convert(served.get(PLUGINS), shapes.PluginList)
    one = msgspec.convert(served.get(f"{PLUGINS}/{digest}"), UploadedPlugin)
    code, _headers, data = served.ask("DELETE", f"{PLUGINS}/{digest}")
    over = served.ended(json.loads(data)["id"])

    assert (made[0], again[0], repeated[0], reused[0]) == (201, 200, 201, 409)
    assert made[1]["location"] == f"{PLUGINS}/{digest}"
    assert made[2] == again[2] == repeated[2]
    assert digest in {each.digest for each in listed.items}
    assert one.plugins == {"demo": "demo:demo"}
    assert (code, over["state"]) == (202, "done")
    assert served.ask("GET", f"{PLUGINS}/{digest}")[0] == 404
    assert served.ask("DELETE", f"{PLUGINS}/{digest}")[0] == 404
    told = [(each["action"], each["outcome"]) for each in served.get("/api/v1/audit")["items"]]
    assert told[-5:] == [
        ("install", "accepted"), ("install", "accepted"), ("POST", "refused"),
        ("remove_plugin", "accepted"), ("DELETE", "refused"),
    ]  # fmt: skip


def test_a_plugin_that_cannot_be_loaded_is_422_with_the_line(served, tmp_path):
    wheel = demo(tmp_path, "6.6", before="raise ValueError('no such table')")

    code, _headers, data = upload(served, wheel)

    told = json.loads(data)
    assert (code, told["code"]) == (422, "BIC-1604")
    assert "ValueError: no such table" in told["message"]
    assert "plugin 'demo' of demo 6.6" in told["message"]
    assert told["location"].startswith("demo/__init__.py:3")


@pytest.mark.parametrize(
    ("name", "data", "code"),
    [("x.zip", b"PK", 422), ("../demo-1.0-py3-none-any.whl", b"PK", 422),
     ("demo-1.0-py3-none-any.whl", b"", 422)],
)  # fmt: skip
def test_what_is_no_wheel_is_422(served, name, data, code):
    body = (
        f'--b\r\nContent-Disposition: form-data; name="wheel"; filename="{name}"\r\n\r\n'.encode()
        + data + b"\r\n--b--\r\n"
    )  # fmt: skip

    found = served.ask("POST", PLUGINS, body, content_type="multipart/form-data; boundary=b")

    assert found[0] == code, found
    assert json.loads(found[2])["code"] == "BIC-2342"


@pytest.mark.parametrize(
    ("body", "kind", "code"),
    [
        (b"{}", "application/json", 415),
        (b"wheel=x", "application/x-www-form-urlencoded", 415),
        (b"--b\r\n", "multipart/form-data", 400),
        (b"junk", "multipart/form-data; boundary=b", 400),
        (b'--b\r\nContent-Disposition: form-data; name="wheel"\r\n\r\nx\r\n--b--\r\n',
         "multipart/form-data; boundary=b", 400),
        (b"".join(b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n' for _ in range(9))
         + b"--b--\r\n", "multipart/form-data; boundary=b", 400),
    ],
)  # fmt: skip
def test_a_body_that_is_no_upload_is_refused_as_documented(served, body, kind, code):
    assert served.ask("POST", PLUGINS, body, content_type=kind)[0] == code


def test_a_form_of_a_foreign_page_uploads_nothing_and_forms_reach_no_other_path(served, tmp_path):
    wheel = demo(tmp_path, "3.0")

    foreign = upload(served, wheel, origin="http://evil.example")
    site = upload(served, wheel, sec_fetch_site="cross-site")
    body, kind = remote._form({"wheel": wheel})
    other = served.ask("POST", "/api/v1/jobs", body, content_type=kind)
    large = served.ask(
        "POST", PLUGINS, b"", content_type=kind, content_length=str(1 << 30)
    )  # fmt: skip

    assert (foreign[0], site[0], other[0], large[0]) == (403, 403, 415, 413)


def test_the_command_uploads_a_wheel_and_starts_its_job_as_it_was_asked_for(
    served, tmp_path, monkeypatch
):
    monkeypatch.setenv("BICYCLE_HOME", str(served.home.path))
    wheel = demo(tmp_path / "wheels", "4.0")
    monkeypatch.chdir(tmp_path)
    words = ["--wheel", str(wheel), "--json", "--checkpoint-dir", "cp"]
    origin = ["--from", str(tmp_path / "nothing")]

    unknown = CliRunner().invoke(main, ["submit", "--plugin", "nothing", *words])
    wrong = CliRunner().invoke(main, ["submit", "--plugin", "demo", *words, "--set", "a=b"])
    refused = CliRunner().invoke(main, ["submit", "--plugin", "demo", *words, *origin])

    assert json.loads(unknown.stdout)["code"] == "BIC-2305"
    assert "it has demo" in json.loads(unknown.stdout)["fix"]
    assert json.loads(wrong.stdout)["code"] == "BIC-1003"  # Before anything is started.
    assert json.loads(refused.stdout)["code"] == "BIC-1914"  # Said by the driver.
    assert unknown.exit_code and wrong.exit_code and refused.exit_code
    operation = served.get("/api/v1/operations?limit=1")["items"][0]
    digest = operation["facts"]["digest"]
    assert operation["kind"] == "submit"
    assert operation["facts"]["options"] == {
        "checkpoint_dir": str(tmp_path / "cp"), "from_": str(tmp_path / "nothing")
    }  # fmt: skip
    assert environment_of(served.home, digest)


def test_the_command_says_when_there_is_no_service(tmp_path, monkeypatch):
    monkeypatch.setenv("BICYCLE_HOME", str(tmp_path))
    wheel = demo(tmp_path, "5.0")
    words = ["submit", "--plugin", "demo", "--wheel", str(wheel), "--json"]

    none = CliRunner().invoke(main, words)
    silent = CliRunner().invoke(main, [*words, "--service", "http://127.0.0.1:9"])
    alone = CliRunner().invoke(main, ["submit", "--plugin", "demo", "--lock", str(wheel)])

    assert json.loads(none.stdout)["code"] == "BIC-2302"
    assert json.loads(silent.stdout)["code"] == "BIC-2010"
    assert "needs --wheel" in alone.output


def test_the_upgrade_command_checks_its_options_before_it_uploads_the_wheel(
    served, tmp_path, monkeypatch
):
    monkeypatch.setenv("BICYCLE_HOME", str(served.home.path))
    wheel = demo(tmp_path, "6.0")
    words = ["upgrade", "nothing", "--wheel", str(wheel), "--json"]

    def versions():
        return {each["version"] for each in served.get(PLUGINS)["items"]}

    wrong = CliRunner().invoke(main, [*words, "--epochs", "0"])
    before = versions()
    unknown = [CliRunner().invoke(main, [*words, *more]) for more in ([], ["--plan-only"])]

    assert json.loads(wrong.stdout)["code"] == "BIC-1101"
    assert "6.0" not in before
    assert "6.0" in versions()
    assert [json.loads(each.stdout)["code"] for each in unknown] == ["BIC-1902"] * 2
    assert "Missing option '--wheel'" in CliRunner().invoke(main, ["upgrade", "nothing"]).output
