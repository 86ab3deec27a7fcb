"""The page about event time is a program that works."""

import re

import pytest

from bicycle_sdk import StreamEnvironment, WatermarkStrategy
from tests.docs.scripts import DOCS, page_module

PAGE = (DOCS / "explanation/event-time.md").read_text("utf-8")


@pytest.fixture
def module(tmp_path, monkeypatch):
    with page_module(PAGE, "event_time_page", tmp_path, monkeypatch) as found:
        yield found


def test_the_job_of_the_page_builds(module):
    env = StreamEnvironment()
    module.clicks(env)

    graph = env.build_graph("clicks")
    assert [v.uid for v in graph.vertices if v.uid] == ["clicks", "times", "per-minute"]


def test_the_test_of_the_page_passes(module):
    module.test_a_click_counts_for_its_minute()


def test_the_table_names_every_strategy():
    named = set(re.findall(r"^\| `WatermarkStrategy\.(\w+)\(", PAGE, re.MULTILINE))
    makers = {
        name
        for name, member in vars(WatermarkStrategy).items()
        if isinstance(member, classmethod) and not name.startswith("_")
    }

    assert named == makers
