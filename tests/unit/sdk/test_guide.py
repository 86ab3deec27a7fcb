"""The guide to writing a plugin is a program that works."""

import importlib
import re
import sys
from pathlib import Path

import pytest

from bicycle_sdk.plugin import build, parameter_schema

GUIDE = Path(__file__).parents[3] / "docs/tutorial/writing-a-plugin.md"


@pytest.fixture
def orders(monkeypatch, tmp_path):
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.M | re.S)
    (tmp_path / "orders.py").write_text("\n".join(blocks), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("orders")
    del sys.modules["orders"]


def test_the_job_of_the_guide_builds(orders):
    graph = build(orders.orders, {"input": "a", "output": "b", "patience": "5s"}).graph

    assert [v.uid for v in graph.vertices if v.uid] == ["lines", "parse", "total", "route", "out"]
    assert graph.vertex("parse").config["timeout_ms"] == 5_000
    assert all(info.doc for info in parameter_schema(orders.orders))


def test_the_tests_of_the_guide_pass(orders):
    tests = [value for name, value in vars(orders).items() if name.startswith("test_")]

    assert len(tests) == 3
    for test in tests:
        test()


def test_every_call_in_the_table_exists(orders):
    from bicycle_sdk import KeyedStream

    table = GUIDE.read_text(encoding="utf-8").partition("## Other operations on streams")[2]
    calls = set(re.findall(r"`(?:stream\.)?(\w+)(?:\([^`]*\))?`", table))
    elsewhere = {"AsyncIOFunction", "AsyncIOBatchFunction"}

    assert {name for name in calls - elsewhere if not hasattr(KeyedStream, name)} == set()
