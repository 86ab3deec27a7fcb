"""Installed packages by entry points: functions, previews and plans of a runtime.

A wheel may bring a function class in the place of a job: marked with ``@bicycle_plugin`` and named
in the entry-point group, it can be used by the jobs of other wheels. The class is imported where
the graph is built.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from bicycle_sdk.entry_points import entry_points, load_object
from bicycle_sdk.errors import SqlMissingError, StreamDefinitionError
from bicycle_sdk.functions import FunctionObject

__all__ = [
    "ENTRY_POINT_GROUP",
    "PLAN_GROUP",
    "PREVIEW_GROUP",
    "SQL_GROUP",
    "Role",
    "explain",
    "installed_function",
    "options_of_scheme",
    "preview_runner",
    "sql_session",
    "uri_schemes",
]

Role = Literal["source", "sink"]  # The role of a connector in a job.

# The entry-point group in the metadata of a job's wheel.
ENTRY_POINT_GROUP = "bicycle.plugins"
# The group under which a runtime registers the function that explains a plan.
PLAN_GROUP = "bicycle.plans"
# The group under which a runtime registers its preview runner.
PREVIEW_GROUP = "bicycle.previews"
# The group under which a runtime registers its session of SQL.
SQL_GROUP = "bicycle.sql"
_CALL = "process_plugin"


def preview_runner() -> Callable[[Any, str, int], list[Any]] | None:
    """Return the function that runs a draft for a preview, or None.

    Of several, the first by name is taken.
    """
    found = sorted(entry_points(PREVIEW_GROUP))
    runner: Callable[[Any, str, int], list[Any]] | None = found[0].load() if found else None
    return runner


def explain(env: Any, vertex_id: str) -> str:
    """Return the plan of the part of a job that ends at a vertex, from the runtime."""
    writer: Callable[[Any, str], str] = min(entry_points(PLAN_GROUP)).load()
    return writer(env, vertex_id)


def sql_session(env: Any, *, call: str, location: str) -> Any:
    """Return a new session for the SQL texts and tables of an environment.

    Args:
        env: The environment.
        call: The call that needs it, for errors.
        location: File and line of the call.

    Raises:
        SqlMissingError: no runtime is installed.
    """
    found = sorted(entry_points(SQL_GROUP))
    if not found:
        raise SqlMissingError(call=call, location=location)
    return found[0].load()(env, location=location)


def uri_schemes(role: Role) -> dict[str, str]:
    """Return the schemes of URIs of sources or sinks, with their options classes.

    An extension names its classes in the entry-point group ``bicycle.sources`` or
    ``bicycle.sinks``, under their schemes. It can add schemes, but not replace ours, which the
    packages of the same names list.
    """
    installed = {point.name: point.location for point in entry_points(f"bicycle.{role}s")}
    own: dict[str, str] = load_object(f"bicycle_sdk.{role}s:SCHEMES")
    return {**installed, **own}


def options_of_scheme(role: Role, scheme: str) -> Any:
    """Return the options class that a scheme of URIs selects, or None."""
    location = uri_schemes(role).get(scheme)
    return None if location is None else load_object(location)


def installed_function(name: str) -> Any:
    """Return a new object of the function class that is installed under a name.

    Raises:
        StreamDefinitionError: there is no such function, it is a job, or its constructor needs
            arguments.
    """
    points = entry_points(ENTRY_POINT_GROUP)
    found = [point for point in points if point.name == name]
    if not found:
        known = ", ".join(sorted({point.name for point in points})) or "none"
        raise StreamDefinitionError(
            call=_CALL,
            problem=f"plugin {name!r} not found; installed: {known}",
            hint=(
                "install the wheel of the plugin next to this job, and add it to the requirements "
                "of the job"
            ),
        )
    loaded = None if found[0].location.endswith(".sql") else found[0].load()
    if not isinstance(loaded, type) or not issubclass(loaded, FunctionObject):
        raise StreamDefinitionError(
            call=_CALL,
            problem=f"{name!r} is a job, not a function class",
            hint="decorate a subclass of AsyncFunction, RichAsyncFunction or ProcessFunction",
        )
    try:
        return loaded()
    except TypeError as error:
        raise StreamDefinitionError(
            call=_CALL,
            problem=f"{name!r} cannot be created without arguments: {error}",
            hint=f"import the class and pass an object: process({loaded.__name__}(…))",
        ) from error
