"""A real YARN cluster of this machine: a resource manager, and node managers on loopback addresses.

Each daemon is a process, as on a real cluster, and containers are processes that a node manager
starts. The daemons are Hadoop's own classes for tests of its clients, which run with PySpark's
jars. ``conf`` is the folder of the client configuration.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bicycle_runtime.base.java import log4j_settings
from bicycle_runtime.cli.parameters import home
from bicycle_runtime.dev.java_programs import require_java
from bicycle_runtime.dev.ports import choose_port
from bicycle_runtime.engine.spark.java import spark_environment
from tests.server_jars import guard, server_jars
from tests.spark.jobsite import MARK, SHORT_LIVED_JAVA, Process, marked_processes
from tests.waiting import until

HOST, NODES = "127.0.0.1", ("127.0.0.2", "127.0.0.3")
QUEUE = "streaming"
_LIST = Path(__file__).with_name("yarn_jars.txt")
_START_S = 900.0
_SERVER = "org.apache.hadoop.yarn.server"
_ADDRESSES = ("", ".scheduler", ".resource-tracker", ".admin", ".webapp")
_NODE = {
    "yarn.nodemanager.disk-health-checker.enable": "false",  # A full disk is no matter of tests.
    "yarn.nodemanager.env-whitelist": f"JAVA_HOME,JDK_JAVA_OPTIONS,{MARK}",
    "yarn.nodemanager.localizer.address": "${yarn.nodemanager.hostname}:0",
    "yarn.nodemanager.resource.cpu-vcores": "4",
    "yarn.nodemanager.resource.memory-mb": "4096",
    "yarn.nodemanager.vmem-check-enabled": "false",  # Java reserves more than it uses.
    "yarn.nodemanager.webapp.address": "${yarn.nodemanager.hostname}:0",
}
_QUEUES = {
    "yarn.scheduler.capacity.maximum-am-resource-percent": "0.5",
    "yarn.scheduler.capacity.root.queues": f"default,{QUEUE}",
    "yarn.scheduler.capacity.root.default.capacity": "0",
    f"yarn.scheduler.capacity.root.{QUEUE}.capacity": "100",
}


class YarnCluster:
    """A cluster with two nodes of four cores and 4 GiB."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.conf = folder, folder / "conf"
        self.conf.mkdir(parents=True)
        self.settings = {
            f"yarn.resourcemanager{name}.address": f"{HOST}:{choose_port(HOST, random.Random())}"
            for name in _ADDRESSES
        }
        least = {"yarn.scheduler.minimum-allocation-mb": "64"}
        _write(self.conf / "yarn-site.xml", {**self.settings, **_NODE, **least})
        _write(self.conf / "core-site.xml", {})
        _write(self.conf / "capacity-scheduler.xml", _QUEUES)
        jars = server_jars(_LIST, home().cache_dir / "yarn-3.5.0")
        spark_jars = f"{spark_environment()['SPARK_HOME']}/jars/*"
        self._class_path = os.pathsep.join([str(self.conf), *map(str, jars), spark_jars])
        self._daemons: dict[str, tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]] = {}

    def __enter__(self) -> YarnCluster:
        try:
            self._start(HOST, "resourcemanager.ResourceManager", {})
            for address in NODES:
                self._start_node(address)
            until(self._has_all_nodes, self.log, patience_s=_START_S)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for address in sorted(self._daemons, reverse=True):
            self._end(address)

    def _start_node(self, address: str) -> None:
        folder = self.folder / address
        settings = {
            "yarn.nodemanager.hostname": address,
            "yarn.nodemanager.local-dirs": str(folder / "local"),
            "yarn.nodemanager.log-dirs": str(folder / "logs"),
        }
        self._start(address, "nodemanager.NodeManager", settings)

    def _start(self, address: str, name: str, settings: Mapping[str, str]) -> None:
        options = [f"-D{key}={value}" for key, value in settings.items()]
        log4j = self.folder / f"{address}.properties"
        log4j.write_text(log4j_settings(self.folder / f"{address}.log", level="info"))
        java = [str(require_java()), "-Xmx256m", f"-Dlog4j2.configurationFile={log4j}"]
        with (self.folder / f"{address}.out").open("ab") as log:
            process = subprocess.Popen(
                [*java, "-cp", self._class_path, f"{_SERVER}.{name}", *options],
                env={**os.environ, **SHORT_LIVED_JAVA, MARK: str(self.folder)},
                cwd=self.folder, stdout=log, stderr=log,
            )  # fmt: skip
        self._daemons[address] = (process, guard(process))

    def stop_node(self, address: str) -> None:
        """Stop a node manager, which kills its containers and tells the resource manager."""
        self._end(address)
        until(lambda: address not in self.nodes(), f"the end of {address}")

    def _end(self, address: str) -> None:
        process, its_guard = self._daemons.pop(address)
        process.terminate()
        process.wait()
        its_guard.communicate()

    def _has_all_nodes(self) -> bool:
        assert all(process.poll() is None for process, _ in self._daemons.values()), self.log()
        try:
            return len(self.nodes()) == len(NODES)
        except OSError:
            return False  # The resource manager does not answer yet.

    def log(self) -> str:
        return "".join(path.read_text()[-4_000:] for path in sorted(self.folder.glob("127*[gt]")))

    def containers(self, program: str) -> list[Process]:
        """Return the Java processes of containers whose command contains a word."""
        found = marked_processes(self.folder)
        return [each for each in found if each.is_java and program.encode() in each.command]

    def nodes(self) -> list[str]:
        """Return the addresses of the nodes that run."""
        nodes = self._ask("nodes?states=RUNNING")["nodes"] or {}
        return [node["nodeHostName"] for node in nodes.get("node", [])]

    def applications(self) -> list[dict[str, Any]]:
        """Return the applications, in the order of their starts."""
        found = (self._ask("apps")["apps"] or {}).get("app", [])
        return sorted(found, key=lambda each: str(each["id"]))

    def _ask(self, path: str) -> dict[str, Any]:
        page = self.settings["yarn.resourcemanager.webapp.address"]
        with urllib.request.urlopen(f"http://{page}/ws/v1/cluster/{path}", timeout=60) as answer:
            return json.load(answer)


def _write(path: Path, settings: Mapping[str, str]) -> None:
    """Write a configuration file of Hadoop."""
    rows = (
        f"<property><name>{name}</name><value>{value}</value></property>\n"
        for name, value in settings.items()
    )
    path.write_text(f"<configuration>\n{''.join(rows)}</configuration>\n")
