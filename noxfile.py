"""The sessions that need several environments: other versions of Python, and a release.

``make`` has all other commands, and also starts these: ``make versions``, ``make release`` etc.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import nox

nox.options.default_venv_backend = "none"
nox.options.sessions = ["tests-3.12", "tests-3.13", "tests-3.14"]

BIN = Path(".venv/bin").absolute()
# What `make changelog` sets up.
RELEASE_BIN = Path(".venv-release/bin").absolute()
IMPORT_ALL = """
import importlib, pkgutil, sys
root = importlib.import_module(sys.argv[1])
for info in pkgutil.walk_packages(root.__path__, prefix=root.__name__ + "."):
    if not info.name.endswith("__main__") and not info.name.startswith(tuple(sys.argv[2:])):
        importlib.import_module(info.name)
"""
# What only an extra makes importable, and former import paths, which warn.
NOT_IMPORTED = (
    "bicycle_runtime.streams",
    "bicycle_runtime.connectors.http",
    "bicycle_runtime.connectors.lakes",
    "bicycle_runtime.connectors.postgres",
    "bicycle_runtime.expressions",
    "bicycle_runtime.tables",
    "bicycle_runtime.cli.sql_answers",
    "bicycle_runtime.cli.sql_prompt",
    "bicycle_runtime.formats.avro",
    "bicycle_runtime.formats.protobuf",
    "bicycle_runtime.connectors.stream_clients.pulsar",
    "bicycle_runtime.connectors.stream_clients.redis",
    "bicycle_streams.access.postgres",
    "bicycle_streams.cli.stream_page",
    "bicycle_streams.cli.terminal",
    "bicycle_streams.kafka",
    "bicycle_streams.pulsar",
    "bicycle_streams.redis",
    "bicycle_streams.testing",
    "bicycle_runtime.testing.connectors",
    "bicycle_runtime.testing.streams",
    "bicycle_runtime.api",
    "bicycle_runtime.service_process",
    "bicycle_runtime.subscriber_server",
    "bicycle_runtime.service",
    "bicycle_runtime.webui",
)
# Each distribution: the module it brings, and all that may be installed with it (None: anything).
DISTRIBUTIONS = {
    "plugin_sdk": ("bicycle_sdk", frozenset({"bicycle-sdk"})),
    "streams": (
        "bicycle_streams",
        frozenset(
            {
                *("bicycle-sdk", "bicycle-streams", "click", "fastcrc", "msgspec"),
                *("prometheus_client", "websockets"),
            }
        ),
    ),
    "runtime": ("bicycle_runtime", None),
    "deploy/operator": (
        "bicycle_operator",
        frozenset(
            {
                *(
                    "bicycle-sdk",
                    "bicycle-operator",
                    "kopf",
                    "click",
                    "iso8601",
                    "jsonpatch",
                    "jsonpointer",
                ),
                *("python-json-logger", "PyYAML", "aiohttp", "aiohappyeyeballs", "aiosignal"),
                *("attrs", "frozenlist", "idna", "multidict", "propcache", "typing_extensions"),
                *("yarl",),
            }
        ),
    ),
    "plugins/wordcount": ("wordcount", frozenset({"bicycle-sdk", "bicycle-wordcount"})),
    "plugins/wordcount_kafka": (
        "wordcount_kafka",
        frozenset({"bicycle-sdk", "bicycle-wordcount-kafka"}),
    ),
}


def _make(session: nox.Session, *words: str) -> None:
    session.run("make", *words, external=True)


@nox.session(name="tests-3.12")
def tests_312(session: nox.Session) -> None:
    """The core tests on Python 3.12, also with state that the Python of `.venv` wrote."""
    _tests_on(session, "3.12")


@nox.session(name="tests-3.13")
def tests_313(session: nox.Session) -> None:
    """The core tests on Python 3.13, also with state that the Python of `.venv` wrote."""
    _tests_on(session, "3.13")


@nox.session(name="tests-3.14")
def tests_314(session: nox.Session) -> None:
    """The core tests on Python 3.14, also with state that the Python of `.venv` wrote."""
    _tests_on(session, "3.14")


def _tests_on(session: nox.Session, version: str) -> None:
    """Run tests on another Python; arguments go to pytest in place of all core tests."""
    python = _interpreter(version)
    if python is None:
        session.skip(f"there is no Python {version} on this machine")
    _make(session, "setup")
    written = Path(".build", f"written-for-{version}").absolute()
    shutil.rmtree(written, ignore_errors=True)
    written.parent.mkdir(exist_ok=True)
    session.run(str(BIN / "python"), "-m", "tests.golden.write", str(written), external=True)
    environment = {"BICYCLE_GOLDEN": str(written)}
    words = (f"VENV=.venv-{version}", f"PYTHON={python}")
    if not session.posargs:
        session.run("make", "tests", *words, external=True, env=environment)
        return
    session.run("make", "setup", *words, external=True)
    other = str(Path(f".venv-{version}/bin/python").absolute())
    session.run(other, "-m", "pytest", *session.posargs, external=True, env=environment)


def _interpreter(version: str) -> str | None:
    """Return a Python of a minor version: from PATH, or the newest that pyenv installed."""
    installed = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"), reverse=True)
    for candidate in (f"python{version}", *map(str, installed)):
        path = shutil.which(candidate)
        if (
            path
            and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0
        ):
            return path
    return None


@nox.session
def kube(session: nox.Session) -> None:
    """The operator against a real API server, which is built with Go once per machine."""
    _make(session, "setup")
    if shutil.which("etcd") is None:
        session.error("etcd is missing: apt-get install etcd-server")
    session.run(str(BIN / "python"), "tools/kube_apiserver.py", external=True)
    words = ("-m", "pytest", "tests/kube", "--operator-kills=100", *session.posargs)
    session.run(str(BIN / "python"), *words, external=True)


@nox.session
def release(session: nox.Session) -> None:
    """Build and check all distributions; run the demo and write golden files with the wheels."""
    _make(session, "setup")
    _make(session, "changelog")
    store = Path(".build/release").absolute()
    shutil.rmtree(store, ignore_errors=True)  # Files of earlier states are none of ours.
    with tempfile.TemporaryDirectory() as name:
        for folder in DISTRIBUTIONS:
            _build(session, store=store, folder=folder, copies=Path(name))
            _require_own_files(session, wheel=_wheel_of(store, folder), source=Path(folder, "src"))
    built = [str(path) for path in sorted(store.iterdir())]
    session.run(str(RELEASE_BIN / "twine"), "check", "--strict", *built, external=True)
    for folder, (module, allowed) in DISTRIBUTIONS.items():
        needed = {"plugin_sdk", folder, *(("streams",) if folder == "runtime" else ())}
        with tempfile.TemporaryDirectory() as name:
            place = Path(name)
            _install(session, store=store, folders=needed, place=place)
            _import_alone(session, python=place / "bin/python", module=module, allowed=allowed)
    with tempfile.TemporaryDirectory() as name:
        _install(session, store=store, folders=set(DISTRIBUTIONS), place=Path(name))
        session.run(f"{name}/bin/python", "docs/demo/demo.py", external=True)
        golden = _write_golden(session, python=Path(name, "bin/python"))
    words = ("-m", "pytest", "-q", "-n", "0", "tests/golden")
    environment = {"BICYCLE_GOLDEN": str(golden)}
    session.run(str(BIN / "python"), *words, external=True, env=environment)


# Bytes of the image as a registry stores it.
IMAGE_BYTES_MAX = 700_000_000
# Settings for a machine of CI, which may not raise limits, and whose cgroups crun rejects.
CONTAINERS_CONF = """
[containers]
default_ulimits = ["nofile=10000:10000", "nproc=4096:4096"]
netns = "host"
[engine]
runtime = "runc"
events_logger = "file"
cgroup_manager = "cgroupfs"
"""


@nox.session
def image(session: nox.Session) -> None:
    """Build the image, count words in it, and run the compose file: needs root, buildah, Maven."""
    folder = Path(".build/image").absolute()
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("data", "output"):
        (folder / name).mkdir(parents=True)
        (folder / name).chmod(0o777)  # The user of the image has another id.
    (folder / "containers.conf").write_text(CONTAINERS_CONF, encoding="utf-8")
    environment = {
        "CONTAINERS_CONF": str(folder / "containers.conf"),
        "BUILDAH_ISOLATION": "chroot",
    }

    def run(*words: str) -> str:
        # Podman reports to standard error that a systemd which does not run checks no health.
        found = session.run(
            *words, external=True, env=environment, silent=True, log=False, stderr=None
        )
        return str(found).strip()

    _build_base(folder / "base", run)
    began = time.monotonic()
    run(*_image_build(), *session.posargs, ".")
    session.log(f"the image was built in {time.monotonic() - began:.0f} s")
    archive = folder / "bicycle.tar"
    run("buildah", "push", "--quiet", "bicycle", f"oci-archive:{archive}")
    size = archive.stat().st_size
    session.log(f"the image has {size:,} bytes as a registry stores it")
    archive.unlink()
    if size > IMAGE_BYTES_MAX:
        session.error(f"at most {IMAGE_BYTES_MAX:,} bytes are allowed")
    _check_contents(session, run)
    _count_words_in_image(session, folder, run)
    program = (str(BIN / "python"), "tools/run_compose.py", str(folder))
    session.run(*program, external=True, env=environment)


def _build_base(rootfs: Path, run: Callable[..., str]) -> None:
    """Make the image of a slim Debian without a registry, once on a machine."""
    if run("buildah", "images", "--format={{.Name}}").split().count("localhost/bicycle-base"):
        return
    words = ("--variant=minbase", "--include=ca-certificates", "bookworm", str(rootfs))
    run("debootstrap", *words)
    for name in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man"):
        shutil.rmtree(rootfs / name)
    base = run("buildah", "from", "scratch")
    run("buildah", "add", "--quiet", base, str(rootfs), "/")
    run("buildah", "commit", "--quiet", "--rm", base, "bicycle-base")
    shutil.rmtree(rootfs)


def _image_build() -> list[str]:
    """Return the command that builds the image, with pip's settings of this machine."""
    words = [
        *("buildah", "build", "--quiet", "--format=docker", "--tag=bicycle"),
        *("--build-arg=BASE=localhost/bicycle-base", "--file=deploy/image/Containerfile"),
        "--ignorefile=deploy/image/containerignore",
    ]
    if index := os.environ.get("PIP_INDEX_URL"):
        words.append(f"--build-arg=PIP_INDEX_URL={index}")
    if path := os.environ.get("PIP_CERT"):
        words += [f"--build-arg=PIP_CERT={path}", f"--volume={path}:{path}:ro"]
    return words


