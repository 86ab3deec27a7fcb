"""File sinks: only sealed files are visible, and small epochs share files.

Writers stage one file per subtask and epoch. Before sealing, the sink decides about them: a large
file becomes a part by itself, small files are appended to the *open part*, which becomes visible
when it is large enough, old enough, or the job ends. ``parts`` explains how that survives crashes.

Names are ``part-<epoch>-<n>-<run>.<format>``: in the order of publication, and with a token of the
run, so that two jobs may share a directory and a new job never touches the files of an old one.

``PartDraft`` decides when parts begin and end: staged files in, part plans out; it touches no file.
Records keep their order: a part is complete before a later one begins, so reading the parts by name
returns every subtask's records in the order in which they were written.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from bicycle_runtime.base.files import make_folder
from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.connectors.errors import OUTPUT_UNWRITABLE
from bicycle_runtime.connectors.files.csv_writer import CsvWriter, TimedCsvWriter, TimedJsonWriter
from bicycle_runtime.connectors.files.ownership import (
    MADE,
    OutputClaim,
    new_run,
    output_paths,
    path_of,
    run_of,
)
from bicycle_runtime.connectors.files.parts import (
    OpenPart,
    PartPlan,
    carried_over,
    carry_out,
    withdraw,
)
from bicycle_runtime.connectors.lines import json_lines, text_lines
from bicycle_runtime.connectors.open_age import OpenAge
from bicycle_runtime.connectors.runs import storage_id_of
from bicycle_runtime.connectors.settings import option_error, read_options, typed_path
from bicycle_runtime.connectors.staging import StagedWriter
from bicycle_runtime.contract import (
    ChecksBeforeStart,
    ConnectorSpec,
    DriverServices,
    Guarantee,
    HoldsBackOutput,
    MakesTargets,
    Sink,
    StagedFile,
    StagedPublication,
    Waiting,
    WriterTask,
    in_subtask_order,
)
from bicycle_sdk.sinks import FileSinkOptions

HELD_FILE_COUNT_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkState:
    """The state that one epoch passes to the next."""

    open: OpenPart | None = None
    part_count: int = 0


class PartDraft:
    """Collects the part plans of one epoch.

    Args:
        name_form: Final names, with ``{number}``.
        path_form: Storage paths of open parts, with ``{number}``.
        is_appending: Whether storage can append; otherwise staged files are held until their part
            is complete.
        roll_bytes: A part of this size is complete.
        state: The state of the epoch before.
    """

    def __init__(
        self,
        *,
        name_form: str,
        path_form: str,
        is_appending: bool,
        roll_bytes: int,
        state: SinkState,
    ) -> None:
        self._name_form = name_form
        self._path_form = path_form
        self._is_appending = is_appending
        self._roll_bytes = roll_bytes
        self._plans: list[PartPlan] = []
        self._part_count = state.part_count
        self._added: list[StagedFile] = []
        self._start = 0 if state.open is None else state.open.byte_count
        self.open = state.open

    @property
    def state(self) -> SinkState:
        """The state that this epoch passes to the next."""
        return SinkState(open=self.open, part_count=self._part_count)

    def add(self, file: StagedFile, now_ms: int) -> None:
        """Assign a staged file to a part."""
        header: str = file.details.get("header", "")
        is_large = file.byte_count >= self._roll_bytes
        if self.open is not None and (is_large or self.open.header != header):
            self.close()
        if self.open is None:
            path = self._path_form.format(number=self._part_count)
            self.open = OpenPart(path=path, byte_count=0, since_ms=now_ms, header=header)
            self._part_count += 1
            self._start = 0
        self._extend(self.open, file)
        is_full = self.open.byte_count >= self._roll_bytes
        if is_full or len(self.open.held) >= HELD_FILE_COUNT_MAX:
            self.close()

    def close(self) -> None:
        """Complete the open part."""
        if self.open is None:
            return
        name = self._name_form.format(number=self._part_count - 1)
        self._plans.append(self._plan(self.open, name))
        self.open = None
        self._added = []

    def plans(self) -> list[PartPlan]:
        """Return the plans of the epoch in order, the open part last."""
        if self.open is None or not (self._added and self._is_appending):
            return self._plans
        return [*self._plans, self._plan(self.open, None)]

    def _extend(self, part: OpenPart, file: StagedFile) -> None:
        header_size = len(part.header.encode()) if part.byte_count else 0
        held = part.held if self._is_appending else (*part.held, file)
        byte_count = part.byte_count + file.byte_count - header_size
        record_count = part.record_count + file.record_count
        self.open = replace(part, byte_count=byte_count, held=held, record_count=record_count)
        self._added.append(file)

    def _plan(self, part: OpenPart, name: str | None) -> PartPlan:
        files = part.held or tuple(self._added)
        is_whole = self._start == 0 and len(files) == 1 and name is not None
        is_apart = is_whole or not self._is_appending
        return PartPlan(
            path=None if is_apart else part.path,
            start=0 if is_apart else self._start,
            end=part.byte_count,
            header=part.header,
            files=files,
            name=name,
        )


@dataclass(frozen=True, slots=True)
class FileWriterFactory:
    """Opens writers of one format."""

    file_suffix: str
    record_type: Any = None
    time_field: str = ""

    def open(self, task: WriterTask) -> StagedWriter:
        """Return a writer that stages ``records.<suffix>``."""
        name = f"records.{self.file_suffix}"
        if self.time_field:
            if self.file_suffix == "csv":
                return TimedCsvWriter(task, name, self.record_type, self.time_field)
            return TimedJsonWriter(task, name, self.time_field)
        if self.file_suffix == "csv":
            return CsvWriter(task, name, self.record_type)
        if self.file_suffix == "jsonl":
            return StagedWriter(task, name, json_lines)
        return StagedWriter(task, name, text_lines)


class FileSink(StagedPublication, HoldsBackOutput, ChecksBeforeStart, MakesTargets, Sink):
    """The base of JSON lines, text and CSV sinks."""

    guarantee = Guarantee.EXACTLY_ONCE
    options_class = FileSinkOptions
    accepts = "frames"
    file_suffix: ClassVar[str]

    def __init__(self, spec: ConnectorSpec) -> None:
        super().__init__(spec)
        self._options = read_options(FileSinkOptions, spec)
        self._folder = Path(typed_path(spec, self._options.path)).absolute()
        self.takes_times = bool(self._options.timestamp_field)
        if self.takes_times and self.file_suffix == "txt":
            hint = "use jsonl_file or csv_file, or remove it"
            raise option_error(spec, "timestamp_field", "lines of text have no fields", hint)
        self._after = SinkState()
        self._age = OpenAge(self._options.roll_ms)
        self._claims: dict[Path, OutputClaim] = {}  # By the output directory.
        self._storage_id = ""
        # Where the open part belongs if elsewhere: found at the start, and in use.
        self._found = self._former = ""

    def check(self, services: DriverServices, state: Mapping[str, Any]) -> None:
        """Refuse parts that another job continues with.

        Raises:
            OUTPUT_HELD: there is one that may live.
        """
        for folder in self._folders(state, storage_id_of(services)):
            if "run" in state and folder.is_dir():  # ``start`` reports other errors.
                self._claim_of(folder, run_of(state), services).refuse_holder()

    def makes(self) -> list[str]:
        """Return the output directory."""
        return [f"{MADE}{self._folder}"]

    def start(self, services: DriverServices, state: Mapping[str, Any]) -> None:
        """Make the output directory, prove that it can be written, and take it over.

        Raises:
            OUTPUT_UNWRITABLE: it is not a directory, or may not be written.
            OUTPUT_HELD: another job continues the same parts.
        """
        self._services = services
        part = _open_part(state)
        self._before = self._after = SinkState(
            open=None if part is None else carried_over(part, services.storage),
            part_count=int(state.get("part_count", 0)),
        )
        self._prepared_epoch = -1
        if (part := self._after.open) is not None:
            age_ms = max(services.clock.now_ms() - part.since_ms, 0)
            self._age.watch(part.path, services.clock, age_ms=age_ms)
        self._storage_id = storage_id_of(services)
        path = path_of(state, self._storage_id, str(self._folder))
        self._found = "" if path == str(self._folder) else path
        folders = self._folders(state, self._storage_id)
        for folder in folders:
            self._prove_writable(folder)
        names = (path.name for path in self._folder.glob("*part-*"))
        self._run = run_of(state) or new_run(services, names)
        for folder in folders:
            claim = self._claim_of(folder, self._run, services)
            claim.take()
            self._claims[folder] = claim
            self._withdraw_unsealed(folder, state)

    def writer(self) -> FileWriterFactory:
        """Return the factory of writers of this format."""
        field = self._options.timestamp_field
        return FileWriterFactory(self.file_suffix, self.spec.record_type, field)

    def prepare(self, epoch: int, staged: Sequence[StagedFile], *, is_last: bool) -> dict[str, Any]:
        """Assign the staged files to parts, and complete parts."""
        if epoch != self._prepared_epoch:
            self._prepared_epoch, self._before = epoch, self._after
            self._former, self._found = self._found, ""
        draft = PartDraft(
            name_form=f"part-{epoch:010d}-{{number:04d}}-{self._run}.{self.file_suffix}",
            path_form=f"{self._services.prefix}/open/{{number}}.{self.file_suffix}",
            is_appending=isinstance(self._services.storage, LocalStorage),
            roll_bytes=self._options.roll_bytes,
            state=self._before,
        )
        is_moved = bool(self._former) and draft.open is not None
        if is_moved:
            draft.close()
        now_ms = self._services.clock.now_ms()
        for file in in_subtask_order(staged):
            draft.add(file, now_ms)
        if draft.open is not None and (is_last or self._left_ms(draft.open) <= 0):
            draft.close()
        self._after = draft.state
        return {
            "epoch": epoch,
            "run": self._run,
            "place": self._storage_id,
            "path": str(self._folder),
            **({"former": {"path": self._former}} if is_moved else {}),
            "part_count": self._after.part_count,
            "open": None if self._after.open is None else self._after.open.to_json(),
            "plans": [plan.to_json() for plan in draft.plans()],
        }

    def publish(self, epoch: int, state: Mapping[str, Any]) -> None:
        """Carry out the part plans of an epoch, the first in a former directory if any.

        Raises:
            OUTPUT_TAKEN_OVER: a later run has started; an old plan would cut its open part.
        """
        for folder in self._folders(state, self._storage_id):
            self._claims[folder].require(epoch)
        former = {**state, **state.get("former", {})}
        for number, plan in enumerate(state.get("plans", [])):
            path = path_of(state if number else former, self._storage_id, str(self._folder))
            carry_out(PartPlan.from_json(plan), self._services.storage, Path(path))

    def stop(self) -> None:
        """Release the output."""
        for claim in self._claims.values():
            claim.release()

    def deadline_ms(self) -> int | None:
        """Return when the open part becomes too old."""
        if self._after.open is None:
            return None
        return self._services.clock.now_ms() + self._left_ms(self._after.open)

    def waiting(self) -> Waiting | None:
        """Return the content of the open part, or None."""
        part = self._after.open
        if part is None:
            return None
        return Waiting(
            record_count=part.record_count,
            byte_count=part.byte_count,
            visible_ms=self._services.clock.now_ms() + self._left_ms(part),
        )

    def referenced_paths(self, state: Mapping[str, Any]) -> set[str]:
        """Return the epoch's staged files, and files that wait for their part."""
        plans = [PartPlan.from_json(plan) for plan in state.get("plans", [])]
        held = part.held if (part := _open_part(state)) is not None else ()
        return {file.path for file in [*held, *(file for plan in plans for file in plan.files)]}

    def _left_ms(self, part: OpenPart) -> int:
        return self._age.left_ms(part.path, self._services.clock)

    def _folders(self, state: Mapping[str, Any], storage_id: str) -> list[Path]:
        """Return the output directory, and former ones whose parts may not be visible yet."""
        return list(map(Path, output_paths(state, storage_id, str(self._folder))))

    def _prove_writable(self, folder: Path) -> None:
        try:
            make_folder(folder)
            probe = folder / f".tmp-{os.getpid()}-probe"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise OUTPUT_UNWRITABLE(
                vertex=self.spec.vertex_id,
                path=str(folder),
                reason=error.strerror or str(error),
            ) from error

    def _claim_of(self, folder: Path, run: str, services: DriverServices) -> OutputClaim:
        output = LocalStorage(str(folder), is_synced=False)
        return OutputClaim(output, run=run, vertex=self.spec.vertex_id, services=services)

    def _withdraw_unsealed(self, folder: Path, state: Mapping[str, Any]) -> None:
        """Take back parts of epochs that are not sealed (any more); see ``withdraw``."""
        sealed, part = int(state.get("epoch", -1)), _open_part(state)
        for path in sorted(folder.glob(f"part-*-{self._run}.{self.file_suffix}")):
            _, epoch, number, _ = path.stem.split("-")
            if int(epoch) > sealed:
                is_made_of_it = part is not None and int(number) == self._after.part_count - 1
                kept = f"{self._services.prefix}/withdrawn/{path.name}"
                withdraw(path, self._services.storage, kept, part if is_made_of_it else None)


class JsonlFileSink(FileSink):
    """Writes one JSON document per line."""

    file_suffix = "jsonl"


class TextFileSink(FileSink):
    """Writes one line per record: strings as they are, anything else as JSON."""

    file_suffix = "txt"


class CsvFileSink(FileSink):
    """Writes CSV, each part with a header line."""

    file_suffix = "csv"


def _open_part(state: Mapping[str, Any]) -> OpenPart | None:
    data = state.get("open")
    return None if data is None else OpenPart.from_json(data)
