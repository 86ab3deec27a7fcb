"""Descriptors of state, created before use: name, kind, types, time to live.

A descriptor is plain data and contains no state. If it is a field of the function's class,
``bicycle plan`` lists the state without running the function::

    class Seen(KeyedProcessFunction[str, str, str]):
        seen = ValueStateDescriptor("seen", bool, default=False, ttl=StateTtl(timedelta(hours=1)))

All of them take three keywords for code that changes while state stays: ``aliases`` are the names
that the state had before; ``version`` counts changes that a runtime cannot see through by
itself, and ``migrate(old_version, value)`` carries them out, value by value, when one is read.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from builtins import type as _Class  # for classes with a field of that name
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    Protocol,
    TypeVar,
    get_args,
    overload,
)

from bicycle_sdk.errors import StateDefinitionError
from bicycle_sdk.key_types import declared_key_problem

__all__ = [
    "Aggregate",
    "AggregatingStateDescriptor",
    "ListStateDescriptor",
    "MapStateDescriptor",
    "Migrate",
    "OperatorListStateDescriptor",
    "ReducingStateDescriptor",
    "StateDescriptor",
    "StateKind",
    "StateTtl",
    "TimeDomain",
    "UnionListStateDescriptor",
    "ValueStateDescriptor",
    "require_same",
]

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
In = TypeVar("In")
Acc = TypeVar("Acc")
Out = TypeVar("Out")
AddedIn = TypeVar("AddedIn", contravariant=True)  # noqa: PLC0105 - job authors read it.
ResultOut = TypeVar("ResultOut", covariant=True)  # noqa: PLC0105 - job authors read it.

TimeDomain = Literal["event", "processing"]
StateKind = Literal[
    "value", "list", "map", "reducing", "aggregating", "operator_list", "union_list"
]
# Takes the version that a value was written with and the value as plain data (a record is a dict),
# and returns the value as it is declared now. It must depend on nothing else.
Migrate = Callable[[int, Any], Any]
_UPDATES = ("on_write", "on_access")


class Aggregate(Protocol[AddedIn, Acc, ResultOut]):
    """The functions of an aggregating state; every ``AggregateFunction`` has them."""

    def create_accumulator(self) -> Acc:
        """Return the accumulator of no values."""

    def add(self, accumulator: Acc, value: AddedIn) -> Acc:
        """Return the accumulator with one more value."""

    def get_result(self, accumulator: Acc) -> ResultOut:
        """Return the result of an accumulator."""


@dataclass(frozen=True, slots=True)
class StateTtl:
    """The time to live of an entry since it was last written, or last written or read.

    An expired entry is never returned, and its space is given back within twice the duration.
    Entries of lists and maps expire one by one.

    Args:
        duration: How long, as a ``timedelta`` or in ms.
        time: ``processing`` counts the time of day from ``ctx.now()``. ``event`` counts event time:
            the time of the current record, or the watermark once that is later.
        update: ``on_write``: only writing starts the time again; ``on_access``: reading does too.

    Raises:
        StateDefinitionError: not positive, or an unknown word.
    """

    duration: timedelta | int
    time: TimeDomain = "processing"
    update: Literal["on_write", "on_access"] = "on_write"

    def __post_init__(self) -> None:
        if self.duration_ms <= 0:
            _refuse("StateTtl", f"a duration of {self.duration_ms} ms", "give 1 ms or more")
        if self.time not in get_args(TimeDomain):
            _refuse("StateTtl", f"time={self.time!r}", "use 'processing' or 'event'")
        if self.update not in _UPDATES:
            _refuse("StateTtl", f"update={self.update!r}", "use 'on_write' or 'on_access'")

    @property
    def duration_ms(self) -> int:
        """The duration in ms."""
        if isinstance(self.duration, timedelta):
            return int(self.duration / timedelta(milliseconds=1))
        return self.duration


class StateDescriptor(ABC):
    """The base of all descriptors. Two states of one operator never share a name."""

    kind: ClassVar[StateKind]

    if TYPE_CHECKING:  # Each descriptor has these fields at their places.
        name: str
        ttl: StateTtl | timedelta | None
        version: int
        aliases: tuple[str, ...]
        migrate: Migrate | None

    @property
    def time_to_live(self) -> StateTtl | None:
        """The time to live of entries; None means forever."""
        return StateTtl(self.ttl) if isinstance(self.ttl, timedelta) else self.ttl

    @property
    @abstractmethod
    def stored_type(self) -> Any:
        """The declared type of an entry's stored value, or None if unknown."""

    def _check(self) -> None:
        name: Any = self.name
        ttl: Any = self.ttl
        if not isinstance(name, str) or not name:
            _refuse(repr(name), "a state must have a name", "pass a non-empty text")
        if ttl is not None and not isinstance(ttl, StateTtl | timedelta):
            _refuse(name, f"ttl={ttl!r}", "give a StateTtl or a timedelta")
        self._check_evolution(name)

    def _check_evolution(self, name: str) -> None:
        version: Any = self.version
        aliases: Any = self.aliases
        if type(version) is not int or version < 1:
            _refuse(name, f"version={version!r}", "give a whole number from 1")
        if not isinstance(aliases, tuple | list) or not all(
            isinstance(alias, str) and alias and alias != name for alias in aliases
        ):
            _refuse(name, f"aliases={aliases!r}", "pass a tuple of the former names")
        if self.migrate is not None:
            _require_plain(name, self.migrate)


