"""The check of this machine: whether it can run jobs, the findings and fixes.

A check reads and changes nothing. The check with Spark starts a tiny job and takes some seconds, so
it runs only on request.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import cloudpickle

from bicycle_runtime import __version__
from bicycle_runtime.base.ids import attempt_id
from bicycle_runtime.base.java import JAVA_MAJOR_MIN, find_java, java_major, java_version
from bicycle_runtime.base.processes import OPEN_FILES_MIN, open_files_max
from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.engine.loop.epoch_loop import EpochLoop
from bicycle_runtime.engine.loop.services import LoopServices
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.engine.planning.setup import prepare_job
from bicycle_runtime.engine.spark.executor import SparkExecutor
from bicycle_runtime.engine.spark.settings import default_master
from bicycle_runtime.extraction.bundle import JobBundle, bundle_digest
from bicycle_runtime.jobs.errors import DOCTOR_FOUND_FAULTS
from bicycle_runtime.jobs.home import Home
from bicycle_sdk import StreamEnvironment
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.quantities import byte_text
from bicycle_sdk.random_source import system_random

_PYTHON_MIN, _PYTHON_MAX = (3, 11), (3, 14)
_DISK_BYTES_MIN = 1 << 30
_MEMORY_BYTES_MIN = 2 << 30
_SPARK_SERIES = "4.3."
_SDK_SERIES = ".".join(__version__.split(".")[:2])


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check. ``fix`` says what to do when it failed, and is empty when it did not."""

    name: str
    is_ok: bool
    found: str
    fix: str = ""


def examine(home: Home, *, with_spark: bool = False, master: str | None = None) -> list[Check]:
    """Run all checks.

    Args:
        home: Where jobs and caches would be kept.
        with_spark: Start a tiny job as well.
        master: Spark master for it; embedded Spark when None.
    """
    checks = [
        _python(),
        _java(),
        _distribution("pyspark", _SPARK_SERIES),
        _distribution("bicycle-sdk", f"{_SDK_SERIES}."),
        Check(name="bicycle-runtime", is_ok=True, found=__version__),
        _processors(),
        _memory(),
        _open_files(),
        _folder("home", home.path),
        _folder("temporary files", Path(tempfile.gettempdir())),
    ]
    if with_spark:
        checks.append(_spark(home, master or default_master()))
    return checks


def require_health(checks: list[Check]) -> None:
    """Refuse a machine on which a check failed.

    Raises:
        DOCTOR_FOUND_FAULTS: with the names of the failed checks.
    """
    failed = [check.name for check in checks if not check.is_ok]
    if failed:
        raise DOCTOR_FOUND_FAULTS(
            count=len(failed),
            total=len(checks),
            names=", ".join(failed),
            checks=[asdict(check) for check in checks],
        )


def _check(name: str, *, is_ok: bool, found: str, fix: str) -> Check:
    return Check(name=name, is_ok=is_ok, found=found, fix="" if is_ok else fix)


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return _check(
        "Python",
        is_ok=_PYTHON_MIN <= sys.version_info[:2] <= _PYTHON_MAX,
        found=f"{version} ({sys.executable})",
        fix="install Python 3.11 to 3.14 and create the environment again with it",
    )


def _java() -> Check:
    fix = f"install Java {JAVA_MAJOR_MIN} or newer and set JAVA_HOME or PATH to it"
    java = find_java()
    if java is None:
        return _check("Java", is_ok=False, found="no Java on PATH or in JAVA_HOME", fix=fix)
    version = java_version(java)
    if version is None:
        return _check("Java", is_ok=False, found=f"{java.path} does not run", fix=fix)
    is_ok = java_major(version) >= JAVA_MAJOR_MIN
    return _check("Java", is_ok=is_ok, found=f"{version} ({java.path})", fix=fix)


def _distribution(name: str, series: str) -> Check:
    fix = f'pip install "{name}=={series}*"'
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return _check(name, is_ok=False, found="not installed", fix=fix)
    return _check(name, is_ok=version.startswith(series), found=version, fix=fix)


