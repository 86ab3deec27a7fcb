"""The README is true: its plugin builds, and its pictures and figures are the current ones."""

import re
import types

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
    job = build(plugin_module.clicks, {})

    job.graph.validate()
    assert [v.uid for v in job.graph.vertices if v.uid] == ["counts"]
    assert job.graph.vertices[0].kind is OperatorKind.SOURCE
    assert job.graph.vertices[-1].kind is OperatorKind.SINK


def test_the_plugin_has_at_most_ten_lines():
    lines = [line for line in block_of("python").splitlines() if line.strip()]

    assert len(lines) <= 10


def test_the_entry_point_is_that_of_the_group_and_leads_to_the_plugin(plugin_module):
    text = block_of("toml")

    assert '[project.entry-points."bicycle.plugins"]' in text
    assert hasattr(plugin_module, re.search(r'"clicks:(\w+)"', text)[1])


def test_the_first_screen_has_the_commands_the_picture_and_the_job():
    screen = README[: README.index("With these three lines")]

    assert all(
        part in screen for part in ("make demo", "make test", "images/demo.svg", "```python")
    )
    assert len(screen.splitlines()) <= 35


def test_the_picture_shows_the_result_of_the_demo():
    demo = load("docs/demo/demo.py")
    picture = (DOCS / "images/demo.svg").read_text("utf-8")
    counts = demo.count_words((demo.ROOT / demo.TEXT).read_text("utf-8"))

    assert [line for line in demo.table(counts) if f">{line}<" not in picture] == []
    assert demo.summary(counts) in picture


def test_the_section_on_throughput_names_the_lowest_judged_ratios():
    pictures = load("tools/pictures.py")
    benchmarks = (DOCS / "benchmarks.md").read_text("utf-8")
    pace = " ".join(README.partition("### Throughput")[2].partition("###")[0].split())
    by_label = {ratio.label: ratio.value for ratio in pictures.ratios(benchmarks)}

    assert f"{by_label['word count ÷ Bytewax']:.1f} times as fast as in Bytewax" in pace
    quix = by_label["exactly once between Kafka topics ÷ Quix Streams"]
    assert f"{quix:.1f} times as fast as in Quix Streams" in pace
    assert f"{by_label['joins, process functions ÷ bare Python loop']:.2f} (joins" in pace
    assert f"{by_label['JSON filter and map ÷ bare Python loop']:.2f} (JSON" in pace


def test_the_comparison_counts_the_connectors():
    page = (DOCS / "reference/connectors.md").read_text("utf-8")
    tables = re.findall(r"^\| (?:source|sink) \|.*\n\|[-|]+\n((?:\|.*\n)+)", page, re.MULTILINE)
    sources, sinks = (len(table.splitlines()) for table in tables[:2])

    assert f"| {sources} sources, {sinks} sinks |" in README


def test_the_preview_is_what_it_shows():
    code, shown = re.search(r"^>>> (env\..*)\n(.*)$", README, re.MULTILINE).groups()
    env = StreamEnvironment()

    assert repr(eval(code, {"env": env})) == shown
