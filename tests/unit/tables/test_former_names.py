"""Former names of options in SQL and in pipelines: a remark with line and column."""

import textwrap

import pytest

from bicycle_runtime.extraction.bundle import JobBundle
from bicycle_runtime.jobs.inspection.child import describe_job
from bicycle_runtime.jobs.inspection.reports import report_of
from bicycle_sdk.former_names import FormerName, collect_former_names
from tests.unit.jobs.job_samples import bundle_of
from tests.unit.pipelines import pipeline_runs
from tests.unit.tables import sql_runs

SQL = """\
CREATE TABLE clicks (word STRING) WITH (
  'connector' = 'kafka', 'topic' = 'in', 'brokers' = 'h:9', '{interval}' = '30s'
);
CREATE TABLE words (word STRING) WITH ('connector' = 'file', 'path' = 'out', 'max_bytes' = '1MiB');
INSERT INTO words SELECT word FROM clicks;
"""
PIPELINE = textwrap.dedent("""\
    [source]
    kind = "kafka"
    bootstrap_servers = "h:9"
    topic = "in"
    group_id = "g"
    {interval} = "30s"

    [sink]
    kind = "file"
    out_dir = "out"
    max_bytes = 1_000
""")


@pytest.mark.parametrize(
    ("build", "text", "location"),
    [(sql_runs.built, SQL, "v.sql:2:61"), (pipeline_runs.built, PIPELINE, "p.toml:6:1")],
    ids=["sql", "pipeline"],
)
def test_a_former_name_in_a_job_file_is_collected_with_its_position(build, text, location):
    with collect_former_names() as found:
        build(text.format(interval="discovery_ms"))

    [only] = found
    assert only[:2] == ("discovery_ms", "discovery_interval_ms")
    assert only.location.endswith(location)


@pytest.mark.parametrize(
    ("build", "text"),
    [(sql_runs.built, SQL), (pipeline_runs.built, PIPELINE)],
    ids=["sql", "pipeline"],
)
def test_words_of_job_files_are_not_collected(build, text):
    with collect_former_names() as found:
        build(text.format(interval="discovery_interval_ms"))

    assert found == {}


def test_the_bundle_keeps_former_names_and_the_plan_shows_them():
    plain = bundle_of(lambda env: env.from_collection([1]).print().uid("out"))
    used = FormerName("max_bytes", "roll_bytes", "job.py:9")
    fields = {name: getattr(plain, name) for name in JobBundle.__dataclass_fields__}
    bundle = JobBundle.from_bytes(JobBundle(**{**fields, "former_names": (used,)}).to_bytes())
    shown = report_of(bundle, describe_job(bundle, parallelism=1)).warnings

    assert bundle.former_names == (used,)
    assert bundle.digest == plain.digest
    assert "option 'max_bytes' is now named 'roll_bytes'; rename it (job.py:9)" in [
        each.text for each in shown if each.kind == "former-name"
    ]
