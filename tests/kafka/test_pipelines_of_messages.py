"""Pipelines give the same of messages on columns as record by record, whatever stands in them."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bicycle_runtime.testing import Harness
from bicycle_runtime.testing.connectors.running import eventually
from tests.examples import examples
from tests.kafka.kafka_feeding import feed
from tests.property.pipeline_values import SETTINGS
from tests.property.test_pipelines_on_columns import (
    CALLED,
    PIPELINE,
    ROWS,
    STEPS,
    TYPES,
    WINDOW_KEYS,
)
from tests.unit.pipelines.pipeline_runs import built, on_columns

SOURCE = """
    [source]
    kind = "kafka"
    bootstrap_servers = "{servers}"
    topic = "{topic}"
    group_id = "g"
    format = "json"
    bounded = true
    {time}
    {fields}
"""
COPY = """
    on_error = "skip"
    {source}
    {steps}
    [sink]
    kind = "console"
"""


def text_of(broker, name, *, called, window, steps, is_timed):
    """Return a pipeline over a topic: with a window, or one that copies records."""
    fields = TYPES if steps else ""
    if called:
        steps = CALLED + steps
    source = SOURCE.format(
        servers=broker.client_settings()["bootstrap.servers"], topic=name, fields=fields,
        time='time_field = "at"' if is_timed else "",
    )  # fmt: skip
    if window is None:
        return COPY.format(source=source, steps=steps)
    begin, end = PIPELINE.index("[source]"), PIPELINE.index("[time]")
    window_key = WINDOW_KEYS.get(window, "")
    rest = PIPELINE[end:].format(steps=steps, window=window, window_key=window_key, key="t")
    return PIPELINE[:begin] + source + rest


def outcome(broker, name, **given):
    """Return what came to the sink, and how many records each operator took as columns."""
    with Harness(built(text_of(broker, name, **given))) as harness:
        eventually(lambda: harness.run() or harness.loop.manifest.plan.is_finished)
        return sorted(map(repr, harness.results("sink"))), on_columns(harness)


@settings(SETTINGS, max_examples=examples(12))
@given(
    rows=ROWS,
    bad=st.sampled_from([[], [b"no json"], [b"[1]", None]]),
    steps=st.sampled_from(["", STEPS]),
    window=st.sampled_from(["tumbling", "sliding", "session", None]),
    is_timed=st.booleans(),
)
def test_messages_give_the_same_both_ways(kafka_broker, topic, rows, bad, steps, window, is_timed):
    name = topic(partitions=1)
    feed(kafka_broker, name, [*(json.dumps(row).encode() for row in rows), *bad])
    given = {"steps": steps, "window": window, "is_timed": is_timed}

    columns, records = (
        outcome(kafka_broker, name, called=called, **given)[0] for called in (False, True)
    )

    assert columns == records


@pytest.mark.parametrize("steps", ["", STEPS])
def test_messages_are_folded_on_columns(kafka_broker, topic, steps):
    name = topic(partitions=1)
    rows = [{"at": 1_000 * n, "n": n / 2, "t": "ab"[n % 2]} for n in range(20)]
    feed(kafka_broker, name, [json.dumps(row).encode() for row in rows])
    given = {"steps": steps, "window": "tumbling", "is_timed": True}

    found, taken = outcome(kafka_broker, name, called=False, **given)

    assert taken["window-combine"] == 20
    assert taken["window-rows"] == len(found) == 4
