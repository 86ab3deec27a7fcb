"""The jars of Kafka's broker: which ones, and how they come into a folder of the cache.

The list (coordinates, sizes, checksums) is a file of this package, so that each machine runs the
very broker that the tests ran. Jars come from wherever the machine's Maven gets its own, or, where
there is no Maven, from where the Ivy that PySpark brings looks by itself. A jar gets its name in
the cache only after its checksum was right; on use only the sizes are looked at, which takes a
millisecond. This module starts no broker.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bicycle_runtime.dev.errors import JAR_CHECKSUM_WRONG, JARS_NOT_FETCHED
from bicycle_runtime.dev.jar_fetchers import FetchFailure, Jar, fetchers
from bicycle_runtime.dev.waiting import locked
from bicycle_sdk.errors import BicycleError

__all__ = ["KAFKA_VERSION", "kafka_jars", "listed_jars"]

KAFKA_VERSION = "4.2.1"
_LOCK_TIMEOUT_S = 900  # Longer than one fetch may take, so that one failure is told, not two.
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
        """Check the jars of a folder, then move them here; each appears whole or not at all."""
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
        with locked(cache_dir / f"kafka-{KAFKA_VERSION}.lock", timeout_s=_LOCK_TIMEOUT_S):
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
            f"fetching Kafka {KAFKA_VERSION} with {name}: {len(store.jars)} jars, {size_mib} MiB, "
            "10 to 40 seconds, once for this machine"
        )
        with tempfile.TemporaryDirectory(dir=store.folder.parent, prefix="kafka-fetch-") as place:
            try:
                fetch(store.jars, Path(place))
                store.take_from(Path(place))
            except FetchFailure as failure:
                causes[name] = str(failure)
            except FileNotFoundError as error:
                causes[name] = f"it brought no {Path(str(error.filename)).name}"
            else:
                return
    raise _failure(store, causes or {"java": "neither Maven nor PySpark's Ivy was found"})


def _failure(store: _JarStore, causes: dict[str, str]) -> BicycleError:
    return JARS_NOT_FETCHED(
        jar_count=len(store.jars),
        version=KAFKA_VERSION,
        causes=causes,
        cause_text="; ".join(f"{name}: {cause}" for name, cause in causes.items()),
        folder=str(store.folder),
    )
