"""A wheel with a source, a sink and a format is used from a pipeline and by URI, as our own are."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

MODULE = '''
import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import bicycle_sdk.connector_options as declared
from bicycle_runtime.connectors.collection import CollectionSource
from bicycle_runtime.connectors.hooks import connector_hook, format_hook
from bicycle_runtime.connectors.settings import codec_for, read_options
from bicycle_runtime.connectors.staging import StagedWriter, read_staged
from bicycle_runtime.contract import ConnectorSpec, Guarantee, Sink, StagedPublication
from bicycle_sdk.options import option


class TideSourceOptions(declared.SourceOptions[Any], connector="tide", call="tide_source"):
    """Readings of a gauge."""

    gauge: str = option(kw_only=False, doc="Name of the gauge.")
    every_ms: int = option(default=1_000, low=10, high=60_000, aliases=("every",), doc="Interval.")
    readings: int = option(default=2, low=1, doc="Number of readings.")

    @classmethod
    def from_address(cls, parts):
        return {"gauge": unquote(parts.netloc)}

    def conflicts(self):
        if self.gauge == "dry" and self.readings > 1:
            yield declared.Conflict("readings", "a dry gauge has one reading", "set it to 1")


class TideSource(CollectionSource):
    options_class = TideSourceOptions

    def __init__(self, spec):
        options = read_options(TideSourceOptions, spec)
        items = [
            {"gauge": options.gauge, "at": number * options.every_ms}
            for number in range(options.readings)
        ]
        super().__init__(
            ConnectorSpec(vertex_id=spec.vertex_id, connector_type="tide", properties={},
                          payloads={"items": items})
        )


class TideLogOptions(declared.SinkOptions, connector="tide_log", call="tide_log"):
    """Files with one line for each epoch."""

    folder: str = option(kw_only=False, doc="Folder for the files.")
    value_format: str = option(default="string", aliases=("format",), doc="Format of values.")
    value_format_options: object = option(default=None, doc="Options of the format.")

    @classmethod
    def from_address(cls, parts):
        return {"folder": unquote(parts.path)}


class Writers:
    def __init__(self, codec):
        self.codec = codec

    def open(self, task):
        return StagedWriter(task, "levels", lambda values: b"".join(map(self.codec.encode, values)))


class TideLog(StagedPublication, Sink):
    guarantee = Guarantee.EXACTLY_ONCE
    options_class = TideLogOptions

    def __init__(self, spec):
        super().__init__(spec)
        options = read_options(TideLogOptions, spec)
        self.folder = Path(options.folder)
        self.codec = codec_for(spec, "value", options.value_format, record_type=None,
                               options=options.value_format_options)

    def start(self, services, state):
        self.storage = services.storage
        self.folder.mkdir(parents=True, exist_ok=True)

    def writer(self):
        return Writers(self.codec)

    def publish(self, epoch, state):
        found = b"".join(read_staged(self.storage, each) for each in self.staged_files(state))
        if found:
            (self.folder / f"{epoch:06}").write_bytes(found)

    def stop(self):
        pass


class Shout:
    def __init__(self, record_type, options):
        self.end = options.get("end", "!")

    def encode(self, value):
        return (json.dumps(value).upper() + self.end).encode()

    def decode(self, data):
        return json.loads(data.decode().removesuffix(self.end).lower())


@connector_hook
def bicycle_sources():
    return {"tide": "tide_zoo:TideSource"}


@connector_hook
def bicycle_sinks():
    return {"tide_log": "tide_zoo:TideLog"}


@format_hook
def bicycle_formats():
    return {"shout": "tide_zoo:Shout"}
'''
ENTRY_POINTS = """\
[bicycle.extensions]
tide = tide_zoo

[bicycle.sources]
tide = tide_zoo:TideSourceOptions

[bicycle.sinks]
tide-log = tide_zoo:TideLogOptions
"""
RUN = """
import json, sys
from bicycle_runtime.testing import Harness
from bicycle_sdk import StreamEnvironment

def finish(env):
    with Harness(env, real_sinks=["sink"]) as harness:
        harness.run()
