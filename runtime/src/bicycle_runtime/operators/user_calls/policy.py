"""The policy for records whose function failed: retry, fail, skip, dead letter.

One policy serves one operator in one task. It is the border to user code: only plain results and
our errors cross it, with the user's file and line first and our own frames left out.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import inspect
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NoReturn

from bicycle_runtime.base.code_paths import is_packed_path, show_paths
from bicycle_runtime.base.faults import InjectedFault
from bicycle_runtime.base.stored import STORED_VERSION, VERSION_FIELD
from bicycle_runtime.base.user_code import error_text, show, users_error
from bicycle_runtime.contract import BadRecord, Headers, Raw
from bicycle_runtime.operators.batch import NO_INPUT, Batch, Messages, Origin, SourceLineage
from bicycle_runtime.operators.errors import (
    RECORD_UNDECODABLE,
    ErrorRateError,
    FunctionFailedError,
    FunctionHookError,
)
from bicycle_runtime.operators.heartbeats import LAST_POSITION
from bicycle_runtime.operators.metrics import FailureCount, add_failure
from bicycle_runtime.operators.spec import OperatorSpec, PluginInfo
from bicycle_runtime.operators.user_calls.stack_frames import blamed_frame, is_ours, without_loop
from bicycle_runtime.operators.user_calls.waits import WAITS
from bicycle_runtime.records.codecs import pickle_any
from bicycle_sdk.contexts import WATERMARK_MAX
from bicycle_sdk.errors import BicycleError, ErrorRow, printable
from bicycle_sdk.failures import BACKOFF_MS_MAX
from bicycle_sdk.graph import ErrorAction
from bicycle_sdk.state import Timer

_TRACEBACK_LINES_MAX = 60
_REPR_LENGTH_MAX = 10_000
_EXAMPLE_LENGTH_MAX = 200
_CALL_ITSELF = "the call itself (no line of the function was reached)"


class _Dropped(list[Any]):
    """The result of a dropped record, compared by identity."""


DROPPED: Final = _Dropped()


class RecordPolicy:
    """Settles failed calls of one operator and counts them.

    Args:
        spec: The operator.
        plugin: Where its function comes from.
        subtask: Index of the task's instance.
        dead_letters: Takes the dead letters, as plain dicts.
    """

    def __init__(
        self,
        spec: OperatorSpec,
        plugin: PluginInfo,
        subtask: int,
        dead_letters: Callable[[dict[str, Any]], None],
    ) -> None:
        self._spec = spec
        self._plugin = plugin
        self._subtask = subtask
        self._dead_letters = dead_letters
        self._policy = spec.vertex.on_error
        self.batch: Batch | None = None  # whose calls are settled
        self.key_of: Callable[[Any], Any] | None = None
        self.on_failure: Callable[[BaseException], None] | None = (
            None  # a debugger that looks at it
        )
        self.replayed: str | None = None  # the dead letter that the operator gets once more
        self.total = 0
        self.failed = 0
        self.retried = 0
        self.failures: dict[str, FailureCount] = {}
        self.last_error = ""
        self._few = (0, 0)  # failed and all records of epochs before, while they are few
        self._looked_at: Batch | None = None
        self._times: Sequence[int] | None = None
        self._messages: Messages | None = None

    @property
    def operator(self) -> str:
        """The uid of the operator."""
        return self._spec.uid

    @property
    def undoes(self) -> bool:
        """Return whether the effects of a failed attempt must be undone."""
        return self._policy.goes_on

    @property
    def plugin(self) -> PluginInfo:
        """The plugin that the function comes from."""
        return self._plugin

    async def settle(
        self, error: BaseException, index: int, call: Callable[[], Any]
    ) -> Sequence[Any]:
        """Return the outputs instead of a failed call; raise to fail the epoch."""
        retries, backoff_ms = self._policy.retries, self._policy.backoff_ms
        return await self.settle_with(error, index, call, retries=retries, backoff_ms=backoff_ms)

    async def settle_with(
        self,
        error: BaseException,
        index: int,
        call: Callable[[], Any],
        *,
        retries: int,
        backoff_ms: int,
    ) -> Sequence[Any]:
        """Call again ``retries`` times, with pauses between; then apply the action.

        An error of ours is no matter of luck: it is not tried again.
        """
        retries = 0 if _is_ours(error) else retries
        try:
            return await self.repeat(error, call, retries=retries, backoff_ms=backoff_ms)
        except BaseException as last:  # noqa: BLE001  # the boundary to user code
            self.give_up(users_error(last), index)
            return DROPPED

    async def repeat(
        self, error: BaseException, call: Callable[[], Any], *, retries: int, backoff_ms: int
    ) -> Sequence[Any]:
        """Call again ``retries`` times, with pauses between; raise the last error."""
        for attempt in range(retries):
            self.retried += 1
            pause_s = pause_ms(backoff_ms, attempt) / 1000
            WAITS.tell(pause_s)
            await asyncio.sleep(pause_s)
            try:
                output = call()
                repeated: Sequence[Any] = await output if inspect.isawaitable(output) else output
                return repeated
            except BaseException as again:  # noqa: BLE001  # the boundary to user code
                error = users_error(again)
        raise error

    def give_up(self, error: BaseException, index: int) -> None:
        """Apply the action of the policy to a record that failed for good.

        Returns when it is to be left out.
        """
        assert self.batch is not None
        if self.on_failure is not None:
            self.on_failure(error)
        if isinstance(error, BicycleError) and _is_ours(error):
            self.refuse(error, index)
        facts = self._facts(error, index)
        if self._policy.action is ErrorAction.FAIL:
            raise FunctionFailedError(
                **facts,
                whole_traceback=whole_trace(error),
                exception_bases=[base.__name__ for base in type(error).__mro__],
            ) from None
        said = f"{facts['exception']}: {facts['exception_message']}"
        self._count(said, f"{facts['exception']} at {facts['location']}", facts["position"])
        if self._policy.action is ErrorAction.DEAD_LETTER:
            data, encoding = _as_bytes(self.batch.values[index])
            letter = self._letter(facts, self.batch.lineage.origin(index), data, encoding)
            self._dead_letters({**letter, **self._beside(self.batch, index)})

    def refuse(self, error: BicycleError, index: int) -> NoReturn:
        """End the epoch with an error of ours under any policy, with the record's origin."""
        error.facts.update({**self._position(index), **error.facts})
        raise error

    def reject_input(self, bad: BadRecord, origin: Origin) -> None:
        """Apply the action to input that a source could not decode."""
        self.total += 1
        position = _position(origin)
        if self._policy.action is ErrorAction.FAIL:
            raise RECORD_UNDECODABLE(
                operator=self._spec.uid, position=position, reason=bad.reason,
                source=origin.source, shard=origin.shard, offset=origin.offset,
            )  # fmt: skip
        reason = printable(bad.reason)
        self._count(reason, "undecodable input", position)
        if self._policy.action is ErrorAction.DEAD_LETTER:
            facts = {
                "exception": "DecodeError", "exception_message": reason, "user_traceback": "",
                "location": "", "key": "none", "position": position,
            }  # fmt: skip
            letter = self._letter(facts, origin, bad.raw, "raw")
            message = _source_message((bad.key, bad.raw), bad.headers, bad.timestamp_ms)
            self._dead_letters(
                {**letter, "event_time_ms": bad.timestamp_ms, "source_message": message}
            )

    def check_rate(self) -> None:
        """Fail the epoch if the share of its failed records exceeds ``max_error_rate``.

        Epochs with fewer than ``1 / max_error_rate`` records are counted together, and a single
        failure among them is allowed.

        Raises:
            ErrorRateError: the share is larger than ``max_error_rate``.
        """
        rate = self._policy.max_error_rate
        if rate is None:
            return
        failed, total = self._few[0] + self.failed, self._few[1] + self.total
        is_few = total < (int(1 / rate) if rate else 0)
        self._few = (failed, total) if is_few else (0, 0)
        if failed > rate * total and not (is_few and failed == 1):
            raise ErrorRateError(
                operator=self._spec.uid,
                failed=failed,
                total=total,
                rate=rate,
                last_error=self.last_error,
            )

    def reset(self) -> None:
        """Start counting for a new epoch."""
        self.total = self.failed = self.retried = 0
        self.failures = {}

    def _count(self, error: str, kind: str, position: str) -> None:
        self.failed += 1
        self.last_error = error
        example = f"{error[:_EXAMPLE_LENGTH_MAX]} ({position})"
        add_failure(self.failures, kind, 1, example)

    def _facts(self, error: BaseException, index: int) -> dict[str, Any]:
        assert self.batch is not None
        value = self.batch.values[index]
        text, location = user_frames(error)
        if location and is_packed_path(location) and self._plugin.dist:
            location = f"{location} ({self._plugin.dist})"
        return {
            "exception": type(error).__qualname__,
            "exception_message": error_text(error),
            "location": location or self._spec.vertex.made or _CALL_ITSELF,
            "operator": self._spec.uid,
            "operator_name": self._spec.vertex.label,
            "plugin": self._plugin.name,
            "plugin_version": self._plugin.version,
            "subtask": self._subtask,
            **self._position(index),
            "key": self._key(value),
            "value_type": type(value).__qualname__,
            "user_traceback": text,
        }

    def _position(self, index: int) -> dict[str, Any]:
        """Return the origin of a record, for messages and for the source."""
        assert self.batch is not None
        value, origin = self.batch.values[index], self.batch.lineage.origin(index)
        return {
            "position": _timer_words(value) if isinstance(value, Timer) else _position(origin),
            "source": origin.source if origin else None,
            "shard": origin.shard if origin else None,
            "offset": origin.offset if origin else None,
            "end_offset": origin.end_offset if origin else None,
        }

    def _key(self, value: Any) -> str:
        if isinstance(value, Timer):
            return show(value.key)
        if self.key_of is None:
            return "none"
        try:
            return show(self.key_of(value))
        except BaseException as error:  # noqa: BLE001  # the boundary to user code
            return f"(no key: {error_text(users_error(error))})"

    def _beside(self, batch: Batch, index: int) -> dict[str, Any]:
        """Return the fields of a dead letter that describe its record, except the value."""
        if self._looked_at is not batch:  # Once for a batch: many of its records may fail.
            self._looked_at = batch
            self._times, self._messages = batch.lineage.times(), batch.lineage.messages()
        input_ordinal = batch.input_of(index)
        return {
            "event_time_ms": None if self._times is None else self._times[index],
            "source_message": _message_of(self._messages, index),
            "input": None if input_ordinal == NO_INPUT else input_ordinal,
        }

    def _letter(
        self, facts: dict[str, Any], origin: Origin | None, data: bytes, encoding: str
    ) -> dict[str, Any]:
        return {
            VERSION_FIELD: STORED_VERSION,
            "operator": self._spec.uid,
            "operator_name": self._spec.vertex.label,
            "plugin": self._plugin.name,
            "plugin_version": self._plugin.version,
            "source": origin.source if origin else None,
            "shard": origin.shard if origin else None,
            "offset": origin.offset if origin else None,
            "end_offset": origin.end_offset if origin else None,
            "key": facts["key"],
            "exception": facts["exception"],
            "message": facts["exception_message"],
            "location": facts["location"],
            "traceback": facts["user_traceback"],
            "attempt": self._policy.retries + 1,
            "encoding": encoding,
            "value": base64.b64encode(data).decode("ascii"),
            "input": None,
            "replay_of": self.replayed,
        }


