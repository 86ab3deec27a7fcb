"""Errors of pipelines, the jobs that are a file (BIC-27xx)."""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError

PIPELINE_UNREADABLE = BicycleError.row(
    "BIC-2700",
    "{file}: {problem}",
    cause="A pipeline cannot be read, or is no TOML or YAML.",
    fix="{hint}",
)
PIPELINE_INVALID = BicycleError.row(
    "BIC-2701",
    "{file} has {count_text}; nothing was started\n{listing}",
    cause="Keys of a pipeline are unknown, missing or not accepted. ``problems`` is a list of "
    "all of them, each with ``line``, ``column``, ``key`` and ``text``.",
    fix="correct the lines above; `bicycle pipeline schema` gives editors the keys, "
    "`bicycle pipeline check {file}` looks again",
)
LOOKUP_FILE_UNUSABLE = BicycleError.row(
    "BIC-2702",
    "the look-up file {path} cannot be used: {reason}",
    cause="A file that records are completed from is missing, too large, or has other fields.",
    fix="give a file that every host that runs tasks has under this path",
)
PIPELINE_NOT_SHORT = BicycleError.row(
    "BIC-2703",
    "{file} cannot be written in the short form: {reason}",
    cause="A pipeline has branches, ids or settings that the short form cannot say.",
    fix="leave it in the form with vertices and edges",
)
PIPELINE_TEST_UNUSABLE = BicycleError.row(
    "BIC-2704",
    "{file} cannot be tested: {reason}",
    cause="A pipeline has no tests, or one names a source or a sink that it does not have.",
    fix="add a [[test]] with input and output; `bicycle pipeline new` writes one",
)
PIPELINE_TEST_FAILED = BicycleError.row(
    "BIC-2705",
    "{file}: {failed_text} of {count_text} failed\n{listing}",
    cause="Other records came out than a test expects. ``failed`` has the names of the tests.",
    fix="compare the rows above with the pipeline",
)
SQL_EXTRA_MISSING = BicycleError.row(
    "BIC-2706",
    "{file} has SQL expressions, and {missing} is not installed",
    cause="Expressions need libraries that are an extra of the runtime.",
    fix="pip install 'bicycle-runtime[sql]'",
)
PIPELINE_TOO_COSTLY = BicycleError.row(
    "BIC-2707",
    "the check of {file} was ended: {reason}; nothing was started",
    cause="A pipeline takes more time or memory to check than a service gives to one request.",
    fix="make expressions, tables and lists smaller; `bicycle pipeline check` has no such limit",
)
