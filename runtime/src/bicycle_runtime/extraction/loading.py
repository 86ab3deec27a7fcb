"""The child's half of extraction: load a plugin, build its graph, write payloads.

This is the one boundary at which user code is called while a graph is extracted. Whatever it
raises, ``SystemExit`` included, ends as an error that carries the user's ``file:line`` and a
traceback without frames of ours. Process matters (descriptors, limits, exit) belong to ``child``.
"""

from __future__ import annotations

import importlib
import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import importlib_metadata

import bicycle_sdk
from bicycle_runtime.base.code_paths import show_paths
from bicycle_runtime.base.own_code import OWN_PACKAGES
from bicycle_runtime.base.user_code import error_text
from bicycle_runtime.extraction.discovery import PluginRef
from bicycle_runtime.extraction.errors import (
    ENTRY_POINT_BROKEN,
    MISSING_DEPENDENCY,
    NO_GRAPH,
    NOT_SHIPPABLE,
    PLUGIN_EXITED,
    PLUGIN_NOT_MARKED,
    PLUGIN_OUT_OF_MEMORY,
    PLUGIN_RAISED,
    SCRIPT_UNUSABLE,
    SDK_MISMATCH,
    UNDECLARED_LIBRARY,
    ExtractionError,
)
from bicycle_runtime.extraction.imports import ImportSearch
from bicycle_runtime.extraction.pickling import PayloadWriter, WrittenPayload
from bicycle_runtime.extraction.requirement import is_satisfied
from bicycle_runtime.extraction.tracebacks import error_lines, error_locations, user_location
from bicycle_runtime.extraction.undeclared import UndeclaredLibraryError
from bicycle_runtime.extraction.unpicklable import find_unpicklable
from bicycle_sdk.datastream import DataStream, KeyedStream
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.former_names import collect_former_names
from bicycle_sdk.functions import FunctionObject
from bicycle_sdk.graph import JobGraph
from bicycle_sdk.installed import ENTRY_POINT_GROUP
from bicycle_sdk.plugin import build, fill_parameters, parameter_schema

