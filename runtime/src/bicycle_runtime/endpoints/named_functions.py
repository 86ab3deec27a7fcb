"""Functions of installed wheels, by the name of a plugin or ``module:function``."""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points, packages_distributions
from typing import Any

from bicycle_sdk import AsyncFunction, KeyedProcessFunction, ProcessFunction, RichAsyncFunction
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.functions import FunctionObject
from bicycle_sdk.installed import ENTRY_POINT_GROUP, installed_function

# Functions that ``process`` calls, with a context.
PROCESS = (AsyncFunction, RichAsyncFunction, ProcessFunction, KeyedProcessFunction)


class FunctionMissingError(Exception):
    """A missing function; the text describes the object found instead."""


def found_function(name: str, *, of_plugins: bool = False) -> Any:
    """Return a function by the name of an installed plugin, or as ``module:function``.

    A class of functions is made without arguments. ``of_plugins`` is as for ``found_object``.

    Raises:
        FunctionMissingError: it is missing, no function, or must not be named.
    """
    if ":" not in name:
        try:
            return installed_function(name)
        except StreamDefinitionError as error:
            raise FunctionMissingError(str(error.facts["problem"])) from error
    value = found_object(name, of_plugins=of_plugins)
    if isinstance(value, type) and issubclass(value, FunctionObject):
        return value()
    if not callable(value):
        raise FunctionMissingError(f"{name!r} is a {type(value).__name__}, not a function")
    return value


def found_object(name: str, *, of_plugins: bool = False) -> Any:
    """Return the object that is named as ``module:name``.

    Args:
        name: The name.
        of_plugins: Whether it must be one that a wheel with a plugin has: others are not imported.

    Raises:
        FunctionMissingError: it is missing, or must not be named.
    """
    module_name, _, attribute = name.partition(":")
    if of_plugins:
        _require_plugin(name, module_name)
    try:
        value: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # A library of that module is missing: its author must see where.
        raise FunctionMissingError(f"module {error.name!r} not found") from error
    for part in attribute.split("."):
        if not hasattr(value, part):
            raise FunctionMissingError(f"module {module_name!r} has no {attribute!r}")
        value = getattr(value, part)
    if of_plugins:  # A module has its imports as attributes, too.
        _require_plugin(name, str(getattr(value, "__module__", None)))
    return value


def _require_plugin(name: str, module: str) -> None:
    """Check that a module's distribution has a plugin, without importing it."""
    with_plugins = {each.dist.name for each in entry_points(group=ENTRY_POINT_GROUP) if each.dist}
    owners = packages_distributions().get(module.partition(".")[0], [])
    if not with_plugins.intersection(owners):
        raise FunctionMissingError(
            f"{name!r} is not in an installed plugin, and this file may use only such functions"
        )
