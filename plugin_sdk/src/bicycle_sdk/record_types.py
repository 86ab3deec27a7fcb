"""Record types from annotations: argument and result types, and their fit.

A type that is not known is None, and None fits everything: a lambda is never wrong. Two known types
clash only when no value could plausibly be of both. Nothing here looks at records.
"""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Awaitable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

__all__ = [
    "FunctionTypes",
    "accumulator_type",
    "annotations_of",
    "clash",
    "common_item_type",
    "function_types",
    "pair_type",
    "type_name",
    "unlisted_result",
]

_FUNCTIONS_MODULES = frozenset({"bicycle_sdk.functions", "bicycle_sdk.connected"})
_AGGREGATES_MODULES = frozenset({"bicycle_sdk.windows.functions"})


class FunctionTypes(NamedTuple):
    """The argument and result types of a function, None if unknown."""

    takes: Any
    gives: Any


def function_types(
    function: object, method: str, *, gives_many: bool = False, is_batched: bool = False
) -> FunctionTypes:
    """Return the annotated types of a function object, a callable or a class.

    Args:
        function: A function object of the SDK, any callable, or a class (for its instances).
        method: The method that is called for each record when ``function`` is a function object.
        gives_many: The result is an iterable, and its item type is returned.
        is_batched: The method takes a list of records and returns as many results.
    """
    if isinstance(function, type):
        return FunctionTypes(None, None if gives_many else _known_type(function))
    arguments = _generic_arguments(type(function), {})
    declared = FunctionTypes(
        _known_type(arguments.get("In", arguments.get("Value"))),
        getattr(function, "result_type", None)  # Of a built-in function, known for each object.
        or _known_type(arguments.get("Out", arguments.get("K", arguments.get("Value")))),
    )
    hinted = _hinted_types(_find_function(function, method), gives_many=gives_many)
    if is_batched:
        hinted = FunctionTypes(
            _known_type(_item_type(hinted.takes)), _known_type(_item_type(hinted.gives))
        )
    return FunctionTypes(
        declared.takes if declared.takes is not None else hinted.takes,
        declared.gives if declared.gives is not None else hinted.gives,
    )


def unlisted_result(function: object, method: str) -> str | None:
    """Return the annotated result of a call if it is not a list of records, or None.

    Example:
        >>> def first(line: str) -> str: ...
        >>> def parts(line: str) -> list[str]: ...
        >>> unlisted_result(first, "flat_map"), unlisted_result(parts, "flat_map")
        ('str', None)
    """
    try:
        gives = typing.get_type_hints(_find_function(function, method)).get("return")
    except Exception:  # noqa: BLE001 - annotations are the user's code; unknown is fine.
        return None
    if typing.get_origin(gives) in (Awaitable, Coroutine):
        gives = typing.get_args(gives)[-1]
    found = _class_of(_plain(gives))
    if found is None or found is object or getattr(found, "_is_protocol", False):
        return None
    is_iterable = hasattr(found, "__iter__") or hasattr(found, "__aiter__")
    if is_iterable and not issubclass(found, (str, bytes, dict)):
        return None
    return None if hasattr(found, "__await__") else type_name(found)


def accumulator_type(function: object) -> Any:
    """Return the annotated accumulator type of an ``AggregateFunction``, or None.

    Its class names the type (``AggregateFunction[In, Acc, Out]``), or ``create_accumulator`` does.
    """
    declared = _generic_arguments(type(function), {}, _AGGREGATES_MODULES).get("Acc")
    if _known_type(declared) is not None:
        return declared
    return _hinted_types(getattr(function, "create_accumulator", None), gives_many=False).gives


def annotations_of(record_type: Any, *, include_extras: bool = False) -> dict[str, Any]:
    """Return the annotated types of fields, with the arguments of a generic type.

    Args:
        record_type: A class, or a generic class with arguments.
        include_extras: Keep ``Annotated``, ``Required`` and ``NotRequired``.

    Raises:
        NameError: an annotation names what only its own module could tell.
    """
    origin = typing.get_origin(record_type) or record_type
    parameters: Sequence[Any] = getattr(origin, "__parameters__", ())
    bound = dict(zip(parameters, typing.get_args(record_type), strict=False))
    hints = typing.get_type_hints(origin, include_extras=include_extras)
    inherited: dict[str, Any] = {}
    for base in reversed(vars(origin).get("__orig_bases__", origin.__bases__)):
        found = typing.get_origin(base) or base
        if isinstance(found, type) and found not in (object, typing.Generic, typing.Protocol):
            inherited |= annotations_of(_substitute(base, bound), include_extras=include_extras)
    # The annotations of a TypedDict contain those of its bases.
    own = () if typing.is_typeddict(origin) else inspect.get_annotations(origin)
    return {
        name: inherited[name] if name in inherited and name not in own else _substitute(hint, bound)
        for name, hint in hints.items()
    }


def common_item_type(items: Iterable[object]) -> Any:
    """Return the common type of all items, or None if they differ or are containers.

    ``list`` alone would lose the item type of an item, so containers stay unknown.
    """
    found = {type(item) for item in items}
    if len(found) != 1:
        return None
    (item_type,) = found
    has_parameters = item_type is tuple or issubclass(item_type, (list, dict, set, frozenset))
    return None if has_parameters else item_type


def pair_type(first: Any, second: Any) -> Any:
    """Return the type of a pair, None when a side is unknown."""
    if first is None or second is None:
        return None
    return types.GenericAlias(tuple, (first, second))