def _is_ours(error: BaseException) -> bool:
    """Return whether an error ends the epoch under any policy."""
    return isinstance(error, BicycleError) and not isinstance(error, FunctionFailedError)


def pause_ms(backoff_ms: int, attempt: int) -> int:
    """Return the pause before a retry: doubled each time, up to a minute.

    Args:
        backoff_ms: The pause before the first.
        attempt: Number of the retry, from 0.

    Example:
        >>> [pause_ms(100, attempt) for attempt in (0, 1, 9, 10, 999)]
        [100, 200, 51200, 60000, 60000]
    """
    return min(backoff_ms << attempt, BACKOFF_MS_MAX)


def _as_bytes(value: Any) -> tuple[bytes, str]:
    """Return a record as pickled bytes, or as its repr if it cannot be pickled."""
    try:
        return pickle_any(value), "pickle"
    except BaseException as error:  # noqa: BLE001  # pickling calls methods of the record
        users_error(error)
        return show(value)[:_REPR_LENGTH_MAX].encode(), "repr"


def _source_message(raw: Raw, headers: Headers | None, timestamp_ms: int | None) -> dict[str, Any]:
    """Return the message of a source as it came: key, value, headers and time.

    Headers are None where they cannot be read.
    """

    def as_text(data: bytes | None) -> str | None:
        return None if data is None else base64.b64encode(data).decode("ascii")

    key, value = raw
    return {
        "key": as_text(key),
        "value": as_text(value),
        "headers": None if headers is None else [[name, as_text(data)] for name, data in headers],
        "timestamp_ms": timestamp_ms,
    }


