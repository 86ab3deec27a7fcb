"""Reading functions: from a Python function to the expression that it computes.

A function that only selects fields, compares, computes, rounds and formats is the same as an
expression, however it is written. No code of the user is called: the instructions of the function
run on symbols. Both ways of a condition are followed, up to the instruction where they meet again,
or to their ends. A comprehension is followed for one item. An operation that may have effects
beside the result of the function, and an unknown instruction, ends the reading: the function is
then called for each record.

Outer values of a function are looked up again for each batch. A value that it computes and does not
use may still fail, and so is part of the expression.

Source: ADR-0071 (functions are read from bytecode).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from operator import attrgetter, itemgetter
from types import CodeType, FunctionType
from typing import Any

from bicycle_runtime.expressions.calls import bind_arguments
from bicycle_runtime.expressions.evaluation import SKIPPED, HasExpression
from bicycle_runtime.expressions.failing import with_failures_of
from bicycle_runtime.expressions.instructions import Context, Instructions, stored_by
from bicycle_runtime.expressions.symbols import (
    MORE,
    NULL,
    Generated,
    Items,
    Nested,
    Outside,
    Reading,
    ReadingState,
    Record,
    RecordContents,
    Unmergeable,
    choose,
    is_changed,
    literal_of,
)
from bicycle_sdk.expressions import Expression, lit

_DEPTH_MAX = 6  # functions that call functions
_IGNORED = frozenset(
    {"RESUME", "CACHE", "PRECALL", "NOP", "MAKE_CELL", "COPY_FREE_VARS", "EXTENDED_ARG",
     "NOT_TAKEN"}
)  # fmt: skip
# Other spellings of an instruction in some versions.
_ALIASES = {
    "LOAD_FAST_CHECK": "LOAD_FAST", "LOAD_FAST_BORROW": "LOAD_FAST",
    "LOAD_FAST_LOAD_FAST": "LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW": "LOAD_FAST",
    "STORE_FAST_STORE_FAST": "STORE_FAST", "LOAD_SMALL_INT": "LOAD_CONST",
    "LOAD_CLASSDEREF": "LOAD_DEREF",
}  # fmt: skip
_ENDS = frozenset({"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"})
_BACKWARD = frozenset({"JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"})
_ASYNC = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_ARRIVED = object()
_ITERATOR_STAYS = sys.version_info >= (3, 13)  # on the stack after a loop
_CLOSURE = 8  # the flag of a function with outer variables
_VERSION_MAX = (3, 14)  # the newest Python whose instructions are known


def read(function: Any, *, may_change: bool = False) -> Expression:
    """Return the expression that a function of one record computes.

    Args:
        function: A function of one argument.
        may_change: Whether it may set fields of the record, which nobody else reads.

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
        raise Reading(MORE)
    if sys.version_info[:2] > _VERSION_MAX or sys.implementation.name != "cpython":
        raise Reading(
            f"functions are not read on {sys.implementation.name} {sys.version.split()[0]}"
        )
    try:
        return _read(function, may_change=may_change, merges=True)
    except Unmergeable:
        return _read(function, may_change=may_change, merges=False)


def _read(function: FunctionType, *, may_change: bool, merges: bool) -> Expression:
    record = Record()
    state = ReadingState([], {}, {record: RecordContents("argument")})
    context = Context(record, may_change=may_change, merges=merges)
    found = read_code(function, bind_arguments(function, [record], {}), state, context)
    return state.result(found)


def _of_getter(getter: Any) -> Expression:
    names = getter.__reduce__()[1]
    if not all(isinstance(name, str) and "." not in name for name in names):
        raise Reading(MORE)
    kind = "attribute" if type(getter) is attrgetter else "item"
    found = [Expression("field", name, kind) for name in names]
    return found[0] if len(found) == 1 else Expression("tuple", *found)


def read_code(
    function: FunctionType, arguments: Mapping[str, Any], state: ReadingState, context: Context,
    *, depth: int = 0,
) -> Any:  # fmt: skip
    """Return the symbol of the result of a function.

    Args:
        function: A plain function.
        arguments: Symbols by name.
        state: The records that exist; the function may change them.
        context: The shared part of the reading.
        depth: The number of functions that call it.

    Raises:
        Reading: it does more than compute its result.
    """
    code = function.__code__
    if code.co_flags & (_ASYNC | inspect.CO_GENERATOR) or depth > _DEPTH_MAX:
        raise Reading(MORE)
    variables = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))

    def free(name: str) -> Any:
        return context.once((id(variables[name]), name), lambda: _outside_of(name, variables[name]))

    run = _Run(code, function.__globals__, free, context, depth=depth)
    own = ReadingState([], dict(arguments), state.records)
    found = run.to_end(own)
    state.records = own.records
    state.computed += own.computed
    return found


