"""The first screen of the README is true: its plugin builds, its table is what the demo shows."""

import re
import types
from collections import Counter

import pytest

from bicycle_sdk import StreamEnvironment
from bicycle_sdk.graph import OperatorKind
from bicycle_sdk.plugin import build
from tests.docs.scripts import DOCS, load

README = (DOCS.parent / "README.md").read_text("utf-8")


def block_of(language: str) -> str:
    """Return the first block; the pipeline behind it is run in tests/kafka."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)[0]


@pytest.fixture(scope="module")
def plugin_module():
    module = types.ModuleType("clicks")
    code = compile(block_of("python"), "clicks.py", "exec")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(__import__("sys").modules, "clicks", module)
        exec(code, module.__dict__)
        yield module


def test_the_plugin_builds_a_graph(plugin_module):
    job = build(plugin_module.clicks, {"input": "clicks.csv"})

    job.graph.validate()
    assert [v.uid for v in job.graph.vertices if v.uid] == ["users", "counts"]
    assert job.graph.vertices[0].kind is OperatorKind.SOURCE
    assert job.graph.vertices[-1].kind is OperatorKind.SINK


def test_the_plugin_has_at_most_twenty_lines():
    lines = [line for line in block_of("python").splitlines() if line.strip()]

    assert len(lines) <= 20


def test_the_entry_point_is_that_of_the_group_and_leads_to_the_plugin(plugin_module):
    text = block_of("toml")

    assert '[project.entry-points."bicycle.plugins"]' in text
    assert hasattr(plugin_module, re.search(r'"clicks:(\w+)"', text)[1])


def test_the_table_is_what_the_demo_shows():
    demo = load("demo/demo.py")
    words = (demo.ROOT / demo.TEXT).read_text("utf-8").lower().split()
    counts = {word: list(range(1, n + 1)) for word, n in Counter(words).items()}

    assert "\n".join(demo.table(counts)) in README
    assert f"{len(words)} words, {len(counts)} different" in README


def least(report: str, part: str) -> float:
    """Return the least median of the judged ratios of a report whose names have a part."""
    text = (DOCS / "benchmarks.md").read_text("utf-8")
    shown = text.partition(f"<!-- begin {report} -->")[2].partition(f"<!-- end {report} -->")[0]
    rows = [[cell.strip() for cell in line.split("|")] for line in shown.splitlines()]
    return min(
        float(row[2].removesuffix(" x"))
        for row in rows
        if len(row) > 6 and part in row[1] and row[5] in ("reached", "MISSED")
    )


def test_the_pace_is_told_by_the_worst_judged_figures():
    pace = next(line for line in README.splitlines() if line.startswith("| **Pace**"))

    assert f"{least('w2-wordcount', '÷ Bytewax'):.1f} times what Bytewax does" in pace
    assert f"{least('w2-wordcount', '÷ transformWithState'):.0f} times PySpark's" in pace
    assert f"{least('kafka-throughput', 'count: Bicycle, exactly-once ÷ Quix'):.1f} times" in pace
    assert f"{least('w1-json', '÷ Bytewax'):.1f} times what Bytewax does. Loops" in pace
    assert f"{least('w1-json', '÷ plain loop'):.2f} of the pace of one with msgspec" in pace
    assert f"{least('w2-wordcount', '÷ plain loop'):.2f} of the pace of one that puts" in pace
    assert f"{least('joins', 'memory ÷ bare loop'):.2f} of that" in pace


def test_the_index_names_every_page():
    index = (DOCS / "index.md").read_text("utf-8")
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - {"index.md"}
    decisions = {page for page in pages if page.startswith("adr/")}

    assert {page for page in pages - decisions if f"]({page})" not in index} == set()


def test_the_preview_is_what_it_shows():
    code, shown = re.search(r"^>>> (env\..*)\n(.*)$", README, re.MULTILINE).groups()
    env = StreamEnvironment()

    assert repr(eval(code, {"env": env})) == shown
