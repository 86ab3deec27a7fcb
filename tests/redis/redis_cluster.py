"""A cluster of Redis: three masters with a replica each, as processes on free ports."""

import socket
from itertools import pairwise

import redis
from redis.cluster import RedisCluster

from tests.redis.redis_server import RedisServer
from tests.waiting import until

_SLOTS = 16_384
_WORDS = [
    "--cluster-enabled", "yes", "--cluster-node-timeout", "1000",
    "--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0",
]  # fmt: skip


class Cluster:
    """Three masters that share the slots, and three replicas."""

    def __init__(self) -> None:
        self.nodes = [RedisServer(port=port, words=_WORDS) for port in _free_ports(6)]
        masters, replicas = self.nodes[:3], self.nodes[3:]
        bounds = [0, _SLOTS // 3, 2 * _SLOTS // 3, _SLOTS]
        for node, (begin, end) in zip(masters, pairwise(bounds), strict=True):
            with node.client as client:
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", begin, end - 1)
        for number, node in enumerate(self.nodes):
            with node.client as client:
                client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", masters[0].port)
        until(lambda: all(self._knows_all(node) for node in self.nodes), "the nodes to meet")
        for master, replica in zip(masters, replicas, strict=True):
            with master.client as client:
                name = client.execute_command("CLUSTER", "MYID")
            with replica.client as client:
                client.execute_command("CLUSTER", "REPLICATE", name)
        self.wait()

    @property
    def uri(self) -> str:
        return "redis://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes[:3])

    @property
    def client(self) -> RedisCluster:
        return RedisCluster(
            host="127.0.0.1", port=next(node.port for node in self.nodes if node.runs)
        )

    def node_of(self, key: str) -> RedisServer:
        """Return the master that has a key now."""
        for node in self.nodes:
            if not node.runs:
                continue
            with node.client as client:
                try:
                    client.execute_command("TYPE", key)
                except redis.ResponseError:
                    continue
                if client.execute_command("ROLE")[0] == b"master":
                    return node
        raise AssertionError(f"nobody has {key}")

    def wait(self) -> None:
        """Wait until all slots are served, and each master that runs has a replica in step."""
        until(self._is_whole, "the cluster to be whole")

    def remove(self) -> None:
        for node in self.nodes:
            node.remove()

    def restart(self) -> None:
        """Start what was killed."""
        for node in self.nodes:
            node.start()
        self.wait()

    def _knows_all(self, node: RedisServer) -> bool:
        with node.client as client:
            info = client.execute_command("CLUSTER INFO")
        return int(info["cluster_known_nodes"]) == len(self.nodes)

    def _is_whole(self) -> bool:
        for node in self.nodes:
            with node.client as client:
                if client.execute_command("CLUSTER INFO")["cluster_state"] != "ok":
                    return False
                role = client.info("replication")
            if role["role"] == "slave" and role["master_link_status"] != "up":
                return False
            if role["role"] == "master" and role["connected_slaves"] != 1:
                return False
        return True


def _free_ports(count: int) -> list[int]:
    """Return ports that are free, with the ones of the cluster's bus, which are 10,000 higher."""
    found: list[int] = []
    while len(found) < count:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1] % 20_000 + 20_000
            try:
                other.bind(("127.0.0.1", port + 10_000))
            except OSError:
                continue
            if port not in found:
                found.append(port)
    return found
