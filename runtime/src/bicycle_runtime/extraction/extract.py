"""The extraction of a plugin's job: a child process, then a bundle or an error.

The plugin is never imported here. The answer is read as data: the graph is parsed and validated
again, the payloads stay bytes. This module starts nothing but the child.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from bicycle_runtime.base.children import Child
from bicycle_runtime.base.environment import chosen_variables, environment_for_child
from bicycle_runtime.base.errors import error_from_json
from bicycle_runtime.base.own_code import own_folders
from bicycle_runtime.base.pipes import Message, decode_body
from bicycle_runtime.base.processes import signal_name
from bicycle_runtime.extraction.bundle import JobBundle, bundle_digest
from bicycle_runtime.extraction.discovery import PluginRef
from bicycle_runtime.extraction.errors import (
    CHILD_NOT_STARTED,
    PLUGIN_EXITED,
    PLUGIN_KILLED,
    PLUGIN_TIMED_OUT,
    RESULT_TOO_LARGE,
    RESULT_UNREADABLE,
    ExtractionError,
)
from bicycle_runtime.extraction.limits import PHASE_PREFIX, PIPE_LOST_EXIT_CODE, ExtractionLimits
from bicycle_runtime.extraction.tracebacks import dump_locations, location_lines, user_location
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.former_names import FormerName
from bicycle_sdk.graph import JobGraph

_MODULE = "bicycle_runtime.extraction.child"
_INSTALLED = frozenset({"site-packages", "dist-packages"})


def extract(
    ref: PluginRef,
    params: Mapping[str, str],
    limits: ExtractionLimits | None = None,
    *,
    parallelism: int | None = None,
    job_name: str | None = None,
    python: str | None = None,
) -> JobBundle:
    """Build the job of a plugin in a fresh child process.

    Args:
        ref: The plugin, from ``discover``.
        params: Parameter name to text, as from the command line.
        limits: Bounds of the child; the defaults when None.
        parallelism: Takes the place of what the plugin sets.
        job_name: Takes the place of the name in the plugin.
        python: Interpreter of the plugin's environment; this one when None.

    Returns:
        The bundle. The same plugin and parameters give the same digest.

    Raises:
        ExtractionError: one of its subclasses says how the plugin or its process failed.
        ParameterError: a parameter is unknown, missing or ill-typed.
        GraphError: the graph breaks a rule.
        PluginDefinitionError: the marked object cannot be built.

    Source: ADR-0008 (plugins in a child process).
    """
    run = _Run.of(ref, limits, python)
    build = {"params": dict(params), "parallelism": parallelism, "job_name": job_name}
    header, blobs = run.ask({"is_check": False, "build": build})
    graph = run.graph(header)
    names = [name for name, _ in header["payloads"]]
    payloads = dict(zip(names, blobs, strict=True))
    return JobBundle(
        graph=graph,
        payloads=payloads,
        shipping={name: shipping for name, shipping in header["payloads"]},
        digest=bundle_digest(graph, payloads),
        plugin=ref.name,
        plugin_version=ref.version or header["plugin_version"] or ref.dist_version,
        dist=ref.dist,
        sdk_version=header["sdk_version"],
        python_version=header["python_version"],
        function_dists=tuple(header.get("function_dists", ())),
        former_names=tuple(FormerName(*each) for each in header.get("former_names", ())),
    )


def check_plugin(
    ref: PluginRef, limits: ExtractionLimits | None = None,
    *, params: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Load a plugin in a fresh child process, without building its graph.

    Args:
        ref: The plugin, from ``discover``.
        limits: Bounds of the child; the defaults when None.
        params: Parameters that are checked, too, by name; None checks none.

    Returns:
        Its parameters: ``name``, ``expected``, ``required``, ``default`` (as text) and ``doc``.

    Raises:
        ExtractionError: it cannot be loaded; a subclass says why.
        PluginDefinitionError: what is marked cannot be a plugin.
        ParameterError: a parameter is unknown, missing or ill-typed.
    """
    given = None if params is None else dict(params)
    header, _ = _Run.of(ref, limits).ask({"is_check": True, "params": given})
    return list(header.get("parameters", []))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One child process for one plugin."""

    ref: PluginRef
    limits: ExtractionLimits
    python: str | None

    @classmethod
    def of(cls, ref: PluginRef, limits: ExtractionLimits | None, python: str | None = None) -> _Run:
        return cls(ref=ref, limits=limits or ExtractionLimits(), python=python)

    def ask(self, wish: dict[str, Any]) -> Message:
        """Return header and blobs of a good response; raise the error of a bad one."""
        limits = self.limits
        with tempfile.TemporaryDirectory(
            prefix="bicycle-extract-", ignore_cleanup_errors=True
        ) as folder:
            try:
                child = Child(
                    _MODULE, folder, python=self.python, environment=_environment(self.python),
                    answer_bytes=limits.result_bytes, output_bytes=limits.output_bytes,
                )  # fmt: skip
            except OSError as error:
                raise self._not_started(self._who(), str(error)) from error
            with child:
                question = {**wish, **self._folders(), **self._child_limits()}
                child.ask(question, timeout_s=limits.wall_time_ms / 1_000)
                return self._answer_of(child)

    def _answer_of(self, child: Child) -> Message:
        if child.answer.body is None:
            raise self._lost_error(child)
        try:
            header, blobs = decode_body(child.answer.body)
        except ValueError as error:
            raise RESULT_UNREADABLE(**self._facts(child), detail=str(error)) from error
        if "error" in header:
            raise self._child_error(header["error"], child)
        return header, blobs

    def graph(self, header: dict[str, Any]) -> JobGraph:
        """Return the graph, parsed and checked again: the child's SDK may differ."""
        graph = JobGraph.from_json(header["graph"]).with_locations(header.get("locations", {}))
        graph.validate()
        return graph

    def _not_started(self, facts: dict[str, Any], detail: str) -> ExtractionError:
        return CHILD_NOT_STARTED(**facts, python=self.python or sys.executable, detail=detail)

    def _folders(self) -> dict[str, Any]:
        """Return the object to load, and the import path unless the interpreter differs."""
        return {"target": asdict(self.ref), "path": sys.path if self.python is None else None}

    def _child_limits(self) -> dict[str, int]:
        names = ("memory_bytes", "result_bytes", "wall_time_ms")
        return {name: getattr(self.limits, name) for name in names}

    def _who(self) -> dict[str, Any]:
        return {"plugin": self.ref.name, "dist": self.ref.dist}

    def _facts(self, child: Child) -> dict[str, Any]:
        count = self.limits.output_line_count
        tails = {"stderr_tail": child.stderr.lines(count), "stdout_tail": child.stdout.lines(count)}
        return {**self._who(), **tails}

    def _child_error(self, data: dict[str, Any], child: Child) -> BicycleError:
        """Return the error that the child sent, with its output if it is one of ours."""
        error = error_from_json(data)
        if isinstance(error, ExtractionError):
            return error.with_facts(**self._facts(child))
        return error

    def _lost_error(self, child: Child) -> ExtractionError:
        """Return the error for a child without a complete response."""
        facts = self._facts(child)
        result = child.answer
        if result.oversize is not None:
            sizes = {"size_bytes": result.oversize, "limit_bytes": self.limits.result_bytes}
            return RESULT_TOO_LARGE(**facts, **sizes, payload="the whole")
        if result.problem is not None:
            return RESULT_UNREADABLE(**facts, detail=result.problem)
        return self._end_error(facts, child)

    def _end_error(self, facts: dict[str, Any], child: Child) -> ExtractionError:
        """Return the error for a child that was late or died before it wrote an answer."""
        locations = {**facts, **self._last_known(child.dump.text())}
        if child.is_late:
            return PLUGIN_TIMED_OUT(**locations, limit_ms=self.limits.wall_time_ms)
        code = child.exit_code or 0
        if code < 0:
            return PLUGIN_KILLED(**locations, signal_name=signal_name(-code) or f"signal {-code}")
        if not child.answer.has_greeted:
            detail = next(iter(child.stderr.lines(1)), f"exit code {code}")
            return self._not_started(facts, detail)
        if code == PIPE_LOST_EXIT_CODE:
            return RESULT_UNREADABLE(**facts, detail="the plugin closed the pipe")
        return PLUGIN_EXITED(**locations, exit_code=code, exit_message=None, how="process end")

    def _last_known(self, dump: str) -> dict[str, Any]:
        """Return where the child was when it could not answer any more."""
        locations = dump_locations(dump)
        where = user_location(locations, package=self.ref.package, folder=self.ref.location)
        phases = [
            line.removeprefix(PHASE_PREFIX)
            for line in dump.splitlines()
            if line.startswith(PHASE_PREFIX)
        ]
        return {
            "location": where or self.ref.target,
            "traceback": location_lines(locations),
            "phase": phases[-1] if phases else "while starting",
        }


