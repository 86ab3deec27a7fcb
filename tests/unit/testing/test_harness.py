"""The harness: input, time, state, every way to hurt a job, and previews."""

import subprocess
import sys
import threading
from dataclasses import dataclass

import pytest

from bicycle_runtime.base.faults import FAULT_POINTS
from bicycle_runtime.extraction.errors import NOT_SHIPPABLE
from bicycle_runtime.testing import (
    CRASH,
    END,
    EPOCH,
    Harness,
    HarnessError,
    Runner,
    bundle_of,
    preview,
    script_source,
)
from bicycle_runtime.testing.previews import preview_epochs
from bicycle_sdk import ProcessFunction, RichAsyncFunction, StreamEnvironment, file_sink
from bicycle_sdk.errors import FunctionResultError
from tests.raising import raises


class Memory(RichAsyncFunction[str, str]):
    def __init__(self):
        self.counts: dict[str, int] = {}
        self.last = ""

    def process(self, value, ctx):
        self.counts[value] = self.counts.get(value, 0) + 1
        self.last = value
        ctx.save_state("seen", True)
        return [value]


def test_records_of_a_class_that_was_decoded_are_pushed_in_every_epoch():
    @dataclass(frozen=True)
    class Reading:  # Of no module that a worker could import: it is pickled by value.
        sensor: str
        value: int

    def job(env):
        readings = env.add_source(script_source(Reading)).uid("readings")
        keyed = readings.key_by(lambda reading: reading.sensor)
        keyed.reduce(lambda _, newest: newest).collect("out")

    with Harness(job, parallelism=2) as harness:
        for number in range(3):
            harness.push([Reading("a", number)])
            harness.run_epoch()
        assert [reading.value for reading in harness.published] == [0, 1, 2]


def counting(env):
    words = env.add_source(script_source(str)).uid("words")
    keyed = words.key_by(lambda w: w)
    keyed.count().uid("count").collect("counts")
    keyed.process(Memory()).uid("memory").collect("memory")


