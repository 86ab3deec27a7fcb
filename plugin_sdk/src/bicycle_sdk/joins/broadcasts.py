"""The broadcast join: each subtask holds the small side completely."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from bicycle_sdk.connected import BuiltInFunction
from bicycle_sdk.functions import as_callable
from bicycle_sdk.joins.rows import JoinOptions
from bicycle_sdk.state import MapStateDescriptor

__all__ = ["BroadcastJoin"]


class BroadcastJoin(BuiltInFunction):
    """A join of each left row at once with the last right row of its key.

    Args:
        options: The options common to all joins.
        left_key: Returns the join key of a left row.
        right_key: Finds it in a right row.
        is_deleted: Returns whether a right row deletes the current row.
    """

    def __init__(
        self, options: JoinOptions, left_key: Callable[[Any], Any],
        right_key: Callable[[Any], Any], *, is_deleted: Callable[[Any], bool] | None,
    ) -> None:  # fmt: skip
        self.options = options
        self.name = getattr(options.function, "name", "")
        self._left_key, self._right_key, self._is_deleted = left_key, right_key, is_deleted
        self._call = as_callable(options.function, "join")
        self.awaits = inspect.iscoroutinefunction(self._call)
        self.table = MapStateDescriptor[Any, Any]("table", None, options.right_type)

    def open(self, ctx: Any) -> Any:
        """Open the user's function."""
        opening = getattr(self.options.function, "open", None)
        return None if opening is None else opening(ctx)

    def close(self) -> Any:
        """Close the user's function."""
        closing = getattr(self.options.function, "close", None)
        return None if closing is None else closing()

    def process_element(self, value: Any, ctx: Any) -> Any:
        """Join a left row with the known right row."""
        table, key = ctx.get_broadcast_state(self.table), self._left_key(value)
        is_known = key in table
        if not is_known and not self.options.keeps_left:
            return _wait_for_all() if self.awaits else ()
        result = self._call(value, table.get(key) if is_known else None)
        return _wait_for_all(result) if inspect.isawaitable(result) else (result,)

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        """Replace the row of a key."""
        table, key = ctx.get_broadcast_state(self.table), self._right_key(value)
        if self._is_deleted is not None and self._is_deleted(value):
            table.remove(key)
        else:
            table.put(key, value)
        return _wait_for_all() if self.awaits else ()


async def _wait_for_all(*results: Any) -> list[Any]:
    return [await result for result in results]
