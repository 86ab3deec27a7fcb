"""The lowering of joins to the joins of the SDK.

Both sides become tuples, keys first, which have a type in state. Rows with a NULL key match no row,
so they are dropped where a row without a match is no result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from operator import itemgetter
from types import GenericAlias
from typing import Any

from bicycle_runtime.expressions.sql import tree
from bicycle_runtime.tables.functions import JoinedFields, SqlCondition, SqlRow, WindowBounds
from bicycle_runtime.tables.keys import encoded_key
from bicycle_runtime.tables.moments import fields_of, show_ms
from bicycle_runtime.tables.plans import JoinRows, Scan, digest_of, substitute
from bicycle_runtime.tables.records import python_type
from bicycle_runtime.tables.row_functions import JoinedLookup, LookupRows
from bicycle_sdk.expressions import Expression
from bicycle_sdk.windows import sliding_windows, tumbling_windows

_LOOKUP_KEYS_MAX = 1_000  # Keys of one request.
_TITLES = {
    "interval": "INTERVAL JOIN", "window": "WINDOW JOIN", "as_of": "AS OF JOIN",
    "latest": "TABLE JOIN",
}  # fmt: skip


def lower_join(
    plan: JoinRows, left: Any, right: Any, *, name: Callable[..., Any], locate: Callable[[Any], Any]
) -> Any:
    """Return the stream of a join.

    Args:
        plan: The join.
        left: The stream of its left side.
        right: The stream of its right side.
        name: Sets the id, by a word, and the name of a stream.
        locate: Sets the locations of the expressions of a step.
    """
    keys = plan.left_keys, plan.right_keys
    keeps = plan.how in ("left", "full"), plan.how in ("right", "full")
    values = plan.left_values, plan.right_values
    sides = []
    for index, word in enumerate(("left", "right")):
        rows, own = (left, right)[index], keys[index]
        if not keeps[index]:
            known = locate(SqlCondition(_all_known(own)))
            rows = name(rows.filter(known), f"{word}-keys", "keys that are not NULL")
        if plan.how == "full":  # NULL keys of both sides must not meet.
            side = tree.case([(_all_known(own), tree.literal(0))], tree.literal(index + 1))
            own = (*own, side)
        row = [*map(encoded_key, own), *values[index].values()]
        rows = rows.map(locate(SqlRow(row, row_type(row))))
        rows = name(rows, f"{word}-rows", f"columns of the {word} side")
        keyed = rows.key_by(itemgetter(*range(len(own))))
        sides.append(name(keyed, f"{word}-key", f"JOIN ON {plan.text}"))
    stamps = plan.stamps
    function = JoinedFields(
        [*values[0]], [*values[1]], len(keys[0]) + (plan.how == "full"),
        ([*stamps[0]], [*stamps[1]]),
    )  # fmt: skip
    joined = _join(plan, sides[0], sides[1], function)
    title = f"{'' if plan.how == 'inner' else f'{plan.how.upper()} '}{_TITLES[plan.kind]}"
    joined = name(joined, f"join-{_digest(plan)}", f"{title}{_bounds(plan)} ON {plan.text}")
    if not any(stamps):
        return joined
    bounds = joined.process_fn(WindowBounds({**stamps[0], **stamps[1]}))
    return name(bounds, "bounds", "window_start, window_end")


def lower_lookup(
    plan: JoinRows, left: Any, options: Any, *, name: Callable[..., Any],
    locate: Callable[[Any], Any],
) -> Any:  # fmt: skip
    """Return the stream of a join with rows that are found by key.

    Args:
        plan: The join.
        left: The stream of its left side.
        options: The options of the table.
        name: Sets the id, by a word, and the name of a stream.
        locate: Sets the locations of the expressions of a step.
    """
    keys, scan = plan.left_keys, plan.right
    assert isinstance(scan, Scan)
    if plan.how == "inner":
        known = locate(SqlCondition(_all_known(keys)))
        left = name(left.filter(known), "left-keys", "known keys")
    row = [*keys, *plan.left_values.values()]
    rows = left.map(locate(SqlRow(row, row_type(row))))
    left = name(rows, "left-rows", "columns of the left side")
    stored = {each.field: value for each, value in zip(scan.columns, scan.values, strict=True)}
    found = [substitute(value, stored) for value in (*plan.right_keys, *plan.right_values.values())]
    columns = sorted({column for value in found for column in fields_of(value)})
    lookup = LookupRows(
        options, [name for key in plan.right_keys for name in fields_of(key)],  # One for each.
        columns=columns, row=locate(SqlRow(found, row_type(found))), keeps_left=plan.how == "left",
    )  # fmt: skip
    pairs = left.async_io_batches(
        lookup, max_size=_LOOKUP_KEYS_MAX, timeout=timedelta(milliseconds=options.timeout_ms)
    )
    title = f"{'LEFT ' if plan.how == 'left' else ''}LOOKUP JOIN {scan.table.name} ON {plan.text}"
    pairs = name(pairs, "lookup", title)
    fields = JoinedFields([*plan.left_values], [*plan.right_values], len(keys), ((), ()))
    return name(pairs.map(JoinedLookup(fields)), "lookup-rows", f"columns of {scan.table.name}")


def _join(plan: JoinRows, left: Any, right: Any, function: JoinedFields) -> Any:
    match plan.kind:
        case "interval":
            return left.interval_join(right, *plan.bounds, function, how=plan.how)
        case "window":
            assert plan.window is not None
            lengths = plan.window.intervals_ms
            size, offset = lengths["SIZE"], lengths.get("OFFSET", 0)
            windows: Any = (
                tumbling_windows(size, offset=offset)
                if plan.window.kind == "TUMBLE"
                else sliding_windows(size, lengths["SLIDE"], offset=offset)
            )
            return left.window_join(right, windows, function, how=plan.how)
        case "as_of":
            return left.as_of_join(right, function, how=plan.how)
        case _:
            return left.table_join(right, function, how=plan.how)


def _all_known(keys: Sequence[Expression]) -> Expression:
    return tree.all_of([tree.call("is_not_null", key) for key in keys])


def row_type(values: Sequence[Expression]) -> Any:
    """Return the type of a tuple of values, which may be NULL."""
    kinds = (python_type(tree.type_of(each)) for each in values)
    return GenericAlias(tuple, tuple(kind | None for kind in kinds))


def _bounds(plan: JoinRows) -> str:
    """Return the bound of the state, as text."""
    match plan.kind:
        case "interval":
            low, high = plan.bounds
            return f" ({show_ms(low)} to {show_ms(high)})"
        case "window":
            assert plan.window is not None
            return f" ({plan.window.kind} {show_ms(plan.window.intervals_ms['SIZE'])})"
        case _:
            return ""


def _digest(plan: JoinRows) -> str:
    """Return a digest of the parts of a join on which its state depends."""
    parts = [plan.kind, plan.how, str(plan.bounds), str(plan.stamps)]
    if plan.window is not None:
        parts += [plan.window.kind, str(sorted(plan.window.intervals_ms.items()))]
    parts += [tree.to_text(encoded_key(key)) for key in (*plan.left_keys, *plan.right_keys)]
    for values in (plan.left_values, plan.right_values):
        parts += [f"{name} {tree.to_text(value)}" for name, value in values.items()]
    return digest_of(parts)
