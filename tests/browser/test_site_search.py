"""The search of the docs finds the page that answers a question, before decision records."""

import functools
import http.server
import subprocess
import threading

import pytest

from tests.docs.scripts import ROOT

# What a reader types -> a page that must be among the first three.
QUERIES = {
    "OOM": "how-to/memory/",
    "authentication": "how-to/secure/",
    "backfill": "how-to/backfill/",
    "debugger": "how-to/replay/",
    "docker": "how-to/containers/",
    "fake clock": "how-to/test/",
    "helm": "how-to/helm/",
    "kubernetes": "how-to/kubernetes-operator/",
    "late data": "explanation/event-time/",
    "memory": "how-to/memory/",
    "notebook": "how-to/notebooks/",
    "sizing": "how-to/memory/",
    "skip bad records": "how-to/dead-letters/",
    "sql": "tutorial/sql/",
    "sql file": "how-to/sql/",
    "yarn": "how-to/yarn/",
}
_FIRST = (
    """links => [...new Set(links.map(link => new URL(link.href).pathname.slice(1)))].slice(0, 3)"""
)


class _SilentHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Write nothing: the tests print their own failures."""


@pytest.fixture(scope="module")
def site():
    built = subprocess.run(["make", "site"], capture_output=True, text=True, check=False, cwd=ROOT)
    assert built.returncode == 0, built.stdout + built.stderr
    handler = functools.partial(_SilentHandler, directory=str(ROOT / ".build/site"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_finds_the_page_that_answers_it(opened, site, query):
    page = opened(f"{site}/index.html?q={query.replace(' ', '+')}")
    page.wait_for_selector(".md-search-result__item", state="attached")
    found = page.eval_on_selector_all(".md-search-result__item > a", _FIRST)

    assert QUERIES[query] in found
