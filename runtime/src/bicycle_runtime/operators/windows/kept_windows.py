"""The stored windows of one kind: the interface of each kind of window."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from bicycle_runtime.operators.batch import Batch
from bicycle_runtime.operators.preaggregation.batch_rows import Rows
from bicycle_runtime.operators.windows.blocks import Partials
from bicycle_sdk.state import TimeDomain
from bicycle_sdk.windows import WindowPlan

if TYPE_CHECKING:
    from bicycle_runtime.operators.columnar.merge import ColumnMerge
    from bicycle_runtime.operators.preaggregation.aggregates import Folding
    from bicycle_runtime.operators.windows.base import WindowOperator
    from bicycle_runtime.operators.windows.placements import Placement
    from bicycle_runtime.state.memory.windows import WindowEntries, WindowTable, WindowTables


class KeptWindows(ABC):
    """The windows of one kind as state keeps them: how they grow, fire and go.

    Args:
        window: The operator: its table, and how far event time has come.
        placement: Where the records of an epoch are gathered.
    """

    # Whether each key has windows of its own, with times and records that are replaced one by one.
    is_by_key: ClassVar[bool] = True
    columns: ColumnMerge  # merges the columns that arrive

    def __init__(self, window: WindowOperator, placement: Placement) -> None:  # noqa: ARG002  # each kind has its own
        self.window = window
        self.plan, self.folding = window.plan, window.folding
        self.keeps_records = window.keeps_records

    @property
    def table(self) -> WindowTable:
        """The state of the operator."""
        return self.window.table

    @classmethod
    @abstractmethod
    def new_entries(
        cls, plan: WindowPlan, folding: Folding, windows: WindowTables
    ) -> WindowEntries:
        """Return empty entries of the shape that is kept."""

    def moments(self, entry: Any) -> Iterable[tuple[TimeDomain, int]]:  # noqa: ARG002  # for windows by key
        """Return the times that an entry waits for. They follow from the plan and the entry."""
        return ()

    @abstractmethod
    def clear(self) -> None:
        """Clear the epoch's records."""

    def admit(self, rows: Rows) -> Rows:
        """Return the rows that no fired window contains: all, for most kinds."""
        return rows

    @abstractmethod
    def take_late(self, rows: Rows) -> None:
        """Take records of closed windows: they are late, or need a decision."""

    @abstractmethod
    def take_partials(self, group: int, block: Partials) -> None:
        """Add contents that were folded before the shuffle to the table."""

    @abstractmethod
    def settle(self) -> None:
        """Add the contents gathered in the epoch to the table."""

    @abstractmethod
    def fire(self) -> Iterator[Batch]:
        """Yield the results of the windows that are due."""

    @abstractmethod
    def expire(self) -> None:
        """Remove windows that accept no more records."""

    @abstractmethod
    def next_event_ms(self) -> int | None:
        """Return the least watermark at which something is due; None for never."""
