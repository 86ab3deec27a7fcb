"""The jars of Kafka's broker: a list, and their download to a cache folder.

The list (coordinates, sizes, checksums) is a file of this package, so that each machine runs the
very broker that the tests ran. Jars come from wherever the machine's Maven gets its own, or, where
there is no Maven, from where the Ivy that PySpark brings looks by itself. A jar gets its name in
the cache only after its checksum was right; on use only the sizes are looked at, which takes a
millisecond. This module starts no broker.

Maven and the Ivy that PySpark brings are the two ways to get jars from a Maven repository. Both
get the whole list and resolve nothing, so both bring the same files. Neither is told where to
look: the settings of the machine (mirrors, proxies, local repository) count as they do for any
other build. Checksums are looked at by the caller.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import importlib.util
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from xml.sax.saxutils import escape

from bicycle_runtime.dev.errors import JAR_CHECKSUM_WRONG, JARS_NOT_FETCHED
from bicycle_runtime.dev.java_programs import require_java
from bicycle_runtime.dev.waiting import hold_lock
from bicycle_sdk.errors import BicycleError

_TIMEOUT_S = 600
_CAUSE_LINE_COUNT = 5
_MAVEN_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_TROUBLE = ("error", "unresolved", "exception", "not found", "failed", "unknown host")


class FetchFailure(Exception):
    """The reason why a download failed; the caller may try another way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Jar:
    """A file of the broker: its coordinates, and its expected size."""

    group: str
    artifact: str
    version: str
    sha256: str
    size_bytes: int
    extension: str = "jar"

    @property
    def coordinates(self) -> str:
        """Group, artifact and version."""
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def file_name(self) -> str:
        """The name in the cache, as in Maven and Ivy."""
        return f"{self.artifact}-{self.version}.{self.extension}"


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
        f"<version>{escape(jar.version)}</version><type>{escape(jar.extension)}</type>"
        f"{exclusions}</dependency>\n"
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
    """Return an Ivy module that depends on each jar, without transitive dependencies."""
    dependencies = "".join(
        f'<dependency org="{escape(jar.group)}" name="{escape(jar.artifact)}" '
        f'rev="{escape(jar.version)}" conf="default->master" transitive="false">'
        f'<artifact name="{escape(jar.artifact)}" type="{escape(jar.extension)}" '
        f'ext="{escape(jar.extension)}"/></dependency>\n'
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
        raise FetchFailure(f"no response within {_TIMEOUT_S} s") from error
    if result.returncode:
        raise FetchFailure(f"exit code {result.returncode}: {_trouble(result.stdout)}")


def _trouble(output: str) -> str:
    """Return the first lines about a failure, or else the last lines."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if any(word in line.lower() for word in _TROUBLE)]
    return " | ".join(telling[:_CAUSE_LINE_COUNT] or lines[-_CAUSE_LINE_COUNT:] or ["no output"])


KAFKA_VERSION = "4.2.1"
_LOCK_TIMEOUT_S = 900  # Longer than one fetch may take, so that only its failure is reported.
_MIB = 1 << 20

Fetcher = Callable[[Sequence[Jar], Path], None]


@cache
def listed_jars() -> tuple[Jar, ...]:
    """Return the jars of the list, in the order of the class path."""
    text = importlib.resources.files(__package__).joinpath("kafka_jars.txt").read_text("utf-8")
    rows = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return tuple(_jar(*row) for row in rows)


def _jar(sha256: str, size: str, coordinates: str) -> Jar:
    group, artifact, version = coordinates.split(":")
    return Jar(group=group, artifact=artifact, version=version, sha256=sha256, size_bytes=int(size))


@dataclass(frozen=True, slots=True, kw_only=True)
class _JarStore:
    """A folder of the cache that holds all jars of the list, or will."""

    folder: Path
    jars: tuple[Jar, ...]

    @property
    def paths(self) -> list[Path]:
        return [self.folder / jar.file_name for jar in self.jars]

    def is_full(self) -> bool:
        return all(
            path.is_file() and path.stat().st_size == jar.size_bytes
            for path, jar in zip(self.paths, self.jars, strict=True)
        )

    def take_from(self, folder: Path) -> None:
        """Check the jars of a folder, then move them here atomically."""
        for jar in self.jars:
            digest = hashlib.sha256((folder / jar.file_name).read_bytes()).hexdigest()
            if digest != jar.sha256:
                raise JAR_CHECKSUM_WRONG(
                    coordinates=jar.coordinates, found=digest, expected=jar.sha256
                )
        self.folder.mkdir(exist_ok=True)
        for jar, path in zip(self.jars, self.paths, strict=True):
            (folder / jar.file_name).replace(path)


def kafka_jars(
    cache_dir: Path,
    *,
    report: Callable[[str], None],
    ways: Callable[[], Sequence[tuple[str, Fetcher]]] = fetchers,
    jars: tuple[Jar, ...] | None = None,
) -> list[Path]:
    """Return the jars of the broker, and fetch them when the cache lacks one.

    Several processes may call this at once: one fetches, the others wait for it.

    Args:
        cache_dir: Directory that outlives runs.
        report: Gets a line for people before something that takes long.
        ways: Gives the ways to fetch, best first, by name.
        jars: What to fetch, when it is not the list of this package.

    Raises:
        JARS_NOT_FETCHED: no way succeeded.
        JAR_CHECKSUM_WRONG: a jar is not the one that was listed.
    """
    jars = listed_jars() if jars is None else jars
    store = _JarStore(folder=cache_dir / f"kafka-{KAFKA_VERSION}", jars=jars)
    if store.is_full():
        return store.paths
    try:
        with hold_lock(cache_dir / f"kafka-{KAFKA_VERSION}.lock", timeout_s=_LOCK_TIMEOUT_S):
            if not store.is_full():
                _fill(store, report, ways())
    except TimeoutError as error:
        raise _failure(store, {"lock": str(error)}) from None
    except OSError as error:
        raise _failure(store, {"cache": str(error)}) from error
    return store.paths


def _fill(
    store: _JarStore, report: Callable[[str], None], ways: Sequence[tuple[str, Fetcher]]
) -> None:
    size_mib = sum(jar.size_bytes for jar in store.jars) // _MIB
    causes: dict[str, str] = {}
    for name, fetch in ways:
        report(
            f"downloading Kafka {KAFKA_VERSION} with {name}: {len(store.jars)} jars, {size_mib} "
            "MiB, 10 to 40 seconds, only once on this machine"
        )
        with tempfile.TemporaryDirectory(dir=store.folder.parent, prefix="kafka-fetch-") as folder:
            try:
                fetch(store.jars, Path(folder))
                store.take_from(Path(folder))
            except FetchFailure as failure:
                causes[name] = str(failure)
            except FileNotFoundError as error:
                causes[name] = f"it downloaded no {Path(str(error.filename)).name}"
            else:
                return
    raise _failure(store, causes or {"java": "neither Maven nor Ivy of PySpark was found"})


def _failure(store: _JarStore, causes: dict[str, str]) -> BicycleError:
    return JARS_NOT_FETCHED(
        jar_count=len(store.jars),
        version=KAFKA_VERSION,
        causes=causes,
        cause_text="; ".join(f"{name}: {cause}" for name, cause in causes.items()),
        folder=str(store.folder),
    )
