"""Which job reads and writes which streams, as graphs in checkpoints say."""

import json
from dataclasses import asdict

import pytest
from click.testing import CliRunner

from bicycle_runtime.cli.root import main
from bicycle_runtime.jobs.checkpoints.job_file import note_run
from bicycle_runtime.jobs.control.job_queries import list_jobs
from bicycle_runtime.jobs.control.topology import JobTopology, job_node, streams_of, topology_of
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.status import JobState
from bicycle_runtime.recovery.savepoints import job_facts
from bicycle_runtime.testing import Harness
from bicycle_sdk import StreamEnvironment, file_sink
from tests.unit.jobs.job_samples import put_job


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def put(home, name, build, *, directory=None, **fields):
    """Put a job whose checkpoint has its graph, and the directory in which it runs."""
    env = StreamEnvironment()
    build(env)
    folder = home.path / "checkpoints" / name
    folder.mkdir(parents=True)
    facts = {"graph": json.loads(env.build_graph(name).to_json())}
    if directory is not None:
        facts["working_directory"] = str(directory)
    (folder / "job.json").write_text(json.dumps(facts))
    put_job(home, name, checkpoint=str(folder), **{"state": JobState.FINISHED, **fields})


def intake(env):
    clicks = env.from_uri("kafka://b:9092,a:9092/clicks").uid("clicks")
    clicks.map(str).to_uri("redis://host/orders").uid("orders")
    env.from_uri("file:raw/*.csv", type=None).uid("raw").print()


def billing(env):
    env.from_uri("redis://host/orders,refunds").uid("in").sink_to(file_sink("out")).uid("bills")


def audit(env):
    env.from_uri("redis://host/orders").uid("in").print()
    env.from_uri("file:./out/*.txt").uid("bills").print()


@pytest.fixture
def jobs(home):
    put(home, "intake", intake)
    put(home, "billing", billing)
    put(home, "audit", audit)
    return home


def topology(home):
    return topology_of([job_node(status) for status in list_jobs(home)])


def users(found, stream):
    """Return who writes a stream, and who reads it."""
    [node] = [node for node in found.streams if node.name == stream]
    return sorted(node.written_by), sorted(node.read_by)


def test_jobs_meet_at_the_streams_that_they_declare(jobs):
    found = topology(jobs)

    assert users(found, "redis://host/orders") == (["intake"], ["audit", "billing"])
    assert users(found, "redis://host/refunds") == ([], ["billing"])
    # What is read from a folder is what another job writes there, however the path is written.
    assert users(found, "file:out") == (["billing"], ["audit"])
    assert users(found, "kafka://a:9092,b:9092/clicks") == ([], ["intake"])
    # Consoles of two jobs are not one stream.
    names = [node.name for node in found.streams]
    assert {"console of audit", "console of intake"} <= set(names)
    assert names.index("file:out") < names.index("console of audit")


def test_relative_paths_of_different_folders_are_different_streams(home):
    def writing(env):
        env.from_uri("file:in/*.txt").uid("in").sink_to(file_sink("out")).uid("out")

    def reading(env):
        env.from_uri("file:../a/out/*.txt").uid("in").to_uri("file://./out.ss/words").uid("out")

    put(home, "one", writing, directory="/work/a")
    put(home, "two", writing, directory="/work/b")
    put(home, "three", reading, directory="/work/b")
    put(home, "four", reading, directory="/work/c")
    found = topology(home)

    assert users(found, "file:/work/a/out") == (["one"], ["four", "three"])
    assert users(found, "file:/work/b/out") == (["two"], [])
    assert users(found, "file:/work/a/in/*.txt") == ([], ["one"])
    assert users(found, "file:///work/b/out.ss/words") == (["three"], [])
    assert users(found, "file:///work/c/out.ss/words") == (["four"], [])


def test_tables_of_different_catalogs_are_different_streams():
    table = {"table": "shop.orders", "catalog_name": "lake"}

    assert streams_of("iceberg", {**table, "catalog": "sqlite:///lake.db"}, "/work/a") == [
        "sqlite:////work/a/lake.db/lake/shop.orders"
    ]
    assert streams_of("iceberg", {**table, "catalog": "postgresql://ada@h/lakes"}) == [
        "postgresql://ada@h/lakes/lake/shop.orders"
    ]


def test_the_checkpoint_of_a_job_names_the_directory_in_which_it_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("a\n")

    def job(env):
        env.read_text("in.txt").uid("in").collect("out")

    with Harness(job) as harness:
        harness.run()
        note_run(harness.setup, now_ms=1)
        assert job_facts(harness.storage)["working_directory"] == str(tmp_path)


def test_the_graph_is_told_as_text_as_a_drawing_and_as_a_document(jobs):
    def call(*words):
        environment = {"BICYCLE_HOME": str(jobs.path)}
        done = CliRunner().invoke(main, ["stream", "graph", *words], env=environment)
        assert done.exit_code == 0, done.output
        return done.stdout

    text = call()
    assert "redis://host/orders\n  written by intake\n  read by " in text
    drawing = call("--format", "mermaid").splitlines()
    assert drawing[0] == "flowchart LR"
    [stream] = [line.split("[")[0].strip() for line in drawing if '"redis://host/orders"' in line]
    [job] = [line.split("(")[0].strip() for line in drawing if '"intake<br/>' in line]
    assert f"  {job} --> {stream}" in drawing
    plain = json.loads(call("--json"))
    assert plain == json.loads(json.dumps(asdict(topology(jobs))))
    assert JobTopology.from_json(plain) == topology(jobs)


def test_a_job_without_a_graph_is_told_and_hides_no_other(jobs):
    put_job(jobs, "new", state=JobState.CREATED)
    put_job(jobs, "far", checkpoint="no-such-scheme://x")
    found = topology(jobs)

    problems = {job.job: job.problem for job in found.jobs if job.problem}
    assert problems["new"] == "its checkpoint has no graph yet"
    assert "no-such-scheme" in problems["far"]
    assert "new: its checkpoint has no graph yet" in found.to_text()
    assert users(found, "redis://host/orders")[0] == ["intake"]


@pytest.mark.parametrize(
    ("connector", "properties", "found"),
    [
        ("kafka", {"brokers": "a:1", "topic": "x"}, ["kafka://a:1/x"]),
        ("kafka", {"brokers": "a:1"}, ["kafka://a:1/*"]),
        ("delta", {"path": "s3://lake/t"}, ["s3://lake/t"]),
        ("iceberg", {"table": "shop.orders"}, ["iceberg:shop.orders"]),
        ("http", {"url": "https://ada:pw@host/hook?key=1"}, ["https://host/hook"]),
        ("socket", {"port": 9999}, ["socket://127.0.0.1:9999"]),
        ("socket", {"host": "h", "port": 1, "stream": "a,b"}, ["socket://h:1/a", "socket://h:1/b"]),
        ("of-a-stranger", {"address": "pigeon://loft/a,b"}, ["pigeon://loft/a", "pigeon://loft/b"]),
        ("generator", {"rate_ms": 5}, []),
    ],
)
def test_streams_are_named_by_what_a_connector_says_of_its_place(connector, properties, found):
    assert streams_of(connector, properties) == found