"""
BY_PIPELINE = """
from bicycle_runtime.pipelines.building import build_pipeline
from bicycle_runtime.pipelines.documents import read_document
from bicycle_runtime.pipelines.nodes import check_pipeline
from bicycle_sdk.errors import BicycleError

env = StreamEnvironment()
try:
    text = sys.stdin.read()
    build_pipeline(env, check_pipeline(read_document(text, file="p", notation="toml")))
    finish(env)
except BicycleError as error:
    print(json.dumps([[e["line"], e["column"], e["text"]] for e in error.facts["problems"]]))
"""
BY_URI = """
from bicycle_sdk.errors import BicycleError

env = StreamEnvironment()
try:
    source, sink = sys.stdin.read().split()
    env.from_uri(source).uid("source").to_uri(sink).uid("sink")
    finish(env)
except BicycleError as error:
    print(json.dumps([error.code, error.summary, error.remedy]))
"""
PIPELINE = """\
[source]
kind = "tide"
gauge = "brest"
every = "30ms"
{source}

[sink]
kind = "tide_log"
folder = "{folder}"
format = "shout"
value_format_options = {{ end = "?" }}
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Install the wheel: an installed distribution is a folder."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "tide_zoo.py").write_text(MODULE)
    info = folder / "tide_zoo-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tide-zoo\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    return folder


def ran(site, script, text):
    """Run a script with the wheel installed, and return its output as JSON."""
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(RUN) + script],
        input=text, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout or "[]")


def shouted(folder, end):
    """Return the records that the sink wrote."""
    text = "".join(file.read_text() for file in sorted(folder.iterdir()))
    return [json.loads(part.lower()) for part in text.split(end) if part]


def test_a_pipeline_uses_source_sink_and_format_of_a_wheel(site, tmp_path):
    folder = tmp_path / "out"
    assert ran(site, BY_PIPELINE, PIPELINE.format(source="readings = 3", folder=folder)) == []

    assert shouted(folder, "?") == [{"gauge": "brest", "at": at} for at in (0, 30, 60)]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("redings = 3", [5, 1, "unknown key source.redings; did you mean 'readings'?"]),
        ("readings = 0", [5, 12, "source.readings is 0; expected 1 or more"]),
        ("every_ms = 5", [5, 1, "every and every_ms are the same key"]),
    ],
)
def test_a_pipeline_reports_wrong_keys_of_a_wheel(site, tmp_path, source, problem):
    [found] = ran(site, BY_PIPELINE, PIPELINE.format(source=source, folder=tmp_path))

    assert found[:2] == problem[:2]
    assert found[2].startswith(problem[2])


def test_a_pipeline_reports_options_of_a_wheel_that_conflict(site, tmp_path):
    text = PIPELINE.format(source="", folder=tmp_path).replace("brest", "dry")
    [found] = ran(site, BY_PIPELINE, text)

    assert found[2] == "source.readings: a dry gauge has one reading; set it to 1"


def test_a_uri_names_source_and_sink_of_a_wheel(site, tmp_path):
    folder = tmp_path / "out"
    uris = f"tide://brest?every=30ms&readings=2 tide-log:{folder}?format=shout"
    assert ran(site, BY_URI, uris) == []

    assert shouted(folder, "!") == [{"gauge": "brest", "at": at} for at in (0, 30)]


@pytest.mark.parametrize(
    ("uri", "parts"),
    [
        ("tide://brest?redings=2", ["unknown option 'redings'", "did you mean 'readings'?"]),
        ("tide://brest?every=1h", ["option 'every' is '1h'", "from 10 to 60,000"]),
        ("tide://dry", ["a dry gauge has one reading", "set it to 1"]),
    ],
)
def test_a_wrong_uri_of_a_wheel_is_an_error_of_the_call(site, uri, parts):
    code, summary, remedy = ran(site, BY_URI, f"{uri} tide-log:/tmp/none")

    assert code == "BIC-1006"
    assert parts[0] in summary
    assert parts[1] in remedy
