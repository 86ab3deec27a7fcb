"""Errors of running operators: user functions that fail, time out or return the wrong thing."""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError


class FunctionFailedError(BicycleError):
    """A user function raised; the first lines name exception, user's line, operator, record."""

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
        "operator; nothing of this epoch was published"
    )


class FunctionHookError(BicycleError):
    """A hook of a function failed on a worker: loading, open, or one of the state hooks."""

    code = "BIC-1402"
    message = (
        "operator {operator!r}: {action} failed on the worker: {exception}: "
        "{exception_message}\n{user_traceback}"
    )
    fix = (
        "install the plugin's wheel and its dependencies where the workers run, and correct the "
        "hook; nothing of this epoch was published"
    )


class ErrorRateError(BicycleError):
    """More records failed than the operator allows."""

    code = "BIC-1403"
    message = (
        "operator {operator!r}: {failed} of the last {total:count record} failed, "
        "max_error_rate is {rate}; "
        "last error: {last_error}"
    )
    fix = (
        "correct the function or the input, or raise max_error_rate; nothing of this epoch was "
        "published"
    )


RECORD_UNDECODABLE = BicycleError.row(
    "BIC-1404",
    "source {operator!r} cannot decode the record at {position}: {reason}",
    cause="Input that the source cannot decode.",
    fix="correct the input, or choose on_error(skip() | dead_letter()) for the source; nothing "
    "of this epoch was published",
)
UNKEYED_STATE = BicycleError.row(
    "BIC-1405",
    "operator {operator!r}: {what} needs a key, but the stream is not keyed",
    cause="Something that needs a key was asked for where there is none.",
    fix="put key_by(...) before the operator",
)
BATCH_RESULT_WRONG = BicycleError.row(
    "BIC-1406",
    "operator {operator!r}: {function} returned {found} for a call with {expected:count record}; "
    "one list of outputs for each record is expected, in the order of the records",
    cause="A function that takes many records at once gave no result for each of them.",
    fix="return [[], [a], [b, c]] for three records that give none, one and two; nothing of this "
    "epoch was published",
)
ENDLESS_TIMERS = BicycleError.row(
    "BIC-1425",
    "operator {operator!r}: all input has ended, and {function} has set timers of key {key} in "
    "on_timer() more than {count:count time} since; nothing of this epoch was published",
    cause="At the end of all input a function went on setting timers, which fire at once then.",
    fix="set no further timer once ctx.current_watermark() is the greatest watermark "
    "(bicycle_sdk.contexts.WATERMARK_MAX)",
)
RUNAWAY_TIMERS = BicycleError.row(
    "BIC-1426",
    "operator {operator!r}: more than {count} timers of key {key} have fired in one epoch of "
    "{function}, the last of them for the {domain} time {time_ms}, while that time is "
    "{reached_ms:moment}; nothing of this epoch was published",
    cause="A function sets timers for times that have come, over and over: a round never ends.",
    fix="set timers behind the time that it is, such as max(timestamp_ms, "
    "ctx.current_watermark()) + interval: time may have jumped over many intervals",
)
DEAD_LETTER_UNREADABLE = BicycleError.row(
    "BIC-1430",
    "dead letter {letter!r} of operator {operator!r} cannot be read by the code of now: {reason}",
    cause="The class of a record was renamed or removed after a dead letter was written.",
    fix="let the record's class be found under its old name again, or leave this letter out; it "
    "stays as it is",
)
NO_EVENT_TIME = BicycleError.row(
    "BIC-1410",
    "operator {operator!r} needs event time, but its records have none",
    cause="Something that needs event time got records without it.",
    fix="call assign_timestamps(…) on the stream before key_by, or choose a source that gives "
    "times; nothing was published",
)
WINDOW_STATE_UNMERGEABLE = BicycleError.row(
    "BIC-1411",
    "the window function saves {name!r}, but a session may merge with others",
    cause="A window function wanted to keep a value of a session.",
    fix="use windows of fixed bounds, or keep state by key behind the window",
)
