"""A real browser before a real service: what every test of pages uses.

Chromium is Debian's (`apt-get install chromium`); where it is not installed there is nothing to run
these tests in, and they are left out with that reason. In the pipeline they fail.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from bicycle_runtime.jobs.home import Home
from tests.browser.fleets import Fleet, fill, fleet_in
from tests.waiting import PATIENCE_S, until

ARTEFACTS = Path(__file__).parents[2] / ".build/screenshots"
_WORDS = ("chromium", "chromium-browser")
_FOUND = next((path for word in _WORDS if (path := shutil.which(word))), None)
CHROMIUM = [_FOUND] if _FOUND or "CI" not in os.environ else ["chromium"]
_ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]


@pytest.fixture(scope="module", params=[path for path in CHROMIUM if path])
def browser(request) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=request.param, args=_ARGUMENTS)
        yield found
        found.close()


@contextmanager
def serving(home: Home) -> Iterator[str]:
    """Serve a home in a process of its own; the answer is its address."""
    words = [
        sys.executable,
        "-m",
        "bicycle_runtime.service_process.main",
        str(home.path),
        "127.0.0.1",
        "0",
    ]
    address = home.path / "service/address.json"
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        try:
            until(lambda: address.exists() or process.poll() is not None, "the service")
            yield json.loads(address.read_bytes())["url"]
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory) -> Iterator[Fleet]:
    """Jobs in every state that people meet."""
    with fleet_in(Home(tmp_path_factory.mktemp("home"))) as found:
        fill(found)
        yield found


@pytest.fixture(scope="module")
def url(fleet) -> Iterator[str]:
    with serving(fleet.home) as found:
        yield found


Open = Callable[..., Page]


@pytest.fixture
def opened(browser) -> Iterator[Open]:
    """Yield a function that opens an address; console errors of the page fail the test.

    Errors that contain ``expected`` are ignored.
    """
    complaints: list[str] = []
    contexts = []

    def open_page(address: str, *, expected: str | None = None, **context: object) -> Page:
        contexts.append(
            browser.new_context(**{"viewport": {"width": 1280, "height": 860}, **context})
        )
        page = contexts[-1].new_page()
        page.set_default_timeout(PATIENCE_S * 1_000)  # In ms.
        page.on("console", lambda message: complain(message, expected))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(address)
        return page

    def complain(message: ConsoleMessage, expected: str | None) -> None:
        if message.type == "error" and (expected is None or expected not in message.text):
            complaints.append(message.text)

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def is_live(page: Page) -> None:
    """Wait until the stream of a page has told something."""
    page.wait_for_selector("html[data-live=yes]", state="attached")


def keep_picture(page: Page, name: str) -> Path:
    """Write a screenshot of the whole page beside those of the other tests."""
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    path = ARTEFACTS / f"{name}.png"
    page.screenshot(path=str(path), full_page=True)
    return path
