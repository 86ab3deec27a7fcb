"""The instructions that compute, and the effect of each on the symbols of a run.

Instructions that jump are in ``function_reading``.
"""

from __future__ import annotations

import builtins
import dis
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from operator import contains, is_, is_not, not_
from types import CodeType, FunctionType
from typing import Any

from bicycle_runtime.expressions.calls import attribute_of, read_call, update_record
from bicycle_runtime.expressions.symbols import (
    MORE,
    NULL,
    Generated,
    Method,
    Nested,
    OuterVariable,
    Outside,
    Reading,
    ReadingState,
    Record,
    RecordContents,
    SliceBounds,
    Way,
    literal_of,
)
from bicycle_sdk.expressions import OPERATIONS, Expression, lit

_STEPS_MAX = 2_000  # instructions
_BINARY = frozenset({"+", "-", "*", "/", "//", "%"})
_KNOWN_BUILTINS = frozenset(
    {"abs", "bool", "chr", "dict", "divmod", "float", "int", "isinstance", "len", "list", "max",
     "min", "ord", "round", "sorted", "str", "sum"}
)  # fmt: skip
_CONVERSIONS = {None: None, str: str, repr: repr, ascii: ascii}
_ONE_LOOK_UP = sys.version_info >= (3, 12)  # LOAD_ATTR is LOAD_METHOD, too.
_CLOSURE = 8  # the flag of a function with outer variables


