"""Clusters of Redis: streams over three masters, and a replica that takes over."""

import asyncio
from collections import Counter

import pytest
import redis
from redis.crc import key_slot

from bicycle_runtime.connectors.errors import STREAMS_UNREACHABLE
from bicycle_runtime.testing import Harness
from bicycle_streams import StreamConnectError, StreamUrlError, connect
from bicycle_streams.testing import StreamCase, StreamSuite
from tests.raising import raises
from tests.redis.redis_cluster import Cluster
from tests.sink_runs import SinkRuns
from tests.waiting import until

pytest_plugins = ["bicycle_streams.testing.plugin"]
SHARDS = 6
# What was given to a member when its connection broke comes again to one that claims it.
CLAIMING = {"claim_idle_ms": 1_000, "claim_interval_ms": 200}
KEYS = ["orders", *(f"orders:{shard}" for shard in range(1, SHARDS))]


@pytest.fixture(scope="module")
def one_cluster():
    cluster = Cluster()
    yield cluster
    cluster.remove()


@pytest.fixture
def cluster(one_cluster):
    one_cluster.restart()
    with one_cluster.client as client:
        client.flushall()
    return one_cluster


class ClusterCase(StreamCase):
    word = "redis"

    @property
    def uri(self):
        return self.cluster.uri

    @property
    def options(self):
        return {"block_ms": 20, "discovery_interval_ms": 50}


class TestCluster(StreamSuite):
    case_type = ClusterCase

    @pytest.fixture
    def case(self, tmp_path, cluster):
        case = self.case_type(tmp_path)
        case.cluster = cluster
        return case


def run(scenario):
    async def whole():
        async with asyncio.timeout(60):
            return await scenario()

    return asyncio.run(whole())


async def sent(streamer, numbers):
    """Send numbers to all shards in turns, and wait until replicas have them, too."""
    producer = await streamer.create_producer("orders", shard_count=SHARDS)
    for number in numbers:
        producer.send(str(number))
    await producer.flush()


def replicate(cluster):
    """Wait until each replica has what its master has: Redis acknowledges before that."""

    def is_in_step():
        for node in cluster.nodes:
            if node.runs:
                with node.client as client:
                    info = client.info("replication")
                offsets = {info["master_repl_offset"]}
                offsets |= {info[f"slave{n}"]["offset"] for n in range(info["connected_slaves"])}
                if info["role"] == "master" and len(offsets) > 1:
                    return False
        return True

    until(is_in_step, "the replicas")


def test_shards_lie_at_all_masters_and_a_replica_takes_over(cluster):
    """What was acknowledged is read by who was there before, and by who comes."""
    assert len({cluster.node_of(key).port for key in KEYS}) == 3

    async def scenario():
        async with connect(cluster.uri) as streamer:
            consumer = await streamer.create_consumer("orders", start="earliest")
            found = Counter()

            async def read_to(count):
                while len(found) < count:
                    found.update(int(m.payload) for m in await consumer.next_batch(1_000))

            await sent(streamer, range(400))
            await read_to(400)
            assert set(found.values()) == {1}
            replicate(cluster)
            dead = cluster.node_of("orders:1")
            dead.kill()
            await sent(streamer, range(400, 800))
            await read_to(800)
            info = await streamer.admin().describe("orders")
            assert len(info.shards) == SHARDS
            assert sum(shard.message_count for shard in info.shards) >= 800
            assert await streamer.admin().list_streams() == ["orders"]
            again = await streamer.create_consumer("orders", start="earliest", is_live=False)
            assert {int(m.payload) async for m in again} == set(range(800))
        return found

    assert set(run(scenario)) == set(range(800))


