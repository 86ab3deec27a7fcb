"""Reading functions: from bytecode to the expression that a function computes.

A function that only picks fields, compares, computes, rounds and formats is the same as an
expression, however it is written. Its bytecode is run with expressions in place of values: both
ways of a condition are followed to their ends. Any operation that may have effects ends the
reading, and the function is called record by record as ever. Outer values of a function are looked
up again for each batch. A value that it computes and does not use may still fail, and so belongs to
the expression.

No code of the user is called. It reads instructions of Python 3.11 to 3.13; an unknown instruction
ends the reading, too.
"""

from __future__ import annotations

import builtins
import dis
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from operator import attrgetter, contains, is_, is_not, itemgetter, not_
from types import FunctionType
from typing import Any

from bicycle_runtime.expressions.evaluation import HasExpression
from bicycle_runtime.expressions.failing import with_failures_of
from bicycle_runtime.frames.rows import is_plain
from bicycle_sdk.expressions import OPERATIONS, Expression, lit

_STEPS_MAX, _DEPTH_MAX = 400, 4  # of instructions, and of functions that call functions
_BINARY = {"+": "+", "-": "-", "*": "*", "/": "/", "//": "//", "%": "%"}
_IGNORED = frozenset(
    {"RESUME", "CACHE", "PRECALL", "NOP", "MAKE_CELL", "COPY_FREE_VARS", "EXTENDED_ARG",
     "NOT_TAKEN"}
)  # fmt: skip
_BUILTINS: Mapping[str, Callable[..., Any]] = {
    name: getattr(builtins, name)
    for name in ("abs", "bool", "float", "int", "len", "max", "min", "str")
}
_METHODS = frozenset(
    {"casefold", "endswith", "lower", "lstrip", "removeprefix", "removesuffix", "replace",
     "rstrip", "startswith", "strip", "title", "upper", "zfill"}
)  # fmt: skip
_CONVERSIONS = {None: None, str: str, repr: repr, ascii: ascii}
_ARGUMENTS_MAX = 4


class Reading(Exception):  # it ends a reading; nothing is wrong
    """The reason why a function cannot be read as an expression."""


class _Record:
    """The record that the function is called with."""

    def __repr__(self) -> str:
        return "the record"


RECORD = _Record()


@dataclass(frozen=True, slots=True)
class _Method:
    """A method of a value, on its way to being called."""

    owner: Any
    name: str


@dataclass(frozen=True, slots=True)
class _Outside:
    """The value of a name outside of the function."""

    name: str
    value: Any
    look_up: Callable[[], Any]


class _Null:
    """The marker that the interpreter pushes for a call without an object."""


_NULL = _Null()


def read(function: Any) -> Expression:
    """Return the expression that a function of one record computes.

    Raises:
        Reading: it does more, or its effects are unknown.

    Example:
        >>> read(lambda order: order.price * 2 > 10)
        (col('price') * 2) > 10
        >>> read(itemgetter("user", "day"))
        (col('user'), col('day'))
    """
    if isinstance(function, Expression | HasExpression):
        return function if isinstance(function, Expression) else function.expression()
    if type(function) in (attrgetter, itemgetter):
        return _of_getter(function)
    if not isinstance(function, FunctionType):
        raise Reading(_MORE)
    return _value(_Run(function, [RECORD], depth=0).result())


_MORE = "its function does more than select, compare, compute and format fields"


def _of_getter(getter: Any) -> Expression:
    names = getter.__reduce__()[1]
    if not all(isinstance(name, str) and "." not in name for name in names):
        raise Reading(_MORE)
    kind = "attribute" if type(getter) is attrgetter else "item"
    found = [Expression("field", name, kind) for name in names]
    return found[0] if len(found) == 1 else Expression("tuple", *found)


