"""Settings of Spark for short jobs with Python tasks, embedded and on a cluster.

Each was measured, or keeps a failure from lasting. The user's settings win. Variables of workers
never show in Spark's pages and logs, whatever their names.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from bicycle_runtime.engine.spark.early_daemon import DAEMON_MODULE, EARLY_MODULE

DAEMON_OPTION = "spark.python.daemon.module"
TASK_ATTEMPTS = 4
# A socket's path has room for 104 bytes (macOS; 108 on Linux), its name takes 43 of them.
_SOCKET_DIR_BYTES_MAX = 60
_SHORT_DIR = "/tmp"
_ALWAYS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.reuse": "true",
    # It notes how workers ended. Of one that crashed in native code Java then gets the lines, too.
    DAEMON_OPTION: DAEMON_MODULE,
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.cleaner.periodicGC.interval": "1min",
    "spark.locality.wait": "0",
    "spark.task.maxFailures": str(TASK_ATTEMPTS),
    "spark.eventLog.enabled": "false",
    # Each stage of each epoch sends its task so, and Java takes a whole block for it: 4 MB by
    # default, which it clears, and which makes G1 collect.
    "spark.broadcast.blockSize": "256k",
    # Values of executorEnv reach workers by the environment; a list of settings shows stars.
    "spark.redaction.regex": "(?i)secret|passw(or)?d|token|credential|access[.]?key|executorEnv",
}
_LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_EMBEDDED = {
    **_LOOPBACK,
    DAEMON_OPTION: EARLY_MODULE,
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    # Java moves bytes and little else. Its second compiler takes 3 s of processor time in the first
    # minute, in which workers want the cores: a word count of 10 M words gets 1.2 M/s with, 0.8
    # without this. Of its collectors, the default one takes a third of Java's time in short epochs,
    # and pauses of up to 100 ms; nearly all that it has to collect is garbage. Loading
    # classes without their archive would start two collections, at 21 MB of the 35 MB and later.
    "spark.driver.extraJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=64m"
    ),
}
_CLUSTER = {
    # A task with state waits a little for its own host rather than moving its state. Tasks without
    # a place of their own do not wait.
    "spark.locality.wait": "1s",
    "spark.python.task.killTimeout": "500ms",  # The stacks of a worker that hangs come after it.
    # A host that is gone shows at once by its connection; one that hangs, after this time.
    "spark.network.timeout": "60s",
    "spark.network.timeoutInterval": "10s",
    "spark.executor.heartbeatInterval": "5s",
    # Lost shuffle files are computed again by the epoch as a whole: waiting for them is in vain.
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "1s",
    "spark.stage.maxConsecutiveAttempts": "8",
    "spark.executor.memory": "512m",
    # We wait for executors, with a limit; on YARN and Kubernetes, Spark would wait for 30 s, too.
    "spark.scheduler.minRegisteredResourcesRatio": "0",
}


def is_embedded(master: str) -> bool:
    """Return whether Spark runs in this machine's own Java process."""
    return master.startswith("local")


def spark_settings(master: str, work_dir: Path, given: Mapping[str, str]) -> dict[str, str]:
    """Return all settings of a run.

    Args:
        master: Spark master URL.
        work_dir: Folder of this run, for Spark's local files of the driver.
        given: The user's settings.
    """
    own = _EMBEDDED if is_embedded(master) else _CLUSTER
    if master.startswith(("spark://127.", "spark://localhost")):
        own = {**own, **_LOOPBACK}
    return {
        **_ALWAYS,
        **own,
        "spark.local.dir": str(work_dir / "local"),
        "spark.python.unix.domain.socket.dir": _socket_dir(master, work_dir),
        **given,
    }


def _socket_dir(master: str, work_dir: Path) -> str:
    """Return the socket folder of Java and Python: the run's own folder if suitable."""
    is_fit = is_embedded(master) and len(os.fsencode(work_dir)) <= _SOCKET_DIR_BYTES_MAX
    return str(work_dir) if is_fit else _SHORT_DIR


def default_master() -> str:
    """Return embedded Spark on all cores, with task retries as on a cluster."""
    return f"local[*,{TASK_ATTEMPTS}]"