def _outside_of(name: str, cell: Any) -> Outside:
    try:
        return Outside.of(name, cell.cell_contents, lambda: cell.cell_contents)
    except ValueError:
        raise Reading(MORE) from None


class _Run(Instructions):
    """Runs one code object.

    Args:
        code: The code.
        space: The names of its module.
        free: Returns the symbol of a variable of an enclosing function.
        context: The shared part of the reading.
        depth: The number of functions that call it.
    """

    def __init__(
        self, code: CodeType, space: Mapping[str, Any], free: Callable[[str], Any],
        context: Context, *, depth: int,
    ) -> None:  # fmt: skip
        super().__init__(code, space, free, context)
        self._depth = depth
        if any(step.opname == "PUSH_EXC_INFO" for step in self._steps):
            raise Reading(MORE)  # It handles exceptions.
        self._joins = self._find_joins() if context.merges else {}
        self._generated: Expression | None = None

    def to_end(self, state: ReadingState) -> Any:
        """Return the symbol of the result."""
        return self._go(0, state, None)

    def _go(self, number: int, state: ReadingState, stop: int | None) -> Any:
        """Run up to an instruction, or return the result of the function."""
        while number != stop:
            self._context.left -= 1
            if self._context.left < 0 or number >= len(self._steps):
                raise Reading(MORE)
            step = self._steps[number]
            name = _ALIASES.get(step.opname, step.opname)
            if name in ("RETURN_VALUE", "RETURN_CONST"):
                found = state.stack.pop() if name == "RETURN_VALUE" else literal_of(step.argval)
                return self._end(found, state)
            if name in _BACKWARD:
                return self._end(SKIPPED if state.appended is None else state.appended, state)
            if name == "JUMP_FORWARD":
                number = self._at[step.argval]
            elif name == "FOR_ITER":
                number = self._loop(number, state)
            elif "JUMP" in name:
                found, number = self._branch(number, state)
                if found is not _ARRIVED:
                    return found
            else:
                if name not in _IGNORED:
                    self._handle(name, step, state)
                number += 1
        return _ARRIVED

    def _end(self, found: Any, state: ReadingState) -> Any:
        if self._generated is not None:
            return Generated(self._generated)
        if isinstance(found, Expression | Outside):
            return with_failures_of(state.computed, state.value(found))
        if isinstance(found, Record) and state.computed and not self._depth:
            return with_failures_of(state.computed, state.result(found))
        return found

    def _handle(self, name: str, step: Any, state: ReadingState) -> None:
        handler = getattr(self, f"_{name.lower()}", None)
        if handler is None:
            raise Reading(MORE)
        handler(step, state)
        if state.stack and isinstance(state.stack[-1], Expression):
            state.computed.append(state.stack[-1])

    # --- conditions and loops ------------------------------------------------------------------

    def _find_joins(self) -> dict[int, int]:
        """Return for each condition the instruction where its ways meet again."""
        end = len(self._steps)
        after = [0] * (end + 1)  # by instruction, those that each way to the end passes, as bits
        after[end] = 1 << end
        joins: dict[int, int] = {}
        for number in reversed(range(end)):
            following = self._following(number)
            common = after[following[0]]
            for other in following[1:]:
                common &= after[other]
            if len(following) > 1:
                joins[number] = (common & -common).bit_length() - 1
            after[number] = common | 1 << number
        return {number: join for number, join in joins.items() if join < end}

    def _following(self, number: int) -> list[int]:
        step, end = self._steps[number], len(self._steps)
        name = step.opname
        if name in _ENDS or name in _BACKWARD:
            return [end]
        if "JUMP" not in name and name != "FOR_ITER":
            return [number + 1]
        target = self._at[step.argval] if step.argval > step.offset else end
        return [target] if name in ("JUMP_FORWARD", "FOR_ITER") else [number + 1, target]

    def _branch(self, number: int, state: ReadingState) -> tuple[Any, int]:
        """Follow both ways of a condition: return the result, or where they meet."""
        step = self._steps[number]
        keeps = step.opname.endswith("_OR_POP")
        name = step.opname.removesuffix("_OR_POP")
        name = name.replace("JUMP_FORWARD_", "JUMP_").replace("JUMP_BACKWARD_", "JUMP_")
        value = state.value(state.stack.pop())
        test, jumps_if = {
            "POP_JUMP_IF_TRUE": (value, True),
            "JUMP_IF_TRUE": (value, True),
            "POP_JUMP_IF_FALSE": (value, False),
            "JUMP_IF_FALSE": (value, False),
            "POP_JUMP_IF_NONE": (Expression("is_null", value), True),
            "POP_JUMP_IF_NOT_NONE": (Expression("is_null", value), False),
        }.get(name, (None, True))
        if test is None:
            raise Reading(MORE)
        jumped, other = state.fork(), state.fork()
        if keeps:
            jumped.stack.append(value)
        join = self._joins.get(number)
        if step.argval < step.offset:  # to the next item of a comprehension
            found = [SKIPPED, self._go(number + 1, other, join)]
        else:
            target = self._at[step.argval]
            found = [self._go(target, jumped, join), self._go(number + 1, other, join)]
        states = [jumped, other]
        if not jumps_if:
            found.reverse()
            states.reverse()
        if join is not None:
            state.merge(test, *states)
            return _ARRIVED, join
        results = [each.result(part) for each, part in zip(states, found, strict=True)]
        for record, contents in state.records.items():
            if any(is_changed(contents, each.records[record]) for each in states):
                state.records[record] = None
        return with_failures_of(state.computed, choose(test, *results)), number

    def _loop(self, number: int, state: ReadingState) -> int:
        """Follow a comprehension for one item; return the instruction after it."""
        iterator = state.stack.pop()
        end = self._at[self._steps[number].argval]
        inside = self._steps[number + 1 : end]
        yields = any(step.opname == "YIELD_VALUE" for step in inside)
        if not isinstance(iterator, Items) or not (yields or self._appends(state, inside)):
            raise Reading(MORE)
        variable = object()
        body = state.fork()
        stored = {name for step in inside for name in stored_by(step)}
        for name in stored:
            body.names.pop(name, None)
        if not yields:
            body.stack.append(iterator)
        body.stack.append(Expression("element", variable))
        result = body.result(self._go(number + 1, body, None))
        self._check_unchanged(state, body)
        each = Expression("each", iterator.source, variable, result)
        state.computed.append(each)
        for name in stored:
            state.names.pop(name, None)
        if yields:
            self._generated = each
        else:
            state.stack[-1] = each
        if self._steps[end].opname == "END_FOR":
            end += 2 if _ITERATOR_STAYS else 1
        return end

    @staticmethod
    def _appends(state: ReadingState, inside: list[Any]) -> bool:
        """Return whether a loop only fills the new list of a comprehension."""
        target = state.stack[-1] if state.stack else None
        if not isinstance(target, Expression) or target.operation != "list" or target.arguments:
            return False
        return any(step.opname == "LIST_APPEND" and step.arg == 2 for step in inside)

    def _get_iter(self, _: Any, state: ReadingState) -> None:
        part = state.stack.pop()
        state.stack.append(part if isinstance(part, Items) else Items(state.value(part)))

    def _list_append(self, _: Any, state: ReadingState) -> None:
        state.appended = state.result(state.stack.pop())

    def _yield_value(self, step: Any, state: ReadingState) -> None:
        self._list_append(step, state)
        state.stack.append(lit(None))

    def _return_generator(self, _: Any, state: ReadingState) -> None:
        state.stack.append(NULL)

    def _make_function(self, step: Any, state: ReadingState) -> None:
        nested = state.stack.pop()
        variables: Any = state.stack.pop() if step.arg == _CLOSURE else ()
        if not isinstance(nested, Nested) or step.arg not in (None, 0, _CLOSURE):
            raise Reading(MORE)
        state.stack.append(Nested(nested.code, variables))

    def _set_function_attribute(self, step: Any, state: ReadingState) -> None:
        nested, variables = state.stack.pop(), state.stack.pop()
        if step.arg != _CLOSURE or not isinstance(nested, Nested):
            raise Reading(MORE)
        state.stack.append(Nested(nested.code, variables))

    def call_helper(
        self, function: FunctionType, arguments: dict[str, Any], state: ReadingState
    ) -> Any:
        return read_code(function, arguments, state, self._context, depth=self._depth + 1)

    def run_nested(self, nested: Nested, iterator: Any, state: ReadingState) -> Any:
        variables = dict(zip(nested.code.co_freevars, nested.variables, strict=True))
        run = _Run(
            nested.code,
            self._space,
            lambda name: variables[name].value,
            self._context,
            depth=self._depth + 1,
        )
        own = ReadingState([], {".0": iterator}, dict(state.records))
        found = run.to_end(own)
        self._check_unchanged(state, own)
        return found

    @staticmethod
    def _check_unchanged(state: ReadingState, after: ReadingState) -> None:
        for record, contents in state.records.items():
            if is_changed(contents, after.records[record]):
                raise Reading(MORE)
