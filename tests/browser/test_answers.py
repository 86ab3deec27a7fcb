"""What pages answer without a browser: every tab of every job, text of others, wrong addresses."""

from __future__ import annotations

import urllib.request
from urllib.error import HTTPError

import pytest

from bicycle_runtime.webui.pages.job import TABS
from tests.browser.fleets import LONG_NAME, MARKUP
from tests.waiting import until

pytestmark = pytest.mark.core
JOBS = (
    "clicks", "orders-eu", "payments", LONG_NAME, "sessions", "warehouse-load", "clean-up",
    "starting",
)  # fmt: skip


def answer(address: str) -> tuple[int, str, str]:
    """Return status, body, and how long it may be kept."""
    try:
        with urllib.request.urlopen(address) as found:
            return found.status, found.read().decode(), found.headers["Cache-Control"]
    except HTTPError as error:
        with error:
            return error.code, error.read().decode(), error.headers["Cache-Control"]


@pytest.fixture(scope="module")
def ready(url):
    """The address, once the service has seen the jobs."""
    until(lambda: all(name in answer(f"{url}/jobs")[1] for name in JOBS), "the jobs")
    return url


@pytest.mark.parametrize("tab", [tab.name for tab in TABS])
def test_every_page_of_every_job_is_made_whatever_its_job_lacks(ready, tab):
    found = {name: answer(f"{ready}/jobs/{name}/{tab}".rstrip("/"))[0] for name in JOBS}

    assert found == dict.fromkeys(JOBS, 200)


def test_a_key_is_found_and_two_epochs_are_compared(ready):
    base = f"{ready}/jobs/clicks/state"
    found = answer(f"{base}?ask=find&operator=count-by-user&key=ada")[1]
    assert "<code>&#34;ada&#34;</code>" in found
    assert "<code>3</code>" in found
    assert "no such entry" in answer(f"{base}?ask=find&key=nobody")[1]
    assert "1 added, 0 removed, 0 changed" in answer(f"{base}?ask=diff")[1]
    assert "1 added, 0 removed, 2 changed" in answer(f"{base}?ask=diff&since=2")[1]
    assert "accumulator" in answer(f"{base}?ask=count")[1]
    assert "BIC-1930" in answer(f"{base}?ask=find&operator=nobody&key=1")[1]


def test_text_of_others_is_never_markup(ready):
    for path in ("/", "/jobs", "/jobs/orders-eu/exceptions", "/jobs/clicks/logs", "/jobs/clicks"):
        body = answer(ready + path)[1]
        assert MARKUP not in body, path
        assert "&lt;script&gt;alert(" in body, path


def test_what_is_not_there_is_told_and_named(ready):
    status, body, _ = answer(f"{ready}/jobs/nobody")
    assert (status, "BIC-1902" in body) == (404, True)
    status, body, _ = answer(f"{ready}/jobs?sort=shoe-size")
    assert (status, "shoe-size" in body) == (400, True)
    assert answer(f"{ready}/jobs?after=nonsense")[0] == 400
    assert answer(f"{ready}/live/jobs/nobody/overview")[0] == 404


def test_files_are_kept_for_ever_and_nothing_else_is_found_there(ready):
    page = answer(ready)[1]
    base = next(word for word in page.split('"') if word.endswith("/app.css")).rpartition("/")[0]

    status, _, kept = answer(f"{ready}{base}/app.css")
    assert (status, "immutable" in kept) == (200, True)
    for path in ("../templates/base.html", "%2e%2e/site.py", "vendor", "vendor/vendor.lock", ""):
        assert answer(f"{ready}{base}/{path}")[0] == 404, path


def test_an_action_that_does_not_fit_leads_back_to_its_job(ready):
    with urllib.request.urlopen(f"{ready}/jobs/warehouse-load/actions/cancel") as found:
        assert found.url == f"{ready}/jobs/warehouse-load"
