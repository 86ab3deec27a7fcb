"""The base of operators: spec, policy for failed records, counters, a few methods."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import chain
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from bicycle_runtime.base.user_code import users_error
from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.frames.record_shapes import RecordShape
from bicycle_runtime.frames.vectors import Refused
from bicycle_runtime.layouts.state import RangeState
from bicycle_runtime.operators.batch import (
    Batch,
    ExchangeLineage,
    JoinedLineage,
    PickLineage,
    SpreadLineage,
    without_gaps,
)
from bicycle_runtime.operators.errors import FUNCTION_NOT_CLOSED
from bicycle_runtime.operators.functions.answers import (
    Asked,
    ColumnAnswer,
    Load,
    frame_of,
    shape_of_frame,
)
from bicycle_runtime.operators.heartbeats import LAST_POSITION
from bicycle_runtime.operators.metrics import Durations, MetricValues, grown_metrics
from bicycle_runtime.operators.spec import OperatorSpec
from bicycle_runtime.operators.user_calls.batches import wait
from bicycle_runtime.operators.user_calls.calls import Outcome
from bicycle_runtime.operators.user_calls.policy import DROPPED, RecordPolicy, user_hook
from bicycle_runtime.operators.user_calls.user_functions import resolve, run_watched
from bicycle_sdk.errors import FunctionResultError

if TYPE_CHECKING:
    from bicycle_runtime.operators.functions.contexts import Sent, WorkerContext

# hot path: the least batch of which columns may still be tried for a half, and the records of which
# columns are tried in vain, relative to a batch, before all others go one by one.
_SPLIT_MIN = 64
_ATTEMPTS_MAX = 4
_PAUSE_MAX = 64
_ONE_BY_ONE = nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochTime:
    """The epoch's values for each operator: number, recorded time, random seed."""

    epoch: int
    now_ms: int
    seed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """The progress of event time at the input of an operator.

    ``watermark`` W in ms: no record at or before W is expected any more. ``previous`` is the
    watermark at the start of the epoch: a record is late when its window was complete by then.
    ``now_ms`` is the recorded processing time of the epoch.
    """

    watermark: int
    previous: int
    now_ms: int


@dataclass(slots=True)
class SideBatch:
    """Records of one side output."""

    tag: str
    batch: Batch


