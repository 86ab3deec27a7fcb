"""The page about SQL and Python is a job that runs, and names every call of tables."""

import json
import re

import pytest

from bicycle_runtime.tables.errors import SQL_TEXT_INVALID
from bicycle_runtime.testing import Harness
from bicycle_sdk import StreamEnvironment
from bicycle_sdk.tables import Table
from tests.docs.scripts import DOCS, page_module
from tests.raising import raises

PAGE = (DOCS / "how-to/sql-and-python.md").read_text("utf-8")
ORDERS = [
    {"id": 1, "shop": "a", "amount": 900.5, "at": "2026-01-01T10:00:01Z"},
    {"id": 2, "shop": "a", "amount": 200.0, "at": "2026-01-01T10:00:59Z"},
    {"id": 3, "shop": "b", "amount": 10.0, "at": "2026-01-01T10:00:30Z"},
    {"id": 4, "shop": "a", "amount": 1.0, "at": "2026-01-01T10:03:00Z"},
]


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with page_module(PAGE, "sql_and_python_page", tmp_path, monkeypatch) as found:
        yield found


def test_the_job_of_the_page_prints_alerts_and_writes_totals(module, tmp_path):
    (tmp_path / "orders.jsonl").write_text("\n".join(map(json.dumps, ORDERS)))
    env = StreamEnvironment()
    module.alerts(env)

    with Harness(env) as harness:
        harness.run()
        [printed] = [v.id for v in env.build_graph("page").vertices if v.name == "console sink"]
        assert harness.results(printed) == ["a sold 1100.50 in the minute of 10:00"]
        totals = sorted((row["shop"], row["total"]) for row in harness.results("totals"))
        assert totals == [("a", 1.0), ("a", 1100.5), ("b", 10.0)]


def test_the_error_of_the_page_is_that_of_its_job(module):
    env = StreamEnvironment()
    orders = env.from_collection([]).uid("orders-file")
    env.table(orders, name="orders", type=module.Order, watermark="at")

    with raises(SQL_TEXT_INVALID) as caught:
        env.sql("\n        SELECT id, amount, shopp FROM orders")

    [block] = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert str(caught.value).splitlines()[:2] == block.splitlines()[:2]


def test_the_table_names_every_call():
    named = set(re.findall(r"[`.](\w+)[`(]", PAGE))
    calls = {name for name in dir(Table) if not name.startswith("_")}

    assert calls - named == set()
