"""The operation that replays dead letters."""

from __future__ import annotations

import dataclasses
from typing import cast

import msgspec

from bicycle_runtime.jobs.control.dead_letters import DeadLetter
from bicycle_runtime.jobs.control.letter_replay import (
    LetterReplayOptions,
    ask_for_replay,
    chosen_letters,
)
from bicycle_runtime.jobs.operations.operation import OperationCall, OperationKind, Result
from bicycle_sdk.errors import ConfigError
from bicycle_sdk.quantities import amount

_LETTERS_MAX = 10_000


def _choose(call: OperationCall, options: LetterReplayOptions) -> list[DeadLetter]:
    chosen = chosen_letters(call.home, call.job, options.letters, operator=options.operator)
    if len(chosen) > _LETTERS_MAX:
        raise ConfigError(
            problem=f"too many letters: {len(chosen):,}",
            hint=f"replay at most {_LETTERS_MAX:,} at once: list them, or select one operator",
        )
    return chosen


def _settle(call: OperationCall, options: LetterReplayOptions) -> LetterReplayOptions:
    """Return options with the ids of the letters, since more letters may follow."""
    letters = tuple(each.id for each in _choose(call, options))
    return dataclasses.replace(options, letters=letters, operator=None)


def _replay(call: OperationCall, options: LetterReplayOptions) -> Result:
    chosen = _choose(call, options)
    if not chosen:
        return {"letters": [], "epochs": []}
    done = ask_for_replay(
        call.home, call.job, chosen, timeout_ms=options.timeout_ms, clock=call.clock,
        token=call.token,
    )  # fmt: skip
    return cast("Result", msgspec.to_builtins(done))


def _report(job: str, result: Result) -> str:
    if not result["letters"]:
        return f"{job}: all dead letters are already replayed"
    first, last = min(result["epochs"]), max(result["epochs"])
    epochs = f"epoch {first}" if first == last else f"epochs {first} to {last}"
    return f"{job}: {amount(len(result['letters']), 'dead letter')} replayed in {epochs}"


REPLAY_LETTERS = OperationKind(
    name="replay_letters",
    summary="Replay dead letters of a running job through their operators.",
    options=LetterReplayOptions,
    settle=_settle,
    perform=_replay,
    is_repeatable=True,
    needs_running=True,
    available="running",
    path="/jobs/{job_id}/dead-letters/replay",
    button="Replay",
    tab="dead-letters",
    question="The operators of {job} process the records of these dead letters again, with the "
    "current code, between two epochs. The results are published like those of new records. A "
    "record that is rejected again leaves a new dead letter. No letter is replayed twice.",
    command="dlq replay",
    positional=("letters",),
    selects=("letters", "operator"),
    all_help="Replay all dead letters of the job.",
    help="The current code processes the letters in a separate epoch. --operator and --all omit "
    "letters that were already replayed. It is an error to name such a letter in LETTERS. A record "
    "that fails again becomes a new dead letter.",
    examples=(
        "bicycle dlq replay wordcount part-000000000007-0.jsonl:1",
        "bicycle dlq replay wordcount --operator parse",
        "bicycle dlq replay wordcount --all",
    ),
    report=_report,
)