class Operator(ABC):
    """One operator in one subtask; lives as long as the worker process keeps the job.

    Args:
        spec: Which operator this is.
        policy: Settles records whose function failed.
        context: The context of the user's function.
    """

    def __init__(self, spec: OperatorSpec, policy: RecordPolicy, context: WorkerContext) -> None:
        self.spec = spec
        self.uid = spec.uid
        self.policy = policy
        self.context = context
        self.records_in = 0
        self.records_out = 0
        self.records_on_columns = self.late = self.timed_out = 0
        self.unread: dict[str, int] = {}
        self.busy_ns = 0
        self.times = Durations()
        self._metrics_before = context.metrics.snapshot()
        self.select: Callable[[Batch], Batch] | None = None  # a replay's view of a batch
        self._asked: Asked | None = None
        self._begins_columns = False
        self._pause = self._paused = 0  # batches that go by records after one refused as a whole

    def begin_epoch(self, time: EpochTime) -> None:
        """Get ready for an epoch.

        ``records_on_columns`` counts the records that it processed on columns, ``late`` its late
        records, ``timed_out`` records that were dropped since a call took too long; operators that
        know them do. ``unread`` counts, by tag, side outputs without a reader in its chain.
        ``busy_ns`` is the time in the operator, ``times`` the durations of records.
        """
        self.records_in = self.records_out = self.records_on_columns = 0
        self.late = self.timed_out = 0
        self.unread = {}
        self.busy_ns = 0
        self.times = Durations()
        self.policy.reset()
        self._metrics_before = self.context.metrics.snapshot()
        self.context.processing_time = time.now_ms
        self.context.random.seed(
            f"{time.seed}/{self.uid}/{self.context.task_info.subtask_index}/{time.epoch}"
        )

    def use_columns(self, asked: Asked) -> None:
        """Try columns from now on, by these answers."""
        self._asked, self._begins_columns = asked, asked.for_shape(None).begins

    @classmethod
    def answer(cls, spec: OperatorSpec, load: Load, shape: RecordShape | None) -> ColumnAnswer:  # noqa: ARG003  # for classes that work on columns
        """Return whether an operator works on columns, and the reason if it does not.

        Called before the start and on workers, on a class, without an instance.

        Args:
            spec: The operator.
            load: Returns the object of a payload id.
            shape: The shape of its input, None for records of unknown shape.
        """
        return ColumnAnswer(f"{spec.vertex.kind.value.lower()} processes single records")

    def on_columns(self, batch: Batch, frame: Frame, answer: ColumnAnswer) -> Batch:  # noqa: ARG002  # for operators that work on columns
        """Return the output for a frame, computed on columns.

        Called only if ``answer`` has no reason against it. Records of a refused frame are processed
        one by one, or in halves.

        Args:
            batch: The input, of at least one record.
            frame: Its records as a frame.
            answer: The answer for the shape of the frame.

        Raises:
            Refused: the frame must be processed record by record; nothing has changed.
        """
        raise Refused

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Run the operator over a batch and return its main output.

        The output is one batch, or several if some of the records cannot be processed on columns.
        """
        LAST_POSITION.enter(self.uid)
        if self.select is not None:
            batch = self.shown(batch)
            return [self.run(batch) if batch.values else batch]
        found = self._frame_and_answer(batch)
        if found is None:
            return [self.run(batch)]
        frame, answer = found
        if answer.because is not None or self._paused:
            self._paused = max(0, self._paused - 1)
            return [self.run(batch.as_records())]
        output = self._try_columns(batch, frame, answer)
        if output is None:
            return self._process_parts(batch, answer)
        self._pause = 0
        return [output]

    def shown(self, batch: Batch) -> Batch:
        """Return the part of a batch that the operator gets: some replays show less."""
        return batch if self.select is None else self.select(batch)

    def _frame_and_answer(self, batch: Batch) -> tuple[Frame, ColumnAnswer] | None:
        """Return a batch as a frame and its answer, or None if there is no frame."""
        if self._asked is None:
            return None
        found: tuple[Frame, RecordShape | None] | None = None
        if isinstance(batch.values, Frame):
            found = batch.values, batch.shape or shape_of_frame(batch.values)
        elif self._begins_columns:
            found = frame_of(batch.values)
        if found is None or found[1] is None:
            return None
        return found[0], self._asked.for_shape(found[1])

    def _process_parts(self, refused: Batch, answer: ColumnAnswer) -> list[Batch]:
        """Return the output for a refused batch, on columns where possible.

        It is halved, down to a few records or until the attempts have cost as much as records
        would.
        """
        size = len(refused.values)
        if size < _SPLIT_MIN:
            return [self.run(refused.as_records())]
        outputs: list[Batch] = []
        parts, attempts = refused.split(), (_ATTEMPTS_MAX - 1) * size
        is_refused = True
        while parts:
            part = parts.pop(0)
            found = self._frame_and_answer(part)
            assert found is not None
            output, size = self._try_columns(part, found[0], answer), len(part.values)
            if output is not None:
                is_refused = False
                outputs.append(output)
                continue
            attempts -= size
            if size < _SPLIT_MIN or attempts <= 0:
                outputs.append(self.run(part.as_records()))
            else:
                parts[:0] = part.split()
        self._pause = min(2 * self._pause + 1, _PAUSE_MAX) if is_refused else 0
        self._paused = self._pause
        return outputs

    def _try_columns(self, batch: Batch, frame: Frame, answer: ColumnAnswer) -> Batch | None:
        """Return the output on columns, counted, or None if the frame is refused."""
        started, count = perf_counter_ns(), frame.count
        try:
            output = self.on_columns(batch, frame, answer)
        except Refused:
            self.busy_ns += perf_counter_ns() - started
            return None
        given = len(output.values)
        if isinstance(output.values, Frame):
            output.shape = answer.gives
        self.records_in += count
        self.records_on_columns += count
        self.policy.total += count
        self.records_out += given
        self.took(perf_counter_ns() - started, count)
        return output

    def run(self, batch: Batch) -> Batch:
        """Run the operator over a batch, count it, and return its main output."""
        self.records_in += len(batch.values)
        self.policy.total += len(batch.values)
        self.policy.batch = self.context.batch = batch
        started = perf_counter_ns()
        output = self.apply(batch)
        self.took(perf_counter_ns() - started, len(batch.values))
        self.records_out += len(output.values)
        return output

    @property
    def gathers(self) -> bool:
        """True when batches wait for others, so that calls are in flight together."""
        return False

    def gather(self, batch: Batch) -> Iterator[Batch]:
        """Take a batch, and yield the outputs of batches whose calls have ended."""
        yield from self.process(batch)

    def drain(self) -> Iterator[Batch]:
        """Make the calls for all batches that wait, and yield the output of each."""
        return iter(())

    def took(self, duration_ns: int, record_count: int) -> None:
        """Take note of the time that a batch took; called once a batch."""
        self.busy_ns += duration_ns
        if record_count:
            self.times.take(duration_ns, record_count)

    def metrics(self) -> MetricValues:
        """Return the epoch's additions to the metrics of the user's function."""
        now = self.context.metrics.snapshot()
        subtask = self.context.task_info.subtask_index
        return grown_metrics(self._metrics_before, now, subtask=subtask)

    @abstractmethod
    def apply(self, batch: Batch) -> Batch:
        """Compute the output of a batch."""

    def take_sides(self) -> list[SideBatch]:
        """Return and clear the side outputs of the last batch."""
        return []

    def close(self) -> None:
        """Close the user's function, so that it releases its resources.

        Raises:
            FUNCTION_NOT_CLOSED: it failed, or tried to end the process.
        """
        function: Any = getattr(self, "function", None)
        if hasattr(function, "close"):
            with user_hook(self.uid, "close()", kind=FUNCTION_NOT_CLOSED):
                resolve(function.close)


class Stateful(ABC):
    """The additional interface of an operator with state."""

    @abstractmethod
    def restore(self, state: RangeState) -> None:
        """Restore a sealed state. Called at the beginning of each epoch."""

    @abstractmethod
    def commit(self, epoch: int, attempt: str, *, is_interval_over: bool) -> RangeState:
        """Write the changes of the epoch, and return the state that includes them."""

    @abstractmethod
    def key_count(self) -> int:
        """Return how many keys have state; where it is on disk, about."""

    @abstractmethod
    def release(self) -> None:
        """Release local resources of the state. Called when the process ends."""


def expect_keys(context: Any, keys: Callable[[], Iterable[Any]]) -> AbstractContextManager[Any]:
    """Return a context in which the state of a batch's keys is read at once.

    Args:
        context: The context of the operator, with its tables and the key groups of keys.
        keys: Returns the keys of the records.
    """
    space = context.tables.space
    return space.expect(keys, context.groups) if space.reads_ahead else _ONE_BY_ONE


class Timed(ABC):
    """The additional interface of an operator that waits for event or processing time.

    In an epoch it sees ``restore`` (when it is stateful), ``begin_time``, all its records, then
    ``advance`` once, then ``commit``. Keyed operators are behind an exchange, so the watermark of
    ``advance`` knows all records of this epoch; an operator in the chain of a source knows only the
    records of its own task.
    """

    @abstractmethod
    def begin_time(self, advance: Advance) -> None:
        """Take note of the watermark (``watermark == previous`` here) before any record."""

    @abstractmethod
    def advance(self, advance: Advance) -> Iterator[Batch]:
        """Fire due timers: event time up to the watermark, processing time to ``now_ms``.

        Called once per epoch, also when neither has moved, and read to its end. The records, made
        by ``emitted`` with their event times, pass through the chain before the next are read; side
        outputs are taken by ``take_sides`` after each batch and at the end.
        """

    @abstractmethod
    def next_event_ms(self) -> int | None:
        """Return the least watermark at which ``advance`` has work, or None.

        Called after ``advance``. Without input an epoch is run when idle time has brought the
        watermark there, and not before: so an operator that waits and does not report it waits for
        input.
        """

    @abstractmethod
    def next_timer_ms(self) -> int | None:
        """Return when, in processing time, ``advance`` would do something; None for never."""


def kept(batch: Batch, results: list[Any], *, has_drops: bool) -> Batch:
    """Return a batch with one result per input, without dropped results."""
    if not has_drops:
        return Batch(results, batch.lineage)
    picked = [index for index, result in enumerate(results) if result is not DROPPED]
    return Batch([results[index] for index in picked], PickLineage(batch.lineage, lambda: picked))


def spread(batch: Batch, outcome: Outcome, *, function: str, policy: RecordPolicy) -> Batch:
    """Return a batch with all outputs of all calls, in order."""
    results = as_sequences(outcome.results, function=function, policy=policy)
    ordered = results if outcome.order is None else [results[index] for index in outcome.order]
    return Batch(
        list(chain.from_iterable(ordered)), SpreadLineage(batch.lineage, ordered, outcome.order)
    )


def as_sequences(results: list[Any], *, function: str, policy: RecordPolicy) -> list[Sequence[Any]]:
    """Make every result a list or tuple: run generators, refuse strings and None.

    Raises:
        FunctionResultError: a result is not an iterable of records.
    """
    # hot path: one set over the types (12 ns a call) instead of a check per call.
    if set(map(type, results)) <= {list, tuple}:
        return results
    return [
        result if type(result) in (list, tuple) else _results_of(result, index, function, policy)
        for index, result in enumerate(results)
    ]


def _results_of(result: Any, index: int, function: str, policy: RecordPolicy) -> Sequence[Any]:
    if result is DROPPED:
        return ()
    try:
        if inspect.isawaitable(result):
            result = run_watched(wait(result))
    except BaseException as error:  # noqa: BLE001  # an awaited object is user code, too
        policy.give_up(users_error(error), index)
        return ()
    if isinstance(result, str | bytes | dict) or not (
        hasattr(result, "__iter__") or hasattr(result, "__aiter__")
    ):
        refused = FunctionResultError(
            function=f"{function} of operator {policy.operator!r}",
            found=type(result).__qualname__,
            operator=policy.operator,
        )
        policy.refuse(refused, index)
    try:
        collected: list[Any] = (
            run_watched(_collect(result)) if hasattr(result, "__aiter__") else list(result)
        )
        return collected
    except BaseException as error:  # noqa: BLE001  # a generator is user code too
        policy.give_up(users_error(error), index)
        return ()


async def _collect(results: Any) -> list[Any]:
    return [result async for result in results]


def side_batches(batch: Batch, sent: Iterable[Sent]) -> list[SideBatch]:
    """Return one batch per tag, with the source span of the input batch.

    Args:
        batch: The input; of joined batches each has batches per tag of its own.
        sent: The sent records (an event time is None for a record without one).
    """
    lineage = batch.lineage
    by_tag: dict[tuple[str, int], tuple[list[Any], list[int | None]]] = {}
    for tag, value, time, index in sent:
        part = lineage.part_of(index) if isinstance(lineage, JoinedLineage) else 0
        values, times = by_tag.setdefault((tag, part), ([], []))
        values.append(value)
        times.append(time)
    parts = lineage.parts if isinstance(lineage, JoinedLineage) else [batch]
    return [
        SideBatch(
            tag, Batch(values, ExchangeLineage(parts[part].lineage.span(), without_gaps(times)))
        )
        for (tag, part), (values, times) in by_tag.items()
    ]
