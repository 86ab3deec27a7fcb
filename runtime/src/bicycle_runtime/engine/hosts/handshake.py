"""The handshake: do plugin, driver and every host of a cluster fit together?

It runs before the first record, because a mismatch shows as an unpickling error otherwise, or not
at all. A host answers with plain text from a program that any Python 3 runs and that needs nothing
installed (``PROBE``); the executor brings it there. Comparing is a pure function here, and its
answer is one table.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata

from bicycle_runtime.base.own_code import OWN_DISTRIBUTIONS, own_folders
from bicycle_runtime.engine.errors import HANDSHAKE_FAILED

MISSING = "missing"
_LIBRARIES = (*OWN_DISTRIBUTIONS, "msgspec", "cloudpickle")
_ABSENT = "-"
_MARK = " !"
# Runs on hosts, under whatever Python they have: no name of ours, no syntax that is young.
PROBE = """
import glob, json, os, platform, socket, sys
names, workers, archive, digest, module, token = json.loads(sys.argv[1])
facts = {"python": "%d.%d" % sys.version_info[:2],
         "platform": sys.platform + " " + platform.machine()}
try:
    from importlib import metadata
except ImportError:
    metadata = None
for name in names:
    try:
        facts[name] = metadata.version(name)
    except Exception:
        facts[name] = "missing"
jars = glob.glob(os.path.join(os.environ.get("SPARK_HOME", ""), "jars", "spark-core_*.jar"))
try:
    # YARN and Kubernetes start executors without SPARK_HOME.
    from pyspark.version import __version__ as found
except Exception:
    found = "missing"
facts["spark"] = os.path.basename(jars[0]).split("-")[2][:-4] if jars else found
if token:
    facts["checkpoint folder"] = "shared" if os.path.exists(token) else "not seen"
problem = None
if workers and facts["bicycle-runtime"] != "missing":
    try:
        import importlib, pathlib
        importlib.import_module(workers)
        from bicycle_runtime.engine.hosts.handshake import code_digest
        facts["runtime code"] = code_digest()
        if archive:
            from bicycle_runtime.extraction.unpacking import enter_environment
            enter_environment(pathlib.Path(archive), digest)
            importlib.import_module(module)
    except BaseException as error:
        problem = "%s: %s" % (type(error).__name__, error)
host = os.environ.get("SPARK_LOCAL_IP") or socket.gethostname()
print("BICYCLE-HOST " + json.dumps({"host": host, "facts": facts, "problem": problem}))
"""
_ANSWER = "BICYCLE-HOST "


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSide:
    """The versions of a plugin's build, with the platform if it has machine code."""

    python: str
    sdk: str
    platform: str | None = None

    def facts(self) -> dict[str, str]:
        """Return the facts in the form of a host's answer."""
        known = {"python": minor_version(self.python), "bicycle-sdk": self.sdk}
        return known if self.platform is None else {**known, "platform": self.platform}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAnswer:
    """A host's answer: its facts, and a ``problem`` with imports, if any."""

    host: str
    facts: Mapping[str, str]
    problem: str | None = None


def own_facts(*, spark: str) -> dict[str, str]:
    """Return the versions of this process.

    Args:
        spark: Spark's version, which only the executor knows.
    """
    libraries = {name: _version(name) for name in _LIBRARIES}
    return {
        "python": minor_version(platform.python_version()),
        "platform": f"{sys.platform} {platform.machine()}",
        **libraries,
        "spark": spark,
        "runtime code": code_digest(),
    }


def code_digest() -> str:
    """Return a digest of the code of all our packages, as checkouts share versions."""
    digest = hashlib.sha256()
    for root in own_folders():
        for file in sorted(root.rglob("*.py")):
            content = hashlib.sha256(file.read_bytes()).digest()
            digest.update(file.relative_to(root).as_posix().encode() + content)
    return digest.hexdigest()[:12]