def _processors() -> Check:
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Check(name="processors", is_ok=True, found=str(count or "unknown"))


def _memory() -> Check:
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return Check(name="memory", is_ok=True, found="unknown on this system")
    return _check(
        "memory",
        is_ok=size >= _MEMORY_BYTES_MIN,
        found=byte_text(size),
        fix="Spark needs about 2 GiB; use a larger machine, or a Spark cluster with --master",
    )


def _open_files() -> Check:
    limit = open_files_max()
    return _check(
        "open files",
        is_ok=limit is None or limit >= OPEN_FILES_MIN,
        found="any number" if limit is None else f"at most {limit:,}",
        fix=f"raise the limit to {OPEN_FILES_MIN:,} or more (ulimit -n, or your service manager)",
    )


def _folder(name: str, path: Path) -> Check:
    """Check that a folder, or its nearest existing parent, is writable and has space."""
    nearest = next(folder for folder in (path, *path.parents) if folder.exists())
    is_usable = nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
    free = shutil.disk_usage(nearest).free
    words = f"{byte_text(free)} free" if is_usable else "cannot be written"
    variable = "BICYCLE_HOME" if name == "home" else "TMPDIR"
    return _check(
        name,
        is_ok=is_usable and free >= _DISK_BYTES_MIN,
        found=f"{path}: {words}",
        fix=f"free at least 1 GiB, or set {variable} to a writable directory",
    )


def _spark(home: Home, master: str) -> Check:
    """Run a tiny job with one exchange on Spark, as a whole."""
    clock = SystemClock()
    started = clock.monotonic()
    try:
        home.prepare()
        records = _run_sample(home, master)
    except (BicycleError, OSError) as error:
        words = error.summary if isinstance(error, BicycleError) else str(error)
        fix = error.remedy if isinstance(error, BicycleError) else "check the other results"
        return Check(name="Spark job", is_ok=False, found=words, fix=fix)
    seconds = clock.monotonic() - started
    return _check(
        "Spark job",
        is_ok=sorted(records) == [("a", 2), ("b", 1)],
        found=f"{master}, {seconds:.1f} s",
        fix=f"the result was {records}; report this error",
    )


def _run_sample(home: Home, master: str) -> list[Any]:
    collected: dict[str, list[Any]] = {}
    executor = SparkExecutor(master, settings={}, cache_dir=home.cache_dir, job="doctor")
    with tempfile.TemporaryDirectory(prefix="bicycle-doctor-") as folder:
        setup = prepare_job(sample_bundle(), job_id="doctor", storage=LocalStorage(folder))
        services = LoopServices(
            clock=SystemClock(), console=_ignore, on_epoch=_ignore, collected=collected
        )
        run_id = attempt_id(source=system_random())
        try:
            with EpochLoop(
                setup, executor, options=EngineOptions(), run_id=run_id, services=services
            ) as loop:
                while not loop.step().is_finished:
                    continue
                loop.finish(is_finished=True)
        finally:
            executor.stop()  # The loop stops it too, but not when it never began.
    last = dict(collected["counts"])
    return list(last.items())


def _ignore(_: object) -> None:
    """Show nothing: only the collected result counts."""


def sample_bundle() -> JobBundle:
    """Return a job that counts three letters with one exchange into ``counts``."""
    environment = StreamEnvironment()
    letters = environment.from_collection(["a", "b", "a"])
    letters.key_by(_itself).count().collect("counts")
    graph = environment.build_graph("sample")
    payloads = {name: cloudpickle.dumps(value) for name, value in environment.payloads.items()}
    return JobBundle(
        graph=graph,
        payloads=payloads,
        shipping=dict.fromkeys(payloads, "by reference"),
        digest=bundle_digest(graph, payloads),
        plugin="sample",
        plugin_version=__version__,
        dist=f"bicycle-runtime {__version__}",
        sdk_version=__version__,
        python_version=platform.python_version(),
    )


def _itself(letter: str) -> str:
    return letter
