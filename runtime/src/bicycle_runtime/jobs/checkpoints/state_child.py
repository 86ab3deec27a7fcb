"""The child process that reads sealed state for a service, for many queries.

Its arguments are for ``base.pipes`` and the checkpoint storage of one job. Each answer is
``{"answer": …}`` or ``{"error": …}``. Files that were read are kept, so that a second question for
a key takes milliseconds. No pickle is loaded. It ends when no further question can come, or after
a minute without one.
"""

from __future__ import annotations

import sys
from typing import Any

from bicycle_runtime.base.pipes import Questions
from bicycle_runtime.base.storage import Storage
from bicycle_runtime.base.storage_urls import open_storage
from bicycle_runtime.jobs.checkpoints.sealed_queries import Selection
from bicycle_runtime.jobs.checkpoints.sealed_states import SealedEpoch, open_epoch
from bicycle_runtime.jobs.checkpoints.sealed_values import ValueReader
from bicycle_runtime.jobs.checkpoints.state_answers import (
    changes_answer,
    entries_answer,
    operators_answer,
    outline_answer,
)
from bicycle_runtime.recovery.history import EpochHistory
from bicycle_runtime.state.stores.contents import KeptContents
from bicycle_sdk.errors import BicycleError

_IDLE_S = 60.0
_PATIENCE_S = 8.0


class _Answers:
    """Answers questions about the state of one job."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._contents = KeptContents()

    def close(self) -> None:
        self._contents.close()

    def of(self, question: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a question about its subject, ``about``."""
        epoch = question.get("epoch")
        sealed = open_epoch(self._storage, epoch, contents=self._contents)
        names = ("operator", "state", "key", "prefix")
        selection = Selection(**{name: question.get(name) for name in names})
        match question["about"]:
            case "outline":
                return outline_answer(sealed)
            case "operators":
                return operators_answer(sealed)
            case "entries":
                limit = question["limit"]
                return entries_answer(sealed, selection, reader=ValueReader(), limit=limit)
            case _:
                before = open_epoch(self._storage, self._since(question, sealed))
                limit = question["limit"]
                return changes_answer(before, sealed, selection, reader=ValueReader(), limit=limit)

    def _since(self, question: dict[str, Any], sealed: SealedEpoch) -> int:
        """Return the epoch to compare with: the named epoch, or the previous epoch."""
        since: int | None = question.get("since")
        if since is not None:
            return since
        older = [each for each in EpochHistory(self._storage).epochs() if each < sealed.epoch]
        return older[-1] if older else sealed.epoch


def main(arguments: list[str]) -> int:
    """Answer questions until the last."""
    questions = Questions(arguments[0])
    answers = _Answers(open_storage(arguments[1], patience_s=_PATIENCE_S))
    while (question := questions.next(idle_s=_IDLE_S)) is not None:
        questions.answer(_answer(answers, question[0]))
    answers.close()
    return 0


def _answer(answers: _Answers, question: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"answer": answers.of(question)}
    except BicycleError as error:
        return {"error": error.to_json()}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
