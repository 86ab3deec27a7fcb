"""The restart strategy of a job: when it is started again after a failure.

After exceptions of functions and failures of workers, Spark and drivers the job starts again;
errors of input and of options end the job. Each sealed epoch refills the attempts, so that a job
which runs for months is not ended by the sum of its bad days; only a record on which a function
fails again and again ends the job, whatever else was sealed meanwhile. The attempts are kept with
the job's status, so that a driver and its supervisor count the same attempts.
"""

from __future__ import annotations

import builtins
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from bicycle_runtime.connectors.kafka.errors import KafkaTopicReplacedError
from bicycle_runtime.engine.errors import (
    EpochFailedError,
    EpochMixedError,
    SparkLostError,
    SparkStartKilledError,
)
from bicycle_runtime.jobs.errors import StalledError
from bicycle_runtime.jobs.status import RestartNote, RestartPlan
from bicycle_runtime.operators.errors import (
    RECORD_UNDECODABLE,
    ErrorRateError,
    FunctionFailedError,
    FunctionHookError,
    TaskMemoryError,
)
from bicycle_runtime.recovery.errors import EpochTakenError
from bicycle_runtime.state.errors import StateFileError
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.graph import RestartKind, RestartStrategy

# Met by opening functions again on the same Spark.
OF_FUNCTIONS = (FunctionFailedError, FunctionHookError, ErrorRateError)
# Errors that lead to a new start: they may pass by themselves, or end with the epoch that was put
# aside.
_RESTARTABLE = (
    *OF_FUNCTIONS,
    *(SparkLostError, SparkStartKilledError, EpochFailedError, EpochMixedError, EpochTakenError),
    *(KafkaTopicReplacedError, StalledError, StateFileError, TaskMemoryError),
)

# Built-in exceptions that may pass by themselves; the others are mistakes of code or of input.
_PASSING = (OSError, RuntimeError, MemoryError, SystemError, BufferError)
# Words in names of exceptions of libraries that may pass, such as OperationalError of databases.
_OUTAGE = re.compile(
    "connect|network|operational|protocol|rate_?limit|server|temporar|throttl|timeout|toomany|"
    "transport|unavailable",
    re.IGNORECASE,
)

_DELAY_MAX_MS = 60_000
HISTORY_MAX = 100  # The status file, which is written twice a second, holds them.
_JITTER = 0.1


class Restarts:
    """Counts the restarts of one run.

    Args:
        strategy: The job's restart strategy.
        attempt_count: Replaces the number of attempts of the strategy, unless None.
        delay_ms: Replaces the delay of the strategy, in ms, unless None.
        delay_max_ms: The longest wait that growing delays come to.
        source: Shortens growing delays by up to a tenth, so that jobs which failed together do not
            come back together; None leaves them as they are.
    """

    def __init__(
        self,
        strategy: RestartStrategy,
        attempt_count: int | None = None,
        *,
        delay_ms: int | None = None,
        delay_max_ms: int = _DELAY_MAX_MS,
        source: random.Random | None = None,
    ) -> None:
        self.is_default = (
            strategy == RestartStrategy() and attempt_count is None and delay_ms is None
        )
        if attempt_count is not None:
            if strategy.kind is RestartKind.NONE:
                strategy = RestartStrategy()
            strategy = replace(strategy, max_attempts=attempt_count)
        if delay_ms is not None:
            strategy = replace(strategy, delay_ms=delay_ms)
        self._strategy = strategy
        self._delay_max_ms = max(delay_max_ms, strategy.delay_ms)
        self._source = source
        self._epoch = -1
        self._positions: Counter[str] = Counter()
        self.used_count = 0

    @classmethod
    def planned(cls, plan: RestartPlan | None, *, source: random.Random | None = None) -> Restarts:
        """Return the restarts of the plan in a job's status, or the default without one."""
        if plan is None:
            return cls(RestartStrategy(), source=source)
        strategy = RestartStrategy(
            kind=RestartKind(plan.kind), max_attempts=plan.max_attempts, delay_ms=plan.delay_ms
        )
        return cls(strategy, delay_max_ms=plan.delay_max_ms, source=source)

    def resume(self, history: Sequence[RestartNote]) -> None:
        """Count the earlier attempts, of this process or another one."""
        if history:
            self._epoch, self.used_count = history[-1].epoch, history[-1].attempt
            self._positions = Counter(
                note.position for note in history if note.position is not None
            )

    def delay_ms(self, *, epoch: int, position: str | None = None) -> int | None:
        """Return the delay before the next start in ms; None if the job has to fail.

        The first restart is immediate, because most errors are transient.

        Args:
            epoch: The last sealed epoch. If it is newer than at the last failure, all attempts are
                available again.
            position: The record on which a function failed, if known. Its attempts are counted
                separately and never reset, because other sources may make progress although this
                record fails.
        """
        strategy = self._strategy
        if epoch > self._epoch:
            self._epoch, self.used_count = epoch, 0
        tried_count = max(self.used_count, 0 if position is None else self._positions[position])
        if strategy.kind is RestartKind.NONE or tried_count >= strategy.max_attempts:
            return None
        self.used_count += 1
        if position is not None:
            self._positions[position] += 1
        if tried_count == 0:
            return 0
        if strategy.kind is RestartKind.EXPONENTIAL_BACKOFF:
            return self._grown_ms(tried_count)
        return strategy.delay_ms

    def plan(self) -> RestartPlan:
        """Return the strategy as plain data."""
        return RestartPlan(
            kind=self._strategy.kind.value,
            max_attempts=self._strategy.max_attempts,
            delay_ms=self._strategy.delay_ms,
            delay_max_ms=self._delay_max_ms,
        )

    def _grown_ms(self, tried_count: int) -> int:
        # No number is made that is larger than needed: attempts may go into the millions.
        doublings = min(tried_count - 1, self._delay_max_ms.bit_length())
        delay_ms = min(self._strategy.delay_ms << doublings, self._delay_max_ms)
        share = 0.0 if self._source is None else self._source.uniform(0, _JITTER)
        return round(delay_ms * (1 - share))


