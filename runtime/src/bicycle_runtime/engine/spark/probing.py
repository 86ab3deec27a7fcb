"""The handshake on Spark: a program on every host, started by Java.

A worker would first unpickle the driver's data, which is just the part that may not work. So one
small job has one task per host, and each runs the interpreter of workers with the text of
``PROBE``, whatever its version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bicycle_runtime.engine.hosts.handshake import PROBE, HostAnswer, probe_arguments, read_answer
from bicycle_runtime.engine.spark.spark_cluster import assign_to_hosts
from bicycle_runtime.engine.spark.worker_needs import WORKER_MODULE

# Java writes a task's element to the program: it must be read, or writing it may fail.
_SHELL = 'cat >/dev/null; "$0" -c "$1" "$2" 2>&1; true'


def ask_hosts(
    context: Any, hosts: Mapping[str, int], *, python: str, archive: str = "", digest: str = "",
    module: str = "", token: str = "",
) -> list[HostAnswer]:  # fmt: skip
    """Run the probe on each host.

    Args:
        context: The running context.
        hosts: Hosts with executors.
        python: Interpreter of the workers.
        archive: Name among Spark's files of the plugin's environment; empty without one.
        digest: Its digest.
        module: The plugin's module.
        token: A file in the checkpoint folder; empty when that is no folder.
    """
    arguments = probe_arguments(
        workers=WORKER_MODULE, archive=archive, digest=digest, module=module, token=token
    )
    command = ["/bin/sh", "-c", _SHELL, python, PROBE, arguments]
    names = sorted(hosts)
    if not names:  # All are lost again: new ones compare in their first tasks.
        return []
    tasks = assign_to_hosts(context, [(name, name) for name in names])
    outputs = tasks.pipe(command).glom().collect()
    return [
        read_answer([str(line) for line in lines], host=name)
        for name, lines in zip(names, outputs, strict=True)
    ]
