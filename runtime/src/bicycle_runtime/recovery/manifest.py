r"""The manifest of an epoch: its creation makes the epoch final.

A manifest is a ``CheckpointState`` followed by a trailer with format version and checksum. Our
references (state files, staged files, states of connectors, the plan) are operator-state entries,
distinguished by a prefix: ``state:<uid>``, ``state_metadata:<uid>``, ``operator_ids``,
``sink:<uid>``, ``source:<uid>``, ``feedback:<edge>``, ``plan``, ``time``, ``turns``, ``replay``.
Offsets of a shard are source entries ``<uid>\x1f<shard>``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from bicycle_runtime.base.errors import UnsafePathError
from bicycle_runtime.base.object_paths import require_below
from bicycle_runtime.base.thread_safe_types import prepare_type
from bicycle_runtime.contract import StagedFile
from bicycle_runtime.layouts.manifest import (
    CONNECTOR,
    HELD,
    MANIFEST_MAGIC,
    MANIFEST_VERSION,
    PREFIXES,
    SEPARATOR,
    STATE_VERSION,
    TIME_FORM,
    OperatorIds,
    OperatorState,
    PlanRecord,
    TimeRecord,
)
from bicycle_runtime.layouts.paths import STAGED, STATE
from bicycle_runtime.layouts.state import OperatorStateMetadata, SstRef, StateRef
from bicycle_runtime.operators.shard_times import lagging
from bicycle_runtime.recovery.checkpoint_state import CheckpointId, CheckpointState, read_state
from bicycle_runtime.recovery.errors import (
    CheckpointFormatError,
    ManifestError,
    ManifestVersionError,
)
from bicycle_runtime.recovery.fields import FieldParser, FileForm
from bicycle_runtime.state.sealed.refs import objects_of

_FORM = FileForm(magic=MANIFEST_MAGIC, version=MANIFEST_VERSION)
_NO_STREAM = ""  # The folder identifies the job of a manifest; the layout has no place for it.
_NS_PER_MS = 1_000_000
_WATERMARK_NS_MAX = 2**64 - 1


class _UnknownFormat(Exception):
    """A part of a manifest that only a newer version writes."""


class _FormOnly(msgspec.Struct, frozen=True):
    form: int = 1


class _Feedback(msgspec.Struct, frozen=True):
    files: tuple[StagedFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One sealed epoch.

    ``event_count`` counts the records read from sources since the job began. ``watermark_ms`` is
    the lowest watermark of the job, 0 without one. ``turns`` has the subtask that gets the next
    record of each sending subtask, for the edges that take turns. ``replay`` is the engine's record
    of how the epoch was run, which only a replay reads; empty when no task ran, or nothing was
    recorded. ``connector_versions`` has the ``state_version`` of sources and sinks, by uid, if it
    is not 1, and ``connectors`` the words of their connectors. ``held`` has the sinks with output
    that a later epoch publishes.
    """

    epoch: int
    plan: PlanRecord
    event_count: int = 0
    watermark_ms: int = 0
    offsets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    states: Mapping[str, OperatorState] = field(default_factory=dict)
    sinks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    sources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    feedback: Mapping[int, tuple[StagedFile, ...]] = field(default_factory=dict)
    time: TimeRecord = field(default_factory=TimeRecord)
    turns: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    state_metadata: Mapping[str, OperatorStateMetadata] = field(default_factory=dict)
    operator_ids: OperatorIds = field(default_factory=OperatorIds)
    replay: bytes = b""
    connector_versions: Mapping[str, int] = field(default_factory=dict)
    connectors: Mapping[str, str] = field(default_factory=dict)
    held: Collection[str] = frozenset()

    def state_paths(self) -> set[str]:
        """Return the paths of all state files that this epoch needs."""
        return {item.path for item in self.state_objects()}

    def state_objects(self) -> Iterator[StateRef | SstRef]:
        """Yield all state files that this epoch needs, with sizes and checksums."""
        for state in self.states.values():
            for part in state.ranges:
                yield from objects_of(part)

    def bases_in_making(self) -> set[str]:
        """Return the folders of the bases that were being made when this epoch was sealed."""
        ranges = (part for state in self.states.values() for part in state.ranges)
        return {part.making.folder for part in ranges if part.making is not None}

    def feedback_paths(self) -> set[str]:
        """Return the paths of the staged records that the next epoch reads."""
        return {file.path for files in self.feedback.values() for file in files}


