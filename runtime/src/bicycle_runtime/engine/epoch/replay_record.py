"""The record for a replay: input, time and sizes of an epoch.

The record is small: slices name input, they do not hold it. The record of a sealed epoch is an
entry of its manifest. The record of the last epoch which was begun is beside the manifests, as
``epochs/begun``, and gets the error when the epoch fails. So a replay shows with the very same
input how the epoch failed, also when it hangs, or has killed the job.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from threading import Thread
from typing import Any

import msgspec

from bicycle_runtime.base.remote_storage import FsspecStorage
from bicycle_runtime.base.storage import LocalStorage, ObjectMissingError, Storage
from bicycle_runtime.base.thread_safe_types import prepare_type
from bicycle_runtime.contract import ReadsOn, Slice, Source
from bicycle_runtime.engine.epoch.stats import total_counts
from bicycle_runtime.engine.planning.setup import JobSetup
from bicycle_runtime.layouts.paths import BEGUN_EPOCH
from bicycle_runtime.operators.tasks.orders import EpochOrder, LetterOrder, TimeOrder
from bicycle_runtime.operators.tasks.task_reports import TaskReport
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.logging import log_event

_LOG = logging.getLogger(__name__)
_CLOSE_S = 5.0


class ReplayRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The data with which an epoch was run.

    ``slices`` is the requested input of each source, ``now_ms`` the processing time that functions
    saw, ``time`` the event time when it began. ``counts`` are the input and output records of each
    operator; they are unknown before it is sealed. ``error`` is the reason of its failure.
    ``is_start`` means that lists of subtasks were divided before it, as they are at a start.
    ``letters`` are its dead letters.
    """

    epoch: int
    now_ms: int
    is_interval_over: bool
    bundle_digest: str
    parallelism: dict[str, int]
    slices: dict[str, list[Slice]]
    time: TimeOrder
    counts: dict[str, tuple[int, int]] = {}
    error: dict[str, Any] | None = None
    is_start: bool = False
    letters: list[LetterOrder] = []


# Slices may hold mappings that are no dicts.
_ENCODER = msgspec.json.Encoder(enc_hook=dict, order="deterministic")
_DECODER = msgspec.json.Decoder(prepare_type(ReplayRecord))


def encode_record(record: ReplayRecord) -> bytes:
    """Return a record as bytes."""
    return _ENCODER.encode(record)


def decode_record(data: bytes) -> ReplayRecord:
    """Return the record that ``encode_record`` wrote.

    Raises:
        msgspec.MsgspecError: it is damaged.
    """
    return _DECODER.decode(data)


def record_of(
    setup: JobSetup,
    orders: Sequence[EpochOrder],
    slices: Mapping[str, list[Slice]],
    letters: Sequence[LetterOrder] = (),
) -> ReplayRecord:
    """Return the record of an epoch that is about to run, by the orders of its levels."""
    order = orders[0]
    states = (state for each in orders for task in each.tasks for state in task.states.values())
    return ReplayRecord(
        epoch=order.epoch,
        now_ms=order.now_ms,
        is_interval_over=order.is_interval_over,
        bundle_digest=setup.bundle.digest,
        parallelism={vertex.id: vertex.parallelism for vertex in setup.graph.vertices},
        slices=dict(slices),
        time=order.time,
        is_start=any(state.lists for state in states),
        letters=list(letters),
    )


def with_ends(
    record: ReplayRecord, ends: Mapping[str, Mapping[str, int]], sources: Mapping[str, Source]
) -> ReplayRecord:
    """Return the record of an epoch whose tasks have read on behind its slices.

    Args:
        record: The record.
        ends: How far they came in each shard of each source.
        sources: Of the job.
    """
    slices = dict(record.slices)
    for uid, source in sources.items():
        if isinstance(source, ReadsOn) and uid in slices:
            reached = ends.get(uid, {})
            slices[uid] = [
                source.reached_slice(part, end)
                if (end := reached.get(part.shard, part.end)) > part.end
                else part
                for part in slices[uid]
            ]
    return msgspec.structs.replace(record, slices=slices)


def with_counts(record: ReplayRecord, reports: Iterable[TaskReport]) -> ReplayRecord:
    """Return the record of an epoch whose tasks are done."""
    counts = {uid: (c.records_in, c.records_out) for uid, c in total_counts(reports).items()}
    return msgspec.structs.replace(record, counts=counts)


class BegunEpoch:
    """Keeps the record of the last epoch that was begun, whatever becomes of it.

    A local file is written at once and not flushed: it survives the end of the process, and costs
    an epoch no wait for the disk. Behind a URL a thread writes while the epoch runs.

    Args:
        storage: Checkpoint storage of the job.
        job: Job id, for the log.
    """

    def __init__(self, storage: Storage, *, job: str) -> None:
        self._storage = storage
        self._job = job
        self._writing: Thread | None = None

    def read(self, epoch: int) -> ReplayRecord | None:
        """Return the record of an epoch; None when it is not the last one that was begun.

        Raises:
            msgspec.MsgspecError: it is damaged.
        """
        try:
            record = decode_record(self._storage.read(BEGUN_EPOCH))
        except ObjectMissingError:
            return None
        return record if record.epoch == epoch else None

    @contextlib.contextmanager
    def noting(self, record: ReplayRecord, sources: Mapping[str, Source]) -> Iterator[None]:
        """Write the record, and add the error if the block fails.

        A record on which it fails may be behind the slices: the noted slices are extended to it.
        """
        self._begin(record)
        try:
            yield
        except BicycleError as error:
            self.close()
            record = with_ends(record, _position_in(error), sources)
            self._note(self._storage, msgspec.structs.replace(record, error=_plain(error)))
            raise

    def close(self) -> None:
        """Wait until the record is written, though not for a storage that does not answer."""
        if self._writing is not None:
            self._writing.join(_CLOSE_S)
            self._writing = None

    def _begin(self, record: ReplayRecord) -> None:
        storage = self._storage
        if isinstance(storage, FsspecStorage):
            if self._writing is None or not self._writing.is_alive():  # Else it is slow: no queue.
                note = partial(self._note, storage, record)
                self._writing = Thread(target=note, name="epoch-begun", daemon=True)
                self._writing.start()
            return
        if isinstance(storage, LocalStorage):
            storage = replace(storage, is_synced=False)
        self._note(storage, record)

    def _note(self, storage: Storage, record: ReplayRecord) -> None:
        try:
            storage.write(BEGUN_EPOCH, encode_record(record))
        except BicycleError as error:  # It is for people: no epoch fails for it.
            log_event(
                _LOG, "begun_epoch_not_noted", level=logging.WARNING, job=self._job,
                epoch=record.epoch, error=error,
            )  # fmt: skip


def _position_in(error: BicycleError) -> dict[str, dict[str, int]]:
    """Return the end of the input of an error, by source and shard, perhaps empty."""
    source, shard, offset = (error.facts.get(name) for name in ("source", "shard", "offset"))
    if not isinstance(source, str) or not isinstance(shard, str) or not isinstance(offset, int):
        return {}
    return {source: {shard: error.facts.get("end_offset") or offset + 1}}


def _plain(error: BicycleError) -> dict[str, Any]:
    """Return an error as data that JSON can hold."""
    plain: dict[str, Any] = msgspec.to_builtins(error.to_json(), enc_hook=str)
    return plain
