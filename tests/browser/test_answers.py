"""What pages answer without a browser: every tab of every job, text of others, wrong addresses."""

from __future__ import annotations

import re
import urllib.request
from urllib.error import HTTPError
from urllib.parse import quote

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
    assert "No entry matches." in answer(f"{base}?ask=find&key=nobody")[1]
    assert "1 added, 0 removed, 0 changed" in answer(f"{base}?ask=diff")[1]
    assert "1 added, 0 removed, 2 changed" in answer(f"{base}?ask=diff&since=2")[1]
    assert "accumulator" in answer(f"{base}?ask=count")[1]
    assert "BIC-1930" in answer(f"{base}?ask=find&operator=nobody&key=1")[1]


def test_text_of_others_is_never_markup(ready):
    for path in ("/", "/jobs", "/jobs/orders-eu/exceptions", "/jobs/clicks/logs", "/jobs/clicks"):
        body = answer(ready + path)[1]
        assert MARKUP not in body, path
        assert "&lt;script&gt;alert(" in body, path


def test_the_list_of_keys_names_each_page_of_a_job(ready):
    body = answer(f"{ready}/jobs/clicks")[1]
    keys = body.partition('id="keys"')[2].partition("</dialog>")[0]
    line, names = keys.partition("<kbd>g</kbd> then")[2].split("</dd>")[0].split("<dd>")

    assert re.findall(r"<kbd>(.)</kbd>", line) == [tab.key for tab in TABS]
    told = names.removesuffix(" of a job").split(", ")
    assert told == [tab.title.lower() for tab in TABS]


def test_what_is_not_there_is_told_and_named(ready):
    status, body, _ = answer(f"{ready}/jobs/nobody")
    assert (status, "BIC-1902" in body) == (404, True)
    status, body, _ = answer(f"{ready}/jobs?sort=shoe-size")
    assert (status, "shoe-size" in body) == (400, True)
    assert answer(f"{ready}/jobs?after=nonsense")[0] == 400
    assert answer(f"{ready}/live/jobs/nobody/overview")[0] == 404


def test_an_address_that_is_not_there_is_a_page_for_people_and_json_for_programs(ready):
    for path in ("/jbos", "/jobs/clicks/tasks", "/api/v1/nothing"):
        for kind in ("text/html,*/*;q=0.8", "application/json"):
            request = urllib.request.Request(ready + path, headers={"Accept": kind})
            with pytest.raises(HTTPError) as refused:
                urllib.request.urlopen(request)
            with refused.value as error:
                body = error.read().decode()
            assert (error.code, "BIC-2401" in body) == (404, True), path
            is_page = "html" in kind and not path.startswith("/api/")
            assert ("<h1>Not found</h1>" in body) == is_page, (path, kind)


def test_a_number_that_nobody_has_is_none(ready):
    for number in ("9" * 5_000, "\u0663", "-1", "x"):
        word = quote(number)
        for path in ("epochs?after=", "logs?after=", "state?ask=count&epoch="):
            assert answer(f"{ready}/jobs/clicks/{path}{word}")[0] == 200, (path, number[:9])
        assert answer(f"{ready}/audit?before={word}")[0] == 200
        assert answer(f"{ready}/plugins/operations/{word}")[0] == 404


def test_a_form_that_cannot_be_read_is_told_as_that(ready):
    for kind, body in (
        ("application/x-www-form-urlencoded", b"job=a&" * 2_000),
        ("multipart/form-data; boundary=b", b"junk"),
    ):
        head = {"Content-Type": kind, "Origin": ready}
        with pytest.raises(HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(f"{ready}/bulk/stop", body, head))
        with refused.value as error:
            assert (error.code, b"BIC-2404" in error.read()) == (400, True), kind


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
