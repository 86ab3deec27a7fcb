"""A broker's surroundings without Kafka: jars of the right size, and a Java that does as told."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from bicycle_runtime.dev.broker_options import BrokerOptions
from bicycle_runtime.dev.kafka_broker import KafkaBroker
from bicycle_runtime.dev.kafka_jars import KAFKA_VERSION, listed_jars

_JAVA = """\
#!/bin/sh
case "$*" in
*-version*) echo 'openjdk version "{version}"' >&2 ;;
*StorageTool*) {formatting} ;;
*) {running} ;;
esac
"""
_DATA = 'mkdir -p "{folder}/data" && touch "{folder}/data/meta.properties"'


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    """A cache with all jars, which hold nothing but zeros."""
    folder = tmp_path / "cache" / f"kafka-{KAFKA_VERSION}"
    folder.mkdir(parents=True)
    for jar in listed_jars():
        with (folder / jar.file_name).open("wb") as stream:
            stream.truncate(jar.size_bytes)
    return folder.parent


@pytest.fixture
def fake_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Put a script in the place of Java; `running` is what it does as the broker."""

    def install(*, running: str = "exec sleep 60", formatting: str = "", version: str = "17.0.1"):
        program = tmp_path / "java-home" / "bin" / "java"
        program.parent.mkdir(parents=True, exist_ok=True)
        formatting = formatting or _DATA.format(folder=tmp_path / "broker")
        text = _JAVA.format(version=version, formatting=formatting, running=running)
        program.write_text(text)
        program.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java-home"))

    return install


@pytest.fixture
def new_broker(tmp_path: Path, cache_dir: Path):
    """Make brokers of one folder; whatever runs there in the end is killed."""

    def make(**options) -> KafkaBroker:
        settings = {"folder": tmp_path / "broker", "start_timeout_ms": 1_000, **options}
        return KafkaBroker(BrokerOptions(**settings), cache_dir=cache_dir)

    yield make
    with contextlib.suppress(Exception):
        make().kill()
