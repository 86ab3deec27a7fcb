"""One instance of a chain: operators that pass batches, and routers at outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from time import perf_counter_ns

from bicycle_runtime.frames.record_shapes import RecordShape
from bicycle_runtime.operators.batch import Batch
from bicycle_runtime.operators.functions.operator import Advance, Operator, Timed
from bicycle_runtime.operators.functions.process import ProcessOperator
from bicycle_runtime.operators.functions.rate_limit import RateLimitOperator
from bicycle_runtime.operators.heartbeats import LAST_POSITION
from bicycle_runtime.operators.spec import ChainSpec
from bicycle_runtime.operators.tasks.record_copies import Copy
from bicycle_runtime.operators.tasks.routing import Router


class Chain:
    """Feeds batches through operators, depth first.

    Args:
        spec: Which chain this is.
        operators: Its operators, in order; a source's own reading is done by the task, not here.
        copies: Functions that copy the input of an operator, by its place in the chain.

    ``shape`` is the shape of the records that a source emits as frames.
    """

    def __init__(
        self, spec: ChainSpec, operators: Sequence[Operator], copies: Mapping[int, Copy]
    ) -> None:
        self.spec = spec
        self.operators = operators
        self._copies = copies
        self.shape: RecordShape | None = None
        self._main: list[Router] = []
        self._sides: dict[tuple[int, str], list[Router]] = {}
        self._drained_ns = self._drain_ns = 0
        self.below: Sequence[Chain] = ()  # The next chains of the task, in order.
        for index, operator in enumerate(operators):
            if isinstance(operator, RateLimitOperator):
                following = operators[index + 1] if index + 1 < len(operators) else None
                if isinstance(following, ProcessOperator) and following.gathers:
                    operator.is_handed_on, following.reserve = True, operator.bucket.reserve
                operator.emit = partial(self._run, first=index + 1)
                operator.bucket.before_wait = partial(self._drain_below, index + 1)

    def connect(self, operator: int, tag: str | None, router: Router) -> None:
        """Attach a router to the main output, or to a side output of one operator."""
        if tag is None:
            self._main.append(router)
        else:
            self._sides.setdefault((operator, tag), []).append(router)

    @property
    def routers(self) -> list[Router]:
        """Return all routers."""
        return self._main + [router for routers in self._sides.values() for router in routers]

    def feed(self, batch: Batch) -> None:
        """Run a batch through all operators, and send the output."""
        self._run(batch, 0)

    def feed_behind(self, index: int, batch: Batch) -> None:
        """Run a batch through the operators from ``index`` on, as records.

        The operator there makes its calls at once.
        """
        self._run(batch, index)
        self._pass_on(index, self.operators[index].drain())

    def drain(self, first: int = 0) -> Iterator[None]:
        """Make the calls that wait, operator by operator; pause after each operator."""
        for index in range(first, len(self.operators)):
            if self.operators[index].gathers:
                self._pass_on(index, self.operators[index].drain())
                yield

    def advance(self, advance_of: Callable[[Operator], Advance]) -> Iterator[None]:
        """Advance event time for each operator, after the operators upstream have fired.

        Pauses after each operator that may fire, so that shuffle blocks can leave.
        """
        for index, operator in enumerate(self.operators):
            if operator.gathers:  # Records fired by others wait here.
                self._pass_on(index, operator.drain())
                yield
            advance = advance_of(operator)
            operator.context.watermark = advance.watermark
            if isinstance(operator, Timed):
                for batch in _fire(operator, operator.advance(advance)):
                    operator.records_out += len(batch.values)
                    self._send_sides(index)
                    self._run(batch, index + 1)
                self._send_sides(index)
                yield

    def _run(self, batch: Batch, first: int) -> None:
        for index in range(first, len(self.operators)):
            if not batch.values:
                return
            if index in self._copies:
                batch = self._copies[index](batch)
            operator = self.operators[index]
            if operator.gathers:
                self._pass_on(index, operator.gather(batch))
                return
            outputs = operator.process(batch)
            if len(outputs) > 1:
                self._pass_on(index, iter(outputs))
                return
            self._send_sides(index)
            [batch] = outputs
        self._send(batch)

    def _pass_on(self, index: int, outputs: Iterator[Batch]) -> None:
        """Run outputs of one operator through the next ones."""
        for output in outputs:
            self._send_sides(index)
            self._run(output, index + 1)

    def _drain_below(self, first: int) -> None:
        """Make the calls that wait after a point of this chain, down to the sinks.

        Records wait for calls as long as the last calls took, so that several are in flight.
        """
        began = perf_counter_ns()
        if began - self._drained_ns < self._drain_ns:
            return
        for _ in self.drain(first):
            continue
        for chain in self.below:
            for _ in chain.drain():
                continue
        self._drained_ns = perf_counter_ns()
        self._drain_ns = self._drained_ns - began

    def _send(self, batch: Batch) -> None:
        if batch.values:
            for router in self._main:
                router.send(batch)

    def _send_sides(self, index: int) -> None:
        operator = self.operators[index]
        for side in operator.take_sides():
            routers = self._sides.get((index, side.tag), ())
            if not routers:
                count = operator.unread.get(side.tag, 0)
                operator.unread[side.tag] = count + len(side.batch.values)
            for router in routers:
                router.send(side.batch)


def _fire(operator: Operator, fired: Iterator[Batch]) -> Iterator[Batch]:
    """Yield an operator's fired batches, and measure its time."""
    while True:
        LAST_POSITION.enter(operator.uid)
        operator.context.batch = None
        started = perf_counter_ns()
        batch = next(fired, None)
        operator.busy_ns += perf_counter_ns() - started
        if batch is None:
            return
        yield batch
