"""The base of lake sinks: one commit for all rows that an epoch makes visible.

Rows are held over epochs (``tables.held``), so that small epochs make neither small files nor many
commits. A commit names the *run* of the job and the epoch, and the table keeps the last epoch of
each run: so an epoch is committed once, however often and by whichever process it is published.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import pyarrow
import pyarrow.compute as pc

from bicycle_runtime.base.faults import fault_point
from bicycle_runtime.connectors.errors import (
    COLUMNS_WRONG,
    LAKE_HISTORY_AHEAD,
    LAKE_REFUSED,
    LAKE_TABLE_REPLACED,
    LAKE_UNREACHABLE,
    TABLE_DIFFERS,
)
from bicycle_runtime.connectors.lakes.row_checks import RowChecks
from bicycle_runtime.connectors.lakes.table import (
    Commit,
    LakeTable,
    LakeVersion,
    MissingTableError,
    plain_type,
)
from bicycle_runtime.connectors.patience import AnswerLimit, Patience, PatientPublication
from bicycle_runtime.connectors.runs import is_rewind, run_of, storage_id_of
from bicycle_runtime.connectors.settings import read_options, typed_path
from bicycle_runtime.connectors.tables.held import Completion
from bicycle_runtime.connectors.tables.held_rows import HeldReader
from bicycle_runtime.connectors.tables.sink import HeldTableSink
from bicycle_runtime.connectors.tables.writer import TableWriterFactory
from bicycle_runtime.contract import ChecksBeforeStart, ConnectorSpec, DriverServices
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.sinks import FolderSinkOptions, LakeSinkOptions

_NUMBER = "__number"
_STAGED_MAX = 1 << 40
_COLOR, _CAUSE = re.compile(r"\x1b\[\d*m"), "↳"  # As the library of Delta lists causes.


class LakeSink(PatientPublication, ChecksBeforeStart, HeldTableSink):
    """Commits rows to one table.

    Args:
        spec: The sink.
        options: As declared.
    """

    options_class: type[LakeSinkOptions]
    address_options: ClassVar[tuple[str, ...]]  # The options that select the table.
    path_option = "path"

    def __init__(self, spec: ConnectorSpec) -> None:
        options, name = read_options(self.options_class, spec), self.path_option
        path: Any = typed_path(spec, getattr(options, name), name=name)
        self._lake_options = options = replace(options, **{name: path})
        super().__init__(spec, options)
        self._table = table = self.table_of(options)
        self._where = {name: getattr(options, name) for name in self.address_options}
        self._check_options()
        self.columns = self.columns.requiring(options.keys)
        self._patience = Patience(
            vertex=spec.vertex_id,
            timeout_ms=options.publish_timeout_ms,
            is_away=table.is_away,
            given_up=self._unreachable,
        )
        self._run = ""
        self._committed_epoch = -1  # Of this run, as far as this process knows.
        self._checks = RowChecks()

    @abstractmethod
    def table_of(self, options: Any) -> LakeTable:
        """Return the way to the table that options name; nothing is opened."""

    def check(self, services: DriverServices, state: Mapping[str, Any]) -> None:
        """Compare columns and history; make nothing.

        Raises:
            TABLE_DIFFERS: the table has other columns.
            LAKE_HISTORY_AHEAD: the job begins behind the written epochs.
            LAKE_TABLE_REPLACED: rows are held for a former table, which is gone.
            LAKE_UNREACHABLE: it cannot be opened.
        """
        with self._guard():
            found = self._table.look()
        if found is not None:
            self._refuse_other_columns(found.schema)
            self._checks_of(found)
            self._check_history(found, services, state)

    def start(self, services: DriverServices, state: Mapping[str, Any]) -> None:
        """Make the table where it is missing, and choose the run.

        Raises:
            TABLE_DIFFERS: the table has other columns.
            LAKE_HISTORY_AHEAD: the job begins behind the written epochs.
            LAKE_UNREACHABLE: it cannot be opened or made.
        """
        self.resume(services, state)
        with self._guard():
            self._table.make(self.columns.schema)
            found = _version_of(self._table)
        self._refuse_other_columns(found.schema)
        required = [field.name for field in found.schema if not field.nullable]
        self.columns = self.columns.requiring(required)
        self._checks = self._checks_of(found)
        is_again = self._check_history(found, services, state)
        self._run = run_of(state, self.storage_id, is_again=is_again)
        self._committed_epoch = found.last_epoch(self._run)

    def writer(self) -> TableWriterFactory:
        """Return the factory of writers; a commit reads staged files, so they may be long."""
        return replace(
            super().writer(),
            check=self._checks.check,
            roll_rows=_STAGED_MAX,
            roll_bytes=_STAGED_MAX,
        )

    def target(self) -> dict[str, Any]:
        """Return table and keys."""
        return {"table": self._where, "keys": list(self._lake_options.keys)}

    def facts(self) -> dict[str, Any]:
        """Return the run of a commit."""
        return {"run": self._run}

    def complete(
        self, epoch: int, plans: Mapping[int, Completion], state: Mapping[str, Any]
    ) -> None:
        """Commit the rows of all plans at once, unless they are committed.

        Raises:
            LAKE_REFUSED: the table does not take them.
            LAKE_UNREACHABLE: storage or catalog were away for too long, or are damaged.
            LAKE_TABLE_REPLACED: it is gone, or lacks rows that were committed.
            PublishInterruptedError: the job had to end meanwhile.
        """
        commit = Commit(
            job=self.services.job, run=state["run"], epoch=epoch, keys=tuple(state["keys"])
        )
        table = self._table_in(state)
        limit = AnswerLimit(self._lake_options.publish_timeout_ms, table.break_off)
        act = partial(self._commit, table, list(plans.values()), commit, limit)
        try:
            with limit:
                self._patience.carry_out(
                    act, epoch=epoch, target=table.name, clock=self.services.clock
                )
        except Exception as error:
            if isinstance(error, BicycleError) or not table.is_refusal(error):
                raise
            raise LAKE_REFUSED(
                vertex=self.spec.vertex_id, table=table.name, epoch=epoch, reason=_text(error)
            ) from error

    def stop(self) -> None:
        """Release the table."""
        self.interrupt()
        self._table.close()

    def _table_in(self, state: Mapping[str, Any]) -> LakeTable:
        """Return the table of a state: another one if the job was changed since."""
        if state["table"] == self._where:
            return self._table
        return self.table_of(replace(self._lake_options, **state["table"]))

    def _commit(
        self, table: LakeTable, plans: Sequence[Completion], commit: Commit, limit: AnswerLimit
    ) -> None:
        """Commit the held rows.

        1. The newest version of the table shows whether the epoch is committed.
        2. Rows are read as columns of the table.
        3. They are committed on just that version.
        """
        fault_point("transaction_begun")
        # 1. The newest version of the table shows whether the epoch is committed.
        version = self._newest(table, commit)
        if version.last_epoch(commit.run) >= commit.epoch:
            return
        # 2. Rows are read as columns of the table.
        files = [file for plan in plans for file in plan.files]
        with HeldReader(self.services.storage, files) as reader:
            self._require_columns(table, version, commit, reader.schemas)
            schema = _columns_for(version.schema, reader.schemas)
            rows = pyarrow.RecordBatchReader.from_batches(
                schema,
                _count_progress(
                    limit, (b for some in reader.batches() for b in _fit(some, schema))
                ),
            )
            fault_point("transaction_produced")
            # 3. They are committed on just that version.
            if commit.keys:
                version.upsert(_last_of_each(rows.read_all(), commit.keys), commit)
            else:
                version.append(rows, commit)
            fault_point("transaction_marked")
        if table is self._table and commit.run == self._run:
            self._committed_epoch = commit.epoch
        fault_point("transaction_committed")

    def _newest(self, table: LakeTable, commit: Commit) -> LakeVersion:
        """Return the newest version of a table, with all commits of this run.

        Raises:
            LAKE_TABLE_REPLACED: it has not, or is gone.
            LAKE_UNREACHABLE: it cannot be read.
        """
        try:
            version = table.look()
        except Exception as error:
            if table.is_away(error) or not table.is_refusal(error):
                raise
            raise self._unreachable(0, error) from error
        problem = "does not exist"
        if version is not None:
            found = version.last_epoch(commit.run)
            is_ours = table is self._table and commit.run == self._run
            if not is_ours or found >= self._committed_epoch:
                if is_ours:
                    self._committed_epoch = found
                return version
            problem = (
                f"has lost epoch {self._committed_epoch}, which was committed: it was created "
                "again, or its history was changed"
            )
        raise LAKE_TABLE_REPLACED(
            vertex=self.spec.vertex_id, table=table.name, problem=problem, epoch=commit.epoch
        )

    def _require_columns(
        self, table: LakeTable, version: LakeVersion, commit: Commit, held: Sequence[pyarrow.Schema]
    ) -> None:
        """Raise LAKE_REFUSED if rows have a column that the table lost meanwhile."""
        there = set(version.schema.names)
        lost = [n for schema in held for n in schema.names if n not in there]
        if lost:
            raise LAKE_REFUSED(
                vertex=self.spec.vertex_id,
                table=table.name,
                epoch=commit.epoch,
                reason=f"it has no column {lost[0]!r}",
            )

    def _check_options(self) -> None:
        options, schema = self._lake_options, self.columns.schema
        names = schema.names
        folders = options.partition_by if isinstance(options, FolderSinkOptions) else ()
        unknown = [name for name in (*options.keys, *folders) if name not in names]
        unsupported = self._table.unsupported(schema)
        problem = ""
        if unknown:
            problem = f"{unknown[0]!r} is not a column"
        elif unnatural := next((key for key in options.keys if not _may_be_key(schema, key)), ""):
            problem = f"the key {unnatural!r} has the type {schema.field(unnatural).type}"
        elif unsupported:
            kind = schema.field(unsupported).type
            problem = (
                f"{unsupported!r} has the type {kind}, which this kind of table does not support"
            )
        else:
            problem = self._table.folder_problem(schema)
        if problem:
            hint = f"columns are {', '.join(names)}; set e.g. keys=('id',) with mode=upsert"
            raise COLUMNS_WRONG(vertex=self.spec.vertex_id, problem=problem, hint=hint)

    def _refuse_other_columns(self, found: pyarrow.Schema) -> None:
        here = self.columns.schema
        problems = [f"it has no column {name!r}" for name in here.names if name not in found.names]
        for field in found:
            index = here.get_field_index(field.name)
            if index < 0 and not field.nullable:
                problems.append(f"{field.name!r} must not be null, but is missing in the records")
            elif index >= 0 and plain_type(field.type) != plain_type(here.field(index).type):
                problems.append(
                    f"{field.name!r} is {field.type} in the table, but {here.field(index).type} "
                    "in the records"
                )
        if problems:
            raise TABLE_DIFFERS(
                vertex=self.spec.vertex_id, table=self._table.name, problem="; ".join(problems)
            )

    def _checks_of(self, found: LakeVersion) -> RowChecks:
        try:
            return found.checks()
        except ValueError as error:
            raise TABLE_DIFFERS(
                vertex=self.spec.vertex_id, table=self._table.name, problem=str(error)
            ) from error

    def _check_history(
        self, found: LakeVersion, services: DriverServices, state: Mapping[str, Any]
    ) -> bool:
        """Return whether epochs are to be written again, as an older one was restored."""
        is_changed = state.get("table") != self._where
        if is_changed and state.get("place") != storage_id_of(services):
            return False
        versions = {self._table.name: found}
        if is_changed and state["held"]["files"]:  # Held rows are written there.
            former = self._table_in(state)
            with self._guard():
                there = former.look()
            if there is None:
                raise LAKE_TABLE_REPLACED(
                    vertex=self.spec.vertex_id, table=former.name,
                    problem="does not exist, but rows are held for it", epoch=state["epoch"],
                )  # fmt: skip
            versions[former.name] = there
        rewinds = [
            is_rewind(
                state, version.last_epoch(state["run"]), self._lake_options.on_rewind,
                LAKE_HISTORY_AHEAD, vertex=self.spec.vertex_id, table=name,
            )
            for name, version in versions.items()
        ]  # fmt: skip
        return any(rewinds)

    @contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if not (self._table.is_away(error) or self._table.is_refusal(error)):
                raise
            raise self._unreachable(0, error) from error

    def _unreachable(self, waited_ms: int, error: Exception) -> BicycleError:
        return LAKE_UNREACHABLE(
            vertex=self.spec.vertex_id,
            table=self._table.name,
            waited_ms=waited_ms,
            reason=_text(error),
        )


def _count_progress(
    limit: AnswerLimit, batches: Iterable[pyarrow.RecordBatch]
) -> Iterator[pyarrow.RecordBatch]:
    for batch in batches:
        limit.note_progress()
        yield batch
    limit.note_progress()


def _may_be_key(schema: pyarrow.Schema, name: str) -> bool:
    found = schema.field(name).type
    return not (pyarrow.types.is_floating(found) or pyarrow.types.is_nested(found))


def _version_of(table: LakeTable) -> LakeVersion:
    found = table.look()
    if found is None:
        raise MissingTableError("it no longer exists")
    return found


def _text(error: Exception) -> str:
    """Return a library's message with its causes, and without its stack frames."""
    first, *others = _COLOR.sub("", str(error)).strip().splitlines() or [""]
    causes = [line.strip().removeprefix(_CAUSE).strip() for line in others if _CAUSE in line]
    return f"{type(error).__name__}: {': '.join([first, *causes])}"


def _columns_for(table: pyarrow.Schema, held: Sequence[pyarrow.Schema]) -> pyarrow.Schema:
    """Return the table's columns that held rows have, in the table's order."""
    names = {name for schema in held for name in schema.names}
    return pyarrow.schema([field for field in table if field.name in names])


def _fit(rows: pyarrow.Table, schema: pyarrow.Schema) -> list[pyarrow.RecordBatch]:
    """Return rows with just these columns; null for one that they lack."""
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.schema.names
        else pyarrow.chunked_array([pyarrow.nulls(rows.num_rows, field.type)])
        for field in schema
    ]
    found: list[pyarrow.RecordBatch] = pyarrow.Table.from_arrays(
        columns, schema=schema
    ).to_batches()
    return found


def _last_of_each(rows: pyarrow.Table, keys: Sequence[str]) -> pyarrow.Table:
    """Return the last row of each key, in their order."""
    numbers = pyarrow.array(range(rows.num_rows))
    last = rows.select(list(keys)).append_column(_NUMBER, numbers)
    found = last.group_by(list(keys), use_threads=False).aggregate([(_NUMBER, "max")])
    positions = found.column(f"{_NUMBER}_max")
    return rows.take(positions.take(pc.sort_indices(positions)))
