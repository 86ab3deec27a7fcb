"""What happens to input that cannot be decoded, and whose frames a failure shows."""

import base64
import contextlib
import json

import pytest

from bicycle_runtime.operators.errors import RECORD_UNDECODABLE, ErrorRateError
from bicycle_runtime.operators.metrics import add_failure
from bicycle_runtime.operators.user_calls.policy import pause_ms, user_frames, user_hook
from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk.errors import BicycleError, PreviewError
from tests.raising import raises


def test_pauses_before_retries_double_up_to_a_minute():
    assert [pause_ms(100, attempt) for attempt in range(4)] == [100, 200, 400, 800]
    assert sum(pause_ms(100, attempt) for attempt in range(20)) < 15 * 60_000
    assert {pause_ms(7_000, attempt) for attempt in range(4, 1_000)} == {60_000}
    assert pause_ms(0, 999) == 0


@pytest.fixture
def rows(tmp_path):
    """A file with a line that is no JSON, as the second of three."""
    path = tmp_path / "rows.jsonl"
    path.write_text('{"n": 1}\n{"n": oops}\n{"n": 3}\n')
    return path


def reading(rows, *policy, **settings):
    def job(env):
        source = env.read_jsonl(rows).uid("rows")
        if policy:
            source.on_error(*policy, **settings)
        source.map(lambda row: row["n"]).collect("out")

    return job


def test_input_that_cannot_be_decoded_fails_with_its_place(rows):
    with Harness(reading(rows)) as harness, raises(RECORD_UNDECODABLE) as caught:
        harness.run()

    facts = caught.value.facts
    assert (facts["operator"], facts["source"], facts["offset"]) == ("rows", "rows", 9)
    assert "rows.jsonl" in facts["position"]


def test_input_that_cannot_be_decoded_can_be_skipped(rows):
    with Harness(reading(rows, "skip")) as harness:
        harness.run()
        assert harness.published == [1, 3]
        assert harness.dead_letters == []


def test_a_dead_letter_of_a_source_keeps_the_original_bytes(rows):
    with Harness(reading(rows, "dead_letter")) as harness:
        harness.run()
        (letter,) = harness.dead_letters

        assert harness.published == [1, 3]
        assert base64.b64decode(letter["value"]).strip() == b'{"n": oops}'
        assert (letter["operator"], letter["encoding"], letter["offset"]) == ("rows", "raw", 9)
        json.dumps(letter)


def test_failures_are_counted_by_exception_and_line_with_the_first_as_example():
    def job(env):
        numbers = env.add_source(script_source(int)).uid("numbers")
        numbers.map(lambda n: [12 // n, {1: 1}[n]]).uid("map").on_error("skip").collect("out")

    with Harness(job) as harness:
        harness.push([0, 2, 0, 1, 3])
        counts = harness.run_epoch().counts["map"]

    found = {kind.partition(" ")[0]: failure for kind, failure in counts.failures.items()}
    assert {kind: failure.count for kind, failure in found.items()} == {
        "ZeroDivisionError": 2, "KeyError": 2
    }  # fmt: skip
    assert found["KeyError"].example == "KeyError: 2 (source 'numbers', script @ 1)"
    assert not counts.is_all_failed


def test_failures_of_very_many_kinds_are_told_together():
    failures = {}
    for number in range(50):
        add_failure(failures, f"kind {number}", 2, "first")

    assert len(failures) == 21
    assert sum(found.count for found in failures.values()) == 100


@pytest.mark.parametrize("timestamps", [[5, 6, 7], None])
def test_a_dead_letter_of_a_function_has_the_event_time_of_its_record(timestamps):
    def job(env):
        numbers = env.add_source(script_source(int)).flat_map(lambda n: [n, -n])
        parts = numbers.filter(lambda n: n <= 0).map(lambda n: 1 / (n + 2))
        parts.on_error("dead_letter").collect("out")

    with Harness(job) as harness:
        harness.push([1, 2, 3], timestamp=timestamps)
        harness.run()
        (letter,) = harness.dead_letters

    assert letter["event_time_ms"] == (timestamps and 6)
    assert letter["source_message"] == (
        timestamps and {"key": None, "value": None, "headers": [], "timestamp_ms": 6}
    )


def test_undecodable_input_counts_for_the_error_rate(rows):
    job = reading(rows, "skip", max_error_rate=0.3)
    with Harness(job) as harness, pytest.raises(ErrorRateError) as caught:
        harness.run()

    assert (caught.value.facts["failed"], caught.value.facts["total"]) == (1, 3)


@pytest.mark.parametrize(("between", "is_fine"), [(9, True), (5, False)])
def test_epochs_of_few_records_count_together_for_the_error_rate(between, is_fine):
    def job(env):
        inverse = env.add_source(script_source(int)).map(lambda n: 12 // n)
        inverse.on_error("skip", max_error_rate=0.1).collect("out")

    with Harness(job) as harness:
        for number in [0, *[1] * between]:
            harness.push([number])
            harness.run_epoch()
        harness.push([0])
        with contextlib.nullcontext() if is_fine else pytest.raises(ErrorRateError):
            harness.run_epoch()


def test_the_blame_falls_on_the_users_line_and_not_on_a_library_below_it():
    try:
        json.loads("no json")
    except ValueError as error:
        text, location = user_frames(error)

    assert "test_policy.py" in location
    assert location.endswith(
        "in test_the_blame_falls_on_the_users_line_and_not_on_a_library_below_it"
    )
    assert "decoder.py" in text


def test_errors_of_ours_pass_a_hook_unchanged():
    with pytest.raises(PreviewError), user_hook("op", "open()"):
        raise PreviewError(vertex="v")


def test_errors_of_a_hook_name_operator_and_action():
    with pytest.raises(BicycleError) as caught, user_hook("op", "open()"):
        raise ConnectionError("no route")

    facts = caught.value.facts
    assert (facts["operator"], facts["action"]) == ("op", "open()")
    assert (facts["exception"], facts["exception_message"]) == ("ConnectionError", "no route")