def test_a_job_on_the_harness_imports_no_spark_and_no_command_line():
    program = (
        "import sys\n"
        "from bicycle_runtime.testing import Harness, script_source\n"
        "job = lambda env: env.add_source(script_source(str)).map(len).collect('out')\n"
        "with Harness(job) as harness:\n"
        "    harness.push(['ada']); harness.run_epoch(); assert harness.published == [3]\n"
        "loaded = {'pyspark', 'py4j', 'pytest', 'rich', 'click', 'importlib_metadata'}\n"
        "print(sorted(loaded & sys.modules.keys()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip

    assert done.stdout.split() == ["[]"]


def test_a_pushed_record_is_read_once_and_published_once():
    with Harness(counting) as harness:
        harness.push(["ada", "bob"])
        stats = harness.run_epoch()
        assert stats is not None
        assert (stats.epoch, stats.record_count) == (1, 2)
        assert harness.run_epoch() is None
        assert harness.results("counts") == [("ada", 1), ("bob", 1)]
        assert harness.read_count() == 2


def is_main_thread(_):
    return threading.current_thread() is threading.main_thread()


def test_functions_run_in_the_thread_of_the_test_so_that_breakpoints_work():
    with Harness(lambda env: env.from_collection([1]).map(is_main_thread).collect("o")) as harness:
        harness.run()
        assert harness.published == [True]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_state_is_shown_by_key(parallelism):
    with Harness(counting, parallelism=parallelism) as harness:
        harness.push(["ada", "bob", "ada"])
        harness.run()

        assert harness.state("count") == {"ada": 2, "bob": 1}
        assert harness.state("count", "ada") == 2
        assert harness.state("memory", "bob") == {"counts": 1, "seen": True, "last": "bob"}
        with pytest.raises(HarnessError):
            harness.state("count", "cy")
        with pytest.raises(HarnessError):
            harness.state("no such operator")


class Sieve(ProcessFunction[int, int]):
    def process_element(self, value, ctx):
        if value % 2:
            ctx.side_output("odd", value)
        return [value]


def test_taps_show_what_no_sink_reads():
    def job(env):
        env.add_source(script_source(int)).uid("n").process_fn(Sieve()).uid("sieve").map(
            str
        ).collect("out")

    with Harness(job, taps=["sieve", ("sieve", "odd")]) as harness:
        harness.push([1, 2, 3])
        harness.run()

        assert harness.published == ["1", "2", "3"]
        assert harness.results("sieve") == [1, 2, 3]
        assert harness.results("sieve.odd") == [1, 3]


def test_a_finished_job_runs_on_the_harness_unchanged(tmp_path):
    def job(env):
        lines = env.read_text(tmp_path / "no such file").uid("lines")
        lines.map(len).sink_to(file_sink(tmp_path / "out")).uid("lengths")

    with Harness(job, scripted=["lines"]) as harness:
        harness.push(["ada", "grace"])
        harness.end()
        harness.run()

        assert harness.results("lengths") == harness.published == [3, 5]
    assert not (tmp_path / "out").exists()


def test_a_real_sink_really_writes(tmp_path):
    def job(env):
        words = env.add_source(script_source(str))
        words.sink_to(file_sink(tmp_path / "out", format="text")).uid("words")

    with Harness(job, real_sinks=["words"]) as harness:
        harness.push(["ada"])
        harness.end()
        harness.run()

    (part,) = (tmp_path / "out").iterdir()
    assert part.read_text() == "ada\n"


def test_time_moves_only_when_the_test_moves_it(tmp_path):
    def job(env):
        words = env.add_source(script_source(str))
        sink = file_sink(tmp_path / "out", format="text", roll_ms=60_000)
        words.sink_to(sink).uid("words")

    with Harness(job, real_sinks=["words"]) as harness:
        harness.push(["ada"])
        harness.run()
        assert not list((tmp_path / "out").glob("*.txt"))
        assert harness.epochs[-1].waiting["words"].record_count == 1
        harness.advance_time(60_000)
        assert harness.clock.now_ms() == 1_060_000
        assert len([p for p in (tmp_path / "out").iterdir() if not p.name.startswith(".")]) == 1
        assert not harness.epochs[-1].waiting


@pytest.mark.parametrize("point", FAULT_POINTS)
def test_after_a_fault_anywhere_the_job_goes_on_by_itself(point):
    with Harness(counting) as harness:
        harness.push(["ada", "ada"])
        harness.fail_at(point)
        harness.run()
        harness.push(["ada"])
        harness.run()

        assert harness.crash_count == 1
        assert harness.results("counts") == [("ada", 1), ("ada", 2), ("ada", 3)]


def test_an_unknown_fault_point_is_refused():
    with Harness(counting) as harness, pytest.raises(ValueError, match="before_seal"):
        harness.fail_at("before lunch")


def test_what_was_armed_ends_with_the_harness():
    with Harness(counting) as harness:
        harness.fail_at("before_seal", passage=5)
    with Harness(counting) as harness:
        for _ in range(6):
            harness.push(["ada"])
            harness.run()
        assert harness.crash_count == 0


def test_sources_are_named_when_there_are_several():
    def job(env):
        for name in ("left", "right"):
            env.add_source(script_source(int)).uid(name).collect(name)

    with Harness(job) as harness:
        with pytest.raises(HarnessError):
            harness.push([1])
        harness.push([1], source="left")
        harness.end(source="left")
        harness.run()
        harness.push([2], source="right")
        harness.end()
        harness.run()
        assert (harness.results("left"), harness.results("right")) == ([1], [2])
        with pytest.raises(HarnessError):
            harness.push([3], source="left")
        with pytest.raises(HarnessError):
            _ = harness.published
        with pytest.raises(HarnessError):
            harness.results("middle")


def test_a_function_that_could_not_be_submitted_is_refused_with_its_culprit():
    lock = threading.Lock()

    def job(env):
        env.add_source(script_source()).map(lambda n: (lock, n)).uid("locked").collect("out")

    with raises(NOT_SHIPPABLE) as caught:
        Harness(job)
    assert (caught.value.facts["vertex"], caught.value.facts["name"]) == ("locked", "lock")


def test_records_of_a_local_class_compare_equal():
    class Point:
        def __init__(self, x):
            self.x = x

        def __eq__(self, other):
            return isinstance(other, Point) and self.x == other.x

        __hash__ = None

    with Harness(lambda env: env.from_collection([1]).map(Point).collect("out")) as harness:
        harness.run()
        assert harness.published == [Point(1)]


def test_a_bundle_of_the_same_job_has_the_same_digest():
    def built():
        env = StreamEnvironment()
        counting(env)
        return bundle_of(env)

    assert built().digest == built().digest
    assert built().graph.name == "test"


def test_a_runner_plays_marks_in_order():
    job = Runner()(
        lambda s: s.key_by(lambda w: w).count(),
        ["ada", "ada", EPOCH, "ada", CRASH, "bob", END],
    )

    assert job.published == [("ada", 1), ("ada", 2), ("ada", 3), ("bob", 1)]
    assert job.crash_count == 1
    assert job.record_counts[:2] == (2, 2)


# --- preview -------------------------------------------------------------------------------------


def test_a_preview_shows_the_first_records_and_needs_no_sink():
    env = StreamEnvironment()
    stream = env.from_collection(range(100)).map(lambda n: n * 2).filter(lambda n: n % 4 == 0)
    stream.print()

    assert stream.preview(3) == [0, 4, 8]
    assert stream.preview(0) == []
    assert len(stream.preview(1_000)) == 50


def test_a_preview_of_an_endless_source_ends():
    env = StreamEnvironment()

    assert len(env.generator_source(rate_ms=0).map(str.upper).preview(5)) == 5


def test_the_records_of_an_endless_source_come_epoch_by_epoch_until_it_is_stopped():
    env, stop = StreamEnvironment(), threading.Event()
    stream = env.generator_source(rate_ms=0)
    epochs = preview_epochs(env, stream.vertex_id(), size=3, stop=stop)

    first, second = next(epochs), next(epochs)
    stop.set()

    assert 0 < len(first) <= 3
    assert second
    assert list(epochs) == []


def test_a_preview_in_batch_mode_has_no_late_records():
    env = StreamEnvironment()
    env.set_runtime_mode("batch")
    times = env.from_collection([*range(100_000, 101_000), 0]).assign_timestamps(lambda ms: ms)
    counts = times.key_by(lambda _: "k").tumbling_window(50_000).count()

    assert counts.preview() == [("k", 0, 50_000, 1), ("k", 100_000, 150_000, 1_000)]


def test_a_preview_leaves_the_graph_as_it_was():
    env = StreamEnvironment()
    keyed = env.from_collection(["a", "b", "a"]).key_by(lambda w: w)
    before = len(env.vertices)

    assert keyed.count().preview(5) == [("a", 1), ("b", 1), ("a", 2)]
    assert keyed.preview(2) == ["a", "b"]
    assert len(env.vertices) == before + 1


def test_a_preview_reads_a_side_output():
    env = StreamEnvironment()
    sieve = env.from_collection([1, 2, 3]).process_fn(Sieve())

    assert sieve.side_output("odd").preview(5) == [1, 3]
    assert preview(env, sieve.vertex_id(), 2) == [1, 2]


def test_a_preview_inside_a_loop_gives_what_comes_round():
    env = StreamEnvironment()
    loop = env.from_collection([3]).iterate()
    lower = loop.map(lambda n: n - 1)
    loop.feedback(lower.filter(lambda n: n > 0))

    assert lower.preview(5) == [2, 1, 0]


def test_an_error_of_an_operator_says_which_line_made_it():
    def job(env):
        env.add_source(script_source(str)).uid("words").flat_map(lambda word: 7).collect("o")

    with Harness(job) as harness:
        harness.push(["ada"])
        with pytest.raises(FunctionResultError) as caught:
            harness.run_epoch()
    line = job.__code__.co_firstlineno + 1
    assert caught.value.facts["made"] == f"FlatMap without uid, {__file__}:{line}"
    assert f"{__file__}:{line}" in str(caught.value)
