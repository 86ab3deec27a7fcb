"""What happens to records whose function failed, on the harness and on Spark alike."""

import base64
import pickle
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from bicycle_runtime.operators.errors import (
    UNKEYED_STATE,
    ErrorRateError,
    FunctionFailedError,
    FunctionHookError,
)
from bicycle_runtime.records.errors import RECORD_UNENCODABLE
from bicycle_runtime.testing import END, EPOCH, script_source
from bicycle_sdk import (
    AsyncFunction,
    KeyedProcessFunction,
    RichAsyncFunction,
    dead_letter,
    retry,
    skip,
)
from bicycle_sdk.errors import FunctionResultError
from tests.raising import raises

LONG = timedelta(seconds=30)
QUICK = timedelta(milliseconds=1)


def inverse(number):
    return 12 // number


async def slow_inverse(number):
    return 12 // number


def first_of(text):
    return next(iter(text))  # an empty text raises StopIteration


class Inverse(AsyncFunction[int, int]):
    async def process(self, value, ctx):
        return [12 // value]


class YieldingInverse(AsyncFunction[int, int]):
    def process(self, value, ctx):
        yield 12 // value


class RichInverse(RichAsyncFunction[int, int]):
    def __init__(self):
        self.seen: list[int] = []

    def process(self, value, ctx):
        self.seen.append(value)
        return [12 // value]


JOBS = {
    "map": lambda s: s.map(inverse),
    "async map": lambda s: s.map(slow_inverse),
    "awaitable map": lambda s: s.map(lambda n: slow_inverse(n)),  # noqa: PLW0108  # no coroutine function
    "flat_map": lambda s: s.flat_map(lambda n: [12 // n]),
    "generator": lambda s: s.flat_map(lambda n: (12 // n for _ in "x")),
    "process": lambda s: s.process(Inverse()),
    "yielding process": lambda s: s.process(YieldingInverse()),
    "ordered": lambda s: s.process_ordered(Inverse(), timeout=LONG, capacity=4),
    "rich": lambda s: s.process(RichInverse()),
}


@pytest.mark.parametrize("how", JOBS)
def test_skip_leaves_out_what_failed_and_nothing_else(runner, how):
    job = runner(lambda s: JOBS[how](s).on_error(skip()), [1, 0, 3, EPOCH, 0, 0, 4, END])

    assert job.published == [12, 4, 3]
    assert job.dead_letters == []


def test_skip_leaves_out_records_that_a_filter_could_not_judge(runner):
    job = runner(lambda s: s.filter(lambda n: 12 // n > 3).on_error(skip()), [1, 0, 3, 4, END])

    assert job.published == [1, 3]


def test_skip_leaves_out_records_without_a_key(runner):
    def by_length(stream):
        return stream.key_by(len).on_error("skip").count()

    assert runner(by_length, ["a", 7, "b", END]).published == [(1, 1), (1, 2)]


@pytest.mark.parametrize("key", [object(), [1]], ids=["no encoding", "no hash"])
def test_a_key_that_cannot_be_one_is_an_error_of_its_record(runner, key):
    def keyed(stream):
        return stream.key_by(lambda n: key if n == 2 else n).uid("keys")

    facts = failure_of(runner, lambda s: keyed(s).count(), [1, 2, 3, END])
    skipped = runner(lambda s: keyed(s).on_error(skip()).count(), [1, 2, 3, END])

    assert (facts["operator"], facts["offset"], facts["exception"]) == ("keys", 1, "TypeError")
    assert skipped.published == [(1, 1), (3, 1)]


def test_a_failed_batch_is_left_out_as_a_whole(runner):
    job = runner(
        lambda s: s.map_batches(lambda batch: [12 // n for n in batch]).on_error(skip()),
        [1, 0, EPOCH, 3, END],
    )

    assert job.published == [4]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_reduce_that_failed_leaves_the_accumulator_as_it_was(runner, parallelism):
    def total(left, right):
        if right == 13:
            raise ValueError("unlucky")
        return left + right

    job = runner(
        lambda s: s.key_by(lambda n: 0).reduce(total).on_error(skip()),
        [1, 2, 13, EPOCH, 4, END],
        parallelism=parallelism,
    )

    assert job.published == [1, 3, 7]


class Flaky(AsyncFunction[str, str]):
    """Fails the first ``fails`` calls of each record."""

    def __init__(self, fails):
        self.fails = fails

    def open(self, ctx):
        self.calls: dict[str, int] = {}

    async def process(self, value, ctx):
        self.calls[value] = self.calls.get(value, 0) + 1
        if self.calls[value] <= self.fails:
            raise ConnectionError(f"call {self.calls[value]}")
        return [f"{value}{self.calls[value]}"]


def concurrent(stream, function):
    return stream.process_unordered(function, timeout=LONG, capacity=3)


@pytest.mark.parametrize("call", [lambda s, f: s.process(f), concurrent], ids=["single", "many"])
def test_retry_calls_again_until_it_works(runner, call):
    job = runner(
        lambda s: call(s, Flaky(2)).on_error(retry(2, backoff=QUICK)), ["a", "b", "c", END]
    )

    assert sorted(job.published) == ["a3", "b3", "c3"]


@pytest.mark.core
@pytest.mark.parametrize("call", [lambda s, f: s.process(f), concurrent], ids=["single", "many"])
def test_retry_gives_up_and_does_what_follows(runner, call):
    job = runner(
        lambda s: call(s, Flaky(3)).on_error(retry(2, backoff=QUICK).then(dead_letter())),
        ["a", "b", END],
    )

    assert job.published == []
    assert sorted(letter["message"] for letter in job.dead_letters) == ["call 3", "call 3"]
    assert {letter["attempt"] for letter in job.dead_letters} == {3}


def test_a_retried_reduce_may_be_async(runner):
    tries = []

    async def total(left, right):
        tries.append(right)
        if tries.count(right) < 2:
            raise ConnectionError
        return left + right

    job = runner(
        lambda s: s.key_by(lambda n: 0).reduce(total).on_error(retry(2, backoff=QUICK)),
        [1, 2, 3, END],
    )

    assert job.published == [1, 3, 6]


class SometimesHanging(AsyncFunction[str, str]):
    def open(self, ctx):
        self.calls = 0

    async def process(self, value, ctx):
        import asyncio

        self.calls += 1
        if value == "hangs" and self.calls < 6:
            await asyncio.sleep(60)
        if value == "fails" and self.calls < 4:
            raise ConnectionError
        return [value]


def test_each_retry_has_the_time_limit_of_a_call(runner):
    job = runner(
        lambda s: s.process_ordered(
            SometimesHanging(), timeout=timedelta(milliseconds=60), capacity=2
        ).on_error(retry(8, backoff=QUICK)),
        ["hangs", END],
    )

    assert job.published == ["hangs"]


def test_a_pause_before_a_retry_may_be_longer_than_the_time_limit(runner):
    job = runner(
        lambda s: s.process_ordered(
            SometimesHanging(), timeout=timedelta(milliseconds=60), capacity=2
        ).on_error(retry(8, backoff=timedelta(milliseconds=40))),
        ["fails", "fine", END],
    )

    assert job.published == ["fails", "fine"]


@pytest.mark.core
def test_a_dead_letter_tells_what_where_and_why(runner):
    job = runner(
        lambda s: s.map(lambda n: n).map(inverse).uid("inverse").on_error(dead_letter()),
        [1, 2, EPOCH, 3, 0, END],
    )
    (letter,) = job.dead_letters

    assert job.published == [12, 6, 4]
    assert pickle.loads(base64.b64decode(letter["value"])) == 0
    assert letter["operator"] == "inverse"
    assert (letter["source"], letter["shard"], letter["offset"]) == ("script", "script", 3)
    assert letter["exception"] == "ZeroDivisionError"
    assert Path(letter["location"].partition(":")[0]).name == "test_errors.py"
    assert "in inverse" in letter["location"]


def test_a_dead_letter_is_written_once_though_its_epoch_is_computed_again(runner):
    with runner.harness(_with_letters) as harness:
        harness.push([1, 0, 2])
        harness.fail_at("before_seal")
        harness.run()
        harness.fail_at("before_publish")
        harness.push([0])
        harness.run()

        assert harness.crash_count == 2
        assert harness.published == [12, 6]
        assert [letter["offset"] for letter in harness.dead_letters] == [1, 3]


def _with_letters(env):
    numbers = env.add_source(script_source(int)).uid("numbers")
    numbers.map(inverse).on_error(dead_letter()).collect("out")


def failure_of(runner, job, script, **settings):
    with pytest.raises(FunctionFailedError) as caught:
        runner(job, script, **settings)
    return caught.value.facts


@pytest.mark.core
@pytest.mark.parametrize("how", JOBS)
def test_fail_names_the_record_the_operator_and_the_users_line(runner, how):
    facts = failure_of(
        runner, lambda s: JOBS[how](s).uid("inverse").name("Inverse"), [5, 6, 0, 7, END]
    )

    assert facts["exception"] == "ZeroDivisionError"
    assert facts["operator"] == "inverse"
    assert facts["operator_name"] == "Inverse"
    assert (facts["source"], facts["shard"], facts["offset"]) == ("script", "script", 2)
    assert facts["position"] == "record 2 of the script"
    assert Path(facts["location"].partition(":")[0]).name == "test_errors.py"
    assert facts["value_type"] == "int"


def test_the_position_is_found_through_a_whole_chain(runner):
    def chain(stream):
        return (
            stream.filter(lambda n: n % 2 == 0)
            .flat_map(lambda n: [n] * (n // 2))
            .process_unordered(Passing(), timeout=LONG, capacity=5)
            .filter(lambda n: n != 4)
            .map(lambda n: 1 // (n - 6))
        )

    facts = failure_of(runner, chain, [1, 2, 3, 4, 5, 6, 8, END])

    assert facts["offset"] == 5


class Passing(AsyncFunction[int, int]):
    async def process(self, value, ctx):
        import asyncio

        await asyncio.sleep(0.001 * (10 - value))
        return [value]


@pytest.mark.core
def test_behind_an_exchange_the_position_is_a_span(runner):
    facts = failure_of(
        runner,
        lambda s: s.key_by(lambda n: n).process_fn(KeyedInverse()),
        [1, EPOCH, 5, 0, 7, END],
    )

    assert facts["key"] == "0"
    assert facts["offset"] == 1


class KeyedInverse(KeyedProcessFunction[int, int, int]):
    async def process_element(self, value, ctx):
        return [12 // value]


def test_the_same_failure_in_all_tasks_is_counted(runner):
    facts = failure_of(runner, lambda s: s.map(inverse), [0, 0, 0, 0, END], parallelism=4)

    assert facts["task_count"] == 4


@pytest.mark.core
def test_nothing_of_a_failed_epoch_is_published(runner):
    with runner.harness(_inverses) as harness:
        harness.push([1, 2])
        harness.run_epoch()
        harness.push([3, 0])
        with pytest.raises(FunctionFailedError):
            harness.run_epoch()

        assert harness.epoch == 1
        assert harness.published == [12, 6]


def _inverses(env):
    env.add_source(script_source(int)).map(inverse).collect("out")


def test_a_record_that_cannot_be_sent_on_names_its_operator(runner):
    def job(stream):
        locks = stream.map(lambda _: threading.Lock()).uid("locks")
        return locks.rebalance().map(str).set_parallelism(2)

    with raises(RECORD_UNENCODABLE) as caught:
        runner(job, [1, END])

    assert caught.value.facts["sender"] == "operator 'locks'"


def test_a_stop_iteration_is_an_error_and_not_the_end_of_the_batch(runner):
    job = runner(lambda s: s.map(first_of).on_error(skip()), ["ada", "", "bob", "", "cy", END])

    assert job.published == ["a", "b", "c"]


@pytest.mark.core
def test_max_error_rate_allows_as_many_as_it_says(runner):
    job = runner(lambda s: s.map(inverse).on_error(skip(), max_error_rate=0.5), [1, 0, 2, 0, END])

    assert job.published == [12, 6]


@pytest.mark.parametrize(
    ("script", "is_fine"),
    [
        ([1, EPOCH, 0, EPOCH, 3, EPOCH, 4, END], True),
        ([0, 0, END], False),
    ],
)
def test_one_error_among_few_records_says_nothing_of_a_rate(runner, script, is_fine):
    def job(stream):
        return stream.map(inverse).on_error(skip(), max_error_rate=0.1)

    if is_fine:
        assert runner(job, script).published == [
            12 // number for number in script if isinstance(number, int) and number
        ]
    else:
        with pytest.raises(ErrorRateError):
            runner(job, script)


def test_more_errors_than_max_error_rate_fail_the_epoch(runner):
    with pytest.raises(ErrorRateError) as caught:
        runner(
            lambda s: s.map(inverse).uid("inverse").on_error(skip(), max_error_rate=0.5),
            [1, 0, 0, END],
        )

    facts = caught.value.facts
    assert (facts["operator"], facts["failed"], facts["total"]) == ("inverse", 2, 3)
    assert "ZeroDivisionError" in facts["last_error"]


@pytest.mark.parametrize("result", ["text", None, 7, {"a": 1}, b"bytes"])
def test_a_result_that_is_no_list_of_records_is_refused(runner, result):
    with pytest.raises(FunctionResultError) as caught:
        runner(lambda s: s.flat_map(lambda n: [n] if n else result).uid("parts"), [1, 0, END])

    facts = caught.value.facts
    assert (facts["operator"], facts["found"]) == ("parts", type(result).__name__)
    assert facts["position"] == "record 1 of the script"


class Unopenable(AsyncFunction[int, int]):
    def open(self, ctx):
        raise ConnectionError("no such host")

    def process(self, value, ctx):
        return [value]


def test_a_failing_open_names_the_operator(runner):
    with pytest.raises(FunctionHookError) as caught:
        runner(lambda s: s.process(Unopenable()).uid("client"), [1, END])

    assert caught.value.facts["operator"] == "client"
    assert caught.value.facts["exception"] == "ConnectionError"


class NeedsKey(RichAsyncFunction[int, int]):
    def process(self, value, ctx):
        return [ctx.current_key()]


def test_asking_for_a_key_where_there_is_none_is_an_error(runner):
    with raises(UNKEYED_STATE):
        runner(lambda s: s.process(NeedsKey()), [1, END])