def probe_arguments(
    *, workers: str = "", archive: str = "", digest: str = "", module: str = "", token: str = ""
) -> str:
    """Return the single argument of ``PROBE``.

    Args:
        workers: The runtime's module that workers start with, to be imported.
        archive: The location of the plugin's packed environment on a host; empty without one.
        digest: Its digest.
        module: The plugin's module, to be imported.
        token: A file that a host which shares the checkpoint folder sees.
    """
    return json.dumps([_LIBRARIES, workers, archive, digest, module, token])


def read_answer(lines: Sequence[str], *, host: str) -> HostAnswer:
    """Return a host's answer; other output is its problem without an answer.

    Args:
        lines: Output of ``PROBE``, or of the shell that could not run it.
        host: The name to use for a host that could not send its own.
    """
    for line in lines:
        if line.startswith(_ANSWER):
            answer = json.loads(line.removeprefix(_ANSWER))
            return HostAnswer(host=answer["host"], facts=answer["facts"], problem=answer["problem"])
    said = " | ".join(line.strip() for line in lines if line.strip())[-300:] or "nothing"
    facts = {"python": MISSING}
    return HostAnswer(host=host, facts=facts, problem=f"its interpreter did not run: {said}")


def require_match(
    driver: Mapping[str, str], plugin: PluginSide | None, hosts: Sequence[HostAnswer],
    *, compares_platform: bool = False,
) -> None:  # fmt: skip
    """Refuse when anything differs from the driver.

    Args:
        driver: Facts of this process.
        plugin: The versions that built the plugin, if known.
        hosts: The answers of hosts.
        compares_platform: Whether it matters; it does when the plugin brings machine code.

    Raises:
        HANDSHAKE_FAILED: with one table of all that was compared.
    """
    columns: list[tuple[str, Mapping[str, str]]] = [("driver", driver)]
    if plugin is not None:
        columns.append(("plugin", plugin.facts()))
    columns += _group(hosts)
    has_code = compares_platform or (plugin is not None and plugin.platform is not None)
    ignored = set() if has_code else {"platform"}
    names = [*driver, *(["checkpoint folder"] if _tells_folder(hosts) else [])]
    rows: list[list[str]] = []
    differing: list[str] = []
    for name in names:
        cells = [_cell(name, facts, driver, name in ignored) for _, facts in columns]
        rows.append([name, *cells])
        if any(cell.endswith(_MARK) for cell in cells):
            differing.append(name)
    problems = [f"{host.host}: {host.problem}" for host in hosts if host.problem is not None]
    if not differing and not problems:
        return
    header = ["", *(title for title, _ in columns)]
    raise HANDSHAKE_FAILED(
        differing=differing,
        differing_text=", ".join(differing) or "the plugin on the cluster hosts",
        problems=problems,
        hosts=[host.host for host in hosts],
        table=[header, *rows],
        table_text="\n".join([*_lines([header, *rows]), *(f"  {line}" for line in problems)]),
    )


def _group(hosts: Sequence[HostAnswer]) -> list[tuple[str, Mapping[str, str]]]:
    """Return a column for each set of equal hosts: a cluster has many of them."""
    groups: dict[str, list[HostAnswer]] = {}
    for host in sorted(hosts, key=lambda host: host.host):
        groups.setdefault(json.dumps(dict(host.facts), sort_keys=True), []).append(host)
    return [
        (first.host if not others else f"{first.host} (+{len(others)})", first.facts)
        for first, *others in groups.values()
    ]


def _tells_folder(hosts: Sequence[HostAnswer]) -> bool:
    return any("checkpoint folder" in host.facts for host in hosts)


def _cell(name: str, facts: Mapping[str, str], driver: Mapping[str, str], ignored: bool) -> str:
    found = facts.get(name, _ABSENT)
    wanted = driver.get(name, "shared")
    if found in (_ABSENT, wanted) or ignored:
        return found
    return found + _MARK


def _lines(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    return [
        "  "
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return MISSING


def minor_version(version: str) -> str:
    """Return the part of a Python version that code and pickles depend on.

    Example:
        >>> minor_version("3.11.7")
        '3.11'
    """
    return ".".join(version.split(".")[:2])
