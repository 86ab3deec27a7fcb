"""Whole jobs that begin elsewhere: with a savepoint and nothing of what they came from."""

import json
import socket
from collections import Counter
from datetime import timedelta

import pytest

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.base.storage_urls import open_storage
from bicycle_runtime.connectors.errors import OUTPUT_HELD
from bicycle_runtime.recovery.savepoints import write_savepoint
from bicycle_runtime.testing import Harness, script_source
from bicycle_runtime.testing.connectors.running import eventually
from bicycle_sdk import KeyedProcessFunction, ProcessFunction, WatermarkStrategy
from bicycle_sdk.connectors import file_sink
from bicycle_sdk.windows import Sum
from tests.raising import raises

TEN_SECONDS = timedelta(seconds=10)


class Alarm(KeyedProcessFunction[str, tuple[str, int], tuple[str, str]]):
    """Tells of a key a minute after its record, and of the end of its time."""

    def process_element(self, value, ctx):
        ctx.timer_service.register_processing_time_timer(ctx.now() + 60_000)
        ctx.timer_service.register_event_time_timer(value[1] + 100_000)
        return []

    def on_timer(self, timestamp_ms, ctx):
        return [(ctx.current_key(), ctx.time_domain)]


def name_of(record):
    return record[0]


def time_of(record):
    return record[1]


def one(_):
    return 1


class Site:
    """A job that keeps something everywhere: state, windows, timers, a loop, open parts, lines."""

    def __init__(self, folder):
        self.output, self.places = folder / "out", folder / "savepoints"
        self.count = 0

    def build(self, env):
        records = env.add_source(script_source(tuple[str, int])).uid("records")
        strategy = WatermarkStrategy.ascending().with_timestamps(time_of)
        timed = records.assign_timestamps(strategy).uid("stamped").key_by(name_of)
        timed.count().uid("counts").collect("counts")
        timed.tumbling_window(TEN_SECONDS).aggregate(Sum(one)).uid("sums").collect("sums")
        timed.process_fn(Alarm()).uid("alarm").collect("alarms")
        records.map(list).sink_to(file_sink(str(self.output), format="jsonl")).uid("files")
        lines = env.socket_source(host="127.0.0.1", port=0).uid("lines")
        loop = lines.map(int).iterate()
        lower = loop.map(lambda n: n - 1).uid("lower")
        loop.feedback(lower.filter(lambda n: n > 0))
        lower.collect("loop")

    def harness(self, url=None):
        return Harness(self.build, scripted=[], real_sinks=["files"], parallelism=2, start_from=url)

    def lines(self):
        texts = [path.read_text() for path in sorted(self.output.glob("part-*"))]
        return [json.loads(line) for text in texts for line in text.splitlines()]

    def place(self):
        self.count += 1
        return str(self.places / str(self.count))


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def send(harness, *lines):
    """Send lines to the job and wait until they are in its journal."""
    source = harness.setup.sources["lines"]
    before = source.poll().lag.byte_count
    text = "".join(f"{line}\n" for line in lines).encode()
    with socket.create_connection(("127.0.0.1", source.port)) as client:
        client.sendall(text)
    eventually(lambda: source.poll().lag.byte_count == before + len(text))


def saved(harness, url, epoch):
    target = LocalStorage(url, is_synced=False)
    return write_savepoint(
        harness.storage, target, epoch=epoch, name="x", now_ms=harness.clock.now_ms()
    )


def collected(harness):
    return {name: Counter(harness.results(name)) for name in ("counts", "sums", "alarms", "loop")}


def sums(harness):
    return sorted((result.key, result.value) for result in harness.results("sums"))


RECORDS = [("ada", 1_000), ("bob", 2_000), ("ada", 8_000), ("cy", 14_000), ("ada", 15_000)]


def play_first(harness):
    send(harness, 3)
    harness.push(RECORDS[:3])
    harness.run_epoch()


def play_rest(harness, site):
    harness.push(RECORDS[3:])
    harness.run()
    harness.advance_watermark(200_000)
    harness.advance_time(60_000)
    harness.advance_time(60_000)  # The open part becomes old enough.
    assert sorted(site.lines()) == sorted(map(list, RECORDS))
    return collected(harness)


@pytest.fixture
def uninterrupted(tmp_path):
    site = Site(tmp_path / "model")
    with site.harness() as harness:
        play_first(harness)
        send(harness, 2)
        return play_rest(harness, site)


def move(site, url):
    """Take the savepoint to another machine."""
    other = site.places / "moved"
    open_storage(url).local_path("").rename(other)
    return str(other)


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_job_that_begins_elsewhere_comes_to_what_an_uninterrupted_one_does(
    site, uninterrupted, is_clean
):
    url = site.place()
    with site.harness() as first:
        play_first(first)
        send(first, 2)  # It is received, and nobody has read it.
        epoch = first.loop.close_outputs() if is_clean else first.epoch
        assert first.loop.manifest.feedback
        savepoint = saved(first, url, epoch)
        before, now_ms = collected(first), first.clock.now_ms()
        old_place = first.storage.url.encode()
        storage = open_storage(url)
        # The sink only compares it, to know that the job has moved.
        compared = b'"place":"%s/connectors/files"' % old_place
        contents = {path: storage.read(path).replace(compared, b"") for path in storage.list("")}
        assert not [path for path, content in contents.items() if old_place in content]
    url = move(site, url)

    with site.harness(url) as second:
        second.clock.advance(now_ms - second.clock.now_ms())
        assert second.epoch == savepoint.epoch
        assert second.loop.manifest.event_count == savepoint.event_count > 0
        second.push(RECORDS[:3])  # The outside world still has what was read.
        after = play_rest(second, site)

    total = {name: before[name] + after[name] for name in before}
    assert total == uninterrupted
    paths = {file.path for file in savepoint.files}
    assert any(path.startswith("connectors/lines/journal/") for path in paths)
    assert any(path.startswith("staged/") for path in paths)
    assert any(path.startswith("connectors/files/open/") for path in paths) != is_clean