class _Run:
    """Runs the code of a function on expressions.

    Args:
        function: A plain function.
        arguments: Of the call: expressions, or ``RECORD``.
        depth: How many functions deep it is called.
    """

    def __init__(self, function: FunctionType, arguments: Sequence[Any], *, depth: int) -> None:
        code = function.__code__
        awaited = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
        several = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
        if code.co_flags & (awaited | several) or depth > _DEPTH_MAX:
            raise Reading(_MORE)
        if (code.co_argcount, code.co_kwonlyargcount) != (len(arguments), 0):
            raise Reading(_MORE)
        if code.co_cellvars or code.co_exceptiontable:
            raise Reading(_MORE)
        self._function, self._depth = function, depth
        self._code = list(dis.get_instructions(code))
        self._at = {each.offset: number for number, each in enumerate(self._code)}
        self._arguments = dict(zip(code.co_varnames, arguments, strict=False))
        self._keywords: tuple[str, ...] = ()
        self._left = _STEPS_MAX

    def result(self) -> Any:
        """Return the expression that the function returns."""
        return self._run(0, [], dict(self._arguments))

    def _run(self, number: int, stack: list[Any], names: dict[str, Any]) -> Any:
        computed: list[Expression] = []
        while True:
            self._left -= 1
            if self._left < 0 or number >= len(self._code):
                raise Reading(_MORE)
            step = self._code[number]
            name = step.opname
            if name in ("RETURN_VALUE", "RETURN_CONST"):
                found = stack.pop() if name == "RETURN_VALUE" else _literal(step.argval)
                return with_failures_of(computed, found)
            if "JUMP" in name and name not in ("JUMP_FORWARD",):
                return with_failures_of(computed, self._branch(number, stack, names))
            if name == "JUMP_FORWARD":
                number = self._at[step.argval]
                continue
            if name not in _IGNORED:
                handler = getattr(self, f"_{name.lower()}", None)
                if handler is None:
                    raise Reading(_MORE)
                handler(step, stack, names)
                if stack and isinstance(stack[-1], Expression):
                    computed.append(stack[-1])
            number += 1

    def _branch(self, number: int, stack: list[Any], names: dict[str, Any]) -> Any:
        """Follow both ways of a condition."""
        step = self._code[number]
        if step.argval <= step.offset:
            raise Reading(_MORE)  # a loop
        target = self._at[step.argval]
        condition = _value(stack.pop())
        keeps = step.opname.endswith("_OR_POP")
        jumped = [*stack, condition] if keeps else list(stack)
        name = step.opname.removesuffix("_OR_POP").replace("POP_JUMP_FORWARD_", "POP_JUMP_")
        test, jumps_if = {
            "POP_JUMP_IF_TRUE": (condition, True),
            "JUMP_IF_TRUE": (condition, True),
            "POP_JUMP_IF_FALSE": (condition, False),
            "JUMP_IF_FALSE": (condition, False),
            "POP_JUMP_IF_NONE": (Expression("is_null", condition), True),
            "POP_JUMP_IF_NOT_NONE": (Expression("is_null", condition), False),
        }.get(name, (None, True))
        if test is None:
            raise Reading(_MORE)
        there = _value(self._run(target, jumped, dict(names)))
        here = _value(self._run(number + 1, list(stack), dict(names)))
        return Expression("if", test, *((there, here) if jumps_if else (here, there)))

    # --- instructions ------------------------------------------------------------------------

    def _load_fast(self, step: Any, stack: list[Any], names: dict[str, Any]) -> None:
        for name in step.argval if isinstance(step.argval, tuple) else (step.argval,):
            if name not in names:
                raise Reading(_MORE)
            stack.append(names[name])

    _load_fast_check = _load_fast_borrow = _load_fast_load_fast = _load_fast

    def _store_fast(self, step: Any, stack: list[Any], names: dict[str, Any]) -> None:
        names[step.argval] = stack.pop()

    def _load_const(self, step: Any, stack: list[Any], _: dict[str, Any]) -> None:
        stack.append(_literal(step.argval))

    _load_small_int = _load_const

    def _kw_names(self, step: Any, _stack: list[Any], _: dict[str, Any]) -> None:
        self._keywords = self._function.__code__.co_consts[step.arg]

    def _pop_top(self, _step: Any, stack: list[Any], _: dict[str, Any]) -> None:
        stack.pop()

    def _push_null(self, _step: Any, stack: list[Any], _: dict[str, Any]) -> None:
        stack.append(_NULL)

    def _copy(self, step: Any, stack: list[Any], _: dict[str, Any]) -> None:
        stack.append(stack[-step.arg])

    def _swap(self, step: Any, stack: list[Any], _: dict[str, Any]) -> None:
        stack[-1], stack[-step.arg] = stack[-step.arg], stack[-1]

    def _to_bool(self, step: Any, stack: list[Any], _: dict[str, Any]) -> None:
        following = self._code[self._at[step.offset] + 1].opname
        if following != "UNARY_NOT" and "JUMP" not in following:  # They look at the truth.
            stack.append(Expression("apply", bool, _value(stack.pop())))

    def _load_global(self, step: Any, stack: list[Any], _: dict[str, Any]) -> None:
        if step.arg & 1:
            stack.append(_NULL)
        name, space = step.argval, self._function.__globals__
        if name in space:
            stack.append(_Outside(name, space[name], lambda: space.get(name)))
        elif name in _BUILTINS or name == "round":
            found = getattr(builtins, name)
            stack.append(_Outside(name, found, lambda: space.get(name, getattr(builtins, name))))
        else:
            raise Reading(_MORE)

    def _load_deref(self, step: Any, stack: list[Any], _: dict[str, Any]) -> None:
        code = self._function.__code__
        if step.argval not in code.co_freevars:
            raise Reading(_MORE)
        cell = (self._function.__closure__ or ())[code.co_freevars.index(step.argval)]
        try:
            value = cell.cell_contents
        except ValueError:
            raise Reading(_MORE) from None
        stack.append(_Outside(step.argval, value, lambda: cell.cell_contents))

    def _load_attr(self, step: Any, stack: list[Any], _: dict[str, Any]) -> None:
        owner = stack.pop()
        is_method = _ONE_LOOK_UP and step.arg & 1
        if is_method:
            stack += [_Method(owner, step.argval), _NULL]
        elif owner is RECORD:
            stack.append(Expression("field", step.argval, "attribute"))
        else:
            raise Reading(_MORE)

    def _load_method(self, step: Any, stack: list[Any], _: dict[str, Any]) -> None:
        stack += [_NULL, _Method(stack.pop(), step.argval)]

    def _binary_subscr(self, _step: Any, stack: list[Any], _: dict[str, Any]) -> None:
        index, owner = _value(stack.pop()), stack.pop()
        if owner is RECORD:
            if index.operation != "literal" or not isinstance(index.arguments[0], str | int):
                raise Reading(_MORE)
            stack.append(Expression("field", index.arguments[0], "item"))
        else:
            stack.append(Expression("item", _value(owner), index))

    def _binary_op(self, step: Any, stack: list[Any], _: dict[str, Any]) -> None:
        if step.argrepr == "[]":
            self._binary_subscr(step, stack, _)
            return
        operation = _BINARY.get(step.argrepr.removesuffix("=") or "")
        right, left = _value(stack.pop()), _value(stack.pop())
        if operation is None:
            raise Reading(_MORE)
        stack.append(Expression(operation, left, right))

    def _compare_op(self, step: Any, stack: list[Any], _: dict[str, Any]) -> None:
        operation = str(step.argval).removeprefix("bool(").removesuffix(")")
        right, left = _value(stack.pop()), _value(stack.pop())
        if operation not in OPERATIONS:
            raise Reading(_MORE)
        stack.append(Expression(operation, left, right))

    def _is_op(self, step: Any, stack: list[Any], _: dict[str, Any]) -> None:
        right, left = _value(stack.pop()), _value(stack.pop())
        if right.operation == "literal" and right.arguments[0] is None:
            found = Expression("is_null", left)
            stack.append(Expression("~", found) if step.arg else found)
            return
        if right.operation != "literal" or type(right.arguments[0]) is not bool:
            raise Reading(_MORE)  # Which ints and texts are the same object is chance.
        stack.append(Expression("apply", is_not if step.arg else is_, left, right))

    def _contains_op(self, step: Any, stack: list[Any], _: dict[str, Any]) -> None:
        right, left = stack.pop(), _value(stack.pop())
        if right is RECORD:
            raise Reading(_MORE)
        found = Expression("apply", contains, _value(right), left)
        stack.append(Expression("apply", not_, found) if step.arg else found)

    def _unary_not(self, _step: Any, stack: list[Any], _: dict[str, Any]) -> None:
        stack.append(Expression("apply", not_, _value(stack.pop())))

    def _unary_negative(self, _step: Any, stack: list[Any], _: dict[str, Any]) -> None:
        stack.append(Expression("negative", _value(stack.pop())))

    def _build_tuple(self, step: Any, stack: list[Any], _: dict[str, Any]) -> None:
        stack.append(Expression("tuple", *map(_value, _take_last(stack, step.arg))))

    def _build_map(self, step: Any, stack: list[Any], _: dict[str, Any]) -> None:
        items = _take_last(stack, 2 * step.arg)
        stack.append(_record([_value(each) for each in items[::2]], items[1::2]))

    def _build_const_key_map(self, step: Any, stack: list[Any], _: dict[str, Any]) -> None:
        keys = stack.pop().arguments[0]
        stack.append(_record([lit(key) for key in keys], _take_last(stack, step.arg)))

    def _build_string(self, step: Any, stack: list[Any], _: dict[str, Any]) -> None:
        parts = list(map(_value, _take_last(stack, step.arg)))
        stack.append(Expression("apply", _join, *parts))

    def _format_value(self, step: Any, stack: list[Any], _: dict[str, Any]) -> None:
        conversion, has_spec = step.argval
        spec = _value(stack.pop()) if has_spec else None
        stack.append(_format(_value(stack.pop()), conversion, spec))

    def _convert_value(self, step: Any, stack: list[Any], _: dict[str, Any]) -> None:
        if step.argval not in (str, repr, ascii):
            raise Reading(_MORE)
        stack.append(Expression("apply", step.argval, _value(stack.pop())))

    def _format_simple(self, _step: Any, stack: list[Any], _: dict[str, Any]) -> None:
        stack.append(_format(_value(stack.pop()), None, None))

    def _format_with_spec(self, _step: Any, stack: list[Any], _: dict[str, Any]) -> None:
        spec = _value(stack.pop())
        stack.append(_format(_value(stack.pop()), None, spec))

    def _call(self, step: Any, stack: list[Any], _: dict[str, Any]) -> None:
        arguments = _take_last(stack, step.arg)
        pair = _take_last(stack, 2)
        called = [each for each in pair if each is not _NULL]
        if len(called) != 1:
            raise Reading(_MORE)
        keywords, self._keywords = self._keywords, ()
        stack.append(self._read_call(called[0], arguments, keywords))

    def _call_kw(self, step: Any, stack: list[Any], names: dict[str, Any]) -> None:
        self._keywords = _value(stack.pop()).arguments[0]
        self._call(step, stack, names)

    def _read_call(self, called: Any, arguments: list[Any], keywords: tuple[str, ...]) -> Any:
        if isinstance(called, _Outside) and _is_plain_dataclass(called.value):
            made = _make(called.value, list(map(_value, arguments)), keywords)
            return Expression("given", _still(called), made)
        if keywords:
            raise Reading(_MORE)
        if isinstance(called, _Method):
            return _method_call(called, arguments)
        if not isinstance(called, _Outside) or len(arguments) > _ARGUMENTS_MAX:
            raise Reading(_MORE)
        function, same = called.value, _still(called)
        if isinstance(function, FunctionType):
            found = _Run(function, arguments, depth=self._depth + 1).result()
            return Expression("given", same, _value(found))
        values = list(map(_value, arguments))
        if function is round:
            if len(values) > 2 or (len(values) == 2 and values[1].operation != "literal"):
                raise Reading(_MORE)
            digits = values[1].arguments[0] if len(values) > 1 else None
            return Expression("given", same, Expression("round", values[0], digits))
        if function is abs and len(values) == 1:
            return Expression("given", same, Expression("absolute", *values))
        if function is _BUILTINS.get(called.name) and values:
            return Expression("given", same, Expression("apply", function, *values))
        raise Reading(_MORE)


