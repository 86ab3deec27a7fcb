"""The page about state is a program that works."""

import re

import pytest

from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import StreamEnvironment
from bicycle_sdk.state import handles
from tests.docs.scripts import DOCS, page_module

PAGE = (DOCS / "how-to/state.md").read_text("utf-8")


@pytest.fixture
def module(tmp_path, monkeypatch):
    with page_module(PAGE, "state_page", tmp_path, monkeypatch) as found:
        yield found


def test_the_job_of_the_page_builds(module):
    env = StreamEnvironment()
    module.sessions(env)

    graph = env.build_graph("sessions")
    assert [vertex.uid for vertex in graph.vertices if vertex.uid] == ["users", "sessions"]


def test_the_test_of_the_page_passes(module):
    module.test_a_session_ends_after_ten_quiet_minutes()


def test_the_table_names_what_each_state_has():
    rows = re.findall(r"^\| `ctx\.get_(\w+)_state\(.*\| (`.*`) \|$", PAGE, re.MULTILINE)

    assert len(rows) == 5
    for kind, methods in rows:
        handle = getattr(handles, f"{kind.capitalize()}State")
        public = {name for name in dir(handle) if not name.startswith("_")}
        assert set(re.findall(r"`(\w+)`", methods)) == public, kind


def test_names_that_a_subtask_has_seen_are_known_to_all_after_a_start(module):
    def job(env):
        words = env.add_source(script_source()).uid("in").rebalance()
        words.process_fn(module.Unseen()).uid("unseen").collect("out")

    with Harness(job, parallelism=2) as harness:
        harness.push(["ada", "bob"])
        harness.run()
        for width in (3, 1, 2):
            harness.rescale(width)
            harness.push(["ada", "bob"] * 3)
            harness.run()
        harness.push(["eve"])
        harness.run()
        assert sorted(harness.results("out")) == ["ada", "bob", "eve"]
