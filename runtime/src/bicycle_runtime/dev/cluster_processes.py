"""The processes of a cluster: masters and workers of Spark, and their children.

Every one carries the cluster's folder in a variable of its environment, executors and Python
workers too, because they inherit it. So they are found however the cluster ended. Which of them
there should be is not known here.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
from pathlib import Path

from bicycle_runtime.base.environment import chosen_variables
from bicycle_runtime.base.java import log4j_settings
from bicycle_runtime.base.processes import is_alive, send_signal, start_ticks, wait_for_end
from bicycle_runtime.dev.cluster_record import SparkProcess
from bicycle_runtime.engine.spark.java import spark_environment

KILL_TIMEOUT_S = 30
_MARK, _HOST = "BICYCLE_CLUSTER", "SPARK_LOCAL_IP"
# Executors and workers inherit the environment of a host, which has no secrets of its starter.
_PASSED = ("PATH", "HOME", "JAVA_HOME", "JDK_JAVA_OPTIONS", "TMPDIR", "LANG", "LC_ALL", "TZ")
_KILL_PASSES_MAX = 20


class ClusterProcesses:
    """The processes of the cluster of one folder, including foreign starts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._children: list[subprocess.Popen[bytes]] = []

    def running(self, host: str | None = None) -> list[int]:
        """Return the processes with this cluster's folder, or an empty list without /proc.

        Args:
            host: Only those of this host.
        """
        marks = {f"{_MARK}={self._folder}".encode()}
        if host is not None:
            marks.add(f"{_HOST}={host}".encode())
        found = []
        entries = Path("/proc").iterdir() if Path("/proc/self").exists() else ()
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and marks <= set(
                    (entry / "environ").read_bytes().split(b"\0")
                ):
                    found.append(int(entry.name))
        return [pid for pid in found if is_alive(pid, 0)]

    def start(self, java: str, name: str, host: str, words: list[str]) -> SparkProcess:
        """Start Java in a session of its own: a Ctrl-C of the terminal does not reach it."""
        folder = self._folder / name
        (folder / "local").mkdir(parents=True, exist_ok=True)
        log4j = folder / "log4j2.properties"
        log4j.write_text(log4j_settings(folder / "log", level="info"), encoding="utf-8")
        spark = spark_environment()
        command = [
            *(java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            f"-Dlog4j2.configurationFile={log4j}",
            *("-cp", f"{spark['SPARK_HOME']}/jars/*", *words),
        ]
        environment = {
            **chosen_variables(_PASSED),
            **spark,
            _HOST: host,
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            _MARK: str(self._folder),
        }
        with (folder / "out").open("wb") as output:
            child = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env=environment, start_new_session=True,
            )  # fmt: skip
        self._children.append(child)
        return SparkProcess(host=host, pid=child.pid, started=start_ticks(child.pid))

    def kill_left(self, host: str | None = None) -> None:
        """Kill processes with the mark repeatedly, since they may start others meanwhile."""
        for _ in range(_KILL_PASSES_MAX):
            left = self.running(host)
            if not left:
                break
            for pid in left:
                send_signal(pid, signal.SIGKILL)
                wait_for_end(pid, 0, timeout_s=KILL_TIMEOUT_S)

    def reap(self) -> None:
        """Collect the exit codes of ended children."""
        self._children = [child for child in self._children if child.poll() is None]

    def wait(self) -> None:
        """Wait for the end of the processes that this object started."""
        for child in self._children:
            child.wait(KILL_TIMEOUT_S)
        self._children.clear()
