"""The guide to writing a plugin is a program that works."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from bicycle_sdk.plugin import build, parameter_schema

GUIDE = Path(__file__).parents[3] / "docs/writing-a-plugin.md"


@pytest.fixture
def orders(monkeypatch):
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.M | re.S)
    module = ModuleType("orders")
    monkeypatch.setitem(sys.modules, "orders", module)
    exec(compile("\n".join(blocks), str(GUIDE), "exec"), module.__dict__)
    return module


def test_the_job_of_the_guide_builds(orders):
    graph = build(orders.orders, {"input": "a", "output": "b", "patience": "5s"}).graph

    assert [v.uid for v in graph.vertices if v.uid] == ["lines", "parse", "total", "route", "out"]
    assert graph.vertex("parse").config["timeout_ms"] == 5_000
    assert all(info.doc for info in parameter_schema(orders.orders))


def test_the_tests_of_the_guide_pass(orders):
    tests = [value for name, value in vars(orders).items() if name.startswith("test_")]

    assert len(tests) == 2
    for test in tests:
        test()


def test_every_call_in_the_table_exists(orders):
    from bicycle_sdk import KeyedStream

    table = GUIDE.read_text(encoding="utf-8").partition("## What else a stream can do")[2]
    calls = set(re.findall(r"`(?:stream\.)?(\w+)(?:\([^`]*\))?`", table))
    elsewhere = {"AsyncIOFunction", "AsyncIOBatchFunction"}

    assert {name for name in calls - elsewhere if not hasattr(KeyedStream, name)} == set()
