"""Every pipeline of the page is whole: it is checked, built, and run where its input ends."""

import json
import re

import pytest

from bicycle_runtime.pipelines.building import build_pipeline
from bicycle_runtime.pipelines.documents import read_document
from bicycle_runtime.pipelines.nodes import check_pipeline
from bicycle_runtime.testing import Harness
from bicycle_runtime.testing.pipeline_tests import run_pipeline_tests
from bicycle_sdk import StreamEnvironment
from tests.docs.scripts import ROOT

PAGE = (ROOT / "docs/how-to/pipelines.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(toml|yaml)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
CLICKS = [
    {"at": 0, "page": "/", "user": "ada", "status": 200},
    {"at": 61_000, "page": "/cart", "user": "ada", "status": 200},
]


def test_the_page_has_pipelines_in_both_notations():
    assert {notation for notation, _ in BLOCKS} == {"toml", "yaml"}


@pytest.mark.parametrize(("notation", "text"), BLOCKS)
def test_a_pipeline_of_the_page_runs(notation, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    clicks = "".join(json.dumps(click) + "\n" for click in CLICKS)
    (tmp_path / "clicks.jsonl").write_text(clicks)
    pipeline = check_pipeline(read_document(text, file="page", notation=notation))
    env = StreamEnvironment()
    build_pipeline(env, pipeline)
    endless = [node.id for node in pipeline.nodes if node.word == "socket"]
    sink = next(node.id for node in pipeline.nodes if node.operator == "sink")

    with Harness(env, scripted=endless) as harness:
        for uid in endless:
            harness.push(["to be or not"], source=uid)
        harness.end()
        harness.run()

        assert harness.results(sink)
    for outcome in run_pipeline_tests(pipeline) if pipeline.tests else ():
        assert outcome.is_good
