"""The two ways to get jars from a Maven repository: Maven, and the Ivy that PySpark brings.

Both get the whole list and resolve nothing, so both bring the same files. Neither is told where to
look: the settings of the machine (mirrors, proxies, local repository) count as they do for any
other build. Checksums are looked at by the caller.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from bicycle_runtime.dev.java_programs import require_java

__all__ = ["FetchFailure", "Jar", "fetchers"]

_TIMEOUT_S = 600
_CAUSE_LINE_COUNT = 5
_MAVEN_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_TROUBLE = ("error", "unresolved", "exception", "not found", "failed", "unknown host")


class FetchFailure(Exception):
    """Why one way did not succeed; the caller may try the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Jar:
    """One file of the broker, as its repository names it, and what is expected to come."""

    group: str
    artifact: str
    version: str
    sha256: str
    size_bytes: int

    @property
    def coordinates(self) -> str:
        """Group, artifact and version."""
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def file_name(self) -> str:
        """The name in the cache, which is the one that Maven and Ivy give it, too."""
        return f"{self.artifact}-{self.version}.jar"


def fetchers() -> list[tuple[str, Callable[[Sequence[Jar], Path], None]]]:
    """Return the ways that this machine has, best first, by name.

    Each is called with the jars and a folder, puts the jars there, and raises a FetchFailure when
    it cannot.
    """
    found: list[tuple[str, Callable[[Sequence[Jar], Path], None]]] = []
    maven, ivy = shutil.which("mvn"), _ivy_jar()
    if maven:
        found.append(("Maven", lambda jars, folder: _by_maven(maven, jars, folder)))
    if ivy:
        found.append(("Ivy", lambda jars, folder: _by_ivy(ivy, jars, folder)))
    return found


def _ivy_jar() -> Path | None:
    """Return the Ivy in PySpark's folder, without importing PySpark."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    return next(iter(sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar"))), None)


def _by_maven(maven: str, jars: Sequence[Jar], folder: Path) -> None:
    project = folder / "pom.xml"
    project.write_text(_maven_project(jars), encoding="utf-8")
    _run(
        [maven, "--batch-mode", "--file", str(project), _MAVEN_GOAL, f"-DoutputDirectory={folder}"],
        folder,
    )


def _maven_project(jars: Sequence[Jar]) -> str:
    """Return a project that depends on each jar, and on nothing that a jar depends on."""
    exclusions = (
        "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
        "</exclusions>"
    )
    dependencies = "".join(
        f"<dependency><groupId>{escape(jar.group)}</groupId>"
        f"<artifactId>{escape(jar.artifact)}</artifactId>"
        f"<version>{escape(jar.version)}</version>{exclusions}</dependency>\n"
        for jar in jars
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>\n'
        "<groupId>bicycle</groupId><artifactId>kafka-broker</artifactId><version>1</version>\n"
        f"<dependencies>\n{dependencies}</dependencies></project>\n"
    )


def _by_ivy(ivy: Path, jars: Sequence[Jar], folder: Path) -> None:
    module = folder / "ivy.xml"
    module.write_text(_ivy_module(jars), encoding="utf-8")
    settings = Path("~/.ivy2/ivysettings.xml").expanduser()
    _run(
        [
            *(str(require_java()), "-jar", str(ivy), "-m2compatible", "-confs", "default"),
            *(("-settings", str(settings)) if settings.is_file() else ()),
            # Its own cache is not made for two processes at once.
            *("-cache", str(folder / "cache"), "-ivy", str(module)),
            *("-retrieve", f"{folder}/[artifact]-[revision](-[classifier]).[ext]"),
        ],
        folder,
    )


def _ivy_module(jars: Sequence[Jar]) -> str:
    """Return a module that depends on each jar (``master``), and on nothing that a jar needs."""
    dependencies = "".join(
        f'<dependency org="{escape(jar.group)}" name="{escape(jar.artifact)}" '
        f'rev="{escape(jar.version)}" conf="default->master" transitive="false"/>\n'
        for jar in jars
    )
    return (
        '<ivy-module version="2.0"><info organisation="bicycle" module="kafka-broker"/>\n'
        '<configurations><conf name="default"/></configurations>\n'
        f"<dependencies>\n{dependencies}</dependencies></ivy-module>\n"
    )


def _run(command: list[str], folder: Path) -> None:
    try:
        result = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        raise FetchFailure(str(error)) from error
    except subprocess.TimeoutExpired as error:
        raise FetchFailure(f"no answer within {_TIMEOUT_S} s") from error
    if result.returncode:
        raise FetchFailure(f"exit code {result.returncode}: {_trouble(result.stdout)}")


def _trouble(output: str) -> str:
    """Return the lines that say what went wrong, the first ones; else the last ones."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if any(word in line.lower() for word in _TROUBLE)]
    return " | ".join(telling[:_CAUSE_LINE_COUNT] or lines[-_CAUSE_LINE_COUNT:] or ["no output"])
