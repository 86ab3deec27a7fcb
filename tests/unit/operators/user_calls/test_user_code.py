"""Whatever user code raises is settled by the policy of its operator, with the record's place."""

import asyncio
import json
import sys
from dataclasses import dataclass
from datetime import timedelta

import pytest

from bicycle_runtime.base.user_code import (
    ProcessEnding,
    error_text,
    show,
    until_failure,
    users_error,
)
from bicycle_runtime.operators.errors import (
    FunctionFailedError,
    FunctionHookError,
)
from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import (
    AggregateFunction,
    AsyncIOFunction,
    KeyedProcessFunction,
    RichAsyncFunction,
)


class Odd(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class Own(BaseException):
    pass


class Silent:
    def __repr__(self):
        raise Own


def fail(kind):
    """Raise in the way of the name, as user code could."""
    match kind:
        case "exit":
            sys.exit("that is all")
        case "interrupt":
            raise KeyboardInterrupt
        case "generator":
            raise GeneratorExit
        case "own":
            raise Own("mine")
        case "odd":
            raise Odd
        case "surrogate":
            raise ValueError("bad text: \ud800")
        case "cancelled":
            raise asyncio.CancelledError
        case _:
            return kind


KINDS = ["exit", "interrupt", "generator", "own", "odd", "surrogate", "cancelled"]
TEXTS = {
    "exit": ("SystemExit", "that is all"),
    "interrupt": ("KeyboardInterrupt", ""),
    "generator": ("GeneratorExit", ""),
    "own": ("Own", "mine"),
    "odd": ("Odd", "(its __str__ raised RuntimeError)"),
    "surrogate": ("ValueError", "bad text: \\ud800"),
    "cancelled": ("CancelledError", ""),
}


async def fail_later(kind):
    await asyncio.sleep(0)
    return fail(kind)


async def fail_at_once(kind):
    return fail(kind)


async def fail_in_task(kind):
    return await asyncio.create_task(fail_later(kind))


def results_of(record):
    yield fail(record)


def fail_as_time(kind):
    return 0 if fail(kind) else 1


class Call(AsyncIOFunction):
    async def async_invoke(self, value):
        return [await fail_later(value)]


class Keep(RichAsyncFunction):
    async def process(self, value, ctx):
        return [fail(value)]


class AtTimer(KeyedProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service.register_event_time_timer(0)
        return []

    def on_timer(self, time_ms, ctx):
        return [fail(ctx.current_key())]


class AddUp(AggregateFunction):
    def create_accumulator(self):
        return []

    def add(self, accumulator, value):
        return [*accumulator, fail(value)]

    def get_result(self, accumulator):
        return accumulator[0]

    def merge(self, one, other):
        return one + other


LIMIT = timedelta(minutes=1)
SHAPES = {
    "map": lambda s: s.map(fail),
    "async map": lambda s: s.map(fail_later),
    "async map that awaits nothing": lambda s: s.map(fail_at_once),
    "async map of a task": lambda s: s.map(fail_in_task),
    "filter": lambda s: s.filter(fail),
    "flat map": lambda s: s.flat_map(results_of),
    "key": lambda s: s.key_by(fail),
    "calls in flight": lambda s: s.async_io_ordered(Call(), timeout=LIMIT, capacity=3),
    "process": lambda s: s.process(Keep()),
    "timer": lambda s: s.key_by(str).process_fn(AtTimer()),
    "timestamp": lambda s: s.assign_timestamps(fail_as_time),
    "window": lambda s: (
        s.assign_timestamps(lambda _: 0).key_by(str).tumbling_window(10).aggregate(AddUp())
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_whatever_a_function_raises_follows_the_policy(shape):
    def job(env):
        words = env.add_source(script_source(str)).uid("words")
        stream = SHAPES[shape](words).on_error("dead_letter")
        stream.map(lambda v: getattr(v, "value", v)).collect("out")

    with Harness(job) as harness:
        harness.push(["good", *KINDS, "fine"])
        harness.end()
        harness.run()
        assert sorted(harness.results("out")) == ["fine", "good"]
        letters = harness.dead_letters

    assert sorted((x["exception"], x["message"]) for x in letters) == sorted(TEXTS.values())
    assert all(x["operator"] for x in letters)


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_that_fails_the_job_names_operator_line_and_position(kind):
    def job(env):
        words = env.add_source(script_source(str)).uid("words")
        words.map(fail).uid("failing").collect("out")

    with Harness(job) as harness:
        harness.push(["good", kind])
        with pytest.raises(FunctionFailedError) as caught:
            harness.run_epoch()

    facts = caught.value.facts
    assert (facts["exception"], facts["exception_message"]) == TEXTS[kind]
    assert facts["operator"] == "failing"
    assert __file__ in facts["location"]
    assert facts["position"] == "record 1 of the script"
    json.dumps(facts).encode()


def test_an_exit_in_a_task_of_user_code_leaves_nothing_in_the_loop():
    async def start_and_wait(value):
        if value == "bad":
            asyncio.get_running_loop().create_task(fail_at_once("exit"))
            await asyncio.sleep(60)
        return value

    def job(env):
        words = env.add_source(script_source(str)).uid("words")
        words.map(start_and_wait).on_error("skip").collect("out")

    with Harness(job) as harness:
        harness.push(["good", "bad", "fine"])
        harness.run_epoch()
        assert harness.results("out") == ["good", "fine"]


def test_a_hook_that_exits_is_an_error_of_its_operator():
    class Leaves(RichAsyncFunction):
        async def open(self, ctx):
            sys.exit(3)

        async def process(self, value, ctx):
            return [value]

    def job(env):
        words = env.add_source(script_source(str)).uid("words")
        words.process(Leaves()).uid("leaving").collect("out")

    with Harness(job) as harness:
        harness.push(["good"])
        with pytest.raises(FunctionHookError) as caught:
            harness.run_epoch()

    assert caught.value.facts["operator"] == "leaving"
    assert caught.value.facts["exception"] == "SystemExit"


def test_a_function_that_exits_in_close_does_not_end_the_process():
    class Leaves(RichAsyncFunction):
        async def process(self, value, ctx):
            return [value]

        async def close(self):
            sys.exit("so long")

    def job(env):
        words = env.add_source(script_source(str)).uid("words")
        words.process(Leaves()).uid("leaving").collect("out")

    with (
        pytest.raises(
            FunctionHookError, match=r"'leaving': close\(\) failed .*: SystemExit: so long"
        ),
        Harness(job) as harness,
    ):
        harness.push(["good"])
        harness.run_epoch()


def test_what_comes_from_outside_is_raised_again():
    for error in (ProcessEnding(), KeyboardInterrupt(), GeneratorExit()):
        with pytest.raises(type(error)):
            users_error(error)  # No statement raised it: it has no traceback.
    with pytest.raises(ProcessEnding), until_failure():
        raise ProcessEnding


def test_texts_of_errors_and_values_never_raise():
    assert error_text(Odd()) == "(its __str__ raised RuntimeError)"
    assert show(Silent()) == "(its __repr__ raised Own)"
    assert error_text(ValueError("\udfff")) == "\\udfff"


@dataclass
class Checked:
    a: int

    def __post_init__(self):
        if self.a == 0:
            sys.exit("no zero")
        if self.a < 0:
            raise KeyError("below zero")


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_what_a_record_type_raises_is_an_error_of_its_line(tmp_path, suffix):
    lines = (
        ["a", "1", "0", "-1", "2"] if suffix == "csv" else [f'{{"a":{n}}}' for n in (1, 0, -1, 2)]
    )
    (tmp_path / f"in.{suffix}").write_text("\n".join(lines) + "\n")

    def job(env):
        read = env.read_csv if suffix == "csv" else env.read_jsonl
        source = read(f"{tmp_path}/in.{suffix}", type=Checked).uid("lines")
        source.on_error("dead_letter").map(lambda record: record.a).collect("out")

    with Harness(job) as harness:
        harness.run()
        assert harness.results("out") == [1, 2]
        messages = [letter["message"] for letter in harness.dead_letters]

    assert messages == ["SystemExit: no zero", "KeyError: 'below zero'"]
