"""The job on the page about Kafka builds, and the page knows every call of the builders."""

import re
import sys
import types
from inspect import getmembers, isfunction

import pytest

from bicycle_sdk import KafkaSinkBuilder, KafkaSourceBuilder
from bicycle_sdk.options import describe
from bicycle_sdk.plugin import build
from tests.docs.scripts import DOCS

PAGE = (DOCS / "how-to/kafka.md").read_text("utf-8")
SECTION = PAGE.partition("## A job with Kafka\n")[2].partition("\n## ")[0]


@pytest.fixture(scope="module")
def job_module():
    module = types.ModuleType("payments")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "payments", module)
        exec(compile(code, "payments.py", "exec"), module.__dict__)
        yield module


def test_the_job_builds_with_kafka_at_both_ends(job_module):
    graph = build(job_module.payments, {"brokers": "b:1"}).graph
    source, sink = (graph.vertex(uid).details["connector"] for uid in ("in", "out"))

    graph.validate()
    assert source["properties"]["topics"] == ["payments"]
    assert sink["properties"]["guarantee"] == "exactly-once"


def test_the_secured_source_names_no_password(job_module):
    properties = job_module.secured("b:1").build_connector().properties["properties"]

    assert properties["sasl.password"] == {"secret": {"env": "KAFKA_PASSWORD"}}
    assert properties["security.protocol"] == "SASL_SSL"


@pytest.mark.parametrize("builder", [KafkaSourceBuilder, KafkaSinkBuilder])
def test_every_call_of_a_builder_is_on_the_page(builder):
    calls = [name for name, _ in getmembers(builder, isfunction) if not name.startswith("_")]

    assert [
        n for n in calls if n != "build_connector" and not re.search(rf"\b{n}\b", SECTION)
    ] == []


@pytest.mark.parametrize("builder", [KafkaSourceBuilder, KafkaSinkBuilder])
def test_the_page_tells_the_default_of_each_option_as_it_is_declared(builder):
    rows = [line.split(" | ") for line in SECTION.splitlines() if line.startswith("| `")]
    wrong = []
    for info in describe(builder.options_class):
        calls = [name for name, call in getmembers(builder, isfunction) if sets(call, info.name)]
        if calls and info.default:
            cells = [row[2] for row in rows if re.search(rf"\b{calls[0]}\b", row[0] + row[1])]
            if not any(text in cell for cell in cells for text in texts_of(info.default)):
                wrong.append((info.name, info.default, cells))

    assert wrong == []


def sets(call, option):
    """Return whether a method of a builder sets an option: its code names it."""
    return call.__name__[0] != "_" and option in call.__code__.co_consts


def texts_of(default):
    """Return the forms in which people write a default: a duration, or words."""
    if isinstance(default, int):
        return [f"{default // 1_000} s", f"{default // 60_000} min", f"{default} |"]
    return [default, default.replace("-", " ")]
