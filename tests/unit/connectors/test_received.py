"""WebSockets and standard input as sources of jobs: what was received counts once."""

import base64
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from types import SimpleNamespace
from urllib.parse import quote

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import serve

from bicycle_runtime.base.environment import environment_for_python
from bicycle_runtime.cli import main
from bicycle_runtime.connectors.stream_clients.received import (
    WebSocketSource,
    journal_line,
    message_of,
)
from bicycle_runtime.contract import Budget, ConnectorSpec, Guarantee
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.testing import Harness
from bicycle_runtime.testing.connectors.running import services_in
from bicycle_sdk import dead_letter
from bicycle_sdk.clock import SystemClock
from bicycle_streams import Message, StreamKey
from tests.unit.connectors.feed_process import FeedProcess
from tests.waiting import PATIENCE_S, until

SUBSCRIBE = quote('{"after": {sequence}}')
ASKED = f"format=json&sequence_field=seq&subscribe={SUBSCRIBE}"
BACKENDS = ["memory", "rocksdb"]
PLENTY = Budget(record_count=1_000_000, byte_count=1 << 30, parallelism=1)


@pytest.fixture
def feed(tmp_path):
    folder = tmp_path / "feed"
    folder.mkdir()
    feed = FeedProcess(folder)
    yield feed
    feed.kill()


def counting(uri):
    """Return a job that counts the numbers of each of three keys."""

    def job(env):
        prices = env.from_uri(uri, type=dict).uid("prices")
        keyed = prices.map(lambda price: price["seq"]).uid("seq").key_by(lambda seq: seq % 3)
        keyed.count().uid("counts").collect("out")
        prices.map(lambda price: price["seq"]).uid("again").collect("seen")

    return job


def run_until(harness, count):
    def is_done():
        harness.run_epoch()
        return len(harness.results("seen")) >= count

    until(is_done, lambda: f"{count} messages, there are {len(harness.results('seen'))}")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("point", ["before_seal", "after_seal", "after_publish"])
def test_a_journal_makes_each_message_count_once(feed, backend, point):
    """The job dies at a point, and the server is killed in the middle of what it sends."""
    uri = f"ws://127.0.0.1:{feed.port}/prices?journal=true&{ASKED}"
    with Harness(counting(uri), engine=EngineOptions(state_backend=backend)) as harness:
        feed.send(1_000)
        run_until(harness, 500)
        harness.fail_at(point)
        feed.kill()
        feed.start()
        feed.send(3_000)
        run_until(harness, 2_500)
        harness.crash()
        feed.kill()
        feed.send(4_000)
        harness.crash()
        feed.start()
        run_until(harness, 4_000)
        assert harness.crash_count == 3

        assert sorted(harness.results("seen")) == list(range(4_000))
        ends = {key: max(n for k, n in harness.results("out") if k == key) for key in range(3)}
        assert ends == {0: 1_334, 1: 1_333, 2: 1_333}


JOB = """
from bicycle_sdk import StreamEnvironment, bicycle_plugin, file_sink

@bicycle_plugin
def prices(env: StreamEnvironment) -> None:
    seen = env.from_uri({uri!r}, type=dict).uid("prices").map(lambda price: price["seq"]).uid("seq")
    counts = seen.key_by(lambda seq: seq % 3).count().uid("counts")
    counts.sink_to(file_sink({counts!r})).uid("out")
    seen.sink_to(file_sink({seen!r})).uid("again")
"""
DRIVER = """
import sys
from pathlib import Path
from bicycle_runtime.jobs.supervision.stopping import StopRequest
from tests.unit.jobs.running.light_jobs import LightJob

root = Path(sys.argv[1])
job = LightJob(root, str(root / "job.py"), engine={"state_backend": sys.argv[2]})
job.home.folder("job").write_request(job._request)
with StopRequest().on_signals() as stop:
    job.stop = stop
    job.run()
"""