def test_a_group_goes_on_through_a_failover(cluster):
    """All comes, and nothing that was committed comes again."""

    async def scenario():
        async with connect(cluster.uri, CLAIMING) as streamer:
            words = {"mode": "load-balanced", "group": "g", "start": "earliest"}
            await sent(streamer, range(200))
            members = [await streamer.create_consumer("orders", **words) for _ in range(2)]
            found = [set(), set()]

            async def read(member, into, goal):
                while len(found[0] | found[1]) < goal:
                    try:
                        async with asyncio.timeout(0.2):
                            batch = await member.next_batch(20)
                    except TimeoutError:
                        continue
                    for message in batch:
                        into.add(int(message.payload))
                        member.ack(message)
                    await member.commit()

            async def read_all(goal):
                async with asyncio.TaskGroup() as tasks:
                    for member, into in zip(members, found, strict=True):
                        tasks.create_task(read(member, into, goal))

            await read_all(200)
            replicate(cluster)
            cluster.node_of("orders:2").kill()
            await sent(streamer, range(200, 400))
            await read_all(400)
            for member in members:
                await member.end()
            rest = await streamer.create_consumer("orders", **words, is_live=False)
            assert [message async for message in rest] == []
        return found

    found = run(scenario)
    assert found[0] | found[1] == set(range(400))


@pytest.mark.parametrize(
    ("point", "timestamps"),
    [
        ("before_seal", "ms"),
        ("after_seal", "ms"),
        ("transaction_marked", "ms"),
        ("transaction_marked", "ns"),
    ],
)
def test_a_job_writes_each_message_once_through_a_failover(cluster, point, timestamps):
    """The number of an epoch lies in the slot of its stream, whatever that is."""

    def add(numbers):
        with cluster.client as client:
            for number in numbers:
                client.xadd(KEYS[number % SHARDS], {"msg": str(number)})

    def written():
        with cluster.client as client:
            return Counter(int(fields[b"msg"]) for _, fields in client.xrange("out"))

    def job(env):
        numbers = env.from_uri(f"{cluster.uri}/orders").uid("in")
        numbers.to_uri(f"{cluster.uri}/out?timestamps={timestamps}").uid("out")

    def reach(harness, count):
        def is_done():
            harness.run_epoch()
            return len(written()) >= count

        until(is_done, lambda: f"{count} messages, there are {len(written())}")

    with Harness(job, real_sinks=["out"]) as harness:
        add(range(40))
        reach(harness, 40)
        harness.fail_at(point)
        add(range(40, 80))
        until(lambda: harness.run_epoch() or harness.crash_count == 1, "the crash")
        replicate(cluster)
        cluster.node_of("out").kill()
        until(lambda: answers(written), "the replica to take over")
        add([80])
        reach(harness, 81)
        harness.crash()
        add(range(81, 120))
        reach(harness, 120)

    assert written() == Counter(range(120))
    with cluster.node_of("out").client as client:
        [marker] = client.keys("bicycle:epoch:*")
    assert key_slot(marker) == key_slot(b"out")


def answers(ask):
    try:
        ask()
    except (redis.RedisError, redis.cluster.RedisClusterException):
        return False
    return True


def test_what_is_no_cluster_or_has_no_databases_is_told(cluster, server, tmp_path):
    async def opened(uri, **options):
        async with connect(uri, options):
            raise AssertionError("it must not open")

    port = cluster.nodes[0].port
    with pytest.raises(StreamUrlError, match="not a cluster"):
        asyncio.run(opened(f"{server.uri},127.0.0.1:1"))
    with pytest.raises(StreamConnectError, match="cluster mode"):
        asyncio.run(opened(f"redis://127.0.0.1:{port}", db=1))
    with pytest.raises(StreamConnectError):
        asyncio.run(opened("redis://127.0.0.1:1,127.0.0.1:2"))
    for uri in (f"{server.uri},127.0.0.1:1/x", f"redis://127.0.0.1:{port}/x"):
        runs = SinkRuns("redis", tmp_path, address=uri, db=1 if uri.endswith(f"{port}/x") else 0)
        with raises(STREAMS_UNREACHABLE):
            runs.start()


def test_the_first_node_may_be_away_and_one_node_is_enough(cluster):
    async def scenario(uri):
        async with connect(uri) as streamer:
            await sent(streamer, range(9))
            consumer = await streamer.create_consumer("orders", start="earliest", is_live=False)
            return {int(m.payload) async for m in consumer}

    assert run(lambda: scenario(f"redis://127.0.0.1:1,{cluster.uri[8:]}")) == set(range(9))
    assert run(lambda: scenario(f"redis://127.0.0.1:{cluster.nodes[4].port}")) == set(range(9))
