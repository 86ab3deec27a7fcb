"""When parts begin and end: staged files in, part plans out. Pure: it touches no file.

Records keep their order: a part is complete before a later one begins, so reading the parts by name
gives every subtask's records in the order in which they were written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bicycle_runtime.connectors.files.parts import OpenPart, PartPlan
from bicycle_runtime.operators.io import StagedFile

__all__ = ["PartDraft", "SinkState"]

HELD_FILE_COUNT_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkState:
    """What one epoch leaves to the next."""

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
        state: What the epoch before left.
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
        """What this epoch leaves to the next."""
        return SinkState(open=self.open, part_count=self._part_count)

    def add(self, file: StagedFile, now_ms: int) -> None:
        """Give a staged file its place."""
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
        """Return what the epoch does, in order; the open part last."""
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
