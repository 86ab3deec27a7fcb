"""The search for the part of a function that cannot be pickled.

The walk goes down into whatever part cannot be pickled alone (captured variables, globals,
defaults, attributes, items) until no part of the part refuses: that one is the culprit. It runs
only after pickling has failed, so it may be slow.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from cloudpickle import cloudpickle

_DEPTH_MAX = 50
_ITEM_COUNT_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpicklable:
    """An object that cannot be pickled.

    ``name`` is the code's path to it (``"lock"``, ``"client.session"``), ``held`` describes how the
    function refers to it, ``location`` is the ``file:line`` of the function or class that contains
    it, None for plain data.
    """

    name: str
    held: str
    type_name: str
    location: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of an object: its suffix after the whole's name, and its reference."""

    suffix: str
    held: str
    value: Any


def find_unpicklable(name: str, value: Any, *, refusal: Callable[[Any], str | None]) -> Unpicklable:
    """Return the part of ``value`` that cannot be pickled.

    Args:
        name: What the whole is called, used when the whole is to blame.
        value: An object that cannot be pickled.
        refusal: Tries to pickle one object; returns why it cannot be, or None when it can.
    """
    unpicklable = Unpicklable(
        name=name,
        held="the object itself",
        type_name=_type_name(value),
        location=_location(value),
        reason=refusal(value) or "it cannot be pickled",
    )
    path = ""
    for _ in range(_DEPTH_MAX):
        found = _first_refused(value, refusal)
        if found is None:
            break
        part, reason = found
        path = _join(path, part)
        unpicklable = replace(
            unpicklable,
            name=path,
            held=part.held,
            type_name=_type_name(part.value),
            location=_code_location(value) if _is_function(value) else unpicklable.location,
            reason=reason,
        )
        value = part.value
    return unpicklable


def _first_refused(value: Any, refusal: Callable[[Any], str | None]) -> tuple[_Part, str] | None:
    for part in _parts(value):
        reason = refusal(part.value)
        if reason is not None:
            return part, reason
    return None


def _join(path: str, part: _Part) -> str:
    if not path:
        return part.suffix.removeprefix(".")
    if part.held in {"captured variable", "global variable", "default value"}:
        return part.suffix  # A new function: its names are more specific than the path to it.
    return path + part.suffix


def _is_function(value: Any) -> bool:
    """Return whether references were captured by user code, unlike attributes."""
    return isinstance(value, types.FunctionType)


def _parts(value: Any) -> Iterator[_Part]:
    match value:
        case types.FunctionType():
            yield from _function_parts(value)
        case types.MethodType():
            yield _Part(".__self__", "object of a bound method", value.__self__)
            yield _Part(".__func__", "function of a bound method", value.__func__)
        case functools.partial():
            yield _Part(".func", "function of a partial", value.func)
            yield from (
                _Part(f".args[{i}]", "argument of a partial", v) for i, v in enumerate(value.args)
            )
            yield from (
                _Part(f".{k}", "argument of a partial", v) for k, v in value.keywords.items()
            )
        case dict():
            items = list(value.items())[:_ITEM_COUNT_MAX]
            yield from (_Part(f"[{key!r:.60}]", "item", item) for key, item in items)
        case list() | tuple() | set() | frozenset():
            items = list(value)[:_ITEM_COUNT_MAX]
            yield from (_Part(f"[{index}]", "item", item) for index, item in enumerate(items))
        case type():
            members = (
                [] if cloudpickle._should_pickle_by_reference(value) else list(vars(value).items())
            )
            yield from (
                _Part(f".{key}", "attribute of a class", _plain(member)) for key, member in members
            )
        case _:
            yield from (_Part(f".{key}", "attribute", item) for key, item in _attributes(value))
            yield _Part(".__class__", "class", type(value))


def _plain(member: Any) -> Any:
    """Return the function in a static or class method: they are pickled as one."""
    return getattr(member, "__func__", member)


def _function_parts(function: types.FunctionType) -> Iterator[_Part]:
    if cloudpickle._should_pickle_by_reference(function):
        return
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield from (_Part(name, "captured variable", value) for value in _content(cell))
    for name in cloudpickle._extract_code_globals(function.__code__):
        if name in function.__globals__:
            yield _Part(name, "global variable", function.__globals__[name])
    for name, value in _defaults(function):
        yield _Part(name, "default value", value)
    for name, value in vars(function).items():
        yield _Part(f".{name}", "attribute", value)


def _content(cell: types.CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:  # Not filled yet.
        return []


def _defaults(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    code = function.__code__
    values = function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount]
    yield from zip(names[len(names) - len(values) :], values, strict=True)
    yield from (function.__kwdefaults__ or {}).items()


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(value, "__dict__", {}).items()
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in {"__dict__", "__weakref__"} and hasattr(value, name):
                yield name, getattr(value, name)


def _type_name(value: Any) -> str:
    cls = type(value)
    return (
        cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    )


def _location(value: Any) -> str | None:
    """Return ``file:line`` of a function or an object's class, if it is in Python."""
    return _code_location(value) or _class_location(
        value if isinstance(value, type) else type(value)
    )


def _code_location(value: Any) -> str | None:
    code = getattr(getattr(value, "__func__", value), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if isinstance(code, types.CodeType) else None


def _class_location(cls: type) -> str | None:
    try:
        file = inspect.getsourcefile(cls)
        _, line = inspect.findsource(cls)
    except (TypeError, OSError):  # Written in C, or its source is not at hand.
        return None
    return f"{file}:{line + 1}"
