"""The cage: a folder to install a plugin in, and the proof that nothing got out of it."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bicycle_runtime.extraction.bundle import JobBundle
from bicycle_runtime.extraction.discovery import PluginRef, discover
from bicycle_runtime.extraction.errors import ExtractionError
from bicycle_runtime.extraction.extract import extract
from bicycle_runtime.extraction.limits import ExtractionLimits
from bicycle_sdk.errors import ErrorRow
from tests.plugin_zoo.zoo import Beast, install
from tests.raising import raises
from tests.waiting import until

QUICK = ExtractionLimits(wall_time_ms=20_000)


@dataclass(frozen=True, slots=True)
class Cage:
    """Installs plugins into a folder of its own and extracts them."""

    folder: Path

    def put(self, beast: Beast) -> PluginRef:
        install(self.folder, beast)
        return discover([str(self.folder)]).find(beast.name)

    def extract(self, beast: Beast, limits: ExtractionLimits = QUICK, **params: str) -> JobBundle:
        return extract(self.put(beast), params, limits)

    def fail(
        self, beast: Beast, error: ErrorRow[ExtractionError], limits: ExtractionLimits = QUICK
    ) -> dict[str, Any]:
        """Extract a plugin that must fail with just this error; returns its facts."""
        with raises(error) as caught:
            self.extract(beast, limits)
        assert type(caught.value) is error.kind
        facts = caught.value.facts
        assert (facts["plugin"], facts["dist"]) == (beast.name, f"{beast.name} 1.0")
        assert {"stderr_tail", "stdout_tail"} <= facts.keys()
        assert str(caught.value).startswith(error.code)
        return facts

    def place(self, beast: Beast, text: str) -> str:
        """Return ``file:line`` of the line of the plugin that holds a text."""
        return f"{self.folder / beast.name}.py:{beast.line_of(text)}"


@pytest.fixture
def cage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cage:
    """A cage whose child processes are known by their work folder, and are all gone when the test ends."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(work))
    yield Cage(tmp_path / "site")
    until(lambda: not _processes_of(work), lambda: f"the end of {_processes_of(work)}")
    assert list(work.iterdir()) == []


def _processes_of(work: Path) -> list[int]:
    mark = f"BICYCLE_EXTRACTION_RUN={work}/".encode()
    return [
        int(folder.name)
        for folder in Path("/proc").iterdir()
        if folder.name.isdigit() and mark in _environment(folder)
    ]


def _environment(folder: Path) -> bytes:
    try:
        return (folder / "environ").read_bytes()
    except OSError:
        return b""
