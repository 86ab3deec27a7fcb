"""Every pipeline of the page is whole: it is checked, built, and run where its input ends."""

import json

import duckdb
import pytest
from deltalake import DeltaTable

from bicycle_runtime.pipelines.building import build_pipeline
from bicycle_runtime.pipelines.documents import read_document
from bicycle_runtime.pipelines.nodes import check_pipeline
from bicycle_runtime.testing import Harness
from bicycle_runtime.testing.pipeline_tests import run_pipeline_tests
from bicycle_sdk import StreamEnvironment
from tests.docs.pipeline_blocks import pipelines_in, readme_pipeline

BLOCKS = pipelines_in("docs/how-to/pipelines.md")
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


def test_the_pipeline_of_the_readme_counts_exactly_through_crashes(tmp_path):
    text = readme_pipeline()
    assert len(text.splitlines()) <= 25
    text = text.replace('"lake"', f'"{tmp_path}/lake"')
    env = StreamEnvironment()
    build_pipeline(env, check_pipeline(read_document(text, file="page", notation="toml")))

    with Harness(env, scripted=["source"], real_sinks=["sink"], parallelism=2) as harness:
        for minute in range(6):
            if minute % 2:
                harness.fail_at(("after_seal", "half_published", "before_seal")[minute // 2])
            harness.push([{"page": f"/{n % 7}", "at": 60_000 * minute + n} for n in range(100)])
            harness.run_epoch()
        harness.end()
        harness.run()

    lake = duckdb.from_arrow(DeltaTable(f"{tmp_path}/lake").to_pyarrow_table())
    assert lake.aggregate("sum(count), count(*)").fetchall() == [(600, 42)]
