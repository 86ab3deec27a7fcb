"""A pipeline that may name functions of installed plugins only, as one that a service was sent."""

import sys

import pytest

from bicycle_runtime.endpoints.named_functions import FunctionMissingError, found_function
from bicycle_runtime.extraction.scripts import pack_script
from bicycle_runtime.pipelines.building import build_pipeline
from bicycle_runtime.pipelines.documents import read_document
from bicycle_runtime.pipelines.nodes import check_pipeline
from bicycle_sdk import StreamEnvironment
from bicycle_sdk.errors import BicycleError
from tests.plugin_zoo.zoo import install, whole

OWN = whole(
    "own",
    """
    import os
    from os import getcwd
    from bicycle_sdk import StreamEnvironment, bicycle_plugin

    def loud(line):
        return line.upper()

    @bicycle_plugin(name="own", version="1.0")
    def job(env: StreamEnvironment) -> None:
        env.from_collection(["a"]).print()
    """,
)
PIPELINE = """
vertices:
  - id: lines
    operator: source
    connector: {{type: generator, properties: {{rate_ms: 0, count: 7}}}}
  - id: called
    operator: {operator}
    config: {{function: "{function}"}}
  - id: out
    operator: sink
    connector: {{type: console}}
edges:
  - {{from: lines, to: called}}
  - {{from: called, to: out}}
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    install(tmp_path, OWN)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("own", None)


def test_a_function_of_a_plugin_is_found(plugin):
    assert found_function("own:loud", of_plugins=True)("a") == "A"


@pytest.mark.parametrize(
    "name",
    [
        "os:getcwd", "subprocess:check_output", "builtins:eval", "bicycle_runtime.cli.root:main",
        "own:os.system", "own:getcwd", "own:job.__globals__", "json:dumps",
    ],
)  # fmt: skip
def test_what_is_of_no_plugin_is_refused_also_where_a_plugin_has_imported_it(plugin, name):
    with pytest.raises(FunctionMissingError, match=r"not in an installed plugin|not a function"):
        found_function(name, of_plugins=True)


def test_a_module_that_is_refused_is_not_imported(plugin):
    (plugin / "harmful.py").write_text("raise SystemExit('it was imported')")

    with pytest.raises(FunctionMissingError, match="not in an installed plugin"):
        found_function("harmful:anything", of_plugins=True)


@pytest.mark.parametrize("operator", ["map", "flat_map", "filter", "process", "key_by", "reduce"])
def test_no_operator_takes_one(plugin, operator):
    text = PIPELINE.format(operator=operator, function="os:getcwd")
    if operator == "reduce":
        text = text.replace("  - id: called", "  - {id: keys, operator: key_by}\n  - id: called")
        text = text.replace("to: called}", "to: keys}\n  - {from: keys, to: called}")
    pipeline = check_pipeline(read_document(text, file="p.yaml", notation="yaml"))

    with pytest.raises(BicycleError) as caught:
        build_pipeline(StreamEnvironment(), pipeline, of_plugins=True)

    assert "not in an installed plugin" in str(caught.value)


def test_what_is_packed_says_so_and_is_another_archive(plugin, tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text(PIPELINE.format(operator="map", function="own:loud"))

    free, bound = (
        pack_script(str(file), cache_dir=tmp_path / "cache", of_plugins=way)[1]
        for way in (False, True)
    )

    assert free.digest != bound.digest
