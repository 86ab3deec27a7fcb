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
    fix="correct the lines above",
)
LOOKUP_FILE_UNUSABLE = BicycleError.row(
    "BIC-2702",
    "the look-up file {path} cannot be used: {reason}",
    cause="A file that records are completed from is missing, too large, or has other fields.",
    fix="give a file that every host that runs tasks has under this path",
)
