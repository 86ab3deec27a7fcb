"""Plugins as a person handles them: a wheel is uploaded, looked at, started, removed."""

from __future__ import annotations

import pytest

from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.options import JobOptions, JobRequest
from bicycle_runtime.jobs.status import JobState
from bicycle_runtime.service.plugins.uploaded_plugins import environment_of, uploaded_plugins
from tests.browser.conftest import keep_picture, serving
from tests.browser.fleets import fleet_in
from tests.browser.test_pages import AXE, LOOKS
from tests.unit.jobs.job_samples import put_job
from tests.unit.service.test_plugins import demo


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with fleet_in(Home(tmp_path_factory.mktemp("plugins"))) as fleet:
        fleet.home.prepare()
        with serving(fleet.home) as url:
            yield fleet.home, url


def upload(page, url, wheel):
    page.goto(f"{url}/plugins")
    page.set_input_files("input[name=wheel]", str(wheel))
    page.click("form[enctype] button")
    page.wait_for_selector(".badge.done, .badge.failed, .notice.bad")


def test_a_wheel_is_uploaded_shown_started_and_removed(opened, site, tmp_path):
    home, url = site
    page, wheel = opened(f"{url}/plugins", expected="409 (Conflict)"), demo(tmp_path, "1.0")
    upload(page, url, wheel)
    page.wait_for_selector("text=demo 1.0 is installed")
    keep_picture(page, "plugin-installed")
    upload(page, url, wheel)
    page.wait_for_selector("text=is already installed")
    upload(page, url, demo(tmp_path, "1.1", before="raise ValueError('<b>no such table</b>')"))
    page.wait_for_selector("text=BIC-1604")
    assert "<b>no such table</b>" in page.inner_text("main")
    keep_picture(page, "plugin-refused")
    digest = uploaded_plugins(home)[0].digest

    page.goto(f"{url}/plugins")
    page.click("text=Start a job")
    page.fill("[name=params]", "a=b")
    page.fill("[name=name]", "from-page")
    page.click("button:has-text('Start')")
    page.wait_for_selector(".notice.bad")
    assert "parameter 'a'" in page.inner_text("main")

    put_job(home, "ended", state=JobState.STOPPED, ended_ms=1)
    options = JobOptions(plugin="demo", plugin_env=environment_of(home, digest), name="ended")
    home.folder("ended").write_request(JobRequest(options=options))
    page.goto(f"{url}/plugins/{digest}/remove")  # The job can be started again with the plugin.
    assert "ended" in page.inner_text(".notice.bad")
    upload(page, url, demo(tmp_path, "1.2"))
    spare = uploaded_plugins(home)[0].digest
    page.goto(f"{url}/plugins/{spare}/remove")
    page.click("button:has-text('Remove')")
    page.wait_for_selector("text=was removed")
    assert [each.digest for each in uploaded_plugins(home)] == [digest]


@pytest.mark.parametrize(("look", "width"), LOOKS)
def test_pages_of_plugins_are_shown_and_accessible(opened, site, look, width, tmp_path):
    home, url = site
    page = opened(f"{url}/plugins", color_scheme=look, viewport={"width": width, "height": 860})
    upload(page, url, demo(tmp_path, "2.0"))
    text = page.inner_text("main")
    assert "is installed" in text or "is already installed" in text
    digest = uploaded_plugins(home)[0].digest
    put_job(home, "needs-it", state=JobState.STOPPED, ended_ms=1)
    options = JobOptions(plugin="demo", plugin_env=environment_of(home, digest), name="needs-it")
    home.folder("needs-it").write_request(JobRequest(options=options))
    put_job(home, "runs", is_ours=True, plugin="demo", plugin_version="1.4")
    assert page.request.get(f"{url}/api/v1/jobs/runs").ok  # Answered once the job was seen.
    serious = {}
    for name, path in {
        "plugins": "/plugins", "plugin-upgrade": "/jobs/runs/actions/upgrade",
        "plugin-start": f"/plugins/{digest}/start",
        "plugin-remove": f"/plugins/{digest}/remove", "plugin-operation": "/plugins/operations/1",
    }.items():  # fmt: skip
        page.goto(url + path)
        keep_picture(page, f"{name}-{look}-{width}")
        page.evaluate(AXE.read_text("utf-8"))
        for each in page.evaluate("axe.run()")["violations"]:
            if each["impact"] in ("serious", "critical"):
                serious[name, each["id"]] = [node["html"] for node in each["nodes"]]
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name

    assert serious == {}
