"""The rules for a sink's output, given sealed, published and written records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from bicycle_runtime.contract import Guarantee
from bicycle_runtime.testing.connectors.cases import SinkCase
from bicycle_runtime.testing.connectors.running import pauses


class Output:
    """A comparison of visible with expected output, as strict as the guarantee.

    Args:
        case: Looks at the output.
        epochs: The sealed records: epoch, subtask, records.
        written: Whatever any writer took, sealed or not.
    """

    def __init__(
        self, case: SinkCase, *, epochs: Sequence[list[list[Any]]], written: Sequence[Any]
    ) -> None:
        self._case = case
        self._epochs = epochs
        self._written = written

    def check(
        self,
        *,
        published_count: int | None = None,
        is_in_order: bool = False,
        unseen_count: int = 0,
    ) -> None:
        """Fail, with the first records that are wrong, unless the output is right.

        Args:
            published_count: How many sealed epochs are published; None for all.
            is_in_order: Whether the order counts for a sink that may repeat records, too.
            unseen_count: How many records the sink has counted as dropped without a receiver.
        """
        epochs = self._epochs[:published_count]
        must = [value for epoch in epochs for part in epoch for value in part]
        wanted = Counter(map(repr, must))
        for _ in pauses(self._case.wait_s):
            lanes = [list(map(repr, lane)) for lane in self._case.visible()]
            found = Counter(text for lane in lanes for text in lane)
            lost = wanted - found
            if lost.total() <= unseen_count or found - self._allowed_output(wanted, found):
                break
        surplus = found - self._allowed_output(wanted, found)
        assert not surplus, f"visible, but not (or more often than) published: {_some(surplus)}"
        if self._case.guarantee is not Guarantee.AT_MOST_ONCE:
            assert lost.total() <= unseen_count, f"published, but not visible: {_some(lost)}"
        if is_in_order or self._case.guarantee is Guarantee.EXACTLY_ONCE:
            self._check_order(lanes)

    def _allowed_output(self, wanted: Counter[str], found: Counter[str]) -> Counter[str]:
        """Return the permitted output: at-least-once permits repeated written records."""
        if self._case.guarantee is not Guarantee.AT_LEAST_ONCE:
            return wanted
        written = set(map(repr, self._written))
        return Counter({text: number for text, number in found.items() if text in written})

    def _check_order(self, lanes: list[list[str]]) -> None:
        """Check that the records of one subtask keep their order within a lane."""
        width = max(map(len, self._epochs), default=0)
        subtasks = [
            [
                repr(value)
                for epoch in self._epochs
                for part in epoch[slot : slot + 1]
                for value in part
            ]
            for slot in range(width)
        ]
        for lane in lanes:
            for texts in subtasks:
                indexes = {text: index for index, text in enumerate(texts)}
                found = [indexes[text] for text in lane if text in indexes]
                assert found == sorted(found), "records of one writer have changed their order"


def _some(texts: Counter[str]) -> str:
    shown = [f"{text} ({number})" for text, number in sorted(texts.items())[:3]]
    return ", ".join(shown) + (f" and {len(texts) - 3} more" if len(texts) > 3 else "")