_ENCODE = msgspec.json.Encoder(order="deterministic").encode


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the manifest as bytes: checkpoint state, then trailer."""
    entries: dict[str, bytes] = {"plan": _ENCODE(manifest.plan)}
    if manifest.time != TimeRecord():
        entries["time"] = _ENCODE(manifest.time)
    if manifest.turns:
        entries["turns"] = _ENCODE(manifest.turns)
    if manifest.replay:
        entries["replay"] = manifest.replay
    if manifest.operator_ids != OperatorIds():
        entries["pins"] = _ENCODE(manifest.operator_ids)
    entries |= {f"state:{uid}": _ENCODE(state) for uid, state in manifest.states.items()}
    entries |= {
        f"forms:{uid}": _ENCODE(state_metadata)
        for uid, state_metadata in manifest.state_metadata.items()
    }
    versions, words = manifest.connector_versions, manifest.connectors
    for prefix, states in (("sink", manifest.sinks), ("source", manifest.sources)):
        for uid, kept in states.items():
            version = {STATE_VERSION: versions[uid]} if uid in versions else {}
            held = {HELD: True} if prefix == "sink" and uid in manifest.held else {}
            word = {CONNECTOR: words[uid]} if uid in words else {}
            entries[f"{prefix}:{uid}"] = _ENCODE({**kept, **version, **held, **word})
    entries |= {
        f"feedback:{edge}": _ENCODE(_Feedback(files)) for edge, files in manifest.feedback.items()
    }
    state = CheckpointState(
        CheckpointId(_NO_STREAM, manifest.epoch, created_at_ms=0),
        watermark_ns=min(max(manifest.watermark_ms, 0) * _NS_PER_MS, _WATERMARK_NS_MAX),
        event_count=manifest.event_count,
        operator_states=entries,
        source_offsets={
            f"{uid}{SEPARATOR}{shard}": offset
            for uid, shards in manifest.offsets.items()
            for shard, offset in shards.items()
        },
    )
    return _FORM.sealed(state.serialize())


def decode_manifest(data: bytes, *, path: str) -> Manifest:
    """Read a manifest.

    Raises:
        ManifestVersionError: another version wrote it.
        ManifestError: cut, changed, of another epoch than its name, or with paths that lead
            elsewhere.
    """
    try:
        reader = FieldParser(data, end=_FORM.body_size(data))
        state = read_state(reader, _NO_STREAM, created_at_ms=0)
        reader.finish()
    except CheckpointFormatError as error:
        kind = ManifestVersionError if error.facts["problem"] == "version" else ManifestError
        raise kind(path=path, reason=error.facts["detail"]) from error
    try:
        manifest = _manifest(state)
        require_below(manifest.state_paths() | manifest.bases_in_making(), STATE)
        require_below(manifest.feedback_paths(), STAGED)
    except _UnknownFormat as error:
        raise ManifestVersionError(path=path, reason=str(error)) from error
    except UnsafePathError as error:
        raise ManifestError(path=path, reason=error.summary) from error
    except (msgspec.DecodeError, KeyError, ValueError) as error:
        raise ManifestError(path=path, reason=str(error)) from error
    number = path.rpartition("/")[2].partition(".")[0]
    if number.isdigit() and int(number) != manifest.epoch:
        reason = f"it is the manifest of epoch {manifest.epoch}, with the wrong name"
        raise ManifestError(path=path, reason=reason)
    return manifest


def _manifest(state: CheckpointState) -> Manifest:
    entries = _by_prefix(state.operator_states)
    offsets: dict[str, dict[str, int]] = {}
    for name, offset in state.source_offsets.items():
        uid, _, shard = name.partition(SEPARATOR)
        offsets.setdefault(uid, {})[shard] = offset
    sinks = {uid: msgspec.json.decode(data) for uid, data in entries["sink"].items()}
    sources = {uid: msgspec.json.decode(data) for uid, data in entries["source"].items()}
    return Manifest(
        epoch=state.id.sequence,
        plan=msgspec.json.decode(entries["plan"][""], type=prepare_type(PlanRecord)),
        event_count=state.event_count,
        watermark_ms=state.watermark_ns // _NS_PER_MS,
        offsets=offsets,
        states={
            uid: msgspec.json.decode(data, type=prepare_type(OperatorState))
            for uid, data in entries["state"].items()
        },
        state_metadata={
            uid: msgspec.json.decode(data, type=prepare_type(OperatorStateMetadata))
            for uid, data in entries["forms"].items()
        },
        sinks=sinks,
        sources=sources,
        feedback={
            int(edge): msgspec.json.decode(data, type=prepare_type(_Feedback)).files
            for edge, data in entries["feedback"].items()
        },
        time=_time(entries["time"].get("", b"{}")),
        turns=msgspec.json.decode(entries["turns"].get("", b"{}"), type=dict[str, tuple[int, ...]]),
        operator_ids=msgspec.json.decode(
            entries["pins"].get("", b"{}"), type=prepare_type(OperatorIds)
        ),
        replay=entries["replay"].get("", b""),
        connector_versions={
            uid: state.pop(STATE_VERSION)
            for uid, state in (*sinks.items(), *sources.items())
            if STATE_VERSION in state
        },
        connectors={
            uid: state.pop(CONNECTOR)
            for uid, state in (*sinks.items(), *sources.items())
            if CONNECTOR in state
        },
        held=frozenset(uid for uid, state in sinks.items() if state.pop(HELD, False)),
    )


def _time(data: bytes) -> TimeRecord:
    """Read the event time, converted from earlier meanings of watermarks."""
    record = msgspec.json.decode(data, type=prepare_type(TimeRecord))
    form = msgspec.json.decode(data, type=prepare_type(_FormOnly)).form
    if form == TIME_FORM:
        return record
    if form > TIME_FORM:
        raise _UnknownFormat(f"its times have form {form}, this runtime reads {TIME_FORM}")
    return msgspec.structs.replace(
        record,
        shards={
            uid: {
                shard: msgspec.structs.replace(time, watermark_ms=lagging(time.watermark_ms, 1))
                for shard, time in shards.items()
            }
            for uid, shards in record.shards.items()
        },
        watermarks={uid: lagging(mark, 1) for uid, mark in record.watermarks.items()},
        next_event_ms={uid: due_ms - 1 for uid, due_ms in record.next_event_ms.items()},
        form=TIME_FORM,
    )


def _by_prefix(states: Mapping[str, bytes]) -> dict[str, dict[str, bytes]]:
    entries: dict[str, dict[str, bytes]] = {prefix: {} for prefix in PREFIXES}
    for name, data in states.items():
        prefix, _, rest = name.partition(":")
        if prefix not in entries:
            raise _UnknownFormat(f"it has an unknown entry {prefix!r}")
        entries[prefix][rest] = data
    return entries
