"""Calls in functions that are read: the result of each known function as a symbol."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from bicycle_runtime.expressions.symbols import (
    MORE,
    Generated,
    Method,
    Outside,
    Reading,
    ReadingState,
    Record,
    RecordContents,
    literal_of,
)
from bicycle_runtime.frames.rows import is_plain
from bicycle_sdk.expressions import Expression, lit
from bicycle_sdk.value_functions import ATTRIBUTES, CALLS, METHODS

_ARGUMENTS_MAX = 6
_FUNCTIONS = (BuiltinFunctionType, type)

CallHelper = Callable[[FunctionType, dict[str, Any], ReadingState], Any]


def read_call(
    called: Any, arguments: list[Any], keywords: Mapping[str, Any], state: ReadingState,
    *, call_helper: CallHelper,
) -> Any:  # fmt: skip
    """Return the symbol of the result of a call.

    Args:
        called: The symbol of the function, or a method.
        arguments: By position.
        keywords: By name.
        state: The state of the run; the call may change records in it.
        call_helper: Reads a Python function with arguments by name.

    Raises:
        Reading: the function is unknown.
    """
    if arguments and isinstance(arguments[0], Generated) and _takes_all(called, len(arguments)):
        arguments = [arguments[0].results, *arguments[1:]]
    if any(isinstance(part, Generated) for part in (*arguments, *keywords.values())):
        raise Reading(MORE)
    if isinstance(called, Method):
        if isinstance(called.owner, Record):
            return _record_method(called, arguments, keywords, state)
        if isinstance(called.owner, Outside) and _has_names(called.owner.value):
            called = attribute_of(called.owner, called.name)
        else:
            return _value_method(called, arguments, keywords, state)
    if not isinstance(called, Outside) or len(arguments) > _ARGUMENTS_MAX:
        raise Reading(MORE)
    found = _call_outside(called, arguments, keywords, state, call_helper=call_helper)
    if isinstance(found, Expression):
        return Expression("given", called.still, found)
    state.computed.append(Expression("given", called.still, lit(None)))
    return found


def _takes_all(called: Any, count: int) -> bool:
    """Return whether a call reads all items of its first argument, once."""
    if isinstance(called, Method):
        return called.name == "join"
    function = called.value if isinstance(called, Outside) else None
    return function is sum or (count == 1 and function in (list, max, min, sorted))


def _call_outside(
    called: Outside, arguments: list[Any], keywords: Mapping[str, Any], state: ReadingState,
    *, call_helper: CallHelper,
) -> Any:  # fmt: skip
    function = called.value
    if function is dict:
        return _new_dict(arguments, keywords, state)
    if function is dataclasses.replace:
        return _replace_fields(arguments, keywords, state)
    if isinstance(function, FunctionType):
        return call_helper(function, bind_arguments(function, arguments, keywords), state)
    values = list(map(state.value, arguments))
    if is_plain_dataclass(function):
        given = {name: state.value(part) for name, part in keywords.items()}
        return _make(function, values, given)
    if keywords or not values:
        raise Reading(MORE)
    return _call_builtin(function, values)


def _call_builtin(function: Any, values: list[Expression]) -> Expression:
    if function is list and values[0].operation == "each":
        return values[0]
    if function is round:
        return _round(values)
    if function is abs and len(values) == 1:
        return Expression("absolute", *values)
    row = CALLS.get(function) if isinstance(function, _FUNCTIONS) else None
    if row is None:
        raise Reading(MORE)
    return Expression(row.name, *values)


def bind_arguments(
    function: FunctionType, arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a Python function by name, with its defaults.

    Raises:
        Reading: they do not fit, or a default is not a plain value.
    """
    code = function.__code__
    count, positional = code.co_argcount, code.co_varnames[: code.co_argcount]
    names = code.co_varnames[: count + code.co_kwonlyargcount]
    if code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS) or len(arguments) > count:
        raise Reading(MORE)
    defaults = function.__defaults__ or ()
    found = dict(zip(positional[count - len(defaults) :], defaults, strict=True))
    found |= function.__kwdefaults__ or {}
    bound = dict(zip(positional, arguments, strict=False))
    twice = bound.keys() & keywords.keys()
    if twice or not keywords.keys() <= set(names[code.co_posonlyargcount :]):
        raise Reading(MORE)
    bound |= keywords
    rest = {name: literal_of(value) for name, value in found.items() if name not in bound}
    if set(names) - bound.keys() - rest.keys():
        raise Reading(MORE)
    return bound | rest


def _has_names(value: Any) -> bool:
    return type(value) in (ModuleType, type)


def attribute_of(owner: Any, name: str) -> Any:
    """Return the symbol of an attribute of a value, a module or a class.

    Raises:
        Reading: looking it up may run code.
    """
    if isinstance(owner, Expression) and name in ATTRIBUTES:
        return Expression(name, owner)
    if not isinstance(owner, Outside) or not _has_names(owner.value):
        raise Reading(MORE)
    names = vars(owner.value)
    # An attribute of a class with __get__ may run code.
    runs_code = hasattr(type(names.get(name)), "__get__") and type(owner.value) is type
    if name not in names or (runs_code and owner.value is not datetime):
        raise Reading(MORE)
    value = getattr(owner.value, name)
    look_up = owner.look_up
    return Outside.of(name, value, lambda: getattr(look_up(), name, None))


