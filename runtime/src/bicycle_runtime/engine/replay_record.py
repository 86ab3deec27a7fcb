"""What a replay of an epoch needs beside the manifest before it: its input, its time, its sizes.

The record is small: slices name input, they do not hold it. That of a sealed epoch is an entry of
its manifest. That of an epoch which failed lies beside the manifests, as ``epochs/<N>.failed``,
until the epoch is sealed after all; so a replay shows what went wrong with the very same input.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from bicycle_runtime.base.logging import log_event
from bicycle_runtime.base.storage import ObjectMissingError, Storage
from bicycle_runtime.engine.setup import JobSetup
from bicycle_runtime.engine.stats import total_counts
from bicycle_runtime.operators.io import Slice
from bicycle_runtime.operators.reports import TaskReport
from bicycle_runtime.operators.task import EpochOrder, TimeOrder
from bicycle_sdk.errors import BicycleError

__all__ = [
    "FailedEpochs",
    "ReplayRecord",
    "decode_record",
    "encode_record",
    "record_of",
    "with_counts",
]

_LOG = logging.getLogger(__name__)


class ReplayRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How an epoch was run.

    ``slices`` is what each source was asked for, ``now_ms`` the processing time that functions saw,
    ``time`` where event time stood when it began. ``counts`` are the records that went into and
    came out of each operator; none are known of an epoch that failed, which has its ``error``.
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


# Slices may hold mappings that are no dicts.
_ENCODER = msgspec.json.Encoder(enc_hook=dict, order="deterministic")
_DECODER = msgspec.json.Decoder(ReplayRecord)


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
    setup: JobSetup, order: EpochOrder, slices: Mapping[str, list[Slice]]
) -> ReplayRecord:
    """Return the record of an epoch that is about to run."""
    return ReplayRecord(
        epoch=order.epoch,
        now_ms=order.now_ms,
        is_interval_over=order.is_interval_over,
        bundle_digest=setup.bundle.digest,
        parallelism={vertex.id: vertex.parallelism for vertex in setup.graph.vertices},
        slices=dict(slices),
        time=order.time,
    )


def with_counts(record: ReplayRecord, reports: Iterable[TaskReport]) -> ReplayRecord:
    """Return the record of an epoch whose tasks are done."""
    counts = {uid: (c.records_in, c.records_out) for uid, c in total_counts(reports).items()}
    return msgspec.structs.replace(record, counts=counts)


class FailedEpochs:
    """Keeps the record of an epoch that failed until the epoch is sealed.

    Args:
        storage: Checkpoint storage of the job.
        job: Job id, for the log.
    """

    def __init__(self, storage: Storage, *, job: str) -> None:
        self._storage = storage
        self._job = job
        self._noted: int | None = None

    def resume(self, epoch: int) -> None:
        """Begin a run whose first epoch is this one: an earlier run may have failed in it."""
        self._noted = epoch if self._storage.exists(_path_of(epoch)) else None

    def read(self, epoch: int) -> ReplayRecord | None:
        """Return the record of a failed epoch; None when it has not failed.

        Raises:
            msgspec.MsgspecError: it is damaged.
        """
        try:
            return decode_record(self._storage.read(_path_of(epoch)))
        except ObjectMissingError:
            return None

    @contextlib.contextmanager
    def noting(self, record: ReplayRecord) -> Iterator[None]:
        """Write the record down when what runs inside fails, and let the failure pass."""
        try:
            yield
        except BicycleError as error:
            self._note(msgspec.structs.replace(record, error=_plain(error)))
            raise

    def forget(self, epoch: int) -> None:
        """Take note that an epoch was sealed; nearly always nothing has to be done."""
        if self._noted is not None and self._noted <= epoch:
            self._storage.delete(_path_of(self._noted))
            self._noted = None

    def _note(self, record: ReplayRecord) -> None:
        try:
            self._storage.write(_path_of(record.epoch), encode_record(record))
            self._noted = record.epoch
        except BicycleError as error:  # The failure itself is what has to be told.
            log_event(
                _LOG, "failed_epoch_not_noted", level=logging.WARNING, job=self._job,
                epoch=record.epoch, error=error,
            )  # fmt: skip


def _path_of(epoch: int) -> str:
    return f"epochs/{epoch:012}.failed"


def _plain(error: BicycleError) -> dict[str, Any]:
    """Return an error as data that JSON can hold."""
    plain: dict[str, Any] = msgspec.to_builtins(error.to_json(), enc_hook=str)
    return plain
