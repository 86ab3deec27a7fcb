"""Words to connectors, extensions that misbehave, options that are wrong."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from bicycle_runtime.connectors import builtin
from bicycle_runtime.connectors.errors import (
    CONNECTOR_OPTION_WRONG,
    CONNECTOR_PAYLOAD_WRONG,
    UNKNOWN_CONNECTOR,
)
from bicycle_runtime.connectors.hooks import connector_hook
from bicycle_runtime.connectors.registry import (
    Extension,
    create_sink,
    create_source,
    default_registry,
    load_registry,
)
from bicycle_runtime.contract import ConnectorSpec, Guarantee
from bicycle_sdk.options import describe
from tests.raising import raises

ROOM = "bicycle_runtime.connectors"


def spec(word, **properties):
    return ConnectorSpec(vertex_id="orders", connector_type=word, properties=properties)


def extension(name, **hooks):
    marked = {hook: connector_hook(function) for hook, function in hooks.items()}
    return Extension(name=name, load=lambda: SimpleNamespace(__name__=name, **marked))


def test_an_unknown_word_names_the_closest_and_all_known():
    with raises(UNKNOWN_CONNECTOR) as caught:
        create_source(spec("colection"))

    assert caught.value.facts["closest"] == "collection"
    assert caught.value.facts["known"] == sorted(builtin.bicycle_sources())
    assert caught.value.facts["vertex"] == "orders"


def test_sources_and_sinks_have_words_of_their_own():
    with raises(UNKNOWN_CONNECTOR) as caught:
        create_sink(spec("generator"))

    assert caught.value.facts["direction"] == "sink"


@pytest.mark.parametrize("word", builtin.bicycle_sources())
def test_every_source_of_ours_can_be_found(word):
    found = default_registry().source_class(word)

    assert found.guarantee is Guarantee.EXACTLY_ONCE
    assert all(info.doc for info in describe(found.options_class))


@pytest.mark.parametrize("word", builtin.bicycle_sinks())
def test_every_sink_of_ours_can_be_found(word):
    assert all(info.doc for info in describe(default_registry().sink_class(word).options_class))


def test_an_extension_adds_words():
    registry = load_registry(
        [extension("ours", bicycle_sources=lambda: {"again": f"{ROOM}.generator:GeneratorSource"})]
    )

    assert registry.create_source(spec("again", rate_ms=5)).spec.connector_type == "again"
    assert registry.refusals == ()


def broken_load():
    raise ImportError("no such library")


def broken_hook():
    raise ZeroDivisionError


@pytest.mark.parametrize(
    "bad",
    [
        Extension(name="bad", load=broken_load),
        extension("bad", bicycle_sources=broken_hook),
        extension("bad", bicycle_sources=lambda: {"word": "no colon"}),
        extension("bad", bicycle_sources=lambda: 7),
        extension("bad", bicycle_sinks=lambda: {"console": "elsewhere:Sink"}),
        extension("bad", bicycle_typo=lambda: {}),
    ],
    ids=["import", "hook raises", "no class", "no dict", "word taken", "unknown hook"],
)
def test_a_broken_extension_is_a_refusal_and_the_others_work(bad):
    good = extension("good", bicycle_sinks=lambda: {"mine": "m:C"})

    registry = load_registry([bad, good])

    assert [refusal.extension for refusal in registry.refusals] == ["bad"]
    assert registry.sinks["mine"] == "m:C"
    assert registry.sinks["console"] == builtin.bicycle_sinks()["console"]


@pytest.mark.parametrize("target", ["no_such_module_at_all:Sink", "json:Sink", "json:loads"])
def test_a_word_whose_class_cannot_be_used_says_why(target):
    registry = load_registry([extension("bad", bicycle_sinks=lambda: {"mine": target})])

    with raises(UNKNOWN_CONNECTOR) as caught:
        registry.create_sink(spec("mine"))

    assert target in caught.value.facts["refused"][0]


@pytest.mark.parametrize(
    ("word", "properties", "name"),
    [
        ("text", {"path": "x", "folow": True}, "folow"),
        ("text", {}, "path"),
        ("generator", {"rate_ms": -1}, "rate_ms"),
        ("generator", {"rate_ms": "soon"}, "rate_ms"),
        ("socket", {"port": 70_000}, "port"),
        ("csv", {"path": "x", "encoding": "latin-1"}, "encoding"),
        ("collection", {"items": [1]}, "items"),
    ],
)
def test_a_wrong_property_is_refused_with_its_name_and_vertex(word, properties, name):
    with raises(CONNECTOR_OPTION_WRONG) as caught:
        create_source(spec(word, **properties))

    assert (caught.value.facts["name"], caught.value.facts["vertex"]) == (name, "orders")


def test_a_misspelt_property_gets_a_hint():
    with raises(CONNECTOR_OPTION_WRONG) as caught:
        create_sink(spec("jsonl_file", path="x", roll_byte="1MiB"))

    assert "'roll_bytes'" in caught.value.facts["hint"]


def test_a_collection_without_items_is_refused():
    with raises(CONNECTOR_PAYLOAD_WRONG):
        create_source(spec("collection"))


def test_listing_connectors_imports_none_of_them():
    code = (
        "import sys; from bicycle_runtime.connectors.registry import load_registry;"
        "load_registry([]);"
        "print(sorted(m for m in sys.modules if m.startswith('bicycle_runtime.connectors.')))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "files" not in out.stdout
    assert "sockets" not in out.stdout


def test_a_file_source_waits_for_directories_that_its_own_job_makes_alone(tmp_path):
    source = create_source(spec("text", path=str(tmp_path / "out")))
    sink = create_sink(spec("jsonl_file", path=str(tmp_path / "out")))

    assert source.is_fed_by(sink.makes())
    assert not source.is_fed_by(["kafka:orders"])


def test_a_connector_whose_library_is_absent_names_its_extra(monkeypatch):
    for name in [name for name in sys.modules if name.startswith(f"{ROOM}.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)

    with raises(UNKNOWN_CONNECTOR) as caught:
        create_sink(spec("postgres"))
    assert caught.value.facts["hint"] == "pip install 'bicycle-runtime[postgres]'"
    assert "psycopg" in caught.value.facts["refusal_text"]