# --- records -------------------------------------------------------------------------------------


def _record_method(
    method: Method, arguments: list[Any], keywords: Mapping[str, Any], state: ReadingState
) -> Any:
    record = method.owner
    contents = state.contents(record)
    match method.name, len(arguments):
        case "get", 1 | 2 if not keywords:
            return _get(contents, arguments, state)
        case "copy", 0 if not keywords:
            return _new_dict([record], {}, state)
        case "update", 0 | 1:
            _update(record, [*arguments, _create_record(keywords, state)], state)
            return lit(None)
    raise Reading(MORE)


def _get(contents: RecordContents, arguments: list[Any], state: ReadingState) -> Expression:
    name, *defaults = map(state.value, arguments)
    default = defaults[0] if defaults else lit(None)
    if name.operation != "literal" or contents.way == "attribute":
        raise Reading(MORE)
    key = name.arguments[0]
    if key in contents.updates:
        return contents.updates[key]
    return default if contents.base == "new" else Expression("field_or", key, default)


def _create_record(keywords: Mapping[str, Any], state: ReadingState) -> Record:
    updates = {name: state.value(part) for name, part in keywords.items()}
    return state.create(RecordContents("new", updates, "item"))


def _new_dict(arguments: list[Any], keywords: Mapping[str, Any], state: ReadingState) -> Record:
    """Return the record of ``dict(record, name=value)``."""
    made = _create_record({}, state)
    _update(made, [*arguments, _create_record(keywords, state)], state)
    return made


def _update(record: Record, others: Sequence[Any], state: ReadingState) -> None:
    for other in others:
        update_record(record, other, state)


def update_record(record: Record, other: Any, state: ReadingState) -> None:
    """Copy the fields of a record to another record.

    Raises:
        Reading: the order of the fields is unknown.
    """
    if not isinstance(other, Record):
        raise Reading(MORE)
    contents, added = state.contents(record), state.contents(other)
    if added.base == "new":
        state.records[record] = contents.with_updates(added.updates, "item")
    elif contents == RecordContents("new", {}, "item") and added.way != "attribute":
        state.records[record] = RecordContents("copy", added.updates, "item", added.seen)
    else:
        raise Reading(MORE)


def _replace_fields(
    arguments: list[Any], keywords: Mapping[str, Any], state: ReadingState
) -> Record:
    """Return the record of ``dataclasses.replace(record, name=value)``."""
    if len(arguments) != 1 or not isinstance(arguments[0], Record):
        raise Reading(MORE)
    contents = state.contents(arguments[0])
    if contents.base == "new" or contents.way == "item":
        raise Reading(MORE)
    updates = {name: state.value(part) for name, part in keywords.items()}
    return state.create(
        dataclasses.replace(contents.with_updates(updates, "attribute"), base="copy")
    )


# --- values --------------------------------------------------------------------------------------


def _value_method(
    method: Method, arguments: list[Any], keywords: Mapping[str, Any], state: ReadingState
) -> Expression:
    row = METHODS.get(method.name)
    if row is None or keywords or len(arguments) > _ARGUMENTS_MAX:
        raise Reading(MORE)
    # The function fails for values of other types, which then go one by one.
    return Expression(row.name, state.value(method.owner), *map(state.value, arguments))


def _round(values: list[Expression]) -> Expression:
    if len(values) > 2 or (len(values) == 2 and values[1].operation != "literal"):
        raise Reading(MORE)
    return Expression("round", values[0], values[1].arguments[0] if len(values) > 1 else None)


def is_plain_dataclass(kind: Any) -> bool:
    """Return whether construction of an object does nothing but set its fields."""
    if type(kind) is not type or not dataclasses.is_dataclass(kind):
        return False
    if kind.__new__ is not object.__new__:
        return False
    made = {kind.__init__, kind.__setattr__} - {object.__setattr__}
    is_generated = all(
        getattr(each, "__code__", None) is not None and each.__code__.co_filename == "<string>"
        for each in made
    )
    return (
        is_generated
        and is_plain(kind)
        and "__init__" in vars(kind)
        and set(inspect.signature(kind).parameters)
        == {field.name for field in dataclasses.fields(kind)}
    )


def _make(kind: Any, values: list[Expression], keywords: Mapping[str, Expression]) -> Expression:
    """Return an object of a dataclass, with a value for each of its fields."""
    known = {field.name: field for field in dataclasses.fields(kind)}
    positional = [field.name for field in known.values() if not field.kw_only]
    if len(values) > len(positional):
        raise Reading(MORE)
    found = dict(zip(positional, values, strict=False))
    if found.keys() & keywords.keys() or not keywords.keys() <= known.keys():
        raise Reading(MORE)
    found |= keywords
    for name, field in known.items():
        if name not in found:
            if field.default is dataclasses.MISSING:
                raise Reading(MORE)
            found[name] = literal_of(field.default)
    return Expression("make", kind, tuple(known), *(found[name] for name in known))