def add_failure_note(
    history: Sequence[RestartNote],
    error: BicycleError,
    *,
    now_ms: int,
    epoch: int,
    attempt: int,
    delay_ms: int | None,
    position: str | None = None,
) -> list[RestartNote]:
    """Return the history with one more failure; very long ones lose the oldest.

    Args:
        history: The earlier notes.
        error: The error.
        now_ms: When.
        epoch: The last sealed epoch.
        attempt: How many restarts were used since it.
        delay_ms: How long the wait is; None when the job is not started again.
        position: The record on which a function failed, where it is known.
    """
    note = RestartNote(
        time_ms=now_ms,
        code=error.code,
        message=error.summary.splitlines()[0],
        epoch=epoch,
        attempt=attempt,
        delay_ms=delay_ms,
        position=position,
        operator=error.facts.get("operator"),
        subtask=error.facts.get("subtask"),
    )
    return [*history, note][-HISTORY_MAX:]


def may_pass(error: BicycleError) -> bool:
    """Return whether a job is started again after an error."""
    return isinstance(error, _RESTARTABLE) or "worker_epoch" in error.facts


def fails_again(error: BicycleError, history: Sequence[RestartNote], *, epoch: int) -> bool:
    """Return whether input that does not change will fail in the same way again.

    That is so of a record that cannot be decoded, and of a function that has failed in the same way
    twice in one epoch. The exception must not be of a kind that may pass, such as a lost
    connection. An exception of a library must come from the same record as before.

    Args:
        error: The error.
        history: The earlier notes.
        epoch: The last sealed epoch.
    """
    if error.code == RECORD_UNDECODABLE.code:
        return True
    if not history:
        return False
    last, message = history[-1], error.summary.splitlines()[0]
    before = (last.epoch, last.code, last.operator, last.message)
    if before != (epoch, error.code, error.facts.get("operator"), message):
        return False
    name = str(error.facts.get("exception"))
    kinds = [getattr(builtins, base, None) for base in error.facts.get("exception_bases", [name])]
    if any(isinstance(kind, type) and issubclass(kind, _PASSING) for kind in kinds):
        return False
    if isinstance(kinds[0], type):
        return kinds[0] is not Exception
    position = position_of(error)
    return position is not None and position == last.position and _OUTAGE.search(name) is None


def position_of(error: BicycleError) -> str | None:
    """Return the record on which a function failed; None if only a span is known."""
    facts = error.facts
    position = [facts.get(name) for name in ("operator", "source", "shard", "offset")]
    if None in position or facts.get("end_offset") is not None:
        return None
    operator, source, shard, offset = position
    return f"{operator}: {source} {shard} {offset}"
