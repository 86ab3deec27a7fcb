"""The base of sinks of held rows: the driver's half.

Tasks stage Parquet files; ``prepare`` decides which rows become visible with the epoch, and
``publish`` joins small held files and hands complete rows to ``complete`` of the sink.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from bicycle_runtime.connectors.open_age import OpenAge
from bicycle_runtime.connectors.runs import storage_id_of
from bicycle_runtime.connectors.tables.columns import columns_of
from bicycle_runtime.connectors.tables.held import (
    Completion,
    HeldDraft,
    HeldJoin,
    HeldLimits,
    HeldRows,
    plan_from_json,
)
from bicycle_runtime.connectors.tables.held_rows import carry_out_join
from bicycle_runtime.connectors.tables.partitions import Partitioning
from bicycle_runtime.connectors.tables.writer import TableWriterFactory
from bicycle_runtime.contract import (
    ConnectorSpec,
    DriverServices,
    Guarantee,
    HoldsBackOutput,
    Sink,
    StagedFile,
    StagedPublication,
    Waiting,
    in_subtask_order,
)
from bicycle_runtime.frames.table_columns import TableColumns
from bicycle_sdk.sinks import TableSinkOptions


class HeldTableSink(StagedPublication, HoldsBackOutput, Sink):
    """Holds staged rows over epochs.

    Args:
        spec: The sink.
        options: As declared.
        partitioning: The folders of rows, or None.
    """

    guarantee = Guarantee.EXACTLY_ONCE
    accepts = "frames"

    def __init__(
        self,
        spec: ConnectorSpec,
        options: TableSinkOptions,
        partitioning: Partitioning | None = None,
    ) -> None:
        super().__init__(spec)
        self.table_options = options
        self.partitioning = partitioning
        self.columns: TableColumns = columns_of(spec, options.columns, options.timestamp_field)
        if partitioning is not None:
            partitioning.check(spec, self.columns)
        is_by_time = partitioning is not None and not partitioning.field
        self.takes_times = bool(self.columns.time_name) or is_by_time
        self._before = self._after = HeldRows()
        self._prepared_epoch = -1
        self._age = OpenAge(options.roll_ms)
        text = f"{self.columns.schema}\n{partitioning}"
        self._shape = hashlib.sha256(text.encode()).hexdigest()[:16]
        self.storage_id = ""
        # The target of rows that must not be mixed with others: found at the start, and in use.
        self._found: dict[str, Any] | None = None
        self._former: dict[str, Any] | None = None

    @abstractmethod
    def complete(
        self, epoch: int, plans: Mapping[int, Completion], state: Mapping[str, Any]
    ) -> None:
        """Make the rows of plans visible; again is harmless.

        Args:
            epoch: That is published.
            plans: Which rows, by the number of the plan in the epoch; there is one at least.
            state: Of the epoch.
        """

    @abstractmethod
    def target(self) -> dict[str, Any]:
        """Return the state's data about where and how rows are written, as plain JSON."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return the state's data besides rows, plans and target, as plain JSON."""

    def resume(self, services: DriverServices, state: Mapping[str, Any]) -> None:
        """Continue with the rows that a state holds; the begin of ``start``.

        They belong to the target that they were sealed for. A job that continues elsewhere writes
        them to its own: the other job, which may go on, writes them there.
        """
        self.services = services
        self.storage_id = storage_id_of(services)
        held = HeldRows.from_json(state["held"]) if "held" in state else HeldRows()
        self._before = self._after = held
        self._prepared_epoch = -1
        target = self.target()
        found = target
        if state.get("place") == self.storage_id:
            found = {name: state.get(name, value) for name, value in target.items()}
        is_same = state.get("shape", self._shape) == self._shape and found == target
        self._found = None if is_same else found
        if held.files:
            age_ms = max(services.clock.now_ms() - held.since_ms, 0)
            self._age.watch(held.since_ms, services.clock, age_ms=age_ms)

    def writer(self) -> TableWriterFactory:
        """Return the factory of writers of Parquet files."""
        options = self.table_options
        return TableWriterFactory(
            columns=self.columns,
            partitioning=self.partitioning,
            compression=options.compression,
            roll_rows=options.roll_rows,
            roll_bytes=options.roll_bytes,
        )

    def prepare(self, epoch: int, staged: Sequence[StagedFile], *, is_last: bool) -> dict[str, Any]:
        """Decide which rows become visible, and which held files become one."""
        if epoch != self._prepared_epoch:
            self._prepared_epoch, self._before = epoch, self._after
            self._former, self._found = self._found, None
        options = self.table_options
        limits = HeldLimits(
            roll_rows=options.roll_rows,
            roll_bytes=options.roll_bytes,
            open_bytes_max=options.open_bytes_max,
        )
        draft = HeldDraft(self._before, limits)
        if self._former is not None:
            draft.complete()  # Held rows have other columns, folders or another target.
        now_ms = self.services.clock.now_ms()
        files = in_subtask_order(staged)
        for file in files:
            draft.add(file, now_ms)
        if draft.held.files and (is_last or self._left_ms(draft.held) <= 0):
            draft.complete()
        if files:
            draft.join(f"{files[-1].path.rpartition('/')[0]}/joined-{epoch}.parquet")
        self._after = draft.held
        target = self.target()
        is_moved = bool(self._before.files) and self._former not in (None, target)
        return {
            "epoch": epoch,
            "shape": self._shape,
            "held": self._after.to_json(),
            "plans": [plan.to_json() for plan in draft.plans()],
            **({"former": self._former} if is_moved else {}),
            "place": self.storage_id,
            **target,
            **self.facts(),
        }

    def publish(self, epoch: int, state: Mapping[str, Any]) -> None:
        """Carry out the plans of an epoch, the first for a former target if any."""
        plans = dict(enumerate(map(plan_from_json, state.get("plans", ()))))
        completions = {
            number: plan for number, plan in plans.items() if isinstance(plan, Completion)
        }
        if "former" in state:
            # In a run of its own: one table may get both with the same epoch.
            former = {**state, **state["former"], "run": f"{state['run']}.held"}
            self.complete(epoch, {0: completions.pop(0)}, former)
        if completions:
            self.complete(epoch, completions, state)
        for plan in plans.values():
            if isinstance(plan, HeldJoin):
                carry_out_join(plan, self.services.storage)

    def deadline_ms(self) -> int | None:
        """Return when the rows that are held become too old."""
        if not self._after.files:
            return None
        return self.services.clock.now_ms() + self._left_ms(self._after)

    def waiting(self) -> Waiting | None:
        """Return the held output, or None."""
        held = self._after
        if not held.files:
            return None
        return Waiting(
            record_count=held.record_count,
            byte_count=held.byte_count,
            visible_ms=self.services.clock.now_ms() + self._left_ms(held),
        )

    def referenced_paths(self, state: Mapping[str, Any]) -> set[str]:
        """Return the files that the epoch's plans read, and held files."""
        held = HeldRows.from_json(state["held"]).files if "held" in state else ()
        plans = map(plan_from_json, state.get("plans", ()))
        return {file.path for file in [*held, *(file for plan in plans for file in plan.files)]}

    def _left_ms(self, held: HeldRows) -> int:
        return self._age.left_ms(held.since_ms, self.services.clock)
