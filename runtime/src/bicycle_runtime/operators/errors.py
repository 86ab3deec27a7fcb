"""Errors of running operators: user functions that fail, time out or misbehave."""

from bicycle_sdk.errors import BicycleError


class FunctionFailedError(BicycleError):
    """A user function raised; the text names the user's line, operator and record."""

    code = "BIC-1401"
    message = (
        "{exception}: {exception_message}\n"
        "  at {location}\n"
        "  in operator {operator!r} ({operator_name}) of plugin {plugin} "
        "{plugin_version}, subtask {subtask}\n"
        "  on the record from {position}, key {key}, value of type {value_type}\n"
        "{user_traceback}"
    )
    fix = (
        "correct the function, or choose on_error(skip() | dead_letter() | retry(...)) for the "
        "operator; this epoch was not published"
    )


class FunctionHookError(BicycleError):
    """A hook of a function failed on a worker: loading, open, or a state hook."""

    code = "BIC-1402"
    message = (
        "operator {operator!r}: {action} failed on the worker: {exception}: "
        "{exception_message}\n{user_traceback}"
    )
    fix = (
        "install the wheel of the plugin and its dependencies on the workers, and correct the "
        "hook; this epoch was not published"
    )


FUNCTION_NOT_CLOSED = FunctionHookError.row(
    "BIC-1412",
    FunctionHookError.message,
    cause="``close`` of a function failed at the end of a job or of a worker.",
    fix="correct close() of the function; the output of the job is not affected",
)


class ErrorRateError(BicycleError):
    """More records failed than max_error_rate of the operator allows."""

    code = "BIC-1403"
    message = (
        "operator {operator!r}: {failed} of the last {total:count record} failed, "
        "max_error_rate is {rate}; "
        "last error: {last_error}"
    )
    fix = "correct the function or the input, or raise max_error_rate; this epoch was not published"


class TaskMemoryError(BicycleError):
    """A task needed more memory than its process may use."""

    code = "BIC-1407"
    message = (
        "subtask {subtask} of stage {level} ran out of memory in epoch {epoch}{limit_text}; the "
        "epoch was not sealed"
    )
    fix = (
        "raise the memory limit of the process (ulimit -v, container), use state_backend=rocksdb "
        "or smaller epochs (max_records_per_epoch). Earlier epochs are intact, and the job "
        "restarts automatically according to its restart strategy"
    )


RECORD_UNDECODABLE = BicycleError.row(
    "BIC-1404",
    "source {operator!r} cannot decode the record at {position}: {reason}",
    cause="A source cannot decode a record of its input.",
    fix=(
        "correct the input, or choose on_error(skip() | dead_letter()) for the source; this epoch "
        "was not published"
    ),
)
UNKEYED_STATE = BicycleError.row(
    "BIC-1405",
    "operator {operator!r}: {what} needs a key, but the stream is not keyed",
    cause="An operator needs a keyed stream, and the stream has no keys.",
    fix="put key_by(...) before the operator",
)
BATCH_RESULT_WRONG = BicycleError.row(
    "BIC-1406",
    "operator {operator!r}: {function} returned {found} for a call with {expected:count "
    "record}; expected a list of outputs for each record, in the order of the records",
    cause="A batch function did not return a list of outputs for each record.",
    fix=(
        "for three records with no, one and two outputs, return [[], [a], [b, c]]; this epoch "
        "was not published"
    ),
)
ENDLESS_TIMERS = BicycleError.row(
    "BIC-1425",
    "operator {operator!r}: all input has ended, and {function} has set timers of key {key} in "
    "on_timer() more than {count:count time} since then; this epoch was not published",
    cause=(
        "A function continues to set timers after all input has ended, when timers fire "
        "immediately."
    ),
    fix=(
        "set no timer in on_timer() when ctx.current_watermark() is the greatest watermark "
        "(bicycle_sdk.contexts.WATERMARK_MAX)"
    ),
)
RUNAWAY_TIMERS = BicycleError.row(
    "BIC-1426",
    "operator {operator!r}: {function} has fired more than {count} timers of key {key} in one "
    "epoch; the last was set for {domain} time {time_ms}, but that time is already "
    "{reached_ms:moment}; this epoch was not published",
    cause="A function repeatedly sets timers for times in the past, so that a round never ends.",
    fix=(
        "set timers for later times, such as max(timestamp_ms, ctx.current_watermark()) + "
        "interval, because time may jump over many intervals"
    ),
)
DEAD_LETTER_UNREADABLE = BicycleError.row(
    "BIC-1430",
    "dead letter {letter!r} of operator {operator!r} cannot be read by the current code: {reason}",
    cause="The class of a record was renamed or removed after a dead letter was written.",
    fix=(
        "make the class of the record importable under its old name again, or skip this dead "
        "letter; it is unchanged"
    ),
)
NO_EVENT_TIME = BicycleError.row(
    "BIC-1410",
    "operator {operator!r} needs event time, but its records have no timestamps",
    cause="An operator that needs event time received records without timestamps.",
    fix=(
        "call assign_timestamps(…) on the stream before key_by, or choose a source that sets "
        "timestamps; this epoch was not published"
    ),
)
WINDOW_STATE_UNMERGEABLE = BicycleError.row(
    "BIC-1411",
    "the window function saves {name!r}, but session windows may merge",
    cause="A window function saved a value in a session window.",
    fix="use windows with fixed bounds, or keep the value in keyed state after the window",
)
SKETCH_LIBRARY_MISSING = BicycleError.row(
    "BIC-1408",
    "an approximate number of distinct values needs the library datasketches, which is not "
    "installed on Python {python}",
    cause="An aggregate needs the library of sketches, which is not installed.",
    fix=(
        "count exactly (without approximate=True), or run the job on Python 3.11 to 3.13, where "
        "the library has wheels"
    ),
)
