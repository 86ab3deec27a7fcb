"""Functions of installed wheels, found by the name of a plugin or as ``module:function``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from bicycle_sdk import (
    AsyncFunction,
    KeyedProcessFunction,
    ProcessFunction,
    RichAsyncFunction,
)
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.functions import FunctionObject
from bicycle_sdk.installed import installed_function

__all__ = ["FunctionMissingError", "found_function", "is_process"]

_PROCESS = (AsyncFunction, RichAsyncFunction, ProcessFunction, KeyedProcessFunction)


class FunctionMissingError(Exception):
    """There is no function of this name; the text says what was found instead."""


def found_function(name: str) -> Any:
    """Return a function by the name of an installed plugin, or as ``module:function``.

    A class of functions is made without arguments.

    Raises:
        FunctionMissingError: it is not there, or no function.
    """
    module_name, colon, attribute = name.partition(":")
    if not colon:
        try:
            return installed_function(name)
        except StreamDefinitionError as error:
            raise FunctionMissingError(str(error.facts["problem"])) from error
    try:
        value: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # A library of that module is missing: its author must see where.
        raise FunctionMissingError(f"there is no module {error.name!r}") from error
    for part in attribute.split("."):
        if not hasattr(value, part):
            raise FunctionMissingError(f"module {module_name!r} has no {attribute!r}")
        value = getattr(value, part)
    if isinstance(value, type) and issubclass(value, FunctionObject):
        made: Callable[[], Any] = value
        return made()
    if not callable(value):
        raise FunctionMissingError(f"{name!r} is a {type(value).__name__}, not a function")
    return value


def is_process(function: object) -> bool:
    """Tell whether a function is called by ``process``, with a context."""
    return isinstance(function, _PROCESS)