_ONE_LOOK_UP = sys.version_info >= (3, 12)  # LOAD_ATTR is LOAD_METHOD, too.


def _value(part: Any) -> Expression:
    """Return the expression of an item on the stack."""
    if isinstance(part, Expression):
        return part
    if part is RECORD:
        return Expression("itself")
    if isinstance(part, _Outside):
        return Expression("free", part.look_up)
    raise Reading(_MORE)


def _take_last(stack: list[Any], count: int) -> list[Any]:
    if count > len(stack):
        raise Reading(_MORE)
    found = stack[len(stack) - count :]
    del stack[len(stack) - count :]
    return found


def _still(outside: _Outside) -> Callable[[], bool]:
    """Return a function that checks that a name still has its value."""
    return lambda: outside.look_up() is outside.value


def _record(keys: list[Expression], values: list[Any]) -> Expression:
    if not all(key.operation == "literal" and isinstance(key.arguments[0], str) for key in keys):
        raise Reading(_MORE)
    names = tuple(key.arguments[0] for key in keys)
    if len(set(names)) < len(names):
        raise Reading(_MORE)
    return Expression("record", names, *map(_value, values))


def _method_call(method: _Method, arguments: list[Any]) -> Expression:
    if method.owner is RECORD:
        values = list(map(_value, arguments))
        is_constant = all(value.operation == "literal" for value in values)
        if method.name == "get" and values and is_constant and len(values) <= 2:
            default = values[1] if len(values) > 1 else lit(None)
            return Expression("field_or", values[0].arguments[0], default)
        raise Reading(_MORE)
    if method.name not in _METHODS or len(arguments) > _ARGUMENTS_MAX:
        raise Reading(_MORE)
    # The function refuses values that are no text, which then go one by one.
    owner = _value(method.owner)
    return Expression("apply", getattr(str, method.name), owner, *map(_value, arguments))