def _environment(python: str | None) -> dict[str, str]:
    """Return the child's environment.

    An interpreter of our own also finds Bicycle where we found it, also in a source folder.
    """
    variables = {"PYTHONHASHSEED": "0"}
    if python is None:
        parents = [package.parent for package in own_folders()]
        folders = [str(parent) for parent in parents if parent.name not in _INSTALLED]
        former = chosen_variables(["PYTHONPATH"]).values()
        variables["PYTHONPATH"] = os.pathsep.join([*folders, *filter(None, former)])
    return environment_for_child(variables)


# Try all plugins, each in a child process of its own, a few at a time.
#
# Loading means: import, find the marked object, read its parameters. No graph is built, since a
# plugin may need parameters for that. One plugin's failure is a result, never the end of the check.

_CHILDREN_MAX = 2  # at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of a plugin check; ``error`` is the reason if it cannot be loaded.

    ``parameters`` are as ``check_plugin`` returns them.
    """

    ref: PluginRef
    ok: bool
    error: BicycleError | None = None
    parameters: Sequence[Mapping[str, Any]] = ()


def check_all(
    refs: Iterable[PluginRef], limits: ExtractionLimits | None = None
) -> list[CheckResult]:
    """Load each plugin in a child process.

    Args:
        refs: Plugins, from ``discover``.
        limits: Bounds of each child; the defaults when None.

    Returns:
        One result per plugin, in the order given.
    """

    def check(ref: PluginRef) -> CheckResult:
        try:
            parameters = check_plugin(ref, limits)
        except BicycleError as error:
            return CheckResult(ref=ref, ok=False, error=error)
        return CheckResult(ref=ref, ok=True, parameters=parameters)

    with ThreadPoolExecutor(_CHILDREN_MAX, thread_name_prefix="plugin-check") as pool:
        return list(pool.map(check, refs))
