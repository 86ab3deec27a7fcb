"""Errors of uploaded plugins: what is refused, and what is in the way."""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError

PLUGIN_UNKNOWN = BicycleError.row(
    "BIC-2340",
    "no uploaded plugin has the digest {digest!r}",
    cause="Nothing was uploaded that has this digest, or it was removed.",
    fix="take a digest from GET /api/v1/plugins, or upload the wheel",
)


PLUGIN_IN_USE = BicycleError.row(
    "BIC-2341",
    "{title} cannot be removed: {jobs_text} go on with it",
    cause="A job, or a savepoint of one, needs the environment of the plugin.",
    fix="stop the jobs that run (GET /api/v1/plugins/{digest} names yours); `bicycle jobs prune` "
    "forgets those that have ended",
)


WHEEL_REFUSED = BicycleError.row(
    "BIC-2342",
    "the wheel {file!r} is refused: {problem}; nothing was installed",
    cause="The file is no wheel, or one that cannot be trusted to be what it seems.",
    fix="build the wheel again with `python -m build --wheel`, and send it as it is",
)


LOCK_REFUSED = BicycleError.row(
    "BIC-2343",
    "the lock file is refused, line {line}: {problem}; nothing was installed",
    cause="A line of the lock file does not name one version of a library with its hashes.",
    fix="make it with `bicycle plugins lock`, beside the pyproject.toml or with the wheel",
)


LOCK_INCOMPLETE = BicycleError.row(
    "BIC-2344",
    "{title} needs {missing_text}, and no lock file says which files these are; nothing was "
    "installed",
    cause="The wheel needs libraries that no lock file names, so that nobody knows what to run.",
    fix="send a lock file, too: `bicycle plugins lock` beside the pyproject.toml makes it",
)


ENVIRONMENT_NOT_BUILT = BicycleError.row(
    "BIC-2345",
    "the environment of {title} was not built: {reason}",
    cause="The installer failed, or took more time, memory or disk than it may.",
    fix="{hint}",
)


UPLOAD_GONE = BicycleError.row(
    "BIC-2346",
    "the uploaded files of {title} are not there any more",
    cause="An upload was removed before it was installed, as after a failure of the same wheel.",
    fix="upload the wheel again",
)


PROJECT_UNREADABLE = BicycleError.row(
    "BIC-2347",
    "{path} cannot be locked: {problem}",
    cause="What is to be locked is neither a wheel nor a project whose dependencies are written "
    "down.",
    fix="{hint}",
)