@dataclass(frozen=True, eq=False)
class ValueStateDescriptor(StateDescriptor, Generic[T]):
    """One value per key; ``value()`` returns ``default`` without a stored value."""

    kind: ClassVar[StateKind] = "value"

    name: str
    type: Any = None
    default: Any = None
    ttl: StateTtl | timedelta | None = None
    version: int = field(default=1, kw_only=True)
    aliases: tuple[str, ...] = field(default=(), kw_only=True)
    migrate: Migrate | None = field(default=None, kw_only=True)

    if TYPE_CHECKING:  # The fields' dependence on T, which a type checker cannot see.

        @overload
        def __init__(
            self, name: str, type: _Class[T], default: T, ttl: _Ttl = None,
            *, version: int = 1, aliases: _Names = (), migrate: Migrate | None = None,
        ) -> None: ...  # fmt: skip
        @overload
        def __init__(
            self: ValueStateDescriptor[V | None], name: str, type: _Class[V], *, ttl: _Ttl = None,
            version: int = 1, aliases: _Names = (), migrate: Migrate | None = None,
        ) -> None: ...  # fmt: skip
        @overload
        def __init__(
            self: ValueStateDescriptor[Any], name: str, type: object = None, default: Any = None,
            ttl: _Ttl = None,
            *, version: int = 1, aliases: _Names = (), migrate: Migrate | None = None,
        ) -> None: ...  # fmt: skip
        def __init__(
            self, name: str, type: Any = None, default: Any = None, ttl: _Ttl = None,
            *, version: int = 1, aliases: _Names = (), migrate: Migrate | None = None,
        ):  # fmt: skip
            """Store the settings."""

    def __post_init__(self) -> None:
        self._check()

    @property
    def stored_type(self) -> Any:
        """The type of the value."""
        return self.type


@dataclass(frozen=True, eq=False)
class ListStateDescriptor(StateDescriptor, Generic[T]):
    """A list per key, written element by element."""

    kind: ClassVar[StateKind] = "list"

    name: str
    type: Any = None
    ttl: StateTtl | timedelta | None = None
    version: int = field(default=1, kw_only=True)
    aliases: tuple[str, ...] = field(default=(), kw_only=True)
    migrate: Migrate | None = field(default=None, kw_only=True)

    if TYPE_CHECKING:  # The fields' dependence on T, which a type checker cannot see.

        @overload
        def __init__(
            self, name: str, type: _Class[T], ttl: _Ttl = None,
            *, version: int = 1, aliases: _Names = (), migrate: Migrate | None = None,
        ) -> None: ...  # fmt: skip
        @overload
        def __init__(
            self: ListStateDescriptor[Any], name: str, type: object = None, ttl: _Ttl = None,
            *, version: int = 1, aliases: _Names = (), migrate: Migrate | None = None,
        ) -> None: ...  # fmt: skip
        def __init__(
            self, name: str, type: Any = None, ttl: _Ttl = None,
            *, version: int = 1, aliases: _Names = (), migrate: Migrate | None = None,
        ):  # fmt: skip
            """Store the settings."""

    def __post_init__(self) -> None:
        self._check()

    @property
    def stored_type(self) -> Any:
        """The type of an element."""
        return self.type


class OperatorListStateDescriptor(ListStateDescriptor[T]):
    """A list of a subtask without keys; a restore divides all elements evenly. It has no TTL."""

    kind: ClassVar[StateKind] = "operator_list"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ttl is not None:
            _refuse(self.name, "a list of a subtask has no TTL", "remove elements in the function")


class UnionListStateDescriptor(OperatorListStateDescriptor[T]):
    """A list of a subtask without keys or TTL; each subtask restores all elements.

    It has no TTL.
    """

    kind: ClassVar[StateKind] = "union_list"


