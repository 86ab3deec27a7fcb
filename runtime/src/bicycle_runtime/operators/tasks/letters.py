"""Dead letters that are fed once more to the operator that refused them.

Every task of a keyed operator is told all its letters, and takes those whose keys it owns: only
there is the key known, by the code of now. Others are dealt out by the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bicycle_runtime.base.user_code import error_text, users_error
from bicycle_runtime.operators.batch import Batch, ExchangeLineage, Origin
from bicycle_runtime.operators.errors import DEAD_LETTER_UNREADABLE
from bicycle_runtime.operators.spec import JobImage, OperatorSpec, StateScope
from bicycle_runtime.operators.tasks.orders import LetterOrder
from bicycle_runtime.operators.user_calls.user_functions import selector_of
from bicycle_runtime.operators.windows.firing import Fired
from bicycle_runtime.records.blobs import BYTE_GROUPS_MAX
from bicycle_runtime.records.codecs import load_record_pickle
from bicycle_runtime.records.keys import GroupCache, task_of
from bicycle_sdk.graph import OperatorKind
from bicycle_sdk.state import Timer

if TYPE_CHECKING:
    from bicycle_runtime.operators.tasks.program import Program

Feed = Callable[[Batch], None]


def feed_letters(
    image: JobImage, program: Program, letters: Sequence[LetterOrder]
) -> Iterator[LetterOrder]:
    """Feed dead letters to their operators singly; yield each one that this task fed.

    A record that is refused again leaves a letter that names the one it was.

    Raises:
        DEAD_LETTER_UNREADABLE: the record cannot be unpickled by the code of now.
        BicycleError: what any epoch may raise; nothing of this one is sealed then.
    """
    for chain in program.chains.values():
        for index, operator in enumerate(chain.operators):
            spec, policy = operator.spec, operator.policy
            mine = [letter for letter in letters if letter.operator == spec.uid]
            keys = _keys_of(image, program.subtask, spec) if mine else None
            for letter in mine:
                values = _values(letter, spec)
                groups = None if keys is None else keys.group(letter, values[0])
                if groups is not None and not groups:
                    continue
                policy.replayed = letter.id
                try:
                    chain.feed_behind(index, _batch(letter, values, groups))
                finally:
                    policy.replayed = None
                yield letter


def _values(letter: LetterOrder, spec: OperatorSpec) -> list[Any]:
    try:
        value = load_record_pickle(letter.value)
    except BaseException as error:  # unpickling runs code of the job, which may raise anything
        reason = f"{type(error).__qualname__}: {error_text(users_error(error))}"
        raise DEAD_LETTER_UNREADABLE(letter=letter.id, operator=spec.uid, reason=reason) from error
    if isinstance(value, Timer | Fired):  # Written by a version that did not store the input.
        reason = "it is not a record: a timer or a window fired"
        raise DEAD_LETTER_UNREADABLE(letter=letter.id, operator=spec.uid, reason=reason)
    # A function over batches refuses them whole, so the letter is all of one.
    return list(value) if spec.vertex.kind is OperatorKind.MAP_BATCHES else [value]


def _batch(letter: LetterOrder, values: list[Any], groups: Sequence[int] | None) -> Batch:
    origin = None
    if letter.source is not None:
        origin = Origin(
            source=letter.source, shard=letter.shard, offset=letter.offset,
            end_offset=letter.end_offset,
        )  # fmt: skip
    time_ms = letter.event_time_ms
    times = None if time_ms is None else [time_ms] * len(values)
    column = groups if groups is None or isinstance(groups, bytes) else list(groups)
    return Batch(values, ExchangeLineage(origin, times), column, letter.ordinal)


@dataclass(frozen=True, slots=True)
class _Keys:
    """The key groups of records, without the groups of other subtasks."""

    spec: OperatorSpec
    subtask: int
    selectors: Sequence[Callable[[Any], Any] | None]
    groups: GroupCache

    def group(self, letter: LetterOrder, value: Any) -> Sequence[int]:
        spec, select = self.spec, self.selectors[letter.ordinal]
        assert select is not None  # The driver refuses letters of an input without keys.
        try:
            group = self.groups[select(value)]
        except BaseException as error:  # noqa: BLE001  # The operator meets it, too.
            users_error(error)
            group = 0
        column = [group] if spec.group_count > BYTE_GROUPS_MAX else bytes([group])
        if spec.scope is not StateScope.KEY_GROUPS:
            return column
        parallelism = spec.vertex.parallelism
        owner = task_of(group, group_count=spec.group_count, parallelism=parallelism)
        return column if owner == self.subtask else ()


def _keys_of(image: JobImage, subtask: int, spec: OperatorSpec) -> _Keys | None:
    """Return the key groups of an operator's records, or None if it is not keyed."""
    payloads = spec.input_selectors or (spec.key_selector,)
    selectors = [selector_of(image.payloads, payload_id) for payload_id in payloads]
    return _Keys(spec, subtask, selectors, GroupCache(spec.group_count)) if any(selectors) else None
