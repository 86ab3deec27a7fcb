"""Results of windows are written from their columns, and are records wherever somebody looks."""

import base64
import csv
import json
import pickle

import pytest

from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.testing import Harness
from bicycle_sdk import dead_letter, file_sink
from bicycle_sdk.windows import AggregateFunction, Average, Count, WindowResult

EVENTS = [("b", 1), ("a", 3), ("a", 4), ("a", 12), ("ü", 13)]
RESULTS = [
    ["a", 0, 10, [2, 1.0]],
    ["b", 0, 10, [1, 1.0]],
    ["a", 10, 20, [1, 1.0]],
    ["ü", 10, 20, [1, 1.0]],
]


class Complex(AggregateFunction):
    """Gives what JSON does not have, unless there was one record only."""

    def create_accumulator(self):
        return 0

    def add(self, accumulator, value):
        return accumulator + 1

    def merge(self, a, b):
        return a + b

    def get_result(self, accumulator):
        return accumulator if accumulator == 1 else complex(accumulator)


def one(event):
    return 1


def run(sinks, *aggregates):
    def job(env):
        events = env.from_collection(EVENTS).assign_timestamps(lambda event: event[1])
        windows = events.key_by(lambda event: event[0]).tumbling_window(10)
        sinks(windows.aggregate(*aggregates).uid("windows"))

    with Harness(job, parallelism=1, real_sinks=["json", "text", "csv"]) as harness:
        harness.run()
        return harness


def lines(folder):
    return [line for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]


@pytest.fixture
def no_records(monkeypatch):
    monkeypatch.setattr(Frame, "records", None)


@pytest.mark.usefixtures("no_records")
def test_json_lines_are_written_without_making_a_result(tmp_path):
    run(lambda results: results.sink_to(file_sink(tmp_path)).uid("json"), Count(), Average(one))

    assert sorted(map(json.loads, lines(tmp_path))) == sorted(RESULTS)


def test_every_other_sink_gets_the_results(tmp_path):
    def sinks(results):
        results.collect("out")
        results.sink_to(file_sink(tmp_path / "text", format="text")).uid("text")
        results.sink_to(file_sink(tmp_path / "csv", format="csv")).uid("csv")

    harness = run(sinks, Count())

    found = harness.results("out")
    assert {type(result) for result in found} == {WindowResult}
    assert [json.dumps(list(result), ensure_ascii=False) for result in found] == [
        json.dumps([*row[:3], row[3][0]], ensure_ascii=False) for row in RESULTS
    ]
    assert [json.loads(line) for line in lines(tmp_path / "text")] == list(map(list, found))
    header, *rows = csv.reader(lines(tmp_path / "csv"))
    assert (header, rows) == (
        ["key", "start", "end", "value"], [list(map(str, result)) for result in found]
    )  # fmt: skip


def test_functions_behind_get_the_results(tmp_path):
    def sinks(results):
        results.map(lambda result: (result.key, result.value)).collect("out")

    assert run(sinks, Count()).results("out") == [(row[0], row[3][0]) for row in RESULTS]


def test_a_result_that_json_does_not_have_is_settled_and_the_others_are_written(tmp_path):
    def sinks(results):
        results.sink_to(file_sink(tmp_path)).uid("json").on_error(dead_letter())

    harness = run(sinks, Complex())

    assert sorted(map(json.loads, lines(tmp_path))) == [
        ["a", 10, 20, 1], ["b", 0, 10, 1], ["ü", 10, 20, 1]
    ]  # fmt: skip
    (letter,) = harness.dead_letters
    assert (letter["operator"], pickle.loads(base64.b64decode(letter["value"]))) == (
        "json",
        WindowResult("a", 0, 10, 2 + 0j),
    )
    assert "complex" in letter["message"]
