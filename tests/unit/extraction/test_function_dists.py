"""Wheels whose function classes a job calls by name: known behind the extraction."""

import pytest

from bicycle_runtime.extraction.bundle import JobBundle
from bicycle_runtime.extraction.discovery import discover
from bicycle_runtime.extraction.extract import extract
from tests.plugin_zoo.zoo import install, whole

TALLIES = whole(
    "tallies",
    """
    from bicycle_sdk import RichAsyncFunction, bicycle_plugin


    @bicycle_plugin(name="tallies", version="1.0")
    class Tallies(RichAsyncFunction[int, int]):
        async def process(self, value, ctx):
            return [value]
    """,
    target="tallies:Tallies",
)
JOB = """
    from bicycle_sdk import RichAsyncFunction, bicycle_plugin


    class Own(RichAsyncFunction[int, int]):
        async def process(self, value, ctx):
            return [value]


    @bicycle_plugin(name="tallying", version="1.0")
    def job(env):
        env.from_collection([1]).{call}.print()
"""


@pytest.mark.parametrize(
    ("call", "dists"), [('process_plugin("tallies")', ("tallies",)), ("process(Own())", ())]
)
def test_a_bundle_names_the_wheels_of_functions_called_by_name(tmp_path, monkeypatch, call, dists):
    install(tmp_path, TALLIES)
    install(tmp_path, whole("tallying", JOB.format(call=call)))
    monkeypatch.syspath_prepend(str(tmp_path))
    bundle = extract(discover([str(tmp_path)]).find("tallying"), {})

    assert bundle.function_dists == dists
    assert JobBundle.from_bytes(bundle.to_bytes()) == bundle
