"""Filters of messages by their fields, in the notation of SNS and EventBridge.

A filter names fields, and for each what it may be: ``{"country": ["de", {"prefix": "f"}]}`` passes
objects whose ``country`` is ``de`` or begins with ``f``. All fields must fit, each by one of its
conditions. No code of a client is run, and what a filter may cost is bounded.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeAlias

from bicycle_sdk.errors import BicycleError
from bicycle_streams.subscriber_server.errors import FILTER_UNREADABLE

Condition: TypeAlias = Callable[[Any], bool]
CONDITIONS_MAX = 200
DEPTH_MAX = 8
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ABSENT: Any = object()


class SubscriptionFilter:
    """The filter of a subscription.

    Args:
        pattern: Field -> what it may be: a list of conditions, or an object for a field that is
            an object itself. A condition is a value, or one of ``{"prefix": text}``,
            ``{"suffix": text}``, ``{"anything-but": value or list}``, ``{"exists": true or
            false}``, ``{"numeric": [comparison, number, …]}``.

    Raises:
        FILTER_UNREADABLE: the pattern is none.

    Example:
        >>> rich = {"user": {"country": ["de"]}, "amount": [{"numeric": [">=", 10]}]}
        >>> wanted = SubscriptionFilter(rich)
        >>> wanted.passes({"user": {"country": "de"}, "amount": 12.5})
        True
        >>> wanted.passes({"user": {"country": "de"}})
        False
    """

    __slots__ = ("_fields",)

    def __init__(self, pattern: Mapping[str, Any]) -> None:
        self._fields = _fields(pattern, [0], 1)

    def passes(self, payload: Any) -> bool:
        """Return whether a payload passes the filter; only objects can pass."""
        return isinstance(payload, dict) and _fits(self._fields, payload)

    @classmethod
    def of(cls, pattern: Mapping[str, Any] | None) -> Self | None:
        """Return the filter of a pattern, or None."""
        return None if pattern is None else cls(pattern)


_Fields: TypeAlias = "dict[str, list[Condition] | _Fields]"


def _fields(pattern: Any, count: list[int], depth: int) -> _Fields:
    if not isinstance(pattern, Mapping) or not pattern:
        raise _refusal(f"{_short(pattern)} is not an object with fields")
    if depth > DEPTH_MAX:
        raise _refusal(f"its objects are nested more than {DEPTH_MAX} levels deep")
    fields: _Fields = {}
    for name, wanted in pattern.items():
        if isinstance(wanted, Mapping):
            fields[name] = _fields(wanted, count, depth + 1)
            continue
        if not isinstance(wanted, list) or not wanted:
            raise _refusal(f"the conditions of {name!r} must be a non-empty list")
        fields[name] = [_condition(each) for each in wanted]
        count[0] += len(wanted)
        if count[0] > CONDITIONS_MAX:
            raise _refusal(f"it has more than {CONDITIONS_MAX} conditions")
    return fields


def _fits(fields: _Fields, payload: dict[str, Any]) -> bool:
    for name, wanted in fields.items():
        value = payload.get(name, _ABSENT)
        if isinstance(wanted, dict):
            if not isinstance(value, dict) or not _fits(wanted, value):
                return False
        elif not any(condition(value) for condition in wanted):
            return False
    return True


def _condition(wanted: Any) -> Condition:
    if not isinstance(wanted, Mapping):
        return _equals(wanted)
    if len(wanted) != 1:
        raise _refusal(f"{_short(wanted)} is not a condition: it must have one key")
    [(word, value)] = wanted.items()
    match word:
        case "prefix" | "suffix" if isinstance(value, str):
            test = str.startswith if word == "prefix" else str.endswith
            return _any_of(lambda found: isinstance(found, str) and test(found, value))
        case "exists" if isinstance(value, bool):
            return lambda found: (found is not _ABSENT) is value
        case "anything-but":
            refused = [_equals(each) for each in (value if isinstance(value, list) else [value])]
            return lambda found: (
                found is not _ABSENT and not any(condition(found) for condition in refused)
            )
        case "numeric" if isinstance(value, list) and value and len(value) % 2 == 0:
            return _numeric(value)
    raise _refusal(f"{_short(wanted)} is not a condition")


def _equals(wanted: Any) -> Condition:
    if isinstance(wanted, list | Mapping):
        raise _refusal(f"{_short(wanted)} is not a text, number, true, false or null")
    # True is 1 in Python, and is not in JSON.
    is_bool = isinstance(wanted, bool)
    return _any_of(lambda found: found == wanted and isinstance(found, bool) is is_bool)


def _numeric(words: Sequence[Any]) -> Condition:
    bounds: list[tuple[Callable[[Any, Any], bool], float]] = []
    for word, number in zip(words[::2], words[1::2], strict=True):
        if word not in _COMPARISONS or not _is_number(number):
            raise _refusal(f"{_short([word, number])} is not a comparison with a number")
        bounds.append((_COMPARISONS[word], number))
    return _any_of(
        lambda found: _is_number(found) and all(compare(found, bound) for compare, bound in bounds)
    )


def _any_of(test: Condition) -> Condition:
    """Return a condition that a list fits if one of its items does."""
    return lambda found: any(map(test, found)) if isinstance(found, list) else test(found)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _refusal(problem: str) -> BicycleError:
    return FILTER_UNREADABLE(problem=problem)


def _short(value: Any) -> str:
    return repr(value)[:80]
