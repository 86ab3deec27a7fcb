"""Pipelines from texts, run on the harness with their own sources."""

import json
import textwrap
from collections import Counter
from contextlib import contextmanager

from bicycle_runtime.pipelines.building import build_pipeline
from bicycle_runtime.pipelines.documents import read_document
from bicycle_runtime.pipelines.nodes import check_pipeline
from bicycle_runtime.testing import Harness
from bicycle_sdk import StreamEnvironment


def checked(text, notation="toml"):
    """Return the pipeline that a text describes."""
    return check_pipeline(
        read_document(textwrap.dedent(text), file=f"p.{notation}", notation=notation)
    )


def built(text, notation="toml"):
    """Return the environment with the streams of a pipeline."""
    env = StreamEnvironment()
    build_pipeline(env, checked(text, notation))
    return env


def graph(text, notation="toml"):
    """Return the graph of a pipeline, checked."""
    return built(text, notation).execute("p")


@contextmanager
def ran(text, notation="toml", *, faults=(), **settings):
    """Run a pipeline to the end of its input, past crashes, and give what it ran on."""
    with Harness(built(text, notation), **settings) as harness:
        for point in faults:
            harness.fail_at(point)
        harness.run()
        yield harness


def run(text, notation="toml", sink="sink", **settings):
    """Run a pipeline to the end of its input and return what came to a sink."""
    with ran(text, notation, **settings) as harness:
        return harness.results(sink)


def finish(text, notation="toml"):
    """Run a pipeline to the end of its input, into its own sink."""
    with ran(text, notation, real_sinks=["sink"]):
        pass


def on_columns(harness):
    """Return how many records each operator took as columns."""
    counts = (item for epoch in harness.epochs for item in epoch.counts.items())
    found = Counter()
    for uid, operator in counts:
        found[uid] += operator.on_columns
    return found


def lines(tmp_path, *records, name="in.jsonl"):
    """Write records as JSON lines and return the path."""
    path = tmp_path / name
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path
