"""A word count with its drivers in processes of their own, each of which takes the job's lease."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bicycle_runtime.extraction.bundle import JobBundle
from bicycle_runtime.extraction.discovery import discover
from bicycle_runtime.extraction.extract import extract
from tests.spark.jobsite import Life

__all__ = ["LeasedSite", "ended"]


class LeasedSite:
    """The files of a job; ``tests.simulation.leased_driver`` runs it.

    Args:
        root: Folder for input, output and what the drivers say.
        location: Path or URL of the checkpoint.
        lines: The input.
        bundle: The job; that of the word count otherwise.
    """

    def __init__(
        self, root: Path, location: str, lines: Sequence[str], *, bundle: JobBundle | None = None
    ) -> None:  # fmt: skip
        self.root = root
        self.location = location
        self.output = root / "output"
        (root / "input").mkdir(parents=True)
        (root / "input/lines.txt").write_text("".join(f"{line}\n" for line in lines))
        params = {"input": str(root / "input"), "output": str(self.output)}
        job = bundle or extract(discover().find("wordcount"), params)
        (root / "bundle").write_bytes(job.to_bytes())
        self.lives: list[Life] = []

    def launch(self, faults: str, *words: str) -> Life:
        """Start a driver; ``words`` are the arguments behind bundle and location."""
        folder = self.root / f"life{len(self.lives)}"
        folder.mkdir()
        command = [
            *(sys.executable, "-m", "tests.simulation.leased_driver"),
            *(str(self.root / "bundle"), self.location, *words),
        ]
        environment = {
            **os.environ,
            "BICYCLE_FAULTS": faults,
            "BICYCLE_FAULTS_ONCE": str(folder),
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
            process = subprocess.Popen(command, stdout=out, stderr=err, env=environment)
        self.lives.append(Life(process, folder))
        return self.lives[-1]


@contextmanager
def ended(site: LeasedSite) -> Iterator[None]:
    """Let no driver outlive a test."""
    yield
    for life in site.lives:
        if life.process.poll() is None:
            life.process.kill()
            life.process.wait()