# Prints the user, the installed packages and the bill of materials of the image.
CONTENTS = """
import importlib.metadata, json, os
packages = {each.name: each.version for each in importlib.metadata.distributions()}
with open("/opt/bicycle/sbom.json") as file:
    listed = {each["name"]: each["version"] for each in json.load(file)["components"]}
print(json.dumps([os.getuid(), packages, listed]))
"""


def _check_contents(session: nox.Session, run: Callable[..., str]) -> None:
    """Check the user of the image, that all packages are locked, and its bill of materials."""
    image = ("podman", "run", "--rm")
    found = run(*image, "--entrypoint=python3", "bicycle", "-c", CONTENTS)
    user, packages, listed = json.loads(found)
    if user == 0 or packages != listed:
        session.error(f"user {user}; the bill of materials lacks {packages.keys() - listed.keys()}")
    pins = {line.partition(" ;")[0] for line in _constraints().read_text("utf-8").splitlines()}
    plain = {f"{re.sub(r'[-_.]+', '-', name).lower()}=={packages[name]}" for name in packages}
    loose = {pin for pin in plain - pins if not pin.startswith(("bicycle-", "pip=="))}
    if loose:
        session.error(f"in the image and not in the lock files: {sorted(loose)}")
    run(*image, "--entrypoint=bicycle-operator", "bicycle", "--help")
    session.log(f"the image has {len(packages)} packages, all locked and listed")


