"""Responses to state queries as JSON data, the same for commands, API and pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any

from bicycle_runtime.jobs.checkpoints.sealed_queries import (
    EntryChange,
    Selection,
    diff_operator,
    select,
    summarize_operator,
)
from bicycle_runtime.jobs.checkpoints.sealed_states import SealedEpoch, file_sizes
from bicycle_runtime.jobs.checkpoints.sealed_values import ValueReader
from bicycle_runtime.recovery.history import EpochHistory


def outline_answer(sealed: SealedEpoch) -> dict[str, Any]:
    """Return the operators with state, and its size. No entry is read."""
    return {
        **_about(sealed),
        "epochs": EpochHistory(sealed.storage).epochs(),
        "operators": [
            {
                "operator": operator,
                "scope": state.scope,
                "task_count": len(state.ranges),
                "file_count": len(sizes := file_sizes([state])),
                "byte_count": sum(size for size, _ in sizes),
            }
            for operator, state in sorted(sealed.manifest.states.items())
        ],
    }


def operators_answer(sealed: SealedEpoch) -> dict[str, Any]:
    """Return operators with their states, types and counts. All entries are read."""
    found = [asdict(summarize_operator(sealed, operator)) for operator in sealed.operators()]
    return {**_about(sealed), "operators": found}


def entries_answer(
    sealed: SealedEpoch, selection: Selection, *, reader: ValueReader, limit: int
) -> dict[str, Any]:
    """Return the first selected entries; ``is_cut`` is true if there are more.

    Raises:
        OPERATOR_UNKNOWN: the operator has no state.
        EpochGoneError: the job collected the epoch meanwhile.
    """
    found = list(islice(select(sealed, selection), limit + 1))
    return {
        **_about(sealed),
        "entries": reader.rows(found[:limit]),
        "is_cut": len(found) > limit,
    }


def changes_answer(
    before: SealedEpoch,
    after: SealedEpoch,
    selection: Selection,
    *,
    reader: ValueReader,
    limit: int,
) -> dict[str, Any]:
    """Return the entries that an epoch added, removed and changed since another.

    Args:
        before: The epoch to compare with.
        after: The other one.
        selection: Which entries count; all operators that have state in one of them, or one.
        reader: Shows values.
        limit: The number of changes of each operator to return beside the totals.

    Raises:
        OPERATOR_UNKNOWN: the operator has state in neither.
        EpochGoneError: the job collected an epoch meanwhile.
    """
    diffs = [
        diff_operator(before, after, operator, selection=selection, limit=limit)
        for operator in _operators_of(before, after, selection.operator)
    ]
    return {
        "url": after.storage.url,
        "epochs": [before.epoch, after.epoch],
        "record_count": after.manifest.event_count - before.manifest.event_count,
        "operators": [
            {"operator": each.operator, **each.counts, "changes": _rows(each.changes, reader)}
            for each in diffs
        ],
    }


def _about(sealed: SealedEpoch) -> dict[str, Any]:
    return {"url": sealed.storage.url, "epoch": sealed.epoch}


def _operators_of(before: SealedEpoch, after: SealedEpoch, wanted: str | None) -> list[str]:
    """Return the operators with state in one of two epochs, or the requested operator."""
    if wanted is not None and wanted in before.manifest.states:
        return [wanted]
    if wanted is not None:
        return after.operators(wanted)
    return sorted({*before.operators(), *after.operators()})


def _rows(changes: Sequence[EntryChange], reader: ValueReader) -> list[dict[str, Any]]:
    """Return changes as JSON data: the entry, with its value before and after."""
    sides = [side for change in changes for side in (change.before, change.after) if side]
    rows = iter(reader.rows(sides))
    found = []
    for change in changes:
        before = next(rows) if change.before else None
        after = next(rows) if change.after else None
        row = after or before or {}
        values = {"before": before and before["value"], "after": after and after["value"]}
        same = {name: row[name] for name in ("state", "kind", "key_group", "task", "key", "part")}
        found.append({"change": change.word, **same, **values})
    return found
