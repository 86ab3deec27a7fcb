"""Every page in Chromium, with jobs in every state: it says what it should, without complaint."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.status import JobState
from tests.browser.conftest import is_live, keep_picture, serving
from tests.browser.fleets import fleet_in, now_ms
from tests.waiting import PATIENCE_S, until

PAGES = {
    "dashboard": "/",
    "jobs": "/jobs",
    "overview": "/jobs/clicks",
    "overview-failed": "/jobs/orders-eu",
    "graph": "/jobs/clicks/graph",
    "epochs": "/jobs/clicks/epochs",
    "savepoints": "/jobs/clicks/savepoints",
    "exceptions": "/jobs/orders-eu/exceptions",
    "dead-letters": "/jobs/clicks/dead-letters",
    "state": "/jobs/clicks/state?ask=find&operator=count-by-user&key=ada",
    "state-diff": "/jobs/clicks/state?ask=diff&since=2",
    "state-count": "/jobs/clicks/state?ask=count",
    "logs": "/jobs/clicks/logs",
    "config": "/jobs/clicks/config",
    "metrics": "/metrics-explorer?job=clicks",
    "workers": "/workers",
    "streams": "/streams",
    "confirm": "/jobs/clicks/actions/cancel",
    "bulk": "/bulk/stop?job=clicks&job=payments",
    "plugins-empty": "/plugins",
    "audit": "/audit",
    "login": "/login",
}
STREAMLESS = {"confirm", "bulk", "plugins-empty", "audit", "login"}
LOOKS = [("light", 1280), ("dark", 1280), ("light", 400), ("dark", 400)]
AXE = Path(__file__).with_name("axe-core-4.14.1") / "axe.min.js"


@pytest.mark.parametrize(("look", "width"), LOOKS)
def test_pages_are_shown_and_accessible(opened, url, look, width):
    page = opened(url, color_scheme=look, viewport={"width": width, "height": 860})
    source, serious = AXE.read_text("utf-8"), {}
    page.request.post(f"{url}/api/v1/jobs/clicks/rescale", data={})  # Refused: a line of the log.
    for name, path in PAGES.items():
        page.goto(url + path)
        if name not in STREAMLESS:
            is_live(page)
        if name in ("graph", "streams"):
            page.wait_for_selector("#drawing[data-drawn]")
        if name == "audit":
            assert "/api/v1/jobs/clicks/rescale" in page.inner_text("table.audit")
        keep_picture(page, f"{name}-{look}-{width}")
        page.evaluate(source)
        found = page.evaluate("axe.run()")["violations"]
        for each in found:
            if each["impact"] in ("serious", "critical"):
                serious[name, each["id"]] = [node["html"] for node in each["nodes"]]
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name

    assert serious == {}


@pytest.mark.core
def test_rows_follow_their_jobs_and_nothing_else_of_the_page_changes(opened, fleet, url):
    page = opened(f"{url}/jobs")
    is_live(page)
    page.fill("#filter", "half a wor")
    page.check("#job-clicks input")
    page.focus("#filter")
    page.evaluate("for (const e of document.querySelectorAll('*')) e.isOld = true")

    fleet.change("clicks", epoch=8_812, records_per_second=51_000.0)
    page.wait_for_selector("#job-clicks:has-text('51 k')")

    assert page.evaluate("[...document.querySelectorAll('*')].every(e => e.isOld)")
    assert page.evaluate("document.activeElement.id") == "filter"
    assert page.input_value("#filter") == "half a wor"
    assert page.is_checked("#job-clicks input")


def test_a_row_that_leaves_the_filter_stays_greyed_until_the_next_look(opened, fleet, url):
    fleet.put("to-finish", has_begun=True)
    page = opened(f"{url}/jobs?text=to-finish")
    until(
        lambda: page.goto(f"{url}/jobs?text=to-finish") and page.locator("a.row").count(), "a row"
    )
    page.select_option("#state", "RUNNING")
    page.click("button:has-text('Filter')")
    page.wait_for_selector("tr#job-to-finish:not(.left)")
    is_live(page)

    fleet.change("to-finish", state=JobState.FINISHED, ended_ms=now_ms())

    page.wait_for_selector("tr#job-to-finish.left .badge.FINISHED")
    page.goto(f"{url}/jobs?text=to-finish&state=RUNNING")
    assert "No job matches" in page.inner_text("main")


def test_the_head_of_a_job_shows_what_was_asked_of_it(opened, fleet, url):
    fleet.put("to-cancel", has_begun=True)
    page = opened(url)
    address = f"{url}/jobs/to-cancel"
    until(lambda: page.request.get(address).ok, "the job")  # A page would complain of each 404.
    page.goto(address)
    is_live(page)

    page.click("[data-dialog=ask-cancel]")
    dialog = page.locator("dialog[open]")
    assert "end at once" in dialog.inner_text()
    dialog.locator("text=Keep it running").click()
    assert fleet.processes["to-cancel"].poll() is None
    page.click("[data-dialog=ask-cancel]")
    dialog.locator("button").click()

    page.wait_for_selector("#job-head .badge:text-matches('CANCEL')")
    assert fleet.processes["to-cancel"].wait(PATIENCE_S) is not None


def test_the_place_of_a_savepoint_is_shown_whole_on_a_phone(opened, fleet, url):
    place = f"/data/{'checkpoints' * 5}/payments/savepoints/before-upgrade"
    told = json.dumps({"url": place})
    sql = (
        "INSERT INTO operations (actor, body_digest, job, kind, facts, state, asked_ms, ended_ms,"
        " result) VALUES ('ada', '', 'payments', 'savepoint', '{}', 'done', ?, ?, ?)"
    )
    with closing(sqlite3.connect(fleet.home.path / "service/control.db")) as book, book:
        book.execute(sql, (now_ms(), now_ms(), told))

    page = opened(f"{url}/jobs/payments", viewport={"width": 400, "height": 860})

    assert place in page.inner_text("#job-head")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_a_narrow_page_shows_all_tabs(opened, url):
    page = opened(f"{url}/jobs/payments", viewport={"width": 400, "height": 860})
    tabs = "[...document.querySelectorAll('.tabs a')]"

    assert page.evaluate(f"{tabs}.length") > 5
    assert (
        page.evaluate(f"Math.max(...{tabs}.map(each => each.getBoundingClientRect().right))") <= 400
    )


def test_the_log_is_followed(opened, fleet, url):
    page = opened(f"{url}/jobs/sessions/logs")
    is_live(page)
    before = page.locator("#log .entry").count()
    with fleet.home.folder("sessions").log_path.open("a") as log:
        log.write("2026-11-23 21:00:00 INFO <b>the last line</b>\n")

    page.wait_for_selector("#log .entry:has-text('<b>the last line</b>')")
    assert page.locator("#log .entry").count() == before + 1


def test_an_operator_of_the_drawing_leads_to_its_numbers_which_stay_open(opened, fleet, url):
    page = opened(f"{url}/jobs/clicks/graph")
    page.locator("#drawing a", has_text="count by user").click()
    details = page.locator("details[open]")
    shown = details.inner_text()
    parts = ("limited by orders/3", "2.4 \u00d7", "user-17 22 %")
    assert [part for part in parts if part not in shown] == []
    page.evaluate("document.querySelector('#drawing svg').isOld = true")

    operators = fleet.home.folder("clicks").status().operators
    operators["count-by-user"].records_in = 7_777_777
    fleet.change("clicks", operators=operators)

    page.wait_for_selector("#drawing a:has-text('7.78 M')")
    assert details.count() == 1
    assert page.evaluate("document.querySelector('#drawing svg').isOld")


def test_a_source_shows_event_time_and_lag_of_each_partition_and_its_backpressure(opened, url):
    page = opened(f"{url}/jobs/clicks/graph")
    page.locator("#drawing a", has_text="clicks").first.click()
    details = page.locator("details[open]")
    first, behind = (row.inner_text().split() for row in details.locator("tbody tr").all())

    assert first[0] == "0"
    assert first[-2:] == ["2026-11-18", "11:06:40"]
    assert behind[:6] == ["3", "idle", "1.2", "M,", "40.0", "s"]
    assert "29 % of the last minute" in details.inner_text()
    page.set_viewport_size({"width": 400, "height": 860})
    table = details.locator("table").bounding_box()
    assert table["x"] + table["width"] <= 400


def test_charts_are_drawn_of_samples(opened, url):
    page = opened(f"{url}/jobs/clicks")

    page.wait_for_selector("[data-chart=lag_records][data-drawn] canvas")
    drawn = page.locator("[data-chart=lag_records]")
    first = int(drawn.get_attribute("data-drawn"))  # Nothing changes about this job meanwhile.
    until(lambda: int(drawn.get_attribute("data-drawn")) > first, "a sample of a job at rest")
    page.goto(f"{url}/metrics-explorer?job=clicks")
    page.wait_for_selector("[data-chart=lag_records][data-drawn] canvas")
    assert page.locator("section:has([data-chart=lag_bytes])").is_hidden()  # It tells none.
    page.select_option("[name=operator]", "parse")
    page.wait_for_selector("[data-chart=busy_share][data-drawn] canvas")
    assert "Metrics of parse of clicks" in page.inner_text("main")


def test_edges_of_the_drawing_and_the_first_page_tell_the_pace_of_now(opened, fleet, url):
    page = opened(f"{url}/jobs/clicks/graph")
    page.wait_for_selector("#drawing[data-drawn]")
    operators = fleet.home.folder("clicks").status().operators
    operators["parse"].records_out += 5_000
    fleet.change("clicks", operators=operators, updated_ms=now_ms() + 2_000)

    page.wait_for_selector("#drawing text[data-edge]:text-matches('[0-9]/s$')")
    assert page.locator("#drawing a.busy-3", has_text="parse").count() == 1
    page.goto(f"{url}/jobs/clicks")
    page.wait_for_selector("p.limit:has-text('parse')")


def test_epochs_are_bars_of_their_phases_on_one_scale(opened, url):
    page = opened(f"{url}/jobs/clicks/epochs")
    bars = page.locator("table.epochs svg")

    def width(row):
        pieces = bars.nth(row).locator("rect")
        return sum(int(piece.get_attribute("width")) for piece in pieces.all())

    assert bars.count() == 20
    assert 999 <= width(0) <= 1_001  # The newest is the longest.
    assert 229 <= width(19) <= 233
    assert "run 720 ms" in bars.first.get_attribute("aria-label")


def test_keys_lead_through_the_list(opened, url):
    page = opened(f"{url}/jobs")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "filter"
    page.locator("h1").click()
    page.keyboard.press("j")
    page.keyboard.press("j")
    second = page.locator("a.row").nth(1)
    assert second.evaluate("e => e === document.activeElement")
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()
    page.keyboard.press("Escape")
    second.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/*")
    page.keyboard.press("g")
    page.keyboard.press("l")
    page.wait_for_url("**/logs")


def test_pages_work_without_scripts(opened, fleet, url):
    fleet.put("to-stop", has_begun=True)
    page = opened(f"{url}/jobs?text=orders", java_script_enabled=False)
    assert page.locator("a.row").all_inner_texts() == ["orders-eu"]
    page.click("a.row")
    page.click("nav >> text=Exceptions")
    assert "BIC-2107" in page.inner_text("main")
    until(lambda: page.request.get(f"{url}/jobs/to-stop").ok, "the job")
    page.goto(f"{url}/jobs/to-stop")
    page.click("[data-dialog=ask-drain]")

    assert "Drain to-stop?" in page.inner_text("h1")


def test_two_hundred_jobs_come_in_pages_in_the_order_that_is_asked_for(opened, tmp_path):
    home = Home(tmp_path)
    with fleet_in(home) as many:
        for number in range(200):
            ended = {"state": JobState.FINISHED, "ended_ms": 9_000}
            many.put(f"job-{number:03}", record_count=number, **ended)
        with serving(home) as url:
            page = opened(f"{url}/jobs?sort=name")
            assert "50 of 200" in page.inner_text("main")
            page.click("text=next")
            assert page.locator("a.row").first.inner_text() == "job-050"
            page.click("thead >> text=name")
            assert page.locator("a.row").first.inner_text() == "job-199"
            keep_picture(page, "jobs-200")
            page.close()


def test_a_failed_job_is_dismissed_from_its_page_and_can_be_started_again(opened, fleet, url):
    failed = {"state": JobState.FAILED, "started_ms": 5, "ended_ms": now_ms()}
    fleet.put("broken", **failed, error={"code": "BIC-1", "message": "no", "fix": "repair it"})
    page = opened(url)
    until(lambda: page.request.get(f"{url}/jobs/broken").ok, "the job")
    page.goto(f"{url}/jobs/broken")
    is_live(page)
    keep_picture(page, "job-that-failed")
    assert page.locator("[data-dialog=ask-resume]").inner_text() == "Resume"
    page.click("[data-dialog=ask-dismiss]")
    page.locator("dialog[open] button[type=submit]").click()
    page.wait_for_url("**/jobs/broken")
    page.wait_for_selector("[data-dialog=ask-dismiss]", state="detached")
    keep_picture(page, "job-dismissed")
    page.goto(url)

    assert page.locator("#urgent-broken").count() == 0


def test_the_head_of_a_job_shows_an_operation_while_it_is_news(opened, fleet, url):
    fleet.put("old-news", state=JobState.STOPPED, started_ms=5, ended_ms=now_ms())
    page = opened(url)
    until(lambda: page.request.get(f"{url}/jobs/old-news").ok, "the job")
    place = fleet.home.path / "service/control.db"
    refused = {"code": "BIC-1900", "message": "the former upgrade was refused", "fix": "f"}
    for job, ended_ms in (("old-news", now_ms() - 3_600_000), ("clicks", now_ms())):
        with closing(sqlite3.connect(place)) as connection, connection:
            connection.execute(
                "INSERT INTO operations (actor, body_digest, job, kind, facts, state, asked_ms,"
                " ended_ms, error) VALUES ('ada', '', ?, 'upgrade', '{}', 'failed', 1, ?, ?)",
                (job, ended_ms, json.dumps(refused)),
            )
    page.goto(f"{url}/jobs/clicks/logs")
    assert "the former upgrade was refused" in page.inner_text("#job-head")
    page.goto(f"{url}/jobs/old-news")

    assert "refused" not in page.inner_text("#job-head")
    assert "the former upgrade was refused" in page.inner_text("#more")


def test_metrics_are_tables_where_there_are_no_scripts(opened, fleet, url):
    page = opened(f"{url}/metrics-explorer?job=clicks", java_script_enabled=False)

    def shown():
        page.goto(f"{url}/metrics-explorer?job=clicks")
        return page.locator("section.panel table").count()

    until(shown, "the first samples")  # One comes every five seconds.
    keep_picture(page, "metrics-without-scripts")
    rate = page.locator("section.panel", has_text="Records per second").first
    assert "No samples yet" not in rate.inner_text()
    assert rate.locator("tbody tr").count() >= 1
    assert not rate.locator(".chart").is_visible()
    page.goto(f"{url}/jobs/clicks")
    assert page.locator("section.panel:has-text('State size') tbody tr").count() >= 1