def _message_of(found: Messages | None, index: int) -> Any:
    """Return the source's message of a record, or None."""
    message = None if found is None else found[0].at(found[1][index])
    if message is None:
        return None
    lineage, at = message
    if lineage.raws is None and lineage.headers is None and lineage.timestamps is None:
        return None
    return _source_message(
        (None, None) if lineage.raws is None else lineage.raws[at],
        _headers_of(lineage, at),
        None if lineage.timestamps is None else lineage.timestamps[at],
    )


def _headers_of(lineage: SourceLineage, at: int) -> Headers | None:
    try:
        return () if lineage.headers is None else lineage.headers[at]
    except ValueError:
        return None


@contextlib.contextmanager
def user_hook(
    operator: str,
    action: str,
    *,
    kind: type[FunctionHookError] | ErrorRow[FunctionHookError] = FunctionHookError,
) -> Iterator[None]:
    """Wrap a hook of user code: our errors pass, others become ``kind``.

    Raises:
        FunctionHookError: the hook raised.
    """
    LAST_POSITION.enter(operator)
    try:
        yield
    except (BicycleError, InjectedFault):
        raise
    except BaseException as error:
        text, _ = user_frames(users_error(error))
        raise kind(
            operator=operator, action=action, exception=type(error).__qualname__,
            exception_message=error_text(error), user_traceback=text,
            whole_traceback=whole_trace(error),
        ) from error  # fmt: skip


