"""The page about joins is a program that works, and names every join there is."""

import re

import pytest

from bicycle_sdk import KeyedStream, StreamEnvironment
from tests.docs.scripts import DOCS, page_module

PAGE = (DOCS / "how-to/joins.md").read_text("utf-8")


@pytest.fixture
def module(tmp_path, monkeypatch):
    with page_module(PAGE, "joins_page", tmp_path, monkeypatch) as found:
        yield found


def test_the_job_of_the_page_builds(module):
    env = StreamEnvironment()
    module.orders_after_clicks(env)

    kinds = [vertex.details.get("function_kind") for vertex in env.build_graph("joins").vertices]
    assert "interval_join" in kinds


def test_the_test_of_the_page_passes(module):
    module.test_a_factor_applies_to_later_amounts()


def test_the_table_names_every_join():
    named = set(re.findall(r"^\| `(\w+)` \| ", PAGE, re.MULTILINE))
    calls = {name for name in dir(KeyedStream) if name.endswith("_join") or name == "co_group"}

    assert {name for name in calls if not name.startswith("_")} == named
