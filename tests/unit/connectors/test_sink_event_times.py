"""Event times reach sinks that ask for them: files, sinks of extensions, and nobody else."""

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

import pydantic
import pytest

from bicycle_runtime.connectors.collect import CollectSink, CollectWriterFactory
from bicycle_runtime.connectors.errors import CONNECTOR_OPTION_WRONG
from bicycle_runtime.connectors.hooks import connector_hook
from bicycle_runtime.connectors.registry import create_sink
from bicycle_runtime.connectors.staging import StagedWriter
from bicycle_runtime.contract import ConnectorSpec
from bicycle_runtime.operators.errors import FunctionFailedError
from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import KeyedProcessFunction
from bicycle_sdk.connectors import SinkDescriptor, file_sink
from bicycle_sdk.contexts import WATERMARK_MAX
from bicycle_sdk.errors import StreamDefinitionError
from tests.raising import raises


@dataclass
class Click:
    user: str
    page: int


class Visit(NamedTuple):
    user: str
    page: int


class Pairs(CollectSink):
    """Collects ``(event time, record)``, and leaves out what is told to be bad."""

    takes_times = True

    def writer(self):
        return PairWriters()


class PairWriters(CollectWriterFactory):
    def open(self, task):
        return PairWriter(task, "pairs", super().open(task)._encode)


class PairWriter(StagedWriter):
    def prepare(self, values, times):
        return [
            self.prepare_one(value, time_ms)
            for value, time_ms in zip(values, times or [None] * len(values), strict=True)
        ]

    def prepare_one(self, value, time_ms):
        if value == "bad":
            raise ValueError(value)
        return (time_ms, value)


class PlainPairs(Pairs):
    """The same, without asking for times."""

    takes_times = False


class Extension:
    @connector_hook
    def bicycle_sinks(self):
        return {"pairs": f"{__name__}:Pairs", "plain_pairs": f"{__name__}:PlainPairs"}


def pairs_of(job, *, word="pairs", parallelism=None, **pushed):
    """Push to a job that ends in such a sink and return what it wrote."""

    def whole(env):
        sink = SinkDescriptor(connector_type=word, properties={"name": "pairs"})
        job(env.add_source(script_source(str)).uid("source")).sink_to(sink).uid("out").on_error(
            "skip"
        )

    with Harness(
        whole, real_sinks=["out"], extensions=[Extension()], parallelism=parallelism
    ) as harness:
        harness.push(**pushed)
        harness.end()
        harness.run()
        return sorted(harness.results("pairs"), key=repr)


def test_a_sink_gets_the_event_time_of_each_record():
    found = pairs_of(lambda words: words.map(str.upper), values=["a", "b"], timestamp=[5, -7])

    assert found == [(-7, "B"), (5, "A")]


def test_times_come_through_an_exchange_and_what_fails_takes_its_time_along():
    found = pairs_of(
        lambda words: words.rebalance().filter(lambda word: word != "gone"),
        parallelism=2,
        values=["a", "gone", "bad", "b", "c"],
        timestamp=[1, 2, 3, 4, 5],
    )

    assert found == [(1, "a"), (4, "b"), (5, "c")]


def test_windows_and_timers_give_sinks_their_own_times():
    class Later(KeyedProcessFunction[str, str, str]):
        def process_element(self, value, ctx):
            ctx.timer_service.register_event_time_timer(ctx.timestamp + 5)
            ctx.timer_service.register_event_time_timer(WATERMARK_MAX)
            return []

        def on_timer(self, timestamp_ms, ctx):
            return ["last" if timestamp_ms == WATERMARK_MAX else "later"]

    counted = pairs_of(
        lambda words: words.key_by(len).tumbling_window(10).count().map(lambda r: str(r.value)),
        values=["a", "b"],
        timestamp=[3, 14],
    )
    timed = pairs_of(lambda words: words.key_by(len).process_fn(Later()), values="a", timestamp=3)

    assert counted == [(19, "1"), (9, "1")]
    assert timed == [(8, "later"), (None, "last")]  # The end of all time is no time.