def _count_words_in_image(session: nox.Session, folder: Path, run: Callable[..., str]) -> None:
    """Count words on Spark in the driver, and on executors, with a read-only file system."""
    text = Path("docs/demo/the-long-road.txt").read_text(encoding="utf-8")
    (folder / "data/road.txt").write_text(text, encoding="utf-8")
    demo = runpy.run_path("docs/demo/demo.py")
    job = (
        "bicycle run --plugin wordcount --set input=/data/road.txt --set output=/output/{0}"
        " --checkpoint-dir /output/checkpoints-{0} --master {1}"
    )
    start = "master=$(bicycle dev cluster start --hosts 2 --memory 1g 2>/dev/null)"
    commands = {
        "embedded": job.format("embedded", "'local[2]'"),
        "executors": f"{start} && {job.format('executors', '${master#master=}')}",
    }
    for name, command in commands.items():
        run(
            *("podman", "run", "--rm", "--read-only", "--tmpfs=/tmp", "--entrypoint=sh"),
            *(f"--volume={folder}/data:/data:ro", f"--volume={folder}/output:/output"),
            *("bicycle", "-ec", command),
        )
        if demo["read_counts"](folder / "output" / name) != demo["count_words"](text):
            session.error(f"the job in the image ({name}) counted other words than the text has")
        session.log(f"a job in the image counted words correctly ({name})")


