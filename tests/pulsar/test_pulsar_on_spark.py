"""A job on Spark between streams of Pulsar; its driver is killed meanwhile."""

import asyncio
import sys
from collections import Counter
from pathlib import Path

import pytest

from bicycle_streams import connect
from tests.spark.jobsite import JobSite
from tests.waiting import until

pytestmark = pytest.mark.spark

COUNT = 1_000
JOB = """
from dataclasses import dataclass

from bicycle_sdk import StreamEnvironment, bicycle_plugin


@dataclass(frozen=True, kw_only=True)
class Params:
    source: str
    file: str
    target: str


def group_of(text: str) -> int:
    return int(text) % 7


def text_of(counted: tuple[int, int]) -> str:
    return f"{counted[0]} {counted[1]}"


@bicycle_plugin(name="counting", version="1.0.0")
def counting(env: StreamEnvironment, params: Params) -> None:
    counts = env.from_uri(params.source).uid("in").key_by(group_of).count().uid("counts")
    texts = counts.map(text_of).uid("texts")
    texts.to_uri(params.file).uid("file")
    texts.to_uri(params.target).uid("out")
"""


@pytest.fixture
def site(tmp_path, spark_cache):
    place = JobSite(tmp_path / "site", spark_cache)
    yield place
    place.kill_everything()


async def produce(server, key):
    words = {"create": "if-missing", "admin_url": server.admin_url}
    async with connect(server.uri, words) as streamer:
        producer = await streamer.create_producer(key, shard_count=2)
        for number in range(COUNT):
            producer.send(str(number))


async def consume(uri, key):
    async with connect(uri) as streamer:
        consumer = await streamer.create_consumer(key, start="earliest", is_live=False)
        return [message.as_str() async for message in consumer]


def test_a_source_counts_once_and_a_sink_at_least_once_through_a_killed_driver(
    site, pulsar_server, new_key
):
    source, target = new_key("in"), new_key("out")
    asyncio.run(produce(pulsar_server, source))
    (site.root / "counting.py").write_text(JOB, "utf-8")
    file = f"file://{site.root}/counts.ss"
    command = [str(Path(sys.executable).with_name("bicycle")), "run", "counting.py"]
    command += ["--set", f"source={pulsar_server.uri}/{source}?group=job&bounded=true"]
    command += ["--set", f"file={file}/counts", "--set", f"target={pulsar_server.uri}/{target}"]
    command += ["--checkpoint-dir", "checkpoints", "--max-records-per-epoch", "100", "--json"]

    def found():
        return asyncio.run(consume(file, "counts")) if (site.root / "counts.ss").exists() else []

    first = site.launch(command)
    until(lambda: len(found()) >= COUNT // 10, lambda: first.stderr)
    first.process.kill()
    first.wait()
    assert len(found()) < COUNT, "it was killed in the middle"
    second = site.launch(command)
    assert second.wait() == 0, second.stderr

    wanted = Counter(f"{n % 7} {n // 7 + 1}" for n in range(COUNT))
    assert Counter(found()) == wanted
    assert set(asyncio.run(consume(pulsar_server.uri, target))) == wanted.keys()
    site.wait_for_no_process()
