"""Errors of state: types that do not fit, damaged files, states that cannot be merged."""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError

__all__ = [
    "LocalStateError",
    "MigrationError",
    "NamedMergeError",
    "SchemaRefusedError",
    "StateFileError",
    "StateKindError",
    "StateMergeError",
    "StateTypeError",
    "StoredValueError",
]


class StateTypeError(BicycleError):
    """A state attribute that was a dict holds something else."""

    code = "BIC-1301"
    message = (
        "state attribute {attribute!r} was a dict and now holds {found}; the epoch is not sealed"
    )
    fix = "keep a dict there (clear() empties it); earlier epochs are intact"


class StateFileError(BicycleError):
    """A sealed state file is missing or damaged."""

    code = "BIC-1302"
    message = "state file {path!r} of operator {operator!r} is damaged: {reason}"
    fix = (
        "restore the file from a copy, or leave it: the job falls back to the newest epoch whose "
        "files are whole when it is started again, by itself as its restart strategy says"
    )


class NamedMergeError(BicycleError):
    """Several subtasks saved a value under one name, and the parallelism changes."""

    code = "BIC-1304"
    message = (
        "operator {operator!r} keeps the named value {name!r} in more than one subtask and was "
        "checkpointed at parallelism {old}, this run asks for {new}; nothing was changed"
    )
    fix = "keep it in an attribute that merge_state() merges, keep the parallelism, or use key_by"


class StateMergeError(BicycleError):
    """A function without keys has state and cannot merge it when its parallelism changes."""

    code = "BIC-1303"
    message = (
        "operator {operator!r} keeps state per subtask and was checkpointed at "
        "parallelism {old}, this run asks "
        "for {new}, and {function} has no merge_state(); nothing was changed"
    )
    fix = (
        "define merge_state(states) in the function, keep the parallelism, or put the state "
        "behind key_by"
    )


class LocalStateError(BicycleError):
    """A worker cannot keep state on its local disk."""

    code = "BIC-1305"
    message = "local folder {folder!r} cannot hold state: {reason}; what is sealed is unchanged"
    fix = "give state_dir a folder that the workers can write, with space; or state_backend=memory"


class StateBackendError(BicycleError):
    """The state backend of an extension cannot be made on a worker."""

    code = "BIC-1306"
    message = "state backend {backend!r} ({place}) cannot be used: {reason}"
    fix = "install or repair the extension on every host, or choose another state_backend"


class StateKindError(BicycleError):
    """A keyed state is asked for as another kind than sealed epochs have it."""

    code = "BIC-1310"
    message = (
        "state {state!r} was written as a {sealed} state and is asked for as a {asked} state; "
        "what is sealed is unchanged"
    )
    fix = "give the new state another name, or go back to the kind it had"


class SchemaRefusedError(BicycleError):
    """Sealed state does not fit what the code declares; ``refused`` has both schemas."""

    code = "BIC-1340"
    message = (
        "sealed state cannot be read as it is declared now:\n{table}\nno epoch was run, and the "
        "checkpoint is unchanged"
    )
    fix = (
        "declare it as it was, raise its version and give it a hook that migrates, or start empty "
        "under another job name"
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


class StoredValueError(BicycleError):
    """A value of an earlier form is not what its schema says."""

    code = "BIC-1342"
    message = (
        "a value of state {state!r} of operator {operator!r} ({key}) is not what the schema of "
        "version {version} says: {reason}"
    )
    fix = "start from an older epoch or savepoint; `bicycle state get` shows the value"