def _write_golden(session: nox.Session, *, python: Path) -> Path:
    """Write the golden checkpoints of the release with its wheels; return their folder."""
    version = nox.project.load_toml("runtime/pyproject.toml")["project"]["version"]
    folder = Path(".build/golden", f"{version}-release").absolute()
    shutil.rmtree(folder.parent, ignore_errors=True)
    folder.parent.mkdir(parents=True)
    session.run(str(python), "-m", "tests.golden.write", str(folder), external=True)
    return folder


def _build(session: nox.Session, *, store: Path, folder: str, copies: Path) -> None:
    """Build an archive of the sources, and the wheel from that archive.

    They come from a copy: beside the sources, an earlier build would go into them as well.
    """
    left = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
    copy = shutil.copytree(folder, copies / folder, ignore=left)
    words = ("-m", "build", "--no-isolation", "--outdir", str(store), str(copy))
    session.run(str(RELEASE_BIN / "python"), *words, external=True)


def _require_own_files(session: nox.Session, *, wheel: Path, source: Path) -> None:
    """See that a wheel has the files of its sources: all of them, and no other."""
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    files = {path for path in source.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    own = {path.relative_to(source).as_posix() for path in files}
    own = {name for name in own if ".egg-info/" not in name}
    if packed != own:
        session.error(f"{wheel.name} and {source} differ in {sorted(packed ^ own)}")


def _install(session: nox.Session, *, store: Path, folders: set[str], place: Path) -> None:
    """Install the wheels of distributions, and what they ask for, in a new environment.

    Each of ours that is needed is among them: pip takes no package of that name from elsewhere.
    """
    wheels = {str(_wheel_of(store, folder)) for folder in folders}
    session.run(str(BIN / "python"), "-m", "venv", str(place), external=True)
    session.run(
        *(str(place / "bin/python"), "-m", "pip", "install", "--quiet"),
        *("--constraint", str(_constraints()), *sorted(wheels)),
        external=True,
    )


def _constraints() -> Path:
    """Write the locked versions without hashes: with them, pip refuses the wheels made here."""
    locks = [Path("requirements", f"{name}.lock") for name in ("runtime", "development")]
    lines = [line for lock in locks for line in lock.read_text(encoding="utf-8").splitlines()]
    pins = [line.removesuffix(" \\") for line in lines if "==" in line]
    path = Path(".build/constraints.txt")
    path.write_text("\n".join(pins), encoding="utf-8")
    return path


def _wheel_of(store: Path, folder: str) -> Path:
    project = nox.project.load_toml(f"{folder}/pyproject.toml")["project"]
    return next(store.glob(f"{project['name'].replace('-', '_')}-{project['version']}-*.whl"))


def _import_alone(
    session: nox.Session, *, python: Path, module: str, allowed: frozenset[str] | None
) -> None:
    """Import every module outside the repository, and look at what is installed beside it."""
    with session.chdir(python.parent):
        session.run(
            str(python), "-W", "error", "-c", IMPORT_ALL, module, *NOT_IMPORTED, external=True
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