def type_name(record_type: Any) -> str | None:
    """Return a type as text: ``str``, ``tuple[str, int]``, ``wordcount.WordCount``."""
    if record_type is None:
        return None
    if isinstance(record_type, type) and not typing.get_args(record_type):
        module = record_type.__module__
        name = record_type.__qualname__
        public = module.partition("._")[0]
        if public in sys.stdlib_module_names:  # In Python 3.13 a Path is of ``pathlib._local``.
            module = public
        return name if module == "builtins" else f"{module}.{name}"
    return str(record_type).replace("typing.", "")


def clash(produced: Any, consumed: Any) -> bool:
    """Return whether no value of ``produced`` could be one of ``consumed``.

    Example:
        >>> clash(str, int), clash(bool, int), clash(list[str], list[int]), clash(None, int)
        (True, False, True, False)
    """
    produced, consumed = _plain(produced), _plain(consumed)
    if produced is None or consumed is None:
        return False
    for one, other in ((produced, consumed), (consumed, produced)):
        if typing.get_origin(one) in (typing.Union, types.UnionType):
            pairs = ((member, other) for member in typing.get_args(one))
            return all(clash(*(pair if one is produced else pair[::-1])) for pair in pairs)
    return _classes_clash(produced, consumed)


def _classes_clash(produced: Any, consumed: Any) -> bool:
    made, taken = _class_of(produced), _class_of(consumed)
    if made is None or taken is None:
        return False
    if made is int and taken is float:
        return False
    try:
        if not issubclass(made, taken) and not issubclass(taken, made):
            return True
    except TypeError:  # Protocols that cannot be checked at run time fit everything.
        return False
    return made is taken and _arguments_clash(typing.get_args(produced), typing.get_args(consumed))


def _arguments_clash(produced: tuple[Any, ...], consumed: tuple[Any, ...]) -> bool:
    if not produced or not consumed or Ellipsis in produced or Ellipsis in consumed:
        return False
    if len(produced) != len(consumed):
        return True
    return any(clash(made, taken) for made, taken in zip(produced, consumed, strict=True))


def _plain(record_type: Any) -> Any:
    """Return a type without wrappers that leave values unchanged, or None."""
    while True:
        if hasattr(record_type, "__supertype__"):  # NewType
            record_type = record_type.__supertype__
        elif typing.get_origin(record_type) is typing.Annotated:
            record_type = typing.get_args(record_type)[0]
        else:
            return _known_type(record_type)


def _class_of(record_type: Any) -> type | None:
    origin = typing.get_origin(record_type)
    if origin is typing.Literal:
        found = {type(value) for value in typing.get_args(record_type)}
        return found.pop() if len(found) == 1 else None
    candidate = origin if origin is not None else record_type
    if typing.is_typeddict(candidate):
        return dict
    return candidate if isinstance(candidate, type) else None


def _known_type(record_type: Any) -> Any:
    """Return the type, or None if it is uninformative, such as Any or a type variable."""
    if record_type is None or record_type is Any or record_type is object:
        return None
    if isinstance(record_type, (TypeVar, str, typing.ForwardRef)):
        return None
    if getattr(record_type, "__parameters__", ()) and not isinstance(record_type, type):
        return None
    return record_type


def _generic_arguments(
    cls: type, bound: Mapping[Any, Any], modules: frozenset[str] = _FUNCTIONS_MODULES
) -> dict[str, Any]:
    """Return the types of the SDK base class's type variables, by name."""
    for base in cls.__dict__.get("__orig_bases__", cls.__bases__):
        origin = typing.get_origin(base) or base
        if not isinstance(origin, type) or origin is object:
            continue
        parameters: Sequence[Any] = getattr(origin, "__parameters__", ())
        arguments = [_substitute(argument, bound) for argument in typing.get_args(base)]
        mapping = dict(zip(parameters, arguments, strict=False))
        if origin.__module__ in modules:
            return {parameter.__name__: value for parameter, value in mapping.items()}
        found = _generic_arguments(origin, mapping, modules)
        if found:
            return found
    return {}


def _substitute(argument: Any, bound: Mapping[Any, Any]) -> Any:
    if isinstance(argument, TypeVar):
        return bound.get(argument, argument)
    parameters = getattr(argument, "__parameters__", ())
    if parameters and not isinstance(argument, type):
        return argument[tuple(bound.get(parameter, parameter) for parameter in parameters)]
    return argument


def _find_function(function: object, method: str) -> Any:
    """Return the plain function that is called for each record."""
    if isinstance(function, (types.FunctionType, types.MethodType, types.BuiltinFunctionType)):
        return function
    return getattr(function, method, None) or (callable(function) and type(function).__call__)


def _hinted_types(called: Any, *, gives_many: bool) -> FunctionTypes:
    try:
        hints = typing.get_type_hints(called)
    except Exception:  # noqa: BLE001 - annotations are the user's code; unknown is fine.
        return FunctionTypes(None, None)
    gives = hints.pop("return", None)
    if typing.get_origin(gives) in (Awaitable, Coroutine):
        gives = typing.get_args(gives)[-1]
    if gives_many:
        gives = _item_type(gives)
    code = getattr(called, "__code__", None)
    is_method = code is not None and code.co_varnames[:1] == ("self",)
    first = code.co_varnames[is_method : is_method + 1] if code is not None else ()
    takes = hints.get(first[0]) if first else None
    return FunctionTypes(_known_type(takes), _known_type(gives))


def _item_type(result_type: Any) -> Any:
    """Return ``X`` of ``list[X]``, ``Iterable[X]`` or ``tuple[X, ...]``, else None."""
    arguments = typing.get_args(result_type)
    origin = typing.get_origin(result_type)
    if origin is tuple:
        return arguments[0] if len(arguments) == 2 and arguments[1] is Ellipsis else None
    if not isinstance(origin, type) or not arguments or issubclass(origin, Mapping):
        return str if result_type is str else None
    return arguments[0] if issubclass(origin, Iterable) else None