class Drivers:
    """Lives of one job, each a process of its own."""

    def __init__(self, root, backend):
        self.root, self.backend = root, backend
        self.processes = []

    def start(self, **options):
        words = [sys.executable, "-c", DRIVER, str(self.root), self.backend]
        with (self.root / "log").open("ab") as log:
            self.processes.append(
                subprocess.Popen(
                    words, stdout=log, stderr=log, env=environment_for_python(), **options
                )
            )

    def kill(self):
        self.processes[-1].send_signal(signal.SIGKILL)
        self.processes[-1].wait()

    def stop(self):
        self.processes[-1].send_signal(signal.SIGTERM)
        assert self.processes[-1].wait(PATIENCE_S) == 0, self.log()

    def log(self):
        return (self.root / "log").read_text()

    def lines(self, name):
        """Return what the job has written."""
        files = (self.root / name).rglob("*") if (self.root / name).exists() else []
        texts = [f.read_text() for f in files if f.is_file() and not f.name.startswith((".", "_"))]
        return [json.loads(line) for text in texts for line in text.splitlines()]


@pytest.fixture(params=BACKENDS)
def drivers(tmp_path, request):
    found = Drivers(tmp_path, request.param)
    yield found
    for process in found.processes:
        process.kill()
        process.wait()


@pytest.mark.extended
def test_a_driver_that_is_killed_again_and_again_counts_each_message_once(feed, drivers):
    uri = f"ws://127.0.0.1:{feed.port}/prices?journal=true&{ASKED}"
    root = drivers.root
    places = {"seen": str(root / "seen"), "counts": str(root / "counts")}
    (root / "job.py").write_text(JOB.format(uri=uri, **places))

    for life in range(1, 4):
        drivers.start()
        feed.send(2_000 * life)
        until(lambda least=2_000 * life - 1_500: len(drivers.lines("seen")) > least, drivers.log)
        if life % 2:
            feed.kill()
            feed.start()
        drivers.kill()
    drivers.start()
    feed.send(6_001)  # Which only this one can write: it runs when it is asked to stop.
    until(lambda: len(drivers.lines("seen")) >= 6_001, drivers.log)
    drivers.stop()

    assert sorted(drivers.lines("seen")) == list(range(6_001))
    counts = sorted(map(tuple, drivers.lines("counts")))
    assert counts == sorted((seq % 3, seq // 3 + 1) for seq in range(6_001))


def source_of(feed, **properties):
    settings = {
        "address": f"ws://127.0.0.1:{feed.port}/prices",
        "value_format": "json",
        "sequence_field": "seq",
        "subscribe": '{"after": {sequence}}',
        "journal": True,
        **properties,
    }
    return WebSocketSource(
        ConnectorSpec(
            vertex_id="in", connector_type="websocket", properties=settings, record_type=dict
        )
    )


def epoch(source, budget=PLENTY):
    """Read, seal and publish what is there, and return it."""
    source.poll()
    parts = source.plan(budget)
    reader = source.reader()
    values = [v.get("seq") for part in parts for b in reader.read(part) for v in b.values]
    ends = {part.shard: part.end for part in parts}
    state = source.snapshot(parts, ends)
    source.sealed(ends)
    source.published(ends)
    return values, ends, state


def test_a_server_that_was_not_reached_yet_makes_nothing_idle(feed, tmp_path):
    source = source_of(feed)
    feed.pause()
    source.start(services_in(tmp_path, clock=SystemClock()), {}, {})
    try:
        assert not source.poll().is_reachable
        feed.resume()
        until(lambda: source.poll().is_reachable, "the connection")
    finally:
        source.stop()


def test_the_journal_is_trimmed_behind_what_is_published(feed, tmp_path):
    source = source_of(feed, segment_bytes=1_024, journal_epochs_min=2)
    source.start(services_in(tmp_path, clock=SystemClock()), {}, {})
    seen = []
    for part in range(1, 21):
        feed.send(500 * part)

        def is_read():
            seen.extend(epoch(source)[0])
            return len(seen) >= 500 * part  # noqa: B023 - it is called in this turn.

        until(is_read, "the messages")
        until(lambda: not epoch(source)[0], "the end")
    sizes = [path.stat().st_size for path in tmp_path.rglob("*.lines")]
    source.stop()

    assert seen == list(range(10_000))
    assert sum(sizes) <= 4 * 500 * 60  # Some epochs, of half a megabyte that was received.


def test_nothing_is_taken_while_too_much_waits(feed, tmp_path):
    source = source_of(feed, journal_bytes_max=1_024)
    source.start(services_in(tmp_path, clock=SystemClock()), {}, {})
    feed.send(100_000)
    until(lambda: source.poll().lag.byte_count >= 1_024, "the journal to be full")
    sizes = {source.poll().lag.byte_count for _ in range(50)}
    assert max(sizes) <= 1_024 + 1_000 * 64  # A batch may be on its way.
    seen = []

    def is_read():
        seen.extend(epoch(source)[0])
        return len(seen) == 100_000

    until(is_read, lambda: f"all, there are {len(seen)}")
    source.stop()
    assert seen == list(range(100_000))


def test_a_start_without_a_journal_of_its_own_asks_behind_what_was_read(feed, tmp_path):
    """As after a restore from a savepoint on another machine."""
    first = source_of(feed)
    first.start(services_in(tmp_path / "a", clock=SystemClock()), {}, {})
    feed.send(100)
    until(lambda: first.poll().lag.byte_count > 1_000, "some messages")
    values, ends, state = epoch(first, Budget(record_count=10, byte_count=1 << 20, parallelism=1))
    first.stop()

    second = source_of(feed)
    second.start(
        services_in(tmp_path / "b", clock=SystemClock()), ends, json.loads(json.dumps(state))
    )
    until(lambda: second.poll().has_input, "what comes next")
    rest = epoch(second)[0]
    second.stop()
    assert (values, state) == (list(range(10)), {"sequence": 9})
    assert rest[0] == 10


def test_a_restart_before_the_first_sequence_asks_for_all_messages(tmp_path):
    asked = []

    def feed(peer):
        asked.append(json.loads(peer.recv())["after"])
        peer.send('{"type": "subscribed"}')
        if len(asked) > 1:
            for number in range(asked[-1] + 1, 3):
                peer.send(json.dumps({"seq": number}))
        with suppress(ConnectionClosed):
            peer.recv()

    with serve(feed, "127.0.0.1", 0) as server:
        port = server.socket.getsockname()[1]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        values, ends, state = [], {}, {}
        for count in (1, 5):
            source = source_of(SimpleNamespace(port=port))
            source.start(services_in(tmp_path, clock=SystemClock()), ends, state)
            while len(values) < count:
                until(lambda source=source: source.poll().has_input, "messages")
                more, ends, state = epoch(source)
                values += more
            source.stop()
        server.shutdown()
        thread.join()

    assert (asked, values) == ([-1, -1], [None, None, 0, 1, 2])


def test_a_server_that_is_away_is_waited_for(feed, tmp_path):
    feed.kill()
    source = source_of(feed)
    source.start(services_in(tmp_path, clock=SystemClock()), {}, {})
    until(lambda: not source.poll().is_reachable, "the server to be missed")
    feed.start()
    feed.send(3)
    until(lambda: source.poll().has_input, "messages")
    assert source.poll().is_reachable
    source.stop()


def test_without_a_journal_a_job_is_at_most_once_and_says_so(feed, tmp_path):
    def report(query):
        uri = f"ws://127.0.0.1:{feed.port}/prices?{query}"
        file = tmp_path / "job.py"
        file.write_text(JOB.format(uri=uri, seen="seen", counts="counts"))
        done = CliRunner().invoke(main, ["plan", str(file), "--json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    plain, safe = report("format=json"), report("format=json&journal=true")

    assert plain["guarantee"] == "at-most-once"
    assert (plain["weakest"]["operator"], plain["weakest"]["connector"]) == ("prices", "websocket")
    assert (safe["guarantee"], safe["weakest"]) == ("exactly-once", None)
    assert source_of(feed, journal=False).guarantee is Guarantee.AT_MOST_ONCE


def test_without_a_journal_messages_are_read_as_well(feed):
    with Harness(counting(f"ws://127.0.0.1:{feed.port}/prices?{ASKED}")) as harness:
        feed.send(500)
        run_until(harness, 500)
        assert sorted(harness.results("seen")) == list(range(500))


@given(st.binary(), st.integers(0, 1 << 60), st.integers(0, 9), st.integers(0, 1 << 45))
def test_a_line_of_the_journal_holds_any_message(payload, sequence, shard_id, time_ms):
    message = Message(StreamKey("prices"), shard_id, sequence, time_ms, payload)
    line = journal_line(message)
    assert line.count(b"\n") == 1
    assert message_of(line[:-1]) == message


@pytest.fixture
def pipe(monkeypatch):
    """Return the writing end of standard input."""
    reading, writing = os.pipe()
    stream = os.fdopen(reading, "rb")
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=stream))
    with os.fdopen(writing, "wb", buffering=0) as end:
        yield end
    stream.close()


def test_standard_input_is_read_to_its_end_through_restarts(pipe):
    with Harness(counting("stdio:///prices?journal=true&format=json")) as harness:
        for part in range(3):
            lines = [b'{"seq": %d}\n' % n for n in range(300 * part, 300 * part + 300)]
            pipe.write(b"".join(lines[:150]))
            run_until(harness, 300 * part + 100)
            harness.crash()
            pipe.write(b"".join(lines[150:]))
        pipe.close()

        def is_over():
            harness.run()
            return len(harness.results("seen")) >= 900 and harness._is_finished

        until(is_over, "the end")
        assert sorted(harness.results("seen")) == list(range(900))


@pytest.mark.parametrize("journal", ["true", "false"])
def test_lines_that_are_no_messages_meet_on_error_with_their_bytes(pipe, journal):
    def job(env):
        lines = env.from_uri(f"stdio:///prices?journal={journal}").uid("in").on_error(dead_letter())
        lines.collect("seen")

    with Harness(job) as harness:
        pipe.write(b"[prices] a\n[2026-99-99T00:00:00 | prices] b\n\xff\\ c\n[prices] d\n")
        run_until(harness, 2)
        pipe.close()
        until(lambda: (harness.run(), harness._is_finished)[1], "the end")
        assert harness.results("seen") == ["a", "d"]
        letters = harness.dead_letters
    assert [base64.b64decode(letter["value"]) for letter in letters] == [
        b"[2026-99-99T00:00:00 | prices] b", b"\xff\\ c",
    ]  # fmt: skip


@pytest.mark.extended
def test_a_killed_driver_goes_on_with_what_it_journalled_of_standard_input(drivers):
    root = drivers.root
    places = {"seen": str(root / "seen"), "counts": str(root / "counts")}
    (root / "job.py").write_text(
        JOB.format(uri="stdio:///prices?journal=true&format=json", **places)
    )
    reading, writing = os.pipe()
    for life in range(2):
        drivers.start(stdin=reading)
        os.write(
            writing, b"".join(b'{"seq": %d}\n' % n for n in range(100 * life, 100 * life + 100))
        )
        until(lambda least=100 * life + 100: len(drivers.lines("seen")) >= least, drivers.log)
        drivers.kill()
    drivers.start(stdin=reading)
    os.write(writing, b'{"seq": 200}\n')
    os.close(writing)
    os.close(reading)
    assert drivers.processes[-1].wait(PATIENCE_S) == 0, drivers.log()

    assert sorted(drivers.lines("seen")) == list(range(201))


def test_two_sources_cannot_share_standard_input(pipe):
    def job(env):
        for name in ("a", "b"):
            env.from_uri(f"stdio:///{name}").uid(name).collect(name)

    def runs():
        harness.run_epoch()

    with Harness(job) as harness, pytest.raises(Exception) as caught:
        until(runs, "the error")
    assert caught.value.code == "BIC-2653"
