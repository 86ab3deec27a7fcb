"""The page about state is a program that works."""

import re
import types

import pytest

from bicycle_sdk import StreamEnvironment
from bicycle_sdk.state import handles
from tests.docs.scripts import DOCS

PAGE = (DOCS / "state.md").read_text("utf-8")


@pytest.fixture
def module(monkeypatch):
    found = types.ModuleType("state_page")
    monkeypatch.setitem(__import__("sys").modules, "state_page", found)
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    exec(compile("\n".join(blocks), "state.md", "exec"), found.__dict__)
    return found


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