def test_a_savepoint_serves_any_number_of_jobs_at_any_parallelism(site, tmp_path):
    with site.harness() as first:
        first.push(RECORDS)
        first.run()
        saved(first, url := site.place(), first.loop.close_outputs())

    for parallelism in (1, 2, 3):
        elsewhere = Site(tmp_path / str(parallelism))
        with Harness(
            elsewhere.build, real_sinks=["files"], parallelism=parallelism, start_from=url
        ) as job:
            job.push([*RECORDS, ("ada", 16_000)])
            job.run()
            assert job.results("counts") == [("ada", 4)]


def test_a_job_that_goes_on_after_a_savepoint_loses_and_repeats_nothing(site):
    with site.harness() as job:
        for number, record in enumerate(RECORDS):
            job.push([record])
            job.run_epoch()
            saved(job, site.place(), job.loop.close_outputs())
            if number % 2:
                job.crash()
        job.advance_watermark(200_000)
        job.advance_time(120_000)

        assert Counter(job.results("counts")) == Counter(
            [("ada", 1), ("ada", 2), ("ada", 3), ("bob", 1), ("cy", 1)]
        )
        assert sorted(site.lines()) == sorted(map(list, RECORDS))


def test_going_back_to_a_savepoint_takes_back_the_output_behind_it(site):
    with site.harness() as first:
        first.push(RECORDS[:2])
        first.run()
        saved(first, url := site.place(), first.loop.close_outputs())
        first.push(RECORDS[2:])
        first.run()
        first.loop.close_outputs()
        assert len(site.lines()) == len(RECORDS)

    with site.harness(url) as second:
        assert len(site.lines()) == 2
        second.push(RECORDS)
        second.run()
        second.loop.close_outputs()
        assert sorted(site.lines()) == sorted(map(list, RECORDS))


def test_a_second_job_from_a_savepoint_is_refused_while_the_first_writes_to_the_same_files(site):
    with site.harness() as first:
        first.push(RECORDS[:2])
        first.run()
        saved(first, url := site.place(), first.loop.close_outputs())
        first.push(RECORDS[2:])
        first.run()
        first.loop.close_outputs()

        with raises(OUTPUT_HELD), site.harness(url):
            pass

        assert sorted(site.lines()) == sorted(map(list, RECORDS))
        first.push([("dan", 16_000)])
        first.run()
        first.loop.close_outputs()
        assert len(site.lines()) == len(RECORDS) + 1


def test_draining_fires_what_waits_for_event_time_and_reads_nothing_more(site):
    with site.harness() as job:
        job.push(RECORDS[:3])
        job.run()
        assert job.results("sums") == []
        job.push(RECORDS[3:])
        while not job.loop.drain().is_finished:
            continue
        job.loop.finish(is_finished=False)
        job.loop.settle()

        assert sums(job) == [("ada", 2), ("bob", 1)]
        assert Counter(job.results("alarms")) == Counter({("ada", "event"): 2, ("bob", "event"): 1})
        assert sorted(site.lines()) == sorted(map(list, RECORDS[:3]))
        assert job.loop.manifest.offsets["records"] == {"script": 3}


def test_draining_empties_a_loop(site):
    with site.harness() as job:
        send(job, 4)
        job.run_epoch()
        while not job.loop.drain().is_finished:
            continue
        job.loop.settle()

        assert sorted(job.results("loop")) == [0, 1, 2, 3]


def test_a_drained_job_that_is_started_again_reads_on(site):
    with site.harness() as job:
        job.push(RECORDS[:3])
        job.run()
        job.loop.drain()
        job.loop.finish(is_finished=False)
        job.crash()
        job.push([("ada", 20_000), ("ada", 31_000)])
        job.run()

        assert sums(job) == [("ada", 1), ("ada", 2), ("bob", 1)]


class Lists(ProcessFunction):
    """Lists of a subtask, and what it has of them."""

    def open(self, ctx):
        self.subtask = ctx.task_info.subtask_index
        self.own = ctx.get_operator_list_state("own", str)
        self.all = ctx.get_union_list_state("all", str)

    def process_element(self, value, ctx):
        if value == "?":
            return [(self.subtask, tuple(self.own.get()), tuple(sorted(self.all.get())))]
        self.own.add(value)
        self.all.add(value)
        return []


@pytest.mark.parametrize("width", [1, 2, 4])
def test_lists_of_subtasks_are_divided_where_a_job_begins_with_a_savepoint(tmp_path, width):
    def build(env):
        words = env.add_source(script_source()).uid("words").rebalance()
        words.process_fn(Lists()).uid("lists").collect("out")

    url = str(tmp_path / "savepoint")
    with Harness(build, parallelism=2) as harness:
        for word in "abcde":
            harness.push([word])
            harness.run()
        saved(harness, url, harness.epochs[-1].epoch)
    with Harness(build, parallelism=width, start_from=url) as harness:
        harness.push(["?"] * 40)
        harness.run()

        found = {subtask: lists for subtask, *lists in harness.results("out")}
        assert sorted(found) == list(range(width))
        assert sorted(word for own, _ in found.values() for word in own) == list("abcde")
        assert {everything for _, everything in found.values()} == {tuple("abcde")}