@dataclass(frozen=True, eq=False)
class MapStateDescriptor(StateDescriptor, Generic[K, V]):
    """A map per key, written entry by entry."""

    kind: ClassVar[StateKind] = "map"

    name: str
    key_type: Any = None
    value_type: Any = None
    ttl: StateTtl | timedelta | None = None
    version: int = field(default=1, kw_only=True)
    aliases: tuple[str, ...] = field(default=(), kw_only=True)
    migrate: Migrate | None = field(default=None, kw_only=True)

    if TYPE_CHECKING:  # The fields' dependence on K and V, which a type checker cannot see.

        @overload
        def __init__(
            self, name: str, key_type: type[K], value_type: type[V], ttl: _Ttl = None,
            *, version: int = 1, aliases: _Names = (), migrate: Migrate | None = None,
        ) -> None: ...  # fmt: skip
        @overload
        def __init__(
            self: MapStateDescriptor[Any, Any], name: str, key_type: object = None,
            value_type: object = None, ttl: _Ttl = None,
            *, version: int = 1, aliases: _Names = (), migrate: Migrate | None = None,
        ) -> None: ...  # fmt: skip
        def __init__(
            self, name: str, key_type: Any = None, value_type: Any = None, ttl: _Ttl = None,
            *, version: int = 1, aliases: _Names = (), migrate: Migrate | None = None,
        ):  # fmt: skip
            """Store the settings."""

    def __post_init__(self) -> None:
        self._check()
        problem = declared_key_problem(self.key_type)
        if problem is not None:
            _refuse(
                self.name,
                f"keys of type {problem.type_name} are not supported: {problem.reason}",
                "use plain values, a tuple of plain values, or a frozen dataclass with the "
                "generated eq",
            )

    @property
    def stored_type(self) -> Any:
        """The type of the values."""
        return self.value_type


@dataclass(frozen=True, eq=False)
class ReducingStateDescriptor(StateDescriptor, Generic[T]):
    """One value per key, combined with each added value by ``reduce(old, new)``."""

    kind: ClassVar[StateKind] = "reducing"

    name: str
    type: _Class[T]
    reduce: Callable[[T, T], T]
    ttl: StateTtl | timedelta | None = None
    version: int = field(default=1, kw_only=True)
    aliases: tuple[str, ...] = field(default=(), kw_only=True)
    migrate: Migrate | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self._check()
        _require_plain(self.name, getattr(self.reduce, "reduce", self.reduce))

    @property
    def stored_type(self) -> Any:
        """The type of the value."""
        return self.type


@dataclass(frozen=True, eq=False)
class AggregatingStateDescriptor(StateDescriptor, Generic[In, Acc, Out]):
    """One accumulator per key; ``type`` is the type of the stored accumulator."""

    kind: ClassVar[StateKind] = "aggregating"

    name: str
    aggregate: Aggregate[In, Acc, Out]
    type: Any = None
    ttl: StateTtl | timedelta | None = None
    version: int = field(default=1, kw_only=True)
    aliases: tuple[str, ...] = field(default=(), kw_only=True)
    migrate: Migrate | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self._check()
        for method in ("create_accumulator", "add", "get_result"):
            _require_plain(self.name, getattr(self.aggregate, method, None))
        for part in ("selector", "call"):  # Those of ``bicycle_sdk.windows``, which may wait there.
            called = getattr(self.aggregate, part, None)
            if inspect.iscoroutinefunction(called):
                _require_plain(self.name, called)

    @property
    def stored_type(self) -> Any:
        """The type of the accumulator."""
        return self.type


_Ttl = StateTtl | timedelta | None
_Names = tuple[str, ...]


def require_same(known: StateDescriptor, asked: StateDescriptor) -> None:
    """Refuse to read a state as something else than it was declared.

    Raises:
        StateDefinitionError: kind, types or time to live differ.
    """
    for what, old, new in (
        ("the kind", known.kind, asked.kind),
        ("the type", known.stored_type, asked.stored_type),
        ("the time to live", known.time_to_live, asked.time_to_live),
        ("the version", known.version, asked.version),
    ):
        if old != new:
            _refuse(
                asked.name,
                f"{what} is {_words(new)} here, but {_words(old)} in an earlier call",
                "use one descriptor for all uses of this state, or another name",
            )


def _require_plain(name: str, function: Any) -> None:
    if not callable(function) or inspect.iscoroutinefunction(function):
        _refuse(name, f"{function!r} is not a plain function", "pass a function without async")


def _words(part: Any) -> str:
    return part.__qualname__ if isinstance(part, type) else str(part)


def _refuse(state: str, problem: str, hint: str) -> None:
    raise StateDefinitionError(state=state, problem=problem, hint=hint)
