"""Errors of pipelines, the jobs that are a file (BIC-27xx)."""

from bicycle_sdk.errors import BicycleError

PIPELINE_UNREADABLE = BicycleError.row(
    "BIC-2700",
    "{file}: {problem}",
    cause="A pipeline file cannot be read, or is neither TOML nor YAML.",
    fix="{hint}",
)
PIPELINE_INVALID = BicycleError.row(
    "BIC-2701",
    "{file} has {count_text}; nothing was started\n{listing}",
    cause=(
        "Keys of a pipeline are unknown, missing or invalid. ``problems`` lists all of them with "
        "``line``, ``column``, ``key`` and ``text``."
    ),
    fix=(
        "correct the lines above; `bicycle pipeline schema` provides the keys to editors, `bicycle "
        "pipeline check {file}` repeats the check"
    ),
)
LOOKUP_FILE_UNUSABLE = BicycleError.row(
    "BIC-2702",
    "lookup file {path} cannot be used: {reason}",
    cause="A lookup file for records is missing or too large, or lacks a field.",
    fix="correct the file; it must exist under this path on every host that runs tasks",
)
PIPELINE_NOT_SHORT = BicycleError.row(
    "BIC-2703",
    "{file} cannot be converted to the short form: {reason}",
    cause="A pipeline has branches, ids or settings that the short form does not support.",
    fix="keep the form with vertices and edges",
)
PIPELINE_TEST_UNUSABLE = BicycleError.row(
    "BIC-2704",
    "{file} cannot be tested: {reason}",
    cause="A pipeline has no tests, or a test names an unknown source or sink.",
    fix="add a [[test]] with input and output; `bicycle pipeline new` writes one",
)
PIPELINE_TEST_FAILED = BicycleError.row(
    "BIC-2705",
    "{file}: {failed_text} of {count_text} failed\n{listing}",
    cause=(
        "The output of a pipeline differs from the expected records. ``failed`` lists the failed "
        "tests."
    ),
    fix="compare the rows above with the pipeline",
)
SQL_EXTRA_MISSING = BicycleError.row(
    "BIC-2706",
    "{file} has SQL expressions, but {missing} is not installed",
    cause="SQL expressions need libraries that are an extra of the runtime.",
    fix="pip install 'bicycle-runtime[sql]'",
)
PIPELINE_NOT_SQL = BicycleError.row(
    "BIC-2708",
    "{file} cannot be converted to SQL: {count_text}\n{listing}",
    cause=(
        "Operators of a pipeline have no counterpart in SQL, or mean something else there. "
        "``problems`` lists all of them with ``line``, ``column``, ``key`` and ``text``."
    ),
    fix="keep the pipeline; its steps `sql` compute queries",
)
PIPELINE_TOO_COSTLY = BicycleError.row(
    "BIC-2707",
    "check of {file} was stopped: {reason}; nothing was started",
    cause=(
        "The check of a pipeline exceeds the time or memory that the service allows for a request."
    ),
    fix="make expressions, tables and lists smaller; `bicycle pipeline check` has no such limit",
)
