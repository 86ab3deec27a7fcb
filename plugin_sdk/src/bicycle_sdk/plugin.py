"""Plugins: the decorator, the entry-point group, and the graph of a plugin.

``bicycle_plugin`` marks and does not wrap: the function is unchanged and can be called in a test.
``build`` is called by the runtime in a separate process; here it imports, installs and submits
nothing.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, overload

from bicycle_sdk.environment import StreamEnvironment
from bicycle_sdk.errors import PluginDefinitionError
from bicycle_sdk.functions import FunctionObject, full_name
from bicycle_sdk.graph import JobGraph

if TYPE_CHECKING:
    from bicycle_sdk.parameters import ParameterInfo

__all__ = [
    "BuiltJob",
    "PluginInfo",
    "bicycle_plugin",
    "build",
    "fill_parameters",
    "parameter_schema",
    "plugin_info",
]

F = TypeVar("F", bound=Callable[..., Any])

_MARK = "__bicycle_plugin__"


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginInfo:
    """The name, version and other facts that the decorator records."""

    name: str
    version: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltJob:
    """A built job: its graph, and its Python objects by payload id."""

    graph: JobGraph
    payloads: Mapping[str, Any]
    info: PluginInfo


@overload
def bicycle_plugin(target: F, /) -> F: ...
@overload
def bicycle_plugin(
    *, name: str | None = None, version: str = "", description: str | None = None
) -> Callable[[F], F]: ...
def bicycle_plugin(
    target: Any = None,
    /,
    *,
    name: str | None = None,
    version: str = "",
    description: str | None = None,
) -> Any:
    """Declare a job function, or a function class, as a plugin.

    Args:
        target: The object to mark: ``def job(env)``, ``def job(env, params)``, or a function class.
        name: Name of the plugin; that of the function otherwise.
        version: Version of the job; that of its distribution otherwise.
        description: One line for people; the first line of the docstring otherwise.

    Returns:
        The same object, unchanged except for the mark.

    Raises:
        PluginDefinitionError: the object can be neither.

    Example:
        >>> @bicycle_plugin(name="letters", version="1.0.0")
        ... def letters(env: StreamEnvironment) -> None:
        ...     env.from_collection(["a", "b"]).print()
        >>> build(letters).graph.name
        'letters'
    """

    def mark(marked: F) -> F:
        _check_target(marked)
        first_line = (inspect.getdoc(marked) or "").partition("\n")[0]
        info = PluginInfo(
            name=marked.__name__ if name is None else name,
            version=version,
            description=first_line if description is None else description,
        )
        setattr(marked, _MARK, info)
        return marked

    return mark if target is None else mark(target)


def plugin_info(target: object) -> PluginInfo | None:
    """Return the plugin facts of an object itself, or None, also for subclasses."""
    found = getattr(target, "__dict__", {}).get(_MARK)
    return found if isinstance(found, PluginInfo) else None


def parameter_schema(plugin_function: Callable[..., Any]) -> list[ParameterInfo]:
    """Return the parameters of a job function, in order, perhaps empty.

    Raises:
        PluginDefinitionError: its parameters cannot be read from texts.
    """
    # Slow on the start path: parameters loads pathlib, and marking a function needs neither.
    from bicycle_sdk.parameters import schema_of

    parameters = _parameters_of(plugin_function)
    return [] if parameters is None else schema_of(parameters)


def build(
    plugin_function: Callable[..., Any],
    params: Mapping[str, Any] | None = None,
    *,
    parallelism: int | None = None,
    job_name: str | None = None,
) -> BuiltJob:
    """Run a job function; return its validated graph and Python objects.

    Args:
        plugin_function: A function marked with ``@bicycle_plugin``.
        params: Its parameters as texts or plain values.
        parallelism: Overrides the parallelism of the environment, also if the function sets it.
        job_name: Overrides the name in ``execute(name)`` or in the decorator.

    Raises:
        PluginDefinitionError: the object is not a marked job function.
        ParameterError: a parameter is unknown, missing, or has the wrong type.
        StreamDefinitionError: a call inside the function is not possible.
        GraphError: the graph breaks a rule.
    """
    info = plugin_info(plugin_function)
    if info is None:
        raise _refusal(plugin_function, "it is not decorated with @bicycle_plugin")
    if isinstance(plugin_function, type):
        raise _refusal(plugin_function, "a function class builds no graph")
    environment = StreamEnvironment()
    if parallelism is not None:
        environment.set_parallelism(parallelism)
    plugin_function(environment, *fill_parameters(plugin_function, params or {}))
    if parallelism is not None:
        environment.set_parallelism(parallelism)
    graph = environment.build_graph(job_name or environment.job_name or info.name)
    graph.validate()
    return BuiltJob(graph=graph, payloads=environment.payloads, info=info)


def fill_parameters(plugin_function: Callable[..., Any], params: Mapping[str, Any]) -> list[Any]:
    """Return the arguments of a job function after its environment.

    Args:
        plugin_function: A function marked with ``@bicycle_plugin``.
        params: Its parameters as texts or plain values.

    Raises:
        ParameterError: a parameter is unknown, missing, or has the wrong type.
        PluginDefinitionError: its parameters cannot be read from texts.
    """
    # Slow on the start path: parameters loads pathlib, and marking a function needs neither.
    from bicycle_sdk.parameters import fill

    info = plugin_info(plugin_function)
    name = plugin_function.__name__ if info is None else info.name
    parameters = _parameters_of(plugin_function)
    if parameters is None:
        fill(_NoParameters, params, plugin=name)
        return []
    return [fill(parameters, params, plugin=name)]


@dataclass(frozen=True)
class _NoParameters:
    """The parameters of a job function without parameters."""


def _check_target(target: object) -> None:
    if isinstance(target, type):
        if not issubclass(target, FunctionObject):
            raise _refusal(target, "the class is not derived from a function class")
        return
    if not inspect.isfunction(target):
        raise _refusal(target, "it is neither a function nor a function class")
    if inspect.iscoroutinefunction(target) or inspect.isgeneratorfunction(target):
        raise _refusal(target, "it is asynchronous or a generator, expected a plain function")
    if len(inspect.signature(target).parameters) not in (1, 2):
        raise _refusal(target, "it does not take (env) or (env, params)")


def _parameters_of(plugin_function: Callable[..., Any]) -> type | None:
    if isinstance(plugin_function, type):
        return None
    names = list(inspect.signature(plugin_function).parameters)
    if len(names) < 2:
        return None
    try:
        hints = typing.get_type_hints(plugin_function)
    except NameError as error:
        raise _refusal(plugin_function, f"an annotation is not importable: {error}") from error
    parameters = hints.get(names[1])
    if not isinstance(parameters, type):
        raise PluginDefinitionError(
            target=full_name(plugin_function),
            problem=f"its parameter {names[1]!r} is not annotated with a dataclass",
            hint=f"write def {plugin_function.__name__}({names[0]}: StreamEnvironment, "
            f"{names[1]}: Params), where Params is a dataclass with a field for each parameter: "
            "@dataclass(frozen=True, kw_only=True) class Params: input: str",
        )
    return parameters


def _refusal(target: object, problem: str) -> PluginDefinitionError:
    hint = "decorate a function (env) or (env, params), or a function class, with @bicycle_plugin"
    return PluginDefinitionError(target=full_name(target), problem=problem, hint=hint)
