"""The calls for a batch and their outcome; and the awaiting of one after another.

The decision about a failed call is a contract here, ``Settle``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


class CallTimeout(Exception):
    """A call took longer than the operator's timeout."""


class Settle(Protocol):
    """A decision about a failed call: retry, skip, or raise to end the task."""

    async def __call__(
        self, error: BaseException, index: int, call: Callable[[], Any]
    ) -> Sequence[Any]:
        """Return the outputs instead of the call ``index``; raise to fail the epoch."""


# Waits until calls for so many records may start.
Reserve = Callable[[int], Awaitable[None]]


class CallContext(Protocol):
    """The interface of a context: its current record, and copies for calls in flight.

    Calls one after another write nothing for each record: the current record is the record behind
    the last result.
    """

    def follow(self, results: Sequence[Any]) -> None:
        """Make record number ``len(results)`` of the batch current, from now on."""

    def hold(self, index: int) -> None:
        """Make record number ``index`` current, until ``follow`` is called."""

    def clone(self) -> CallContext:
        """Return a context for another call in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSettings:
    """The settings of calls.

    A ``capacity`` of 1 means one call after another; a ``timeout_ms`` of None means no limit.

    The limit holds for each attempt of a call, or for all of them and the pauses between.
    """

    is_ordered: bool = True
    timeout_ms: int | None = None
    capacity: int = 1
    limits_all_attempts: bool = False


@dataclass(slots=True)
class Outcome:
    """Outputs of each call; ``order`` is the order of completion when that differs."""

    results: list[Sequence[Any]] = field(default_factory=list)
    order: list[int] | None = None


# The function of each key group, by indexing; a missing one is made by the mapping itself. Where
# the "groups" are positions in the batch, it is a list.
Methods = Mapping[int, Callable[..., Any]] | Sequence[Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls for a batch.

    ``methods`` is the function, or with ``groups`` the functions by key group; ``context`` is the
    second argument of each call, and knows the current record. A call that ``is_direct`` returns
    its result, although its function is ``async``; other calls of such functions are awaited.
    ``each`` makes all calls behind the existing results: it gets these, adds to them, and the
    context.
    """

    methods: Callable[..., Any] | Methods
    values: Sequence[Any]
    groups: Sequence[int] | None
    context: Any
    is_direct: bool = False
    each: Callable[[list[Any], Any], None] | None = None

    @property
    def is_keyed(self) -> bool:
        """Return whether each record has a key group."""
        return self.groups is not None

    def records(self) -> Iterator[Any]:
        """Return an iterator of values, or of pairs with the function of their key group."""
        if self.groups is None:
            return iter(self.values)
        assert not callable(self.methods)
        return zip(self.values, map(self.methods.__getitem__, self.groups), strict=True)

    def single(self, index: int, context: Any) -> Callable[[], Any]:
        """Return call number ``index`` by itself."""
        method: Any = self.methods if self.groups is None else self._method_of(self.groups[index])

        def call() -> Any:
            context.hold(index)
            return method(self.values[index], context)

        return call

    def _method_of(self, group: int) -> Callable[..., Any]:
        assert not callable(self.methods)
        return self.methods[group]


def call_each(calls: Calls, records: Iterator[Any], results: list[Any]) -> None:
    """Call for records in turn; a failure keeps the results of earlier calls.

    The remaining records may be taken over by others when one fails (see ``Flight``), so the number
    of results does not show the end.
    """
    context = calls.context
    if calls.each is not None:
        calls.each(results, context)
        return
    if calls.is_keyed:
        for value, method in records:
            results.append(method(value, context))
        return
    call: Any = calls.methods
    for value in records:
        results.append(call(value, context))  # noqa: PERF401  # a failure keeps the results so far


async def drive(calls: Calls, records: Iterator[Any], results: list[Any]) -> None:
    """Call and await in turn; a failure keeps the results of earlier calls."""
    if calls.is_direct:
        call_each(calls, records, results)
        return
    context = calls.context
    # hot path: 150 ns a record when the function never suspends; stepping each call costs 270.
    if calls.is_keyed:
        for value, method in records:
            results.append(await method(value, context))
        return
    call: Any = calls.methods
    for value in records:
        results.append(await call(value, context))  # noqa: PERF401  # a failure keeps the results so far