def _format(value: Expression, conversion: Any, spec: Expression | None) -> Expression:
    if conversion not in _CONVERSIONS:
        raise Reading(_MORE)
    if conversion is not None:
        value = Expression("apply", conversion, value)
    return (
        Expression("apply", str, value)
        if spec is None
        else Expression("apply", format, value, spec)
    )


def _join(*parts: str) -> str:
    return "".join(parts)


def _literal(value: Any) -> Expression:
    parts = value if type(value) in (tuple, frozenset) else (value,)
    if not set(map(type, parts)) <= {int, float, str, bool, type(None)}:
        raise Reading(_MORE)
    return lit(value)


def _is_plain_dataclass(kind: Any) -> bool:
    """Return whether construction of an object does nothing but set its fields."""
    if type(kind) is not type or not is_dataclass(kind) or kind.__new__ is not object.__new__:
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
        and set(inspect.signature(kind).parameters) == {field.name for field in fields(kind)}
    )


def _make(kind: Any, values: list[Expression], keywords: tuple[str, ...]) -> Expression:
    """Return an object of a dataclass, with a value for each of its fields."""
    known = {field.name: field for field in fields(kind)}
    positional = [field.name for field in known.values() if not field.kw_only]
    names = [*positional[: len(values) - len(keywords)], *keywords]
    if len(names) != len(values) or len(set(names)) < len(names) or not set(names) <= set(known):
        raise Reading(_MORE)
    found = dict(zip(names, values, strict=True))
    for name, field in known.items():
        if name not in found:
            if field.default is MISSING:
                raise Reading(_MORE)
            found[name] = _literal(field.default)
    return Expression("make", kind, tuple(known), *(found[name] for name in known))
