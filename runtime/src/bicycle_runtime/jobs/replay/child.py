"""The child process of ``epochs``: runs an epoch, and compares the results.

It answers one question (``base.pipes``): the request, with the bundle. Standard input and output
belong to the user's functions and to the debugger.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec

from bicycle_runtime.base.pipes import answer_once
from bicycle_runtime.base.storage_urls import open_storage
from bicycle_runtime.engine.epoch.replay_record import BegunEpoch, ReplayRecord, decode_record
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.engine.planning.setup import JobSetup, prepare_job
from bicycle_runtime.engine.planning.stages import with_parallelisms
from bicycle_runtime.engine.replay.debugging import DebuggerLeft, EpochDebugger
from bicycle_runtime.engine.replay.one_key import narrow_to
from bicycle_runtime.engine.replay.replaying import Replayed, ReplaySettings, replay_epoch
from bicycle_runtime.engine.resuming.operator_ids import with_operator_ids
from bicycle_runtime.extraction.bundle import JobBundle
from bicycle_runtime.jobs.checkpoints.sealed_queries import (
    OperatorDiff,
    Selection,
    diff_operator,
    keys_meant,
)
from bicycle_runtime.jobs.checkpoints.sealed_states import SealedEpoch
from bicycle_runtime.jobs.checkpoints.sealed_values import ValueReader
from bicycle_runtime.jobs.errors import EPOCH_NOT_REPLAYABLE, REPLAY_OPERATOR_UNKNOWN
from bicycle_runtime.jobs.replay.epochs import NEXT
from bicycle_runtime.layouts.manifest import PlanRecord
from bicycle_runtime.operators.tasks.program import Program
from bicycle_runtime.recovery.history import EpochHistory
from bicycle_runtime.recovery.manifest import Manifest
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.options import from_mapping

_VALUE_CHARACTERS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class _Epoch:
    """The epoch: its record, the manifest before it, and its own if it is sealed."""

    record: ReplayRecord
    before: Manifest
    sealed: Manifest | None


@dataclass(slots=True)
class _Comparison:
    """The differences from the sealed epoch, as texts, and its changed states."""

    differences: list[str] = field(default_factory=list)
    states: list[dict[str, Any]] = field(default_factory=list)


def main(arguments: list[str]) -> int:
    """Answer one question; an epoch that fails or cannot be replayed is an answer too."""
    return answer_once(arguments[0], _answer)


def _answer(words: dict[str, Any], blobs: list[bytes]) -> dict[str, Any]:
    try:
        return _replay(words, JobBundle.from_bytes(blobs[0]))
    except BicycleError as error:
        return {"refused": error.to_json()}
    except DebuggerLeft:
        return {"left": True, "epoch": words["epoch"]}


def _replay(words: dict[str, Any], bundle: JobBundle) -> dict[str, Any]:
    """Replay an epoch and return the report.

    1. Find the epoch, and plan the job as wide as it was then.
    2. Run it, in the debugger on request.
    3. Compare the results with the sealed ones.
    """
    storage = open_storage(words["url"])
    # 1. Find the epoch, and plan the job as wide as it was then.
    epoch = _find(EpochHistory(storage), BegunEpoch(storage, job=words["job_id"]), words)
    record = epoch.record
    bundle = with_operator_ids(bundle, (epoch.sealed or epoch.before).operator_ids)
    setup = prepare_job(
        replace(bundle, graph=with_parallelisms(bundle.graph, record.parallelism)),
        job_id=words["job_id"],
        storage=storage,
    )
    _require_operator(words["operator"], setup, epoch=record.epoch)
    # 2. Run it, in the debugger on request.
    ends = epoch.sealed.offsets if epoch.sealed is not None else {}
    keys = None if words["key"] is None else keys_meant(words["key"])
    debugger = _debugger(words, record) if words["is_debugged"] else None

    def adapt(program: Program) -> None:
        if keys is not None:
            narrow_to(program, setup, keys)
        if debugger is not None:
            debugger.adapt(program)

    settings = ReplaySettings(
        shown_count=words["shown_count"],
        adapt=adapt,
        state=from_mapping(EngineOptions, words["engine"]).state_settings,
    )
    run = partial(replay_epoch, setup, record, epoch.before, ends=ends, settings=settings)
    done: Replayed = run() if debugger is None else debugger.watch(run)
    # 3. Compare the results with the sealed ones.
    return _report(words, epoch, done, bundle=bundle, setup=setup)


def _find(history: EpochHistory, begun: BegunEpoch, words: dict[str, Any]) -> _Epoch:
    """Return the epoch that is meant.

    Raises:
        EPOCH_NOT_REPLAYABLE: it does not exist, or has no record of its run.
    """
    known = history.epochs()
    last = known[-1] if known else 0
    number = last + 1 if words["epoch"] == NEXT else int(words["epoch"])
    sealed = history.manifest(number) if number in known else None
    try:
        record = _read_record(sealed) if sealed is not None else begun.read(number)
    except msgspec.MsgspecError as error:
        raise _refusal(number, history, f"its record is damaged ({error})") from error
    if record is None:
        raise _refusal(number, history, _why_not(number, last, is_sealed=sealed is not None))
    if number > 1 and number - 1 not in known:
        problem = f"its state is that of epoch {number - 1}, which was removed"
        raise _refusal(number, history, problem)
    before = history.manifest(number - 1) if number > 1 else _nothing(record)
    return _Epoch(record=record, before=before, sealed=sealed)


def _read_record(sealed: Manifest) -> ReplayRecord | None:
    return decode_record(sealed.replay) if sealed.replay else None


def _why_not(epoch: int, last: int, *, is_sealed: bool) -> str:
    if is_sealed:
        return "no task ran in it, or a version without replay sealed it"
    if epoch == last + 1:
        return "no epoch was started after the last sealed epoch"
    return "it is not retained"


def _refusal(epoch: int, history: EpochHistory, problem: str) -> BicycleError:
    known = history.epochs()
    usable = [each for each in known if each == 1 or each - 1 in known]
    usable = [each for each in usable if _has_record(history, each)]
    known_text = ", ".join(map(str, usable)) or "none"
    return EPOCH_NOT_REPLAYABLE(epoch=epoch, problem=problem, known_text=known_text)


def _has_record(history: EpochHistory, epoch: int) -> bool:
    try:
        return bool(history.manifest(epoch).replay)
    except BicycleError:
        return False  # It is damaged, or gone since it was listed.


def _require_operator(operator: str | None, setup: JobSetup, *, epoch: int) -> None:
    known = sorted(vertex.id for vertex in setup.graph.vertices)
    if operator is not None and operator not in known:
        known_text = ", ".join(known)
        raise REPLAY_OPERATOR_UNKNOWN(epoch=epoch, operator=operator, known_text=known_text)


def _nothing(record: ReplayRecord) -> Manifest:
    """Return the manifest before the first epoch."""
    plan = PlanRecord(
        bundle_digest=record.bundle_digest, parallelism=record.parallelism, now_ms=record.now_ms
    )
    return Manifest(epoch=0, plan=plan)


def _debugger(words: dict[str, Any], record: ReplayRecord) -> EpochDebugger:
    """Return the debugger; by default it waits for the failure of a failed epoch."""
    return EpochDebugger(
        words["operator"],
        stops_at_call=words["operator"] is not None or record.error is None,
        tell=_tell,
    )


def _tell(line: str) -> None:
    sys.stdout.write(f"replay: {line}\n")
    sys.stdout.flush()


def _report(
    words: dict[str, Any], epoch: _Epoch, done: Replayed, *, bundle: JobBundle, setup: JobSetup
) -> dict[str, Any]:
    record, key = epoch.record, words["key"]
    found = _Comparison()
    if done.manifest is not None:
        _compare_states(found, epoch, done, words)
        if epoch.sealed is not None and key is None:
            found.differences += _other_differences(epoch.sealed, record, done)
    elif epoch.sealed is not None:
        found.differences.append("the epoch fails now, although it was sealed")
    wanted = words["operator"]
    return {
        "epoch": record.epoch,
        "url": words["url"],
        "was_sealed": epoch.sealed is not None,
        "former_error": record.error,
        "is_same_plugin": record.bundle_digest == bundle.digest,
        "now_ms": record.now_ms,
        "key": key,
        "operators": [
            {"operator": uid, "records_in": counts.records_in, "records_out": counts.records_out,
             "failed": counts.failed, "late": counts.late}
            for uid, counts in _in_order(done, setup)
            if wanted in (None, uid)
        ],
        "sinks": [
            {"sink": uid, "record_count": got.record_count, "records": list(map(_clip, got.shown))}
            for uid, got in done.sinks.items()
        ],
        "states": [state for state in found.states if wanted in (None, state["operator"])],
        "differences": found.differences,
        "error": None if done.error is None else done.error.to_json(),
    }  # fmt: skip


def _in_order(done: Replayed, setup: JobSetup) -> Iterator[tuple[str, Any]]:
    for spec in setup.plan.operators():
        if spec.uid in done.counts:
            yield spec.uid, done.counts[spec.uid]


def _compare_states(
    found: _Comparison, epoch: _Epoch, done: Replayed, words: dict[str, Any]
) -> None:
    assert done.manifest is not None
    storage = done.storage
    before = SealedEpoch(storage, epoch.before)
    after = SealedEpoch(storage, done.manifest)
    sealed = None if epoch.sealed is None else SealedEpoch(storage, epoch.sealed)
    selection = Selection(key=words["key"])
    reader = ValueReader()
    for operator in after.operators():
        changed = diff_operator(
            before, after, operator, selection=selection, limit=words["shown_count"]
        )
        found.states.append(
            {
                "operator": operator,
                **{str(word): count for word, count in changed.counts.items()},
                "changes": _rows(changed, reader),
            }
        )
        if sealed is not None and operator in sealed.manifest.states:
            wrong = diff_operator(sealed, after, operator, selection=selection, limit=1)
            found.differences += _state_differences(wrong, reader)


def _state_differences(diff: OperatorDiff, reader: ValueReader) -> Iterator[str]:
    count = sum(diff.counts.values())
    if count:
        row = _rows(diff, reader)[0]
        example = f"state {row['state']!r} of key {row['key']!r}"
        yield (
            f"operator {diff.operator!r}: the state differs from the sealed state ({count}), such "
            f"as {example}: {_clip(row['before'])} was sealed, {_clip(row['after'])} was computed "
            "now"
        )


def _other_differences(sealed: Manifest, record: ReplayRecord, done: Replayed) -> Iterator[str]:
    assert done.manifest is not None
    for uid, (was_in, was_out) in record.counts.items():
        counts = done.counts.get(uid)
        now = (counts.records_in, counts.records_out) if counts is not None else (0, 0)
        if now != (was_in, was_out):
            yield (
                f"operator {uid!r}: records in and out were {was_in} and {was_out} when sealed, "
                f"now they are {now[0]} and {now[1]}"
            )
    if {u: dict(s) for u, s in sealed.offsets.items()} != done.manifest.offsets:
        yield "sources were read to other offsets"
    if sealed.time != done.manifest.time:
        yield "watermarks or timers differ from the sealed ones"


def _rows(diff: OperatorDiff, reader: ValueReader) -> list[dict[str, Any]]:
    """Return changes as plain data, with the value before and after."""
    befores = reader.rows([change.before for change in diff.changes if change.before is not None])
    afters = reader.rows([change.after for change in diff.changes if change.after is not None])
    rest_before, rest_after = iter(befores), iter(afters)
    rows = []
    for change in diff.changes:
        before = next(rest_before) if change.before is not None else None
        after = next(rest_after) if change.after is not None else None
        entry = after or before
        assert entry is not None
        rows.append(
            {
                "change": change.word,
                "state": entry["state"],
                "key": entry["key"],
                "part": entry["part"],
                "before": None if before is None else before["value"],
                "after": None if after is None else after["value"],
            }
        )
    return rows


def _clip(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _VALUE_CHARACTERS else f"{text[: _VALUE_CHARACTERS - 1]}…"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