@dataclass(slots=True)
class Context:
    """The shared part of all runs of a reading.

    Args:
        argument: The record that the function is called with.
        may_change: Whether the function may set fields of it.
        merges: Whether the ways of a condition continue as one where they meet.
    """

    argument: Record
    may_change: bool
    merges: bool
    left: int = _STEPS_MAX
    known: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    def once(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """Return the symbol of a key, the same at each use: so it is computed once."""
        if key not in self.known:
            self.known[key] = make()
        return self.known[key]


def names_of(step: dis.Instruction) -> tuple[str, ...]:
    """Return the variables that an instruction loads or stores."""
    return step.argval if isinstance(step.argval, tuple) else (step.argval,)


def stored_by(step: dis.Instruction) -> tuple[str, ...]:
    """Return the variables that an instruction stores."""
    if step.opname == "STORE_FAST_LOAD_FAST":
        return names_of(step)[:1]
    return names_of(step) if step.opname.startswith(("STORE_FAST", "STORE_DEREF")) else ()


class Instructions(ABC):
    """The instructions that compute.

    Args:
        code: The code.
        space: The names of its module.
        free: Returns the symbol of a variable of an enclosing function.
        context: The shared part of the reading.
    """

    def __init__(
        self, code: CodeType, space: Mapping[str, Any], free: Callable[[str], Any],
        context: Context,
    ) -> None:  # fmt: skip
        self._code, self._space, self._free, self._context = code, space, free, context
        self._shared = {*code.co_cellvars, *code.co_freevars}
        self._steps = list(dis.get_instructions(code))
        self._at = {step.offset: number for number, step in enumerate(self._steps)}
        self._keywords: tuple[str, ...] = ()

    @abstractmethod
    def call_helper(
        self, function: FunctionType, arguments: dict[str, Any], state: ReadingState
    ) -> Any:
        """Return the symbol of the result of a Python function."""

    @abstractmethod
    def run_nested(self, nested: Nested, iterator: Any, state: ReadingState) -> Any:
        """Return the symbol of the result of a comprehension."""

    # --- names ---------------------------------------------------------------------------------

    def _load_fast(self, step: Any, state: ReadingState) -> None:
        for name in names_of(step):
            if name in self._shared:  # From Python 3.13 on, this loads closures, too.
                part = state.names[name] if name in state.names else self._free(name)
                state.stack.append(OuterVariable(part))
            elif name in state.names:
                state.stack.append(state.names[name])
            else:
                raise Reading(MORE)

    _load_closure = _load_fast

    def _store_fast(self, step: Any, state: ReadingState) -> None:
        if any(isinstance(part, Generated) for part in state.stack):
            raise Reading(MORE)  # Its items are computed later, with other values, and only once.
        for name in names_of(step):
            part = state.stack.pop()
            if part is NULL:
                state.names.pop(name, None)
            else:
                state.names[name] = part

    def _store_deref(self, step: Any, state: ReadingState) -> None:
        if step.argval in self._code.co_freevars:
            raise Reading(MORE)  # It changes a variable of another function.
        self._store_fast(step, state)

    def _store_fast_load_fast(self, step: Any, state: ReadingState) -> None:
        stored, loaded = step.argval
        if isinstance(state.stack[-1], Generated):
            raise Reading(MORE)
        state.names[stored] = state.stack.pop()
        if loaded not in state.names:
            raise Reading(MORE)
        state.stack.append(state.names[loaded])

    def _load_fast_and_clear(self, step: Any, state: ReadingState) -> None:
        state.stack.append(state.names.pop(step.argval, NULL))

    def _load_deref(self, step: Any, state: ReadingState) -> None:
        name = step.argval
        if name in state.names:
            state.stack.append(state.names[name])
        elif name in self._code.co_freevars:
            state.stack.append(self._free(name))
        else:
            raise Reading(MORE)

    def _load_global(self, step: Any, state: ReadingState) -> None:
        if step.arg & 1:
            state.stack.append(NULL)
        name, space = step.argval, self._space
        default = getattr(builtins, name) if name in _KNOWN_BUILTINS else None
        if name not in space and default is None:
            raise Reading(MORE)
        found = self._context.once(
            (id(space), name),
            lambda: Outside.of(name, space.get(name, default), lambda: space.get(name, default)),
        )
        state.stack.append(found)

    def _load_const(self, step: Any, state: ReadingState) -> None:
        value = step.argval
        if isinstance(value, CodeType):
            state.stack.append(Nested(value))
        elif isinstance(value, slice):
            parts = value.start, value.stop, value.step
            state.stack.append(SliceBounds(tuple(map(literal_of, parts))))  # type: ignore[arg-type]  # three of them
        else:
            state.stack.append(literal_of(value))

    def _kw_names(self, step: Any, _: ReadingState) -> None:
        self._keywords = self._code.co_consts[step.arg]

    # --- the stack -----------------------------------------------------------------------------

    def _pop_top(self, _: Any, state: ReadingState) -> None:
        state.stack.pop()

    def _push_null(self, _: Any, state: ReadingState) -> None:
        state.stack.append(NULL)

    def _copy(self, step: Any, state: ReadingState) -> None:
        state.stack.append(state.stack[-step.arg])

    def _swap(self, step: Any, state: ReadingState) -> None:
        stack = state.stack
        stack[-1], stack[-step.arg] = stack[-step.arg], stack[-1]

    def _to_bool(self, step: Any, state: ReadingState) -> None:
        following = self._steps[self._at[step.offset] + 1].opname
        if following != "UNARY_NOT" and "JUMP" not in following:  # They look at the truth.
            state.stack.append(Expression("bool", state.value(state.stack.pop())))

    # --- fields --------------------------------------------------------------------------------

    def _field(self, record: Record, name: Any, way: Way, state: ReadingState) -> Expression:
        contents = state.contents(record)
        if contents.way not in (None, way):
            raise Reading(MORE)
        if name in contents.updates:
            return contents.updates[name]
        if contents.base == "new":
            raise Reading(MORE)
        if way == "item":
            state.records[record] = replace(contents, seen=contents.seen | {name})
        found: Expression = self._context.once(
            ("field", name, way), lambda: Expression("field", name, way)
        )
        return found

    def _binary_subscr(self, _: Any, state: ReadingState) -> None:
        index, owner = state.stack.pop(), state.stack.pop()
        if isinstance(index, SliceBounds):
            state.stack.append(Expression("slice", state.value(owner), *index.bounds))
            return
        name = state.value(index)
        if not isinstance(owner, Record):
            state.stack.append(Expression("item", state.value(owner), name))
            return
        if name.operation != "literal" or type(name.arguments[0]) not in (str, int):
            raise Reading(MORE)
        state.stack.append(self._field(owner, name.arguments[0], "item", state))

    def _binary_slice(self, _: Any, state: ReadingState) -> None:
        owner, start, stop = map(state.value, _take_last(state.stack, 3))
        state.stack.append(Expression("slice", owner, start, stop, lit(None)))

    def _build_slice(self, step: Any, state: ReadingState) -> None:
        bounds = [*map(state.value, _take_last(state.stack, step.arg)), lit(None)]
        state.stack.append(SliceBounds((bounds[0], bounds[1], bounds[2])))

    def _store_subscr(self, _: Any, state: ReadingState) -> None:
        value, owner, index = _take_last(state.stack, 3)
        name = state.value(index)
        if name.operation != "literal" or type(name.arguments[0]) is not str:
            raise Reading(MORE)
        self._set(owner, {name.arguments[0]: state.value(value)}, "item", state)

    def _store_attr(self, step: Any, state: ReadingState) -> None:
        value, owner = _take_last(state.stack, 2)
        self._set(owner, {step.argval: state.value(value)}, "attribute", state)

    def _set(
        self, owner: Any, updates: dict[str, Expression], way: Way, state: ReadingState
    ) -> None:
        if not isinstance(owner, Record):
            raise Reading(MORE)
        self._check_change(owner)
        contents = state.contents(owner)
        if way == "attribute" and contents.base != "argument":
            raise Reading(MORE)
        state.records[owner] = contents.with_updates(updates, way)

    def _check_change(self, owner: Any) -> None:
        if owner is self._context.argument and not self._context.may_change:
            raise Reading("its function changes the record, and is not a map")

    def _load_attr(self, step: Any, state: ReadingState) -> None:
        owner = state.stack.pop()
        if _ONE_LOOK_UP and step.arg & 1:
            state.stack += [Method(owner, step.argval), NULL]
        elif isinstance(owner, Record):
            state.stack.append(self._field(owner, step.argval, "attribute", state))
        else:
            state.stack.append(attribute_of(owner, step.argval))

    def _load_method(self, step: Any, state: ReadingState) -> None:
        state.stack += [NULL, Method(state.stack.pop(), step.argval)]

    # --- operators -----------------------------------------------------------------------------

    def _binary_op(self, step: Any, state: ReadingState) -> None:
        if step.argrepr == "[]":
            self._binary_subscr(step, state)
            return
        symbol = step.argrepr.removesuffix("=")
        left, right = _take_last(state.stack, 2)
        if symbol == "|" and isinstance(left, Record):
            self._join_records(left, right, step.argrepr == "|=", state)
            return
        parts = state.value(left), state.value(right)
        is_list = isinstance(left, Outside) and isinstance(left.value, list)
        if symbol not in _BINARY or (
            step.argrepr != symbol and (is_list or parts[0].operation in ("list", "each"))
        ):
            raise Reading(MORE)  # ``+=`` and ``*=`` change a list.
        state.stack.append(Expression(symbol, *parts))

    def _join_records(
        self, left: Record, right: Any, keeps_left: bool, state: ReadingState
    ) -> None:
        if keeps_left:
            self._check_change(left)
            target = left
        else:
            target = state.create(RecordContents("new", {}, "item"))
            update_record(target, left, state)
        update_record(target, right, state)
        state.stack.append(target)

    def _compare_op(self, step: Any, state: ReadingState) -> None:
        operation = str(step.argval).removeprefix("bool(").removesuffix(")")
        left, right = map(state.value, _take_last(state.stack, 2))
        if operation not in OPERATIONS:
            raise Reading(MORE)
        state.stack.append(Expression(operation, left, right))

    def _is_op(self, step: Any, state: ReadingState) -> None:
        left, right = map(state.value, _take_last(state.stack, 2))
        if right.operation == "literal" and right.arguments[0] is None:
            found = Expression("is_null", left)
            state.stack.append(Expression("~", found) if step.arg else found)
            return
        if right.operation != "literal" or type(right.arguments[0]) is not bool:
            raise Reading(MORE)  # Which ints and texts are the same object is chance.
        state.stack.append(Expression("apply", is_not if step.arg else is_, left, right))

    def _contains_op(self, step: Any, state: ReadingState) -> None:
        left, right = map(state.value, _take_last(state.stack, 2))
        if right.operation == "itself":
            raise Reading(MORE)
        found = Expression("apply", contains, right, left)
        state.stack.append(Expression("apply", not_, found) if step.arg else found)

    def _unary_not(self, _: Any, state: ReadingState) -> None:
        state.stack.append(Expression("apply", not_, state.value(state.stack.pop())))

    def _unary_negative(self, _: Any, state: ReadingState) -> None:
        state.stack.append(Expression("negative", state.value(state.stack.pop())))

    # --- new values ----------------------------------------------------------------------------

    def _build_tuple(self, step: Any, state: ReadingState) -> None:
        parts = _take_last(state.stack, step.arg)
        if parts and all(isinstance(part, OuterVariable) for part in parts):
            state.stack.append(tuple(parts))
        else:
            state.stack.append(Expression("tuple", *map(state.value, parts)))

    def _build_list(self, step: Any, state: ReadingState) -> None:
        parts = _take_last(state.stack, step.arg)
        state.stack.append(Expression("list", *map(state.value, parts)))

    def _list_extend(self, step: Any, state: ReadingState) -> None:
        added, target = state.value(state.stack.pop()), state.stack[-step.arg]
        is_new = isinstance(target, Expression) and target.operation == "list"
        if not is_new or added.operation != "literal":
            raise Reading(MORE)
        parts = [*target.arguments, *map(lit, added.arguments[0])]
        state.stack[-step.arg] = Expression("list", *parts)

    def _build_map(self, step: Any, state: ReadingState) -> None:
        items = _take_last(state.stack, 2 * step.arg)
        self._create_dict(list(map(state.value, items[::2])), items[1::2], state)

    def _build_const_key_map(self, step: Any, state: ReadingState) -> None:
        keys = state.stack.pop().arguments[0]
        self._create_dict(list(map(lit, keys)), _take_last(state.stack, step.arg), state)

    def _create_dict(self, keys: list[Expression], values: list[Any], state: ReadingState) -> None:
        if not all(key.operation == "literal" and type(key.arguments[0]) is str for key in keys):
            raise Reading(MORE)
        names: list[str] = [key.arguments[0] for key in keys]
        updates = dict(zip(names, map(state.value, values), strict=True))
        state.stack.append(state.create(RecordContents("new", updates, "item")))

    def _dict_update(self, step: Any, state: ReadingState) -> None:
        added, target = state.stack.pop(), state.stack[-step.arg]
        update_record(target, added, state)

    def _unpack_sequence(self, step: Any, state: ReadingState) -> None:
        whole = Expression("unpacked", state.value(state.stack.pop()), step.arg)
        state.computed.append(whole)
        parts = [Expression("item", whole, lit(index)) for index in range(step.arg)]
        state.stack += reversed(parts)

    def _build_string(self, step: Any, state: ReadingState) -> None:
        parts = map(state.value, _take_last(state.stack, step.arg))
        state.stack.append(Expression("apply", _join, *parts))

    def _format_value(self, step: Any, state: ReadingState) -> None:
        conversion, has_spec = step.argval
        spec = state.value(state.stack.pop()) if has_spec else None
        state.stack.append(_format(state.value(state.stack.pop()), conversion, spec))

    def _convert_value(self, step: Any, state: ReadingState) -> None:
        if step.argval not in (str, repr, ascii):
            raise Reading(MORE)
        state.stack.append(Expression("apply", step.argval, state.value(state.stack.pop())))

    def _format_simple(self, _: Any, state: ReadingState) -> None:
        state.stack.append(_format(state.value(state.stack.pop()), None, None))

    def _format_with_spec(self, _: Any, state: ReadingState) -> None:
        value, spec = map(state.value, _take_last(state.stack, 2))
        state.stack.append(_format(value, None, spec))

    # --- calls ---------------------------------------------------------------------------------

    def _call(self, step: Any, state: ReadingState) -> None:
        arguments = _take_last(state.stack, step.arg)
        called, *first = [part for part in _take_last(state.stack, 2) if part is not NULL]
        names, self._keywords = self._keywords, ()
        if isinstance(called, Nested) and len(first) == 1 and not arguments:
            state.stack.append(self.run_nested(called, first[0], state))
            return
        if first:
            raise Reading(MORE)
        by_position = arguments[: len(arguments) - len(names)]
        keywords = dict(zip(names, arguments[len(by_position) :], strict=True))
        if isinstance(called, Method) and called.name == "update":
            self._check_change(called.owner)
        found = read_call(called, by_position, keywords, state, call_helper=self.call_helper)
        state.stack.append(found)

    def _call_kw(self, step: Any, state: ReadingState) -> None:
        self._keywords = state.value(state.stack.pop()).arguments[0]
        self._call(step, state)


def _take_last(stack: list[Any], count: int) -> list[Any]:
    if count > len(stack):
        raise Reading(MORE)
    found = stack[len(stack) - count :]
    del stack[len(stack) - count :]
    return found


def _format(value: Expression, conversion: Any, spec: Expression | None) -> Expression:
    if conversion not in _CONVERSIONS:
        raise Reading(MORE)
    if conversion is not None:
        value = Expression("apply", conversion, value)
    return Expression("str", value) if spec is None else Expression("apply", format, value, spec)


def _join(*parts: str) -> str:
    return "".join(parts)