def whole_trace(error: BaseException) -> str:
    """Return the last frames of a traceback with our own, for developers of Bicycle."""
    lines = "".join(traceback.format_tb(error.__traceback__)).rstrip().splitlines()
    return show_paths("\n".join(lines[-_TRACEBACK_LINES_MAX:]))


def user_frames(error: BaseException) -> tuple[str, str]:
    """Return a traceback without our frames, and the user's ``file:line in function``.

    When every frame is ours (for example, the function has the wrong signature) the location is
    empty.
    """
    frames = traceback.extract_tb(error.__traceback__)
    users = without_loop([frame for frame in frames if not is_ours(frame)])
    lines = "".join(traceback.format_list(users)).rstrip().splitlines()[-_TRACEBACK_LINES_MAX:]
    if not users:
        return "", getattr(error, "user_line", None) or ""
    location = blamed_frame(users)
    text = f"{show_paths(location.filename)}:{location.lineno} in {location.name}"
    return show_paths("\n".join(lines)), text


def _timer_words(timer: Timer) -> str:
    time = "the end" if timer.time_ms == WATERMARK_MAX else timer.time_ms
    return f"the {timer.domain}-time timer at {time}"


def _position(origin: Origin | None) -> str:
    if origin is None:
        return "an unknown position"
    span = "" if origin.end_offset is None else f" to {origin.end_offset}"
    return f"source {origin.source!r}, {origin.shard} @ {origin.offset}{span}"
