"""Jobs on Spark from streams to Redis; drivers and servers are killed meanwhile."""

import asyncio
import signal
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from bicycle_streams import connect
from tests.redis.redis_server import RedisServer
from tests.unit.connectors.feed_process import FeedProcess
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.extended]

COUNT = 2_000
JOB = """
from dataclasses import dataclass

from bicycle_sdk import StreamEnvironment, bicycle_plugin


@dataclass(frozen=True, kw_only=True)
class Params:
    source: str
    target: str


def done(text: str) -> str:
    return f"{text} done"


@bicycle_plugin(name="doing", version="1.0.0")
def doing(env: StreamEnvironment, params: Params) -> None:
    env.from_uri(params.source).uid("in").map(done).uid("done").to_uri(params.target).uid("out")
"""


@pytest.fixture
def server():
    server = RedisServer()
    yield server
    server.remove()


async def produce(path):
    async with connect(
        f"file://{path}", {"create": "only", "beacon_interval_bytes": 4096}
    ) as streamer:
        producer = await streamer.create_producer("numbers", shard_count=2)
        for number in range(COUNT):
            producer.send(str(number))


def test_messages_from_a_file_to_redis_count_once_whatever_is_killed(site, server):
    asyncio.run(produce(site.root / "in.ss"))
    (site.root / "doing.py").write_text(JOB, "utf-8")
    command = [str(Path(sys.executable).with_name("bicycle")), "run", "doing.py"]
    command += ["--set", f"source=file://{site.root}/in.ss/numbers?bounded=true"]
    command += ["--set", f"target={server.uri}/out", "--checkpoint-dir", "checkpoints"]
    command += ["--max-records-per-epoch", "100", "--json"]

    def found():
        with server.client as client:
            return [fields[b"msg"].decode() for _, fields in client.xrange("out")]

    first = site.launch(command)
    until(lambda: len(found()) >= COUNT // 10, lambda: first.stderr)
    server.kill()  # The job waits for it.
    first.process.kill()
    first.wait()
    server.start()
    second = site.launch(command)
    assert second.wait() == 0, second.stderr

    assert sorted(found()) == sorted(f"{number} done" for number in range(COUNT))
    site.wait_for_no_process()


def test_what_is_journalled_counts_once_whatever_is_killed(site, server):
    """The feed and the driver are killed in turns; the journal has what the feed has forgotten."""
    folder = site.root / "feed"
    folder.mkdir()
    feed = FeedProcess(folder)
    (site.root / "doing.py").write_text(JOB, "utf-8")
    asked = "journal=true&sequence_field=seq&subscribe=" + quote('{"after": {sequence}}')
    command = [str(Path(sys.executable).with_name("bicycle")), "run", "doing.py"]
    command += ["--set", f"source=ws://127.0.0.1:{feed.port}/prices?{asked}"]
    command += ["--set", f"target={server.uri}/out", "--checkpoint-dir", "checkpoints"]
    command += ["--max-records-per-epoch", "200", "--json"]

    def found():
        with server.client as client:
            return [fields[b"msg"].decode() for _, fields in client.xrange("out")]

    def reaches(count, run):
        until(lambda: len(found()) >= count, lambda: f"{len(found())} messages: {run.stderr}")

    try:
        for life in range(1, 3):
            run = site.launch(command)
            feed.send(COUNT * life)
            reaches(COUNT * life - COUNT // 2, run)
            feed.kill()
            run.process.kill()
            run.wait()
            feed.start()
        last = site.launch(command)
        feed.send(3 * COUNT)
        reaches(3 * COUNT, last)
        last.process.send_signal(signal.SIGTERM)
        assert last.wait() == 0, last.stderr
    finally:
        feed.kill()

    wanted = [f'{{"seq": {number}}} done' for number in range(3 * COUNT)]
    assert sorted(found()) == sorted(wanted)
    site.wait_for_no_process()