def test_without_event_time_there_is_none():
    assert pairs_of(lambda words: words, values=["a"]) == [(None, "a")]


def test_who_does_not_ask_gets_none():
    found = pairs_of(lambda words: words, word="plain_pairs", values=["a"], timestamp=5)

    assert found == [(None, "a")]


# --- files ---------------------------------------------------------------------------------------


def written(folder, sink, records, timestamp):
    """Return the text that a file sink wrote."""

    def job(env):
        env.add_source(script_source()).uid("source").sink_to(sink).uid("out")

    with Harness(job, real_sinks=["out"]) as harness:
        harness.push(records, timestamp=timestamp)
        harness.end()
        harness.run()
    return "".join(path.read_text() for path in sorted(folder.glob("part-*")))


@pytest.mark.parametrize("make", [Click, lambda user, page: {"user": user, "page": page}])
def test_json_lines_have_the_event_time_in_a_field_that_a_source_reads_again(tmp_path, make):
    folder, records = tmp_path / "out", [make("ada", 1), make("bob", 2)]
    text = written(folder, file_sink(folder, timestamp_field="at"), records, [5, -7])

    lines = [json.loads(line) for line in text.splitlines()]
    assert lines == [
        {"user": "ada", "page": 1, "at": 5}, {"user": "bob", "page": 2, "at": -7}
    ]  # fmt: skip

    def again(env):
        stream = env.read_jsonl(folder, timestamp_field="at")
        sink = SinkDescriptor(connector_type="pairs", properties={"name": "pairs"})
        stream.map(lambda line: line["user"]).sink_to(sink).uid("out")

    with Harness(again, real_sinks=["out"], extensions=[Extension()]) as harness:
        harness.run()
        assert harness.results("pairs") == [(5, "ada"), (-7, "bob")]


@pytest.mark.parametrize("record", [Click("ada", 1), Visit("ada", 1), {"user": "ada", "page": 1}])
def test_csv_has_the_event_time_in_a_column(tmp_path, record):
    sink = file_sink(tmp_path / "out", format="csv", timestamp_field="at")

    assert written(tmp_path / "out", sink, [record], [5]) == "user,page,at\nada,1,5\n"


class Model(pydantic.BaseModel):
    span: timedelta


@pytest.mark.parametrize(
    ("name", "text"),
    [("jsonl", '{"span":"PT1.5S","at":5}\n'), ("csv", "span,at\nPT1.5S,5\n")],
)
def test_a_model_has_the_event_time_too(tmp_path, name, text):
    sink = file_sink(tmp_path / "out", format=name, timestamp_field="at")

    assert written(tmp_path / "out", sink, [Model(span=timedelta(seconds=1.5))], [5]) == text


def test_a_field_of_that_name_is_replaced(tmp_path):
    sink = file_sink(tmp_path / "out", timestamp_field="at")

    assert written(tmp_path / "out", sink, [{"at": "?", "n": 1}], [5]) == '{"at":5,"n":1}\n'


@pytest.mark.parametrize(
    ("format", "record", "timestamp"),
    [("jsonl", {}, None), ("csv", {}, None), ("jsonl", "text", 5)],
)
def test_what_cannot_have_a_time_fails_as_a_record(tmp_path, format, record, timestamp):
    sink = file_sink(tmp_path / "out", format=format, timestamp_field="at")

    with pytest.raises(FunctionFailedError):
        written(tmp_path / "out", sink, [record], timestamp)


def test_text_has_no_fields(tmp_path):
    with pytest.raises(StreamDefinitionError):
        file_sink(tmp_path, format="text", timestamp_field="at")
    properties = {"path": str(tmp_path), "timestamp_field": "at"}
    with raises(CONNECTOR_OPTION_WRONG):
        create_sink(ConnectorSpec(vertex_id="v", connector_type="text_file", properties=properties))