_MARK = "__bicycle_plugin__"
_TEXT_LENGTH_MAX = 10_000
_RECURSION_LIMIT = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The child's response: a header of plain data, and the payloads' bytes by id."""

    header: dict[str, Any]
    blobs: dict[str, bytes] = field(default_factory=dict)


class Loading:
    """One attempt to load one plugin. Make it before user code runs: it notes the import path.

    Args:
        target: What to load.
        announce: Called with each phase as it begins.
        memory_bytes: The limit that an error about memory names.
        lift_limit: Called before a failure is described, which may need memory that is used up.
    """

    def __init__(
        self,
        target: PluginRef,
        *,
        announce: Callable[[str], object],
        memory_bytes: int,
        lift_limit: Callable[[], object],
    ) -> None:
        self.target = target
        self._announce = announce
        self._memory_bytes = memory_bytes
        self._lift_limit = lift_limit
        self._writer = PayloadWriter(ImportSearch())
        self._phase = "while starting"
        self._plugin: Any = None
        self._sql_file = f"{target.module.replace('.', '/')}/{target.attribute}"  # For errors.

    def extract(self, wish: Mapping[str, Any]) -> Answer:
        """Build the graph and write the payloads; failures are in the answer.

        Args:
            wish: Keyword arguments of ``bicycle_sdk.plugin.build``.
        """
        return self._guard(lambda: self._extract(wish))

    def check(self, params: Mapping[str, str] | None) -> Answer:
        """Load the plugin and read its parameters; failures are in the answer.

        Args:
            params: Parameters to be checked, too, by name; None checks none.
        """
        return self._guard(lambda: self._check(params))

    def _guard(self, work: Callable[[], Answer]) -> Answer:
        try:
            return work()
        except BaseException as error:  # noqa: BLE001 - The boundary to user code: SystemExit too.
            self._lift_limit()
            return Answer(header={"error": self._as_ours(error).to_json()})

    def _extract(self, wish: Mapping[str, Any]) -> Answer:
        with collect_former_names() as former_names:
            self._load()
            self._enter("while building")
            built = build(self._plugin, **wish)
        graph = getattr(built, "graph", None)
        if not isinstance(graph, JobGraph):
            raise self._no_graph(built if graph is None else graph)
        graph.validate()
        self._enter("while writing the functions of")
        sys.setrecursionlimit(
            _RECURSION_LIMIT
        )  # The pickler in Python takes several calls per level.
        written = self._write(built.payloads)
        return Answer(
            header={
                "graph": graph.to_json(),
                "locations": {
                    id_: show_paths(location) for id_, location in graph.locations().items()
                },
                "former_names": [(*each[:2], show_paths(each.location)) for each in former_names],
                "plugin_version": built.info.version,
                "sdk_version": bicycle_sdk.__version__,
                "python_version": platform.python_version(),
                "payloads": [[name, payload.shipping] for name, payload in written.items()],
                "function_dists": _function_dists(built.payloads.values(), self.target),
            },
            blobs={name: payload.data for name, payload in written.items()},
        )

    def _check(self, params: Mapping[str, str] | None) -> Answer:
        self._load(checks_sql=True)
        self._enter("while reading the parameters of")
        if params is not None and isinstance(self._plugin, FunctionType):
            fill_parameters(self._plugin, params)
        schema = parameter_schema(self._plugin) if isinstance(self._plugin, FunctionType) else []
        parameters = [
            {
                "name": info.name,
                "expected": info.expected,
                "required": info.is_required,
                "default": info.default_text,
                "doc": info.doc,
            }
            for info in schema
        ]
        return Answer(header={"checked": True, "parameters": parameters})

    def _enter(self, phase: str) -> None:
        self._phase = phase
        self._announce(phase)

    def _load(self, *, checks_sql: bool = False) -> None:
        self._require_sdk()
        self._enter("while importing")
        module = self._import()
        if self.target.is_sql:
            self._plugin = self._statements(module, is_checked=checks_sql)
            return
        value: Any = module
        for name in self.target.attribute.split("."):
            try:
                value = getattr(value, name)
            except AttributeError as error:
                if self.target.version is not None:  # A job file.
                    raise self._no_function(module) from error
                where = getattr(value, "__file__", None) or getattr(
                    value, "__qualname__", repr(value)
                )
                raise self._dead_end(f"{where} has no attribute {name!r}") from error
        self._plugin = value
        # A mark that a class inherits is the mark of another plugin.
        if _MARK not in getattr(value, "__dict__", {}):
            raise self._not_marked(module, value)

    def _statements(self, package: ModuleType, *, is_checked: bool) -> Any:
        """Return the job of an SQL file in a package, or of a folder with its name."""
        # Most plugins have no SQL.
        from bicycle_runtime.extraction.scripts import read_text, text_of
        from bicycle_runtime.tables.job import check_sql, sql_job

        folders = [Path(folder) for folder in getattr(package, "__path__", ())]
        if not folders:
            raise self._dead_end(f"module {self.target.module!r} is not a package")
        files = [folder / self.target.attribute for folder in folders]
        views = [each.with_suffix("") for each in files if each.with_suffix("").is_dir()]
        if file := next((each for each in files if each.is_file()), None):
            text = read_text(file, hint="correct the file, and build the wheel again")
        elif views:
            text = text_of(f"{views[0]}/*.sql") or ""
            self._sql_file = f"{self._sql_file.removesuffix('.sql')}/*.sql"
        else:
            raise self._dead_end(f"{show_paths(str(files[0]))} not found; add it to the wheel")
        if is_checked:
            check_sql(text, file=self._sql_file, of_plugins=False)
        return sql_job(text, file=self._sql_file)

    def _require_sdk(self) -> None:
        requirement = self.target.sdk_requirement
        if not requirement:
            return
        found = bicycle_sdk.__version__
        try:
            is_met = is_satisfied(requirement, found)
        except ValueError:  # Not of PEP 440, so no version meets it.
            is_met = False
        if not is_met:
            raise SDK_MISMATCH(
                plugin=self.target.name,
                dist=self.target.dist,
                requirement=f"bicycle-sdk{requirement}",
                found=found,
            )

    def _import(self) -> ModuleType:
        try:
            return importlib.import_module(self.target.module)
        except ModuleNotFoundError as error:
            is_target = error.name is not None and f"{self.target.module}.".startswith(
                f"{error.name}."
            )
            if is_target and not self._location(error):
                raise self._dead_end(f"module {error.name!r} not found") from error
            raise

    def _write(self, payloads: Mapping[str, Any]) -> dict[str, WrittenPayload]:
        try:
            return self._writer.write_all(payloads)
        except MemoryError:
            raise
        except Exception as error:
            for name in sorted(payloads):
                if self._refusal(payloads[name]) is not None:
                    raise self._not_shippable(name, payloads[name]) from error
            raise

    def _refusal(self, value: Any) -> str | None:
        try:
            self._writer.write(value)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - Pickling calls user code, which may raise anything.
            return _text(error) or type(error).__name__
        return None

    def _as_ours(self, error: BaseException) -> BicycleError:
        if isinstance(error, BicycleError) and _is_of_bicycle(type(error)):
            return self._with_location(error)
        facts: dict[str, Any] = {
            "plugin": self.target.name,
            "dist": self.target.dist,
            "phase": self._phase,
            "location": self._location(error) or self._plugin_location(),
            "traceback": error_lines(error),
        }
        match error:
            case SystemExit():
                return PLUGIN_EXITED(**facts, **_exit_facts(error), how="sys.exit")
            case MemoryError():
                return PLUGIN_OUT_OF_MEMORY(**facts, limit_bytes=self._memory_bytes)
            case UndeclaredLibraryError():
                return UNDECLARED_LIBRARY(**facts, module=error.name)
            case ModuleNotFoundError() if error.name:
                return MISSING_DEPENDENCY(**facts, module=error.name, hint=self._import_hint(error))
            case _:
                name = type(error).__qualname__
                return PLUGIN_RAISED(
                    **facts, exception_type=name, exception_message=_text(error),
                    hint=_key_hint(error),
                )  # fmt: skip

    def _with_location(self, error: BicycleError) -> BicycleError:
        """Return an error with its location in the plugin; for SQL, with the distribution."""
        if location := self._location(error):
            return error.with_facts(location=show_paths(error.facts.get("location", location)))
        if error.facts.get("file") == self._sql_file:
            return error.with_facts(file=f"{self._sql_file} of {self.target.dist}")
        return error

    def _import_hint(self, error: ModuleNotFoundError) -> str:
        if ".py " not in self.target.dist:
            return f" and add it to the dependencies of {self.target.dist}"
        top = str(error.name).partition(".")[0]
        return f", or put {top}.py or a folder {top} next to {self.target.dist.rpartition(' ')[0]}"

    def _location(self, error: BaseException) -> str | None:
        return user_location(
            error_locations(error), package=self.target.package, folder=self.target.location
        )

    def _plugin_location(self) -> str:
        code = getattr(self._plugin, "__code__", None)
        if code is None or self.target.is_sql:
            return self.target.target
        return show_paths(f"{code.co_filename}:{code.co_firstlineno}")

    def _dead_end(self, reason: str) -> ExtractionError:
        target = self.target
        return ENTRY_POINT_BROKEN(
            plugin=target.name, dist=target.dist, target=target.target, reason=reason
        )

    def _no_function(self, module: ModuleType) -> BicycleError:
        file, name = self.target.dist_name, self.target.attribute
        marked = (job for job, value in vars(module).items() if hasattr(value, _MARK))
        names = ", ".join(f"{file}:{job}" for job in marked) or "none"
        hint = f"use one of the functions with @bicycle_plugin: {names}"
        return SCRIPT_UNUSABLE(file=file, problem=f"it has no function {name!r}", hint=hint)

    def _not_marked(self, module: ModuleType, value: Any) -> ExtractionError:
        code = getattr(value, "__code__", None)
        location = f"{code.co_filename}:{code.co_firstlineno}" if code else module.__file__
        return PLUGIN_NOT_MARKED(
            plugin=self.target.name,
            dist=self.target.dist,
            target=self.target.target,
            location=show_paths(location or self.target.target),
            found=type(value).__name__,
        )

    def _no_graph(self, found: Any) -> ExtractionError:
        return NO_GRAPH(
            plugin=self.target.name,
            dist=self.target.dist,
            location=self._plugin_location(),
            found=f"an object of type {type(found).__name__}",
        )

    def _not_shippable(self, payload_id: str, value: Any) -> ExtractionError:
        vertex, _, role = payload_id.rpartition("/")
        unpicklable = find_unpicklable(role, value, refusal=self._refusal)
        return NOT_SHIPPABLE(
            plugin=self.target.name,
            dist=self.target.dist,
            vertex=vertex,
            role=role,
            name=unpicklable.name,
            held=unpicklable.held,
            type_name=unpicklable.type_name,
            location=show_paths(unpicklable.location or self._plugin_location()),
            reason=unpicklable.reason,
        )


def _key_hint(error: BaseException) -> str:
    """Return the advice for a call that only keyed streams have; empty for others."""
    match error:
        case AttributeError(obj=DataStream(), name=str(name)) if hasattr(KeyedStream, name):
            return f": call .key_by(…) before .{name}(…)"
        case _:
            return ""


def _is_of_bicycle(cls: type) -> bool:
    return cls.__module__.partition(".")[0] in OWN_PACKAGES


def _exit_facts(error: SystemExit) -> dict[str, Any]:
    match error.code:
        case None:
            return {"exit_code": 0, "exit_message": None}
        case int():
            return {"exit_code": error.code & 0xFF, "exit_message": None}
        case _:
            return {"exit_code": 1, "exit_message": _text(error)}


def _text(error: BaseException) -> str:
    return error_text(error)[:_TEXT_LENGTH_MAX]


def _function_dists(payloads: Iterable[Any], target: PluginRef) -> list[str]:
    """Return the distributions that provide function classes of other plugins."""
    own = target.package
    classes = {type(each) for each in payloads if isinstance(each, FunctionObject)}
    foreign = {
        (cls.__module__, cls.__qualname__)
        for cls in classes
        if cls.__module__.partition(".")[0] not in (own, "bicycle_sdk")
    }
    if not foreign:  # As a rule: looking through all that is installed is slow.
        return []
    points = importlib_metadata.entry_points(group=ENTRY_POINT_GROUP)
    found = (point.dist for point in points if (point.module, point.attr) in foreign)
    return sorted({dist.name for dist in found if dist is not None})
