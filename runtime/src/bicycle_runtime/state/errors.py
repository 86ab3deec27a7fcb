"""Errors of state: types that do not fit, damaged files, states that cannot be merged."""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError

STATE_TYPE_CHANGED = BicycleError.row(
    "BIC-1301",
    "state attribute {attribute!r} was a dict and now holds {found}; the epoch is not sealed",
    cause="A state attribute that was a dict holds something else.",
    fix="keep a dict there (clear() empties it); earlier epochs are intact",
)


class StateFileError(BicycleError):
    """A sealed state file is missing or damaged."""

    code = "BIC-1302"
    message = "state file {path!r} of operator {operator!r} is damaged: {reason}"
    fix = (
        "restore the file from a copy, or leave it: the job falls back to the newest epoch whose "
        "files are whole when it is started again, by itself as its restart strategy says"
    )


NAMED_STATE_UNMERGEABLE = BicycleError.row(
    "BIC-1304",
    "operator {operator!r} keeps the named value {name!r} in more than one subtask and was "
    "checkpointed at parallelism {old}, this run asks for {new}; nothing was changed",
    cause="Several subtasks saved a value under one name, and the parallelism changes.",
    fix="keep it in an attribute that merge_state() merges, keep the parallelism, or use key_by",
)
STATE_UNMERGEABLE = BicycleError.row(
    "BIC-1303",
    "operator {operator!r} keeps state per subtask and was checkpointed at "
    "parallelism {old}, this run asks "
    "for {new}, and {function} has no merge_state(); nothing was changed",
    cause="A function without keys has state and cannot merge it when its parallelism changes.",
    fix="define merge_state(states) in the function, keep the parallelism, or put the state "
    "behind key_by",
)
LOCAL_STATE_UNUSABLE = BicycleError.row(
    "BIC-1305",
    "local folder {folder!r} cannot hold state: {reason}; what is sealed is unchanged",
    cause="A worker cannot keep state on its local disk.",
    fix="give state_dir a folder that the workers can write, with space; or state_backend=memory",
)
STATE_BACKEND_UNUSABLE = BicycleError.row(
    "BIC-1306",
    "state backend {backend!r} ({place}) cannot be used: {reason}",
    cause="The state backend of an extension cannot be made on a worker.",
    fix="install or repair the extension on every host, or choose another state_backend",
)
STATE_KIND_CHANGED = BicycleError.row(
    "BIC-1310",
    "state {state!r} was written as a {sealed} state and is asked for as a {asked} state; "
    "what is sealed is unchanged",
    cause="A keyed state is asked for as another kind than sealed epochs have it.",
    fix="give the new state another name, or go back to the kind it had",
)
SCHEMA_REFUSED = BicycleError.row(
    "BIC-1340",
    "sealed state cannot be read as it is declared now:\n{table}\nno epoch was run, and the "
    "checkpoint is unchanged",
    cause="Sealed state does not fit what the code declares; ``refused`` has both schemas.",
    fix="declare it as it was, raise its version and give it a hook that migrates, or start empty "
    "under another job name",
)


class MigrationError(BicycleError):
    """A hook that migrates values raised, or returned something that is not of the declared type.

    ``key`` tells the entry without its content.
    """

    code = "BIC-1341"
    message = (
        "the hook that migrates state {state!r} of operator {operator!r} from version {version} to "
        "{declared_version} failed for {key}{location}: {exception}: {exception_message}; what is "
        "sealed is unchanged"
    )
    fix = "correct the hook and start again: values are migrated when they are read, none is lost"


STORED_VALUE_UNFIT = BicycleError.row(
    "BIC-1342",
    "a value of state {state!r} of operator {operator!r} ({key}) is not what the schema of "
    "version {version} says: {reason}",
    cause="A value of an earlier form is not what its schema says.",
    fix="start from an older epoch or savepoint; `bicycle state get` shows the value",
)
