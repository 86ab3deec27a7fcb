"""Errors of state: incompatible types, damaged files, states without a merge."""

from bicycle_sdk.errors import BicycleError

STATE_TYPE_CHANGED = BicycleError.row(
    "BIC-1301",
    "state attribute {attribute!r} must stay a dict, got {found}; the epoch is not sealed",
    cause="A state attribute that was a dict now has another type.",
    fix="keep a dict in the attribute (clear() empties it); earlier epochs are intact",
)


class StateFileError(BicycleError):
    """A sealed state file is missing or damaged."""

    code = "BIC-1302"
    message = "state file {path!r} of operator {operator!r} is damaged: {reason}"
    fix = (
        "restore the file from a copy. Without it, the next start uses the newest epoch whose "
        "files are intact; a restart strategy starts the job automatically"
    )


NAMED_STATE_UNMERGEABLE = BicycleError.row(
    "BIC-1304",
    "operator {operator!r} has the named value {name!r} in more than one subtask: parallelism "
    "cannot change from {old} to {new}; nothing was changed",
    cause="Several subtasks saved a value with the same name, and the parallelism changes.",
    fix=(
        "keep the value in an attribute that merge_state() merges, keep the parallelism, or use "
        "key_by"
    ),
)
STATE_UNMERGEABLE = BicycleError.row(
    "BIC-1303",
    "operator {operator!r} has state per subtask, and {function} has no merge_state(): "
    "parallelism cannot change from {old} to {new}; nothing was changed",
    cause="A function without keys has state and cannot merge it when its parallelism changes.",
    fix=(
        "define merge_state(states) in the function, keep the parallelism, or keep the state after "
        "key_by"
    ),
)
LOCAL_STATE_UNUSABLE = BicycleError.row(
    "BIC-1305",
    "local folder {folder!r} cannot hold state: {reason}; sealed state is unchanged",
    cause="A worker cannot store state on its local disk.",
    fix=(
        "set state_dir to a folder with free space that the workers can write, or set "
        "state_backend=memory"
    ),
)
STATE_BACKEND_UNUSABLE = BicycleError.row(
    "BIC-1306",
    "state backend {backend!r} ({factory}) cannot be used: {reason}",
    cause="A worker cannot create the state backend of an extension.",
    fix="install or repair the extension on every host, or choose another state_backend",
)
STATE_KIND_CHANGED = BicycleError.row(
    "BIC-1310",
    "state {state!r} was sealed as a {sealed} state and is now declared as a {asked} state; "
    "sealed state is unchanged",
    cause="A keyed state is declared as another kind than in sealed epochs.",
    fix="use another name for the new state, or restore the previous kind",
)
SCHEMA_REFUSED = BicycleError.row(
    "BIC-1340",
    "sealed state cannot be read with the current declarations:\n"
    "{table}\n"
    "no epoch was run, and the checkpoint is unchanged",
    cause=(
        "Sealed state does not match the declarations in the code; ``refused`` contains both "
        "schemas."
    ),
    fix=(
        "restore the previous declaration, raise the version and add a migration hook, or start "
        "empty under another job name"
    ),
)


class MigrationError(BicycleError):
    """A migration hook raised, or returned a value of another type than declared.

    ``key`` identifies the entry without its content.
    """

    code = "BIC-1341"
    message = (
        "migration of state {state!r} of operator {operator!r} from version {version} to "
        "{declared_version} failed for {key}{location}: {exception}: {exception_message}; sealed "
        "state is unchanged"
    )
    fix = (
        "correct the hook and start again. Values are migrated when they are read, so no value is "
        "lost"
    )


STORED_VALUE_UNFIT = BicycleError.row(
    "BIC-1342",
    "value of state {state!r} of operator {operator!r} ({key}) does not match the schema of "
    "version {version}: {reason}",
    cause="A stored value does not match the schema of its version.",
    fix="start from an older savepoint with --from; `bicycle state get` shows the value",
)
