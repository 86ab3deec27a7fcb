"""The checks of this repository as sessions; plain ``nox`` runs those that every change must pass.

Sessions call the targets of the Makefile where there is one, so that ``make test``, the pipeline
and ``nox`` can not differ. They use ``.venv``; only ``wheels`` makes environments of its own.
"""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from pathlib import Path

import nox

nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "types", "imports", "tests"]

BIN = Path(".venv/bin").absolute()
PYTEST = (str(BIN / "python"), "-m", "pytest")
IMPORT_ALL = """
import importlib, pkgutil, sys
root = importlib.import_module(sys.argv[1])
for info in pkgutil.walk_packages(root.__path__, prefix=root.__name__ + "."):
    if not info.name.endswith("__main__") and not info.name.startswith(sys.argv[2]):
        importlib.import_module(info.name)
"""
# What only an extra makes importable: bicycle-runtime[testing].
NEEDS_EXTRA = "bicycle_runtime.testing.connectors"
# Each distribution: the module it brings, and all that may be installed with it (None: anything).
DISTRIBUTIONS = {
    "plugin_sdk": ("bicycle_sdk", frozenset({"bicycle-sdk"})),
    "runtime": ("bicycle_runtime", None),
    "plugins/wordcount": ("wordcount", frozenset({"bicycle-sdk", "bicycle-wordcount"})),
    "plugins/wordcount_kafka": (
        "wordcount_kafka",
        frozenset({"bicycle-sdk", "bicycle-wordcount-kafka"}),
    ),
}


def _make(session: nox.Session, target: str) -> None:
    session.run("make", target, external=True)


def _pytest(session: nox.Session, *arguments: str) -> None:
    _make(session, "setup")
    session.run(*PYTEST, *arguments, *session.posargs, external=True)


@nox.session
def lint(session: nox.Session) -> None:
    """Style and format."""
    _make(session, "lint")


@nox.session
def types(session: nox.Session) -> None:
    """Static types of SDK, runtime and plugins."""
    _make(session, "types")


@nox.session
def imports(session: nox.Session) -> None:
    """Directions of imports between rooms."""
    _make(session, "imports")


@nox.session
def tests(session: nox.Session) -> None:
    """Every test, with the short forms of crash and soak; arguments go to pytest."""
    _pytest(session)


@nox.session
def docs(session: nox.Session) -> None:
    """Docs against code."""
    _pytest(session, "tests/docs")


@nox.session
def simulation(session: nox.Session) -> None:
    """Seeded crashes, delays, restarts, rescales and frozen drivers: thousands of schedules."""
    _pytest(session, "tests/simulation", "--driver-schedules=2000", "--timeout=600")


@nox.session
def spark(session: nox.Session) -> None:
    """The tests that start a JVM."""
    _pytest(session, "-m", "spark")


@nox.session
def cluster(session: nox.Session) -> None:
    """The tests on a real Spark cluster of this machine, with ten schedules of losses."""
    _pytest(session, "-m", "cluster", "--cluster-schedules=10")


@nox.session
def crash(session: nox.Session) -> None:
    """Every crash point many times."""
    _pytest(session, "-m", "crash", "--crash-rounds=10", "--timeout=3600")


@nox.session(name="crash-kafka")
def crash_kafka(session: nox.Session) -> None:
    """Every crash point of jobs with Kafka a hundred times: hours on Spark."""
    _pytest(session, "tests/kafka", "-m", "crash", "--crash-rounds=100")


@nox.session(name="backlog-kafka")
def backlog_kafka(session: nox.Session) -> None:
    """A job that finds five million messages."""
    _pytest(session, "tests/kafka/test_backlog.py", "--backlog-messages=5000000")


@nox.session
def soak(session: nox.Session) -> None:
    """Twenty thousand small epochs: memory, threads and files must stay flat."""
    _pytest(session, "-m", "soak", "--soak-epochs=20000", "--timeout=0")


@nox.session
def bench(session: nox.Session) -> None:
    """The benchmarks."""
    _make(session, "bench")


@nox.session
def wheels(session: nox.Session) -> None:
    """Build each distribution, install it alone in a clean environment, and import it there."""
    _make(session, "setup")
    store = Path(".build/wheels").absolute()
    shutil.rmtree(store, ignore_errors=True)  # Wheels of earlier states are none of ours.
    with tempfile.TemporaryDirectory() as name:
        for folder in DISTRIBUTIONS:
            _build(session, store=store, folder=folder, copies=Path(name))
            _require_own_files(session, wheel=_wheel_of(store, folder), source=Path(folder, "src"))
    for folder, (module, allowed) in DISTRIBUTIONS.items():
        with tempfile.TemporaryDirectory() as name:
            place = Path(name)
            _install_alone(session, store=store, folder=folder, place=place)
            _import_alone(session, python=place / "bin/python", module=module, allowed=allowed)


def _build(session: nox.Session, *, store: Path, folder: str, copies: Path) -> None:
    """Build a wheel from a copy: beside the sources, an earlier build would go into it as well."""
    left = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
    copy = shutil.copytree(folder, copies / folder, ignore=left)
    session.run(
        *(str(BIN / "python"), "-m", "pip", "wheel", "--quiet", "--no-deps"),
        *("--no-build-isolation", "--wheel-dir", str(store), str(copy)),
        external=True,
    )


def _require_own_files(session: nox.Session, *, wheel: Path, source: Path) -> None:
    """See that a wheel has the files of its sources: all of them, and no other."""
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    files = {path for path in source.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    own = {path.relative_to(source).as_posix() for path in files}
    own = {name for name in own if ".egg-info/" not in name}
    if packed != own:
        session.error(f"{wheel.name} and {source} differ in {sorted(packed ^ own)}")


def _install_alone(session: nox.Session, *, store: Path, folder: str, place: Path) -> None:
    """Install the wheel of one distribution, and what it asks for, in a new environment.

    The SDK is given as a file too: no package of that name from elsewhere may be taken for ours.
    """
    wheels = {str(_wheel_of(store, name)) for name in ("plugin_sdk", folder)}
    session.run(str(BIN / "python"), "-m", "venv", str(place), external=True)
    session.run(
        *(str(place / "bin/python"), "-m", "pip", "install", "--quiet"),
        *("--constraint", "requirements.lock", *sorted(wheels)),
        external=True,
    )


def _wheel_of(store: Path, folder: str) -> Path:
    project = nox.project.load_toml(f"{folder}/pyproject.toml")["project"]
    return next(store.glob(f"{project['name'].replace('-', '_')}-{project['version']}-*.whl"))


def _import_alone(
    session: nox.Session, *, python: Path, module: str, allowed: frozenset[str] | None
) -> None:
    """Import every module outside the repository, and look at what is installed beside it."""
    with session.chdir(python.parent):
        session.run(
            str(python), "-W", "error", "-c", IMPORT_ALL, module, NEEDS_EXTRA, external=True
        )
        listing = session.run(
            *(str(python), "-m", "pip", "list", "--format", "freeze"),
            *("--exclude", "pip", "--exclude", "setuptools"),
            external=True,
            silent=True,
        )
    found = {line.partition("==")[0] for line in str(listing).split()}
    if allowed is not None and found != allowed:
        session.error(f"{module} brought {sorted(found)}, expected {sorted(allowed)}")
