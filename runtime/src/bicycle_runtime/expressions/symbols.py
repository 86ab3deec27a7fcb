"""Symbols: the operands of a function that is read.

A value is an expression. A record, or a dict that the function creates, is a ``Record``: the
function may change it, so its contents are part of the state of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import BuiltinMethodType, CodeType
from typing import Any, Literal

from bicycle_runtime.expressions.failing import Branches, Computed
from bicycle_sdk.expressions import Expression, lit

MORE = "its function does more than select, compare, compute and format fields"
Way = Literal["attribute", "item"]


class Reading(Exception):  # it ends a reading; nothing is wrong
    """The reason why a function cannot be read as an expression."""


class Unmergeable(Reading):
    """The signal that two ways of a condition cannot continue as one."""


class Record:
    """The record that the function is called with, or a dict that it creates."""


@dataclass(frozen=True, slots=True)
class RecordContents:
    """The contents of a record at one point of a run.

    Args:
        base: The argument itself, a copy of it, or a new dict.
        updates: The fields that were set, in order.
        way: How fields were set, None before the first.
        seen: The fields that were read as items, and therefore exist.
    """

    base: Literal["argument", "copy", "new"]
    updates: Mapping[str, Expression] = field(default_factory=dict)
    way: Way | None = None
    seen: frozenset[str] = frozenset()

    def with_updates(self, updates: Mapping[str, Expression], way: Way) -> RecordContents:
        """Return the contents with more fields set.

        Raises:
            Reading: fields were set in another way.
        """
        if self.way not in (None, way):
            raise Reading(MORE)
        return replace(self, updates={**self.updates, **updates}, way=way)

    def expression(self) -> Expression:
        """Return the expression of the record itself."""
        names, values = tuple(self.updates), self.updates.values()
        if self.base == "new":
            return Expression("record", names, *values)
        if self.base == "argument" and not names:
            return Expression("itself")
        if self.way == "attribute":
            return Expression("assigned" if self.base == "argument" else "replaced", names, *values)
        return Expression("updated", names, *values)


@dataclass(frozen=True, slots=True)
class Outside:
    """The value of a name outside of the function."""

    name: str
    value: Any
    look_up: Callable[[], Any]
    free: Expression

    @classmethod
    def of(cls, name: str, value: Any, look_up: Callable[[], Any]) -> Outside:
        """Return the symbol of a name and its present value."""
        return cls(name, value, look_up, Expression("free", look_up))

    def still(self) -> bool:
        """Return whether the name still has its value."""
        found = self.look_up()
        if found is self.value:
            return True
        # A class creates its bound methods at each access.
        return type(found) is type(self.value) is BuiltinMethodType and found == self.value


@dataclass(frozen=True, slots=True)
class Method:
    """A method of a value before its call."""

    owner: Any
    name: str


@dataclass(frozen=True, slots=True)
class SliceBounds:
    """The bounds and the step of a slice."""

    bounds: tuple[Expression, Expression, Expression]


@dataclass(frozen=True, slots=True)
class Items:
    """An iterator over the items of a value."""

    source: Expression


@dataclass(frozen=True, slots=True)
class Generated:
    """A generator expression, as the list of its results."""

    results: Expression


@dataclass(frozen=True, slots=True)
class OuterVariable:
    """A variable of a function that a nested function reads."""

    value: Any


@dataclass(frozen=True, slots=True)
class Nested:
    """A comprehension that is compiled as a function, with its outer variables."""

    code: CodeType
    variables: tuple[OuterVariable, ...] = ()


class Null:
    """The marker that the interpreter pushes for a call without an object."""


NULL = Null()


@dataclass(slots=True)
class ReadingState:
    """The state of a run at one instruction.

    ``records`` has the contents of each record, None if they are unknown. ``computed`` are the
    values since the last fork; ``appended`` is the result of a comprehension for its item.
    """

    stack: list[Any]
    names: dict[str, Any]
    records: dict[Record, RecordContents | None]
    computed: list[Computed] = field(default_factory=list)
    appended: Expression | None = None

    def fork(self) -> ReadingState:
        """Return a state to go one way of a condition with."""
        return ReadingState([*self.stack], {**self.names}, {**self.records})

    def contents(self, record: Record) -> RecordContents:
        """Return the contents of a record.

        Raises:
            Reading: they are unknown.
        """
        found = self.records.get(record)
        if found is None:
            raise Reading(MORE)
        return found

    def create(self, contents: RecordContents) -> Record:
        """Return a new record."""
        record = Record()
        self.records[record] = contents
        return record

    def value(self, part: Any) -> Expression:
        """Return the expression of an item of the stack.

        Raises:
            Reading: it is not a value.
        """
        if isinstance(part, Expression):
            return part
        if isinstance(part, Outside):
            return part.free
        if isinstance(part, Record) and self.contents(part) == RecordContents("argument"):
            return Expression("itself")
        raise Reading(MORE)

    def result(self, part: Any) -> Expression:
        """Return the expression of a result, which may be a record."""
        return self.contents(part).expression() if isinstance(part, Record) else self.value(part)

    def merge(self, condition: Expression, first: ReadingState, second: ReadingState) -> None:
        """Continue with the states of both ways of a condition.

        Raises:
            Unmergeable: the ways differ in more than values.
        """
        if len(first.stack) != len(second.stack) or first.appended or second.appended:
            raise Unmergeable(MORE)
        pairs = zip(first.stack, second.stack, strict=True)
        self.stack = [_merge_parts(condition, *pair) for pair in pairs]
        self.names = {
            name: _merge_parts(condition, part, second.names[name])
            for name, part in first.names.items()
            if name in second.names
        }
        self.records = {
            record: _merge_contents(
                condition, contents, second.records[record], self.records.get(record)
            )
            for record, contents in first.records.items()
            if record in second.records
        }
        self.computed.append(Branches(condition, (first.computed, second.computed)))
        # Both ways of the next condition may use a chosen value, so it is computed before.
        known = set(map(id, first.parts()))
        chosen = (part for part in self.parts() if id(part) not in known)
        self.computed += [part for part in chosen if isinstance(part, Expression)]

    def parts(self) -> Iterator[Any]:
        """Yield the items of the stack, the values of variables, and the set fields."""
        yield from (*self.stack, *self.names.values())
        for contents in self.records.values():
            yield from () if contents is None else contents.updates.values()


def _merge_parts(condition: Expression, first: Any, second: Any) -> Any:
    if first is second:
        return first
    if isinstance(first, Expression | Outside) and isinstance(second, Expression | Outside):
        values = [part.free if isinstance(part, Outside) else part for part in (first, second)]
        return choose(condition, *values)
    raise Unmergeable(MORE)


def _merge_contents(
    condition: Expression, first: RecordContents | None, second: RecordContents | None,
    earlier: RecordContents | None,
) -> RecordContents | None:  # fmt: skip
    if first is second or first is None or second is None:
        return first if first is second else None
    if first.base != second.base or len({first.way, second.way} - {None}) > 1:
        raise Unmergeable(MORE)
    way: Way = first.way or second.way or "item"
    # A field that exists may be set on one way alone: on the other it keeps its value.
    kept = frozenset() if earlier is None or first.base == "new" else earlier.seen
    orders = [[name for name in part.updates if name not in kept] for part in (first, second)]
    if orders[0] != orders[1]:
        raise Unmergeable(MORE)
    names = dict.fromkeys([*first.updates, *second.updates])
    updates = {
        name: choose(condition, *(
            part.updates[name] if name in part.updates else Expression("field", name, way)
            for part in (first, second)
        ))
        for name in names
    }  # fmt: skip
    return RecordContents(first.base, updates, first.way or second.way, first.seen & second.seen)


def is_changed(before: RecordContents | None, after: RecordContents | None) -> bool:
    """Return whether a run set fields of a record."""
    if before is None or after is None:
        return before is not after
    return after.updates is not before.updates or after.way != before.way


def choose(condition: Expression, first: Expression, second: Expression) -> Expression:
    """Return the first value where a condition holds, else the second."""
    if _are_same(first, second, set()):
        return first
    return Expression("if", condition, first, second)


def _are_same(first: Any, second: Any, seen: set[tuple[int, int]]) -> bool:
    pair = (id(first), id(second))
    if first is second or pair in seen:
        return True
    if not isinstance(first, Expression) or not isinstance(second, Expression):
        return type(first) is type(second) is str and first == second
    seen.add(pair)  # If they differ, the search ends.
    return (
        first.operation == second.operation
        and len(first.arguments) == len(second.arguments)
        and all(
            _are_same(*parts, seen) for parts in zip(first.arguments, second.arguments, strict=True)
        )
    )


def literal_of(value: Any) -> Expression:
    """Return the expression of a constant.

    Raises:
        Reading: it is neither a plain value nor a collection of plain values.
    """
    parts = value if type(value) in (tuple, frozenset) else (value,)
    if not set(map(type, parts)) <= {int, float, str, bool, type(None)}:
        raise Reading(MORE)
    return lit(value)
