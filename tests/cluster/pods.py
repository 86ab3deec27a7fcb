"""Pods of Spark executors as processes: each runs the entry point of the image."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.spark.jobsite import SHORT_LIVED_JAVA

DEPLOY = Path(__file__).parents[2] / "deploy"
ADDRESS = "127.0.0.1"
_FIELDS = {"status.podIP": ADDRESS, "metadata.name": "pod"}


class Pods:
    """The processes of pods, with the variables of the pods, as a node starts them."""

    def __init__(self, folder: Path) -> None:
        self.created: list[dict[str, Any]] = []
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._folder, self._log = folder, folder / "executors.log"
        # A stand-in: tini is a part of the image.
        (folder / "tini").write_text('#!/bin/sh\nshift 2\nexec "$@"\n')
        (folder / "tini").chmod(0o755)
        self._path = f"{Path(sys.executable).parent}:{folder}:/usr/local/bin:/usr/bin:/bin"

    @property
    def names(self) -> set[str]:
        """The pods with a process."""
        return set(self._processes)

    def start(self, pod: dict[str, Any]) -> None:
        [container] = pod["spec"]["containers"]
        variables = {
            each["name"]: each["value"]
            if "value" in each
            else _FIELDS[each["valueFrom"]["fieldRef"]["fieldPath"]]
            for each in container["env"]
            if each.keys() > {"name"}  # An empty value is left out.
        }
        self.created.append(pod)
        with self._log.open("ab") as log:
            self._processes[pod["metadata"]["name"]] = subprocess.Popen(
                [DEPLOY / "image/entrypoint", *container["args"]],
                env={**SHORT_LIVED_JAVA, **variables, "PATH": self._path},
                cwd=self._folder, stdout=log, stderr=log,
            )  # fmt: skip

    def end(self, name: str) -> None:
        process = self._processes.pop(name)
        process.terminate()
        process.wait()

    def end_all(self) -> None:
        for name in self.names:
            self.end(name)

    @property
    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else "no pod was created"
