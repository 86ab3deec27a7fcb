"""A record that a sink cannot write: ``on_error`` of the sink settles it, the error says where."""

import base64
import pickle
import threading

import pytest

from bicycle_runtime.operators.errors import ErrorRateError, FunctionFailedError
from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import dead_letter, file_sink
from bicycle_sdk.connectors import console_sink, socket_sink


class Opaque:
    """Nothing that a text could be made of."""


def records_of(number):
    return Opaque() if number == 13 else number


def harness_of(sink, policy, **options):
    def job(env):
        numbers = env.add_source(script_source(int)).uid("numbers").map(records_of)
        numbers.sink_to(sink).uid("out").on_error(policy, **options)

    return Harness(job, real_sinks=["out"])


SINKS = {
    "jsonl": lambda folder: file_sink(folder / "out"),
    "text": lambda folder: file_sink(folder / "out", format="text"),
    "csv": lambda folder: file_sink(folder / "out", format="csv"),
    "console": lambda _: console_sink(),
    "socket": lambda _: socket_sink(host="127.0.0.1", port=0),
}


@pytest.mark.parametrize("kind", SINKS)
def test_a_failing_job_names_the_record_that_could_not_be_written(tmp_path, kind):
    with harness_of(SINKS[kind](tmp_path), "fail") as harness:
        harness.push([1, 13, 2])
        with pytest.raises(FunctionFailedError) as caught:
            harness.run()

    facts = caught.value.facts
    assert (facts["operator"], facts["offset"], facts["value_type"]) == ("out", 1, "Opaque")


@pytest.mark.parametrize(
    ("kind", "text"), [("jsonl", "1\n2\n3\n"), ("text", "1\n2\n3\n"), ("csv", "value\n1\n2\n3\n")]
)
def test_the_others_are_written_and_the_one_is_a_dead_letter(tmp_path, kind, text):
    with harness_of(SINKS[kind](tmp_path), dead_letter()) as harness:
        harness.push([1, 13, 2])
        harness.run_epoch()
        harness.push([13, 3])
        harness.end()
        harness.run()
        letters = harness.dead_letters

    (part,) = (tmp_path / "out").glob("part-*")
    assert part.read_text() == text
    assert [letter["offset"] for letter in letters] == [1, 3]
    assert isinstance(pickle.loads(base64.b64decode(letters[0]["value"])), Opaque)


def test_a_record_that_nothing_can_pickle_is_a_dead_letter_as_python_shows_it(tmp_path):
    def job(env):
        numbers = env.add_source(script_source(int)).uid("numbers")
        locks = numbers.map(lambda n: threading.Lock() if n == 13 else n)
        locks.sink_to(file_sink(tmp_path / "out")).uid("out").on_error(dead_letter())

    with Harness(job, real_sinks=["out"]) as harness:
        harness.push([1, 13])
        harness.run()
        (letter,) = harness.dead_letters

    assert letter["encoding"] == "repr"
    assert "lock" in base64.b64decode(letter["value"]).decode()


def test_too_many_of_them_end_the_job(tmp_path):
    with harness_of(file_sink(tmp_path / "out"), "skip", max_error_rate=0.5) as harness:
        harness.push([1, 13, 13])
        with pytest.raises(ErrorRateError):
            harness.run()
