"""The statements of the pages about SQL are built, and those of the tutorial give its output."""

import json
import re
import sys

import pytest
from click.testing import CliRunner

from bicycle_runtime.cli.root import main
from bicycle_runtime.cli.sql_answers import Shell
from bicycle_runtime.tables.building import build_tables
from bicycle_runtime.tables.errors import SQL_INVALID
from bicycle_runtime.testing import Harness
from bicycle_sdk import StreamEnvironment
from bicycle_sdk.errors import BicycleError
from bicycle_streams.cli.rendering import error_text
from tests.docs.scripts import ROOT
from tests.raising import raises

BLOCK = re.compile(r"^```(sql|slt|jsonl|text|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page, language):
    """Return the blocks of a language of a page."""
    text = (ROOT / page).read_text("utf-8")
    return [block for word, block in BLOCK.findall(text) if word == language]


def built(text, file="page.sql"):
    env = StreamEnvironment()
    build_tables(env, text, file=file)
    return env


@pytest.fixture
def functions(tmp_path, monkeypatch):
    """The module with the functions of the page, importable."""
    module = blocks("docs/how-to/sql.md", "python")
    (tmp_path / "shop_functions.py").write_text("\n\n".join(module))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("SHOP_PASSWORD", "secret")
    monkeypatch.delitem(sys.modules, "shop_functions", raising=False)


@pytest.mark.usefixtures("functions")
def test_the_statements_of_the_page_are_one_file():
    graph = built("\n".join(blocks("docs/how-to/sql.md", "sql"))).execute("page")

    sinks = {vertex.id for vertex in graph.vertices if vertex.kind.name == "SINK"}
    assert sinks == {
        "counts",
        "alerts",
        "highest",
        "sessions",
        "shipped",
        "euros",
        "per_minute",
        "late_bids",
        "spreads",
        "basket_tags",
        "basket_lines",
        "most_bids",
        "top_bids",
        "sales_by_city",
        "review_words",
    }


@pytest.mark.usefixtures("functions")
def test_the_joins_of_the_page_give_their_rows():
    text = "\n".join(blocks("docs/how-to/sql.md", "sql"))
    day = "2026-11-28T10:{}:00Z".format
    orders = [{"id": n, "currency": "CHF", "amount": 10, "at": day(f"0{n}")} for n in (1, 2)]
    rates = [{"currency": "CHF", "rate": n, "at": day(f"0{n}")} for n in (0, 2)]
    shipments = [{"order_id": 2, "at": day(30)}]
    inputs = {"orders": orders, "rates": rates, "shipments": shipments}

    with Harness(built(text), scripted=["bids-source", "bids_of_kafka-source", "baskets-source",
        "sales-source", "reviews-source", *(
        f"{name}-source" for name in inputs
    )]) as harness:  # fmt: skip
        for name, rows in inputs.items():
            harness.push(rows, source=f"{name}-source")
        harness.end()
        harness.run()
        found = {name: harness.results(name) for name in ("shipped", "euros", "per_minute")}

    assert {row["id"]: row["shipped"] and row["shipped"].minute for row in found["shipped"]} == {
        1: None, 2: 30,
    }  # fmt: skip
    assert {row["id"]: int(row["amount"]) for row in found["euros"]} == {1: 0, 2: 20}
    assert {row["minute"].minute: row["changes"] for row in found["per_minute"]} == {1: 0, 2: 1}


@pytest.mark.parametrize("epochs", ["1", "2"])
def test_the_test_on_the_page_passes(tmp_path, epochs):
    page = "docs/how-to/sql.md"
    (tmp_path / "counts.sql").write_text(blocks(page, "sql")[0], "utf-8")
    [text] = blocks(page, "slt")
    (tmp_path / "counts.slt").write_text(text, "utf-8")

    found = CliRunner().invoke(
        main, ["sql", "test", str(tmp_path / "counts.slt"), "--epochs", epochs]
    )

    assert found.output == f"{tmp_path / 'counts.slt'}: 9 records passed\n"


@pytest.mark.parametrize(
    ("page", "file", "wrong"),
    [("docs/how-to/sql.md", "counts.sql", 0), ("docs/tutorial/sql.md", "bids.sql", 0)],
)
def test_the_error_on_a_page_is_the_error_of_its_file(page, file, wrong):
    text = blocks(page, "sql")[wrong].replace("SELECT auction", "SELECT auctoin", 1)

    with raises(SQL_INVALID) as caught:
        built(text, file)

    shown = blocks(page, "text")[-1].splitlines()
    assert str(caught.value).splitlines()[:2] == shown


def test_the_session_on_the_page_gives_its_output(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    offers = [(1, "120.50", "ada"), (2, "300", None), (3, "99", "bob")]
    rows = [{"auction": n, "price": price, "bidder": who} for n, price, who in offers]
    (tmp_path / "offers.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    page = next(each for each in blocks("docs/how-to/sql.md", "text") if each.startswith("sql>"))
    lines = [line for line in page.splitlines() if not line.startswith("─")]  # A terminal's.

    shell, shown = Shell(as_json=False), []
    for statement in re.findall(r"^sql> (.*(?:\n\.\.\.> .*)*)", "\n".join(lines), re.MULTILINE):
        shown += [f"sql> {statement}"]
        try:
            shell.run(statement.replace("...> ", ""))
        except BicycleError as error:
            sys.stdout.write(f"{error_text(error)}\n")
        shown += capsys.readouterr().out.splitlines()

    def timeless(found):
        return re.sub(r", [\d.]+ m?s\)", ", TIME)", "\n".join(found))

    assert timeless(shown) == timeless(lines)


def test_the_statements_for_users_of_other_systems_are_a_job():
    [text] = blocks("docs/explanation/coming-from-sql.md", "sql")
    assert "per_auction-results" in {vertex.id for vertex in built(text).execute("page").vertices}


def test_the_tutorial_gives_its_output(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = "docs/tutorial/sql.md"
    (tmp_path / "bids.jsonl").write_text(blocks(page, "jsonl")[0])

    with Harness(built("\n".join(blocks(page, "sql"))), real_sinks=["expensive", "counts"]) as run:
        run.run()

    shown = blocks(page, "text")
    for name, expected in (("expensive", shown[0]), ("counts", shown[1])):
        lines = [
            json.loads(line)
            for path in (tmp_path / name).glob("*.jsonl")
            for line in path.read_text("utf-8").splitlines()
        ]
        wanted = [json.loads(line) for line in expected.splitlines()]
        assert sorted(map(str, lines)) == sorted(map(str, wanted))
