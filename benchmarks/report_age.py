"""The age of a report: when and on which code it was measured, and whether that code has changed.

Each report in ``docs/benchmarks.md`` has a line with date, commit, and a digest over the rooms that
it measures. Commits are for people; the digest decides, so that neither a rebase nor an archive
without history changes what a page says. ``make docs`` marks the reports whose code has changed.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

__all__ = ["MEASURED", "code_digest", "digest_of", "measured_line", "with_ages"]

ROOT = Path(__file__).parents[1]
_RUNTIME = "runtime/src/bicycle_runtime"
_SDK = "plugin_sdk/src/bicycle_sdk"
_TOOLKIT = "streams/src/bicycle_streams"
_OPERATORS = tuple(f"{_RUNTIME}/{room}" for room in ("operators", "records", "state"))
_EPOCHS = (*_OPERATORS, f"{_RUNTIME}/engine", f"{_RUNTIME}/recovery")
_FILES = (*_EPOCHS, f"{_RUNTIME}/connectors/files")
_KAFKA = (*_EPOCHS, f"{_RUNTIME}/connectors/kafka")
# Report -> folders with the code whose pace it tells.
MEASURED: Mapping[str, tuple[str, ...]] = {
    "async-call": _OPERATORS,
    "async-in-flight": _OPERATORS,
    "async-slow-calls": _FILES,
    "columns": _FILES,
    "epoch-latency": _FILES,
    "failed-attempts": _EPOCHS,
    "hot-key": _FILES,
    "idle-kafka": (*_KAFKA, f"{_RUNTIME}/jobs/running"),
    "idle-windows": _FILES,
    "joins": _OPERATORS,
    "kafka-latency": _KAFKA,
    "kafka-throughput": _KAFKA,
    "keyed-state": _FILES,
    "light-load": (_RUNTIME, _SDK),
    "memory": _OPERATORS,
    "metrics-cost": (*_FILES, f"{_RUNTIME}/jobs/running"),
    "open-windows": _OPERATORS,
    "parquet-sink": (f"{_RUNTIME}/connectors/files", f"{_RUNTIME}/connectors/tables"),
    "nexmark": (*_FILES, f"{_RUNTIME}/expressions", f"{_RUNTIME}/tables"),
    "pipeline": (*_FILES, f"{_RUNTIME}/expressions", f"{_RUNTIME}/pipelines"),
    "postgres-sink": (f"{_RUNTIME}/connectors/postgres", f"{_RUNTIME}/connectors/tables"),
    "rescale": _FILES,
    "restart": (_RUNTIME, _SDK),
    "restore": _EPOCHS,
    "service": (f"{_RUNTIME}/api", f"{_RUNTIME}/service", f"{_RUNTIME}/webui"),
    "sinks": tuple(f"{_RUNTIME}/connectors/{room}" for room in ("http", "lakes", "tables")),
    "startup": (_RUNTIME, _SDK),
    "state-backends": _EPOCHS,
    "state-bases": _EPOCHS,
    "state-commit": _EPOCHS,
    "state-lookup": (*_EPOCHS, f"{_RUNTIME}/jobs/checkpoints", f"{_RUNTIME}/service"),
    "state-peers": _FILES,
    "stream-relay": (_TOOLKIT,),
    "streams": (_TOOLKIT,),
    "subscribers": (_TOOLKIT,),
    "time-order": _OPERATORS,
    "upgrade": (_RUNTIME, _SDK),
    "w1-json": _FILES,
    "w2-wordcount": _FILES,
    "w3-kinds": _FILES,
    "w3-windows": _FILES,
}
_CHANGED = "; **the code has changed since**"
_SECTION = re.compile(r"<!-- begin (?P<name>[\w-]+) -->\n.*?<!-- end (?P=name) -->", re.DOTALL)
_LINE = re.compile(
    rf"^(?P<told>- measured: [\d-]+ on commit \w+(?: and changes)? \(code (?P<digest>\w+)\))"
    rf"(?:{re.escape(_CHANGED)})?$",
    re.MULTILINE,
)


def measured_line(name: str) -> str:
    """Return the line for a report that is measured now, on the code that is here."""
    day = datetime.now(UTC).date().isoformat()
    return f"- measured: {day} on commit {_commit()} (code {code_digest(name)})"


def with_ages(document: str, *, root: Path = ROOT) -> str:
    """Return a document whose reports say whether their code has changed; ValueError if one cannot.

    Args:
        document: Text with reports between their markers.
        root: The repository, with or without its history.
    """

    def aged(section: re.Match[str]) -> str:
        name = section["name"]
        if len(section[0].splitlines()) <= 2:  # It has not been measured yet.
            return section[0]
        digest = code_digest(name, root=root)

        def marked(line: re.Match[str]) -> str:
            return line["told"] + ("" if line["digest"] == digest else _CHANGED)

        text, count = _LINE.subn(marked, section[0])
        if count != 1:
            raise ValueError(f"report {name} has {count} lines that say when it was measured")
        return text

    return _SECTION.sub(aged, document)


def code_digest(name: str, *, root: Path = ROOT) -> str:
    """Return the digest of the code that a report measures, as it is now."""
    files = {
        file.relative_to(root).as_posix(): file.read_bytes()
        for folder in MEASURED[name]
        for file in (root / folder).rglob("*.py")
    }
    return digest_of(files)


def digest_of(files: Mapping[str, bytes]) -> str:
    """Return the digest of files, by path and content: 12 hexadecimal digits."""
    digest = hashlib.sha256()
    for path, content in sorted(files.items()):
        digest.update(f"{path} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:12]


def _commit() -> str:
    """Return the commit that is checked out, and whether files differ from it; or `unknown`."""
    found = _git("rev-parse", "--short", "HEAD")
    changes = _git(
        "status", "--porcelain", "--untracked-files=no", "--", "runtime", "streams", "plugin_sdk"
    )
    return f"{found or 'unknown'}{' and changes' if changes else ''}"


def _git(*words: str) -> str:
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
