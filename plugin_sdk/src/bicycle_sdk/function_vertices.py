"""Vertices that carry a user's function: which kind, which details, which types.

Pure functions from a function object to a ``VertexDraft``; ``streams`` connects the vertices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from bicycle_sdk.arguments import require_timedelta, require_whole
from bicycle_sdk.drafts import VertexDraft
from bicycle_sdk.errors import FunctionResultError, StreamDefinitionError
from bicycle_sdk.expressions import is_expression
from bicycle_sdk.failures import Retry
from bicycle_sdk.functions import (
    AsyncFunction,
    AsyncIOBatchFunction,
    AsyncIOFunction,
    FunctionObject,
    KeyedProcessFunction,
    ProcessFunction,
    RichAsyncFunction,
    full_name,
    refuse_class,
)
from bicycle_sdk.graph import OperatorKind, StateShape, descriptor_of
from bicycle_sdk.locations import calling_location
from bicycle_sdk.quantities import duration_text
from bicycle_sdk.record_types import function_types, unlisted_result

if TYPE_CHECKING:
    from bicycle_sdk.time import WatermarkStrategy

__all__ = [
    "async_io_vertex",
    "batch_size",
    "check_callable",
    "check_result",
    "concurrency",
    "function_vertex",
    "order_by_event_time",
    "process_vertex",
    "reduce_vertex",
    "timestamps_vertex",
    "whole_ms",
]

_PROCESS_KINDS: tuple[tuple[type, str, str], ...] = (
    (AsyncFunction, "async", "process"),
    (RichAsyncFunction, "rich", "process"),
    (ProcessFunction, "process", "process_element"),
    (KeyedProcessFunction, "process", "process_element"),
)
_CAPACITY_MAX = 1_000_000
_BATCH_SIZE_MAX = 4_096  # the records of one task of the runtime at a time
_TIMEOUT_MS_MAX = 7 * 86_400_000


def function_vertex(kind: OperatorKind, function: object, *, input_type: Any) -> VertexDraft:
    """Return the vertex of a one-method function or a callable.

    Filters and keys keep the type of their input; the others have that of their result.
    """
    descriptor = descriptor_of(kind)
    method, gives_many = descriptor.method, descriptor.gives_many
    assert method is not None
    check_callable(kind.value, function, method)
    if gives_many:
        check_result(function, method)
    takes, gives = function_types(function, method, gives_many=gives_many)
    shown = full_name(function)
    if is_expression(function):
        shown = _checked_text(method, function, input_type)
    if descriptor.keeps_type:
        gives = input_type
    if kind is OperatorKind.MAP_BATCHES:
        takes = None  # It takes a list of records; which ones is not checked.
    is_key = kind is OperatorKind.KEY_BY
    return VertexDraft(
        kind=kind,
        name=_short_name(function, kind.value),
        plugin_function=shown,
        details={"key_selector": shown} if is_key else {},
        payloads={"function": function},
        input_type=takes,
        output_type=gives,
    )


def reduce_vertex(
    aggregation: str,
    function: object,
    *,
    initial: Callable[[Any], Any] | None = None,
    emits_key: bool = False,
    output_type: Any = None,
) -> VertexDraft:
    """Return the vertex of a running aggregation; ``initial`` defaults to the record."""
    check_callable(aggregation, function, "reduce")
    details: dict[str, Any] = {"aggregation": aggregation}
    if emits_key:
        details["emits_key"] = True
    payloads: dict[str, Any] = {"function": function}
    if initial is not None:
        payloads["initial"] = initial
    takes = function_types(function, "reduce").takes if aggregation == "reduce" else None
    return VertexDraft(
        kind=OperatorKind.REDUCE,
        name=aggregation,
        plugin_function=full_name(function),
        details=details,
        payloads=payloads,
        input_type=takes,
        output_type=output_type,
    )


def process_vertex(
    function: object, *, is_keyed: bool, config: Mapping[str, Any] | None = None
) -> VertexDraft:
    """Return the vertex of a function class of the SDK."""
    found = next((kind for kind in _PROCESS_KINDS if isinstance(function, kind[0])), None)
    if found is None:
        raise StreamDefinitionError(
            call="process",
            problem=f"{full_name(function)} is not an object of a function class",
            hint="pass an object derived from AsyncFunction, RichAsyncFunction or ProcessFunction",
        )
    _, word, method = found
    if config and word == "process":
        raise StreamDefinitionError(
            call="process_ordered, process_unordered",
            problem=f"{full_name(function)} processes one record at a time",
            hint="call process_fn, or derive the function from AsyncFunction",
        )
    if isinstance(function, KeyedProcessFunction) and not is_keyed:
        raise StreamDefinitionError(
            call="process_fn",
            problem=f"{full_name(function)} needs a key, but the stream has no keys",
            hint="call key_by(…) before it",
        )
    check_result(function, method)
    takes, gives = function_types(function, method, gives_many=True)
    details: dict[str, Any] = {
        "is_rich": word == "rich",
        "function_kind": word,
        # A function without state is called the same with or without a key.
        "is_keyed": is_keyed and word != "async",
    }
    if word == "rich" and _expires_by_event_time(function):
        details["reads_times"] = True
    return VertexDraft(
        kind=OperatorKind.PROCESS,
        name=_short_name(function, word),
        plugin_function=full_name(function),
        details=details,
        config=config or {},
        payloads={"function": function},
        input_type=takes,
        output_type=gives,
    )


def async_io_vertex(
    function: object, *, config: Mapping[str, Any], retry: Retry | None
) -> VertexDraft:
    """Return the vertex of a call to another system.

    The setting ``batch_size`` requires an ``AsyncIOBatchFunction``.
    """
    is_batched = "batch_size" in config
    expected = AsyncIOBatchFunction if is_batched else AsyncIOFunction
    method = "async_invoke_batch" if is_batched else "async_invoke"
    if not isinstance(function, expected):
        raise StreamDefinitionError(
            call="async_io_batches" if is_batched else "async_io_ordered, async_io_unordered",
            problem=f"{full_name(function)} is not an object of an {expected.__name__}",
            hint=f"derive the function from {expected.__name__} and pass an object of it",
        )
    given: object = retry  # Jobs need not be type-checked.
    if not isinstance(given, Retry | None):
        raise StreamDefinitionError(
            call="retry",
            problem=f"expected retry(…) or None, got {given!r}",
            hint="pass retry(n, backoff=…), and call on_error(…) for records that still fail",
        )
    check_result(function, method)
    takes, gives = function_types(function, method, gives_many=True, is_batched=is_batched)
    retries = Retry(retries=0, backoff_ms=0) if retry is None else retry
    return VertexDraft(
        kind=OperatorKind.ASYNC_IO,
        name=_short_name(function, "AsyncIO"),
        plugin_function=full_name(function),
        details={**config, "retries": retries.retries, "backoff_ms": retries.backoff_ms},
        payloads={"function": function},
        input_type=takes,
        output_type=gives,
    )


def order_by_event_time(vertex: VertexDraft) -> None:
    """Order the records and timers of a vertex's function by event time.

    Raises:
        StreamDefinitionError: it has no keyed function, or one for which there is no such order.
    """
    details = vertex.details
    kind, descriptor = details.get("function_kind"), descriptor_of(vertex.kind, details)
    problem, hint = None, "call it directly after process_fn, process or connect(…).process"
    if descriptor.state is not StateShape.FUNCTION:
        problem = f"{vertex.name!r} is not a function with state"
    elif not details.get("is_keyed"):
        problem, hint = f"{vertex.name!r} has no key", "call key_by(…) before it"
    elif details.get("has_broadcast"):
        problem = "records of a broadcast stream have no key that could order them"
        hint = "connect two streams with key_by(…) on both"
    elif vertex.config:
        problem = f"{vertex.name!r} may have several calls in flight, which are not ordered"
        hint = "call process(…) instead of process_ordered and process_unordered"
    elif not descriptor.can_be_ordered:
        problem = f"results of {kind} already follow event time, or have no state"
        hint = "remove the call"
    if problem is not None:
        raise StreamDefinitionError(call="in_event_time_order", problem=problem, hint=hint)
    vertex.details = {**details, "in_event_time_order": True}


def timestamps_vertex(
    strategy: WatermarkStrategy[Any] | Callable[[Any], Any], *, record_type: Any
) -> VertexDraft:
    """Return the vertex that assigns event times to records and emits watermarks.

    A function alone is a strategy with the default out-of-orderness bound.
    """
    # Slow on the start path: only jobs with event time need it.
    from bicycle_sdk.time import WatermarkStrategy

    if not isinstance(strategy, WatermarkStrategy):
        check_callable("assign_timestamps", strategy, "__call__")
        strategy = WatermarkStrategy.bounded_out_of_orderness().with_timestamps(strategy)
    parts = {"function": strategy.timestamps, "generator": strategy.generator}
    if is_expression(strategy.timestamps):
        _checked_text("assign_timestamps", strategy.timestamps, record_type)
    return VertexDraft(
        kind=OperatorKind.ASSIGN_TIMESTAMPS,
        name="assign_timestamps",
        details=strategy.details(),
        payloads={role: part for role, part in parts.items() if part is not None},
        output_type=record_type,
    )


def _checked_text(call: str, expression: Any, record_type: Any) -> str:
    """Return an expression as text, after a check against the record type."""
    # Slow on the start path: only jobs with expressions need it.
    from bicycle_sdk.expression_types import check_expression

    check_expression({"get_key": "key_by"}.get(call, call), expression, record_type)
    return repr(expression)


def concurrency(*, ordered: bool, timeout: timedelta, capacity: int) -> dict[str, Any]:
    """Return the settings of calls in flight, checked.

    Raises:
        StreamDefinitionError: the time limit or the capacity is out of bounds.
    """
    require_whole("capacity", capacity, low=1, high=_CAPACITY_MAX)
    timeout_ms = whole_ms("timeout", timeout, high=_TIMEOUT_MS_MAX)
    return {"ordered": ordered, "timeout_ms": timeout_ms, "capacity": capacity}


def batch_size(size: int) -> int:
    """Return the most records of one call, checked.

    Raises:
        StreamDefinitionError: it is out of bounds.
    """
    return require_whole("max_size", size, low=1, high=_BATCH_SIZE_MAX)


def whole_ms(name: str, duration: timedelta, *, high: int) -> int:
    """Return a duration of 1 to ``high`` milliseconds."""
    ms = require_timedelta(name, duration) // timedelta(milliseconds=1)
    if not 1 <= ms <= high:
        raise StreamDefinitionError(
            call=name,
            problem=f"{duration_text(ms)}, expected 1 ms to {duration_text(high)}",
            hint="give a timedelta within the bounds",
        )
    return ms


def check_result(function: object, method: str) -> None:
    """Refuse a function whose annotated result is not a list of records.

    Raises:
        FunctionResultError: it is not a valid result.
    """
    found = unlisted_result(function, method)
    if found is not None:
        raise FunctionResultError(
            function=full_name(function),
            found=f"{found}, by its annotation",
            location=calling_location(),
        )


def check_callable(call: str, function: object, method: str) -> None:
    """Refuse a function that neither can be called nor has the method.

    Raises:
        StreamDefinitionError: it is such a function, or a class of functions.
    """
    refuse_class(call, function)
    if not callable(function) and not callable(getattr(function, method, None)):
        raise StreamDefinitionError(
            call=call,
            problem=f"{full_name(function)} is not callable and has no method {method!r}",
            hint="pass a function, a lambda, or an object of a function class",
        )


def _expires_by_event_time(function: object) -> bool:
    """Return whether a state in a field of a function has an event-time TTL."""
    owners = [*type(function).__mro__, function]
    fields = [value for owner in owners for value in getattr(owner, "__dict__", {}).values()]
    # By the name of the module: to import it takes time, which most jobs need not.
    states = [each for each in fields if type(each).__module__ == "bicycle_sdk.state.descriptors"]
    ttls = [getattr(state, "time_to_live", None) for state in states]
    return any(ttl is not None and ttl.time == "event" for ttl in ttls)


def _short_name(function: object, default: str) -> str:
    if isinstance(function, FunctionObject):
        return function.name or type(function).__name__
    name: str = getattr(function, "__name__", type(function).__name__)
    return default if name.startswith("<") else name
