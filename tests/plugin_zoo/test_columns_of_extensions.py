"""A source of another wheel emits frames, and steps that read fields create none of its records."""

import os
import subprocess
import sys

import pytest

from tests.plugin_zoo.extensions import install_extension

MODULE = """
from dataclasses import replace
from operator import itemgetter

from bicycle_runtime.connectors.collection import CollectionSource
from bicycle_runtime.connectors.console import ConsoleSink
from bicycle_runtime.connectors.hooks import connector_hook
from bicycle_runtime.connectors.staging import StagedWriter
from bicycle_runtime.contract import ConnectorSpec
from bicycle_runtime.frames.frame import FieldRows, Frame


class TideSource(CollectionSource):
    gives_fields = True

    def __init__(self, spec):
        levels = [{"gauge": "brest", "cm": cm} for cm in range(5)]
        super().__init__(
            ConnectorSpec(vertex_id=spec.vertex_id, connector_type="tide", properties={},
                          payloads={"items": levels})
        )

    def reader(self):
        return TideReader(super().reader())


class TideReader:
    def __init__(self, inner):
        self.inner, self.is_on_columns = inner, False

    def give_fields(self):
        self.is_on_columns = True
        return True

    def read(self, part):
        for batch in self.inner.read(part):
            rows = FieldRows(objects=list(batch.values), make=self.records, getter=itemgetter)
            yield replace(batch, values=Frame.of_rows(rows)) if self.is_on_columns else batch

    def records(self):
        raise AssertionError("a record was created")

    def close(self):
        self.inner.close()


class TideSink(ConsoleSink):
    accepts = "frames"

    def writer(self):
        return TideWriters()


class RecordSink(TideSink):
    accepts = "records"


class TideWriters:
    def open(self, task):
        return StagedWriter(task, "levels.txt", text_of)


def text_of(values):
    print("columns", values.field("mm").items) if isinstance(values, Frame) else print(values)
    return b"written"


@connector_hook
def bicycle_sources():
    return {"tide": "tide_columns:TideSource"}


@connector_hook
def bicycle_sinks():
    return {"tide_log": "tide_columns:TideSink", "tide_records": "tide_columns:RecordSink"}
"""
RUN = """
from bicycle_runtime.testing import Harness
from bicycle_sdk import StreamEnvironment
from bicycle_sdk.connectors import SourceDescriptor

env = StreamEnvironment()
levels = env.add_source(SourceDescriptor(connector_type="tide", output_type=dict))
high = levels.filter({condition}).map(lambda level: {{"mm": level["cm"] * 10}})
high.collect("high")
with Harness(env) as harness:
    harness.run()
    print(harness.results("high"))
"""


@pytest.mark.parametrize(
    ("condition", "output"),
    [
        ('lambda level: level["cm"] > 2', "[{'mm': 30}, {'mm': 40}]"),
        ("lambda level: print(level) or level['cm'] > 2", "[{'mm': 30}, {'mm': 40}]"),
    ],
)
def test_a_source_of_another_wheel_emits_frames_only_to_steps_that_read_fields(
    tmp_path, condition, output
):
    site = tmp_path / "site"
    points = {"tide": "tide_columns"}
    install_extension(site, {"tide_columns.py": MODULE}, name="tide-columns", points=points)

    done = subprocess.run(
        [sys.executable, "-c", RUN.format(condition=condition)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(site)},
    )

    assert output in done.stdout + done.stderr


RUN_INTO_SINK = """
from bicycle_runtime.testing import Harness
from bicycle_sdk import StreamEnvironment
from bicycle_sdk.connectors import SinkDescriptor, SourceDescriptor

env = StreamEnvironment()
levels = env.add_source(SourceDescriptor(connector_type="tide", output_type=dict))
high = levels.filter({condition}).map(lambda level: {{"mm": level["cm"] * 10}})
high.sink_to(SinkDescriptor(connector_type="{word}")).uid("out")
with Harness(env, real_sinks=["out"]) as harness:
    harness.run()
"""


@pytest.mark.parametrize(
    ("word", "condition", "output"),
    [
        ("tide_log", 'lambda level: level["cm"] > 2', "columns [30, 40]"),
        ("tide_log", "lambda level: print(level) or level['cm'] > 2", "[{'mm': 30}, {'mm': 40}]"),
        ("tide_records", 'lambda level: level["cm"] > 2', "[{'mm': 30}, {'mm': 40}]"),
    ],
)
def test_a_sink_of_another_wheel_receives_the_input_that_it_accepts(
    tmp_path, word, condition, output
):
    site = tmp_path / "site"
    points = {"tide": "tide_columns"}
    install_extension(site, {"tide_columns.py": MODULE}, name="tide-columns", points=points)

    done = subprocess.run(
        [sys.executable, "-c", RUN_INTO_SINK.format(word=word, condition=condition)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(site)},
    )

    assert output in done.stdout + done.stderr
