"""Commands in this process, with a home of their own."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bicycle_runtime.cli import main
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.options import JobOptions, JobRequest
from bicycle_runtime.jobs.status import JobState, JobStatus, write_status
from tests.unit.cli.stream_calls import call, url


class Shell:
    """Runs commands and reads their answers."""

    def __init__(self, home: Path) -> None:
        self.home = Home(home)
        self.home.prepare()

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of a process that has this home."""
        return {**os.environ, "BICYCLE_HOME": str(self.home.path)}

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(main, list(words), prog_name="bicycle")

    def answer(self, *words: str):
        done = self.run(*words, "--json")
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    def error(self, *words: str) -> tuple[int, dict]:
        """Return exit code and error of a command that must fail."""
        done = self.run(*words, "--json")
        return done.exit_code, json.loads(done.stdout)

    def put_job(self, name: str, **fields) -> None:
        folder = self.home.folder(name)
        folder.write_request(JobRequest(options=JobOptions(plugin="sample")))
        defaults = {"plugin": "sample", "state": JobState.FINISHED}
        write_status(folder.status_path, JobStatus(id=name, job=name, **{**defaults, **fields}))


@pytest.fixture
def shell(tmp_path, monkeypatch):
    monkeypatch.setenv("BICYCLE_HOME", str(tmp_path / "home"))
    return Shell(tmp_path / "home")


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    """Return a file with the stream `numbers`: 1 to 20."""
    path = tmp_path / "numbers.ss"
    call("produce", url(path, "numbers"), data="".join(f"{n}\n" for n in range(1, 21)))
    return path
