"""The table of log events: names, levels and fields from the code, one description for each."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

__all__ = ["log_events_reference"]

_ROOT = Path(__file__).parents[1]
_SOURCES = tuple(_ROOT / name / "src" for name in ("plugin_sdk", "streams", "runtime"))
_LEVELS = ("INFO", "WARNING", "ERROR")
# Fields of events whose call passes a dict.
_PASSED_FIELDS = {
    "kafka_published_again": ["vertex", "epoch", "found_epoch", "topic"],
    "kafka_transaction_left_unread": [
        "vertex", "partition", "offset", "unread_offset_count", "limit_ms",
    ],
    "kafka_waits_for_transaction": [
        "vertex", "partition", "offset", "unread_offset_count", "limit_ms",
    ],
}  # fmt: skip
_DESCRIPTIONS = {
    "all_records_failed": "All records of an operator have failed, so it emits no output.",
    "audit_line_lost": "An entry could not be written to the audit log of the service.",
    "base_failed": "A base of the state could not be written; it is tried again.",
    "base_not_begun": "RocksDB could not create the files of a base.",
    "begun_epoch_not_noted": "The input of the running epoch could not be stored for "
    "`bicycle replay`.",
    "checkpoint_damaged": "A stored checkpoint of a stream program is damaged and is skipped.",
    "client_broke": "The connection of a subscriber ended with an unexpected error.",
    "client_dropped": "The subscriber server disconnected a client.",
    "dead_letters_replayed": "Dead letters were replayed in this epoch.",
    "drain_requested": "A drain was requested.",
    "driver_died": "The driver process died; the supervisor starts another one.",
    "epoch_aborted": "The running epoch was canceled.",
    "epoch_mixed": "Tasks of an epoch read different attempts of an earlier stage; the epoch "
    "runs again.",
    "epoch_sealed": "An epoch was sealed. Epochs in quick succession share one event.",
    "event_loop_blocked": "A function blocked the event loop, so that other calls had to wait.",
    "extension_failed": "A job listener or a metric reporter of an extension raised an error.",
    "extension_refused": "An installed extension cannot be used.",
    "findings_not_written": "The service could not write changes of jobs; it tries again.",
    "former_option_name": "The job uses a former name of an option; it is accepted.",
    "functions_not_closed": "`close` of a function raised an error at the end of the job.",
    "hosts_changed": "The hosts with executors changed.",
    "hot_key": "A key has a large share of the records of an operator.",
    "input_awaited": "The input file does not exist yet; the source waits for it.",
    "input_file_gone": "An input file was removed.",
    "input_file_renamed": "An input file was renamed; reading continues at its position.",
    "input_file_replaced": "An input file was replaced or truncated; it is read from its start.",
    "input_file_skipped": "An input file is skipped.",
    "input_files_listed": "The source found its input files.",
    "job_begun_with": "The job starts from a savepoint or a checkpoint.",
    "job_changed": "The job continues with another version of its plugin or parameters.",
    "job_failed": "The job ended with an error.",
    "job_file_damaged": "`job.json` of the checkpoint directory is damaged and was replaced.",
    "job_queue_failed": "The service could not process its queue of jobs; it tries again.",
    "job_recovered": "The job was restored from its last sealed epoch.",
    "job_rescaled": "The parallelism was changed.",
    "job_restarting": "The job failed and restarts after a pause.",
    "job_started": "The epoch loop started.",
    "journal_line_unreadable": "A line of the journal of a job is damaged and is skipped.",
    "journal_not_read": "The journal of a job could not be read, so its spans are missing.",
    "journal_not_written": "The journal of the job could not be written.",
    "kafka_client": "The Kafka client reported a message.",
    "kafka_client_renewed": "A source or a task opened a new Kafka client during an outage.",
    "kafka_offsets_lost": "Messages were removed from a topic before the job read them.",
    "kafka_offsets_not_reported": "Progress could not be reported to the consumer group.",
    "kafka_partition_found": "The source found a new partition.",
    "kafka_publish_recovered": "An epoch was published after failed attempts.",
    "kafka_publish_retried": "Publishing an epoch failed; it is tried again.",
    "kafka_published_again": "Restored state is older than the published output, which is "
    "published again (`on_rewind`).",
    "kafka_reachable": "Brokers respond again.",
    "kafka_settings_unseen": "The settings of a topic or broker cannot be read.",
    "kafka_silent": "A task received no data from the broker and opened another client.",
    "kafka_topic_grown": "The sink added partitions to its marker topic.",
    "kafka_topic_made": "The sink created a topic.",
    "kafka_topic_not_safe": "A topic acknowledges messages with a single replica.",
    "kafka_transaction_left_unread": "A bounded source stops before a transaction that is still "
    "open.",
    "kafka_unreachable": "No broker responds to the source; it waits.",
    "kafka_waiting": "The sink waits for its brokers at the start of the job.",
    "kafka_waits_for_transaction": "A bounded source waits for an open transaction.",
    "lease_beat_failed": "The lease of the job could not be renewed; it is tried again.",
    "lease_beats_again": "The lease of the job was renewed after failed attempts.",
    "lease_not_released": "The lease of the job could not be released at its end.",
    "lease_taken": "This driver acquired the lease of the job.",
    "listeners_behind": "Job listeners did not process all events before the end of the job.",
    "look_failed": "The service could not read the state of the jobs; it tries again.",
    "manifest_damaged": "A manifest is damaged; the job continues from an earlier epoch.",
    "message_unreadable": "The subscriber server skipped a damaged message.",
    "open_files_awaited": "The driver has reached its limit of open files; it waits.",
    "operation_broke": "An operation of the service failed with an unexpected error.",
    "operation_not_stored": "The service could not store an operation; it tries again.",
    "operation_over": "An operation of the service ended.",
    "orphans_deleted": "Files of unfinished epochs were deleted.",
    "output_taken_over": "The job took over an output directory from an earlier run or host.",
    "part_withdrawn": "An output file of an epoch that is no longer valid was moved away.",
    "past_use_unreadable": "The service could not read the past use of slots; it starts at zero.",
    "phase_advanced": "A phase of a start, or of loading state, advanced.",
    "phase_ended": "A phase of a start, or of loading state, ended.",
    "postgres_awaited": "PostgreSQL is unreachable or a replica; the source or sink waits.",
    "publication_waiting": "The target of a sink does not respond; publishing is tried again.",
    "reader_gone": "The reader of the output, such as `head`, closed the pipe.",
    "records_refused": "The target of a sink rejected records; they are dead letters.",
    "request_broke": "A request to the service failed with an unexpected error.",
    "request_not_written": "A new parallelism could not be stored for the next start.",
    "savepoint_failed": "A savepoint could not be created.",
    "savepoint_taken": "A savepoint was created.",
    "shadow_begun": "The new version of a blue-green upgrade started.",
    "shadow_not_removed": "Files of a blue-green upgrade could not be removed.",
    "shadow_not_taken_over": "The state of the new version was not used; the job continues from "
    "its own epoch.",
    "shadow_over": "The new version of a blue-green upgrade stopped.",
    "shadow_taken_over": "The job continues with the state of the new version.",
    "socket_client_connected": "A client connected to a socket source or sink.",
    "socket_client_failed": "The connection of a client failed.",
    "socket_client_gone": "A client of a socket sink was lost before it received all lines.",
    "socket_client_refused": "A client was rejected.",
    "socket_clients_held_back": "The journal of a socket source is full; clients must wait.",
    "socket_clients_released": "The socket source reads from its clients again.",
    "socket_listening": "A socket source or sink accepts clients.",
    "spans_not_sent": "Spans could not be sent to the OpenTelemetry receiver.",
    "stalled": "The job made no progress; the watchdog ends its driver.",
    "state_change_refused": "The service ignored an impossible change of the state of a job.",
    "state_folder_damaged": "A local folder of state is damaged; it is rebuilt.",
    "state_folder_foreign": "A local folder of state belongs to another job; it is rebuilt.",
    "state_folder_held_by_another": "Another process uses a local folder of state; a new folder "
    "is used.",
    "state_folder_not_written": "A local folder of state could not be written; it is rebuilt at "
    "the next start.",
    "state_folders_removed": "Local folders of state that this worker no longer owns were removed.",
    "state_loaded": "A worker loaded state from the checkpoint storage.",
    "state_reader_ended": "The process that reads state for the service ended unexpectedly.",
    "state_restored": "State was restored.",
    "state_restoring": "State is being restored.",
    "status_not_written": "The status file of the job could not be written.",
    "stop_requested": "A stop was requested.",
    "storage_awaited": "The checkpoint storage does not respond; the job waits.",
    "storage_away": "A call to the checkpoint storage failed; it is tried again.",
    "storage_back": "The checkpoint storage responds again.",
    "stream_lost": "The subscriber server lost a backend and connects again.",
    "streams_gap": "Messages of a feed are missing.",
    "streams_lost": "Messages of a stream were removed before the job read them.",
    "streams_waiting": "The backend of a stream source does not respond; the source waits.",
    "thread_stuck": "A thread of the job makes no progress; the event contains its stack.",
    "tokens_unchecked": "The database of tokens does not respond; connected subscribers stay.",
    "webhook_gave_up": "A webhook rejected a message, or did not accept it in time; it is a "
    "dead letter.",
    "webhook_waiting": "A stream of a webhook cannot be read; it is tried again.",
    "worker_ended": "A worker process was killed, crashed or exited.",
    "workers_not_kept": "Idle worker processes could not be kept alive.",
}


class _Event:
    """The calls that log one event."""

    def __init__(self) -> None:
        self.levels: set[str] = set()
        self.fields: dict[str, None] = {}


def log_events_reference() -> str:
    """Return a row for each log event of toolkit and runtime.

    Raises:
        AssertionError: an event has no description, or a description has no event.
    """
    events = _events()
    missing, unused = events.keys() - _DESCRIPTIONS.keys(), _DESCRIPTIONS.keys() - events.keys()
    assert not missing, f"add descriptions of these events to tools/log_events.py: {missing}"
    assert not unused, f"remove descriptions from tools/log_events.py, not in the code: {unused}"
    lines = ["| event | level | fields | description |", "|---|---|---|---|"]
    for name, event in sorted(events.items()):
        levels = ", ".join(level for level in _LEVELS if level in event.levels)
        names = ", ".join(f"`{each}`" for each in [*event.fields, *_PASSED_FIELDS.get(name, ())])
        lines.append(f"| `{name}` | {levels} | {names} | {_DESCRIPTIONS[name]} |")
    return "\n".join([*lines, ""])


def _events() -> dict[str, _Event]:
    """Return all events by name, from calls of ``log_event`` and of methods that wrap it."""
    found: dict[str, _Event] = {}
    paths = sorted(path for folder in _SOURCES for path in folder.rglob("*.py"))
    trees = {path: ast.parse(path.read_text("utf-8")) for path in paths}
    for tree in trees.values():
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for call in _calls(function, "log_event"):
                if not isinstance(call.args[1], ast.Name):
                    _note(found, call.args[1], _fields(call), _levels(call, function))
                    continue
                # A method that wraps the call. Other modules call public ones, too.
                callers = [tree] if function.name.startswith("_") else list(trees.values())
                for caller_tree in callers:
                    _note_callers(found, caller_tree, function, call)
    return found


def _note_callers(
    found: dict[str, _Event], tree: ast.AST, method: ast.FunctionDef | ast.AsyncFunctionDef,
    wrapped: ast.Call,
) -> None:  # fmt: skip
    own = {each.arg for each in (*method.args.args, *method.args.kwonlyargs)}
    for call in _calls(tree, method.name):
        if call.args:
            fields = [*_fields(wrapped), *(name for name in _fields(call) if name not in own)]
            has_level = any(word.arg == "level" for word in call.keywords)
            levels = _levels(call, tree) if has_level else _levels(wrapped, method)
            _note(found, call.args[0], fields, levels)


def _note(
    found: dict[str, _Event], name: ast.expr, fields: list[str], levels: set[str]
) -> None:  # fmt: skip
    for each in _names(name):
        event = found.setdefault(each, _Event())
        event.levels |= levels
        event.fields |= dict.fromkeys(fields)


def _fields(call: ast.Call) -> list[str]:
    return [word.arg for word in call.keywords if word.arg not in (None, "level")]


def _levels(call: ast.Call, scope: ast.AST) -> set[str]:
    """Return the levels of a call; ``scope`` contains the assignments of a variable for it."""
    values = [word.value for word in call.keywords if word.arg == "level"]
    if values and isinstance(values[0], ast.Name):
        name = values[0].id
        values = [
            node.value
            for node in ast.walk(scope)
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == name
        ]
        arguments = getattr(scope, "args", None)
        if arguments is not None:
            values += [each for each in (*arguments.defaults, *arguments.kw_defaults) if each]
    names = {
        node.attr for value in values for node in ast.walk(value) if isinstance(node, ast.Attribute)
    }
    return (names & set(_LEVELS)) or {"INFO"}


def _calls(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and name in (
            getattr(node.func, "id", None), getattr(node.func, "attr", None),
        ):  # fmt: skip
            yield node


def _names(value: ast.expr) -> list[str]:
    """Return the constants that an expression for an event name can be."""
    constants = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
    names = [getattr(each, "value", None) for each in constants]
    return [name for name in names if isinstance(name, str)]
