"""Errors of uploaded plugins: refusals and conflicts."""

from bicycle_sdk.errors import BicycleError

PLUGIN_UNKNOWN = BicycleError.row(
    "BIC-2340",
    "no uploaded plugin with digest {digest!r}",
    cause="No uploaded plugin has this digest, or it was removed.",
    fix="use a digest from GET /api/v1/plugins, or upload the wheel",
)


PLUGIN_IN_USE = BicycleError.row(
    "BIC-2341",
    "{title} cannot be removed: it is used by {jobs_text}",
    cause="A job or a savepoint needs the environment of the plugin.",
    fix=(
        "stop the running jobs (GET /api/v1/plugins/{digest} lists yours); `bicycle jobs prune` "
        "removes ended jobs"
    ),
)


WHEEL_REFUSED = BicycleError.row(
    "BIC-2342",
    "wheel {file!r} is rejected: {problem}; nothing was installed",
    cause="The file is not a wheel, or its content contradicts its metadata.",
    fix="build the wheel again with `python -m build --wheel`, and send it unchanged",
)


LOCK_REFUSED = BicycleError.row(
    "BIC-2343",
    "lock file is rejected, line {line}: {problem}; nothing was installed",
    cause="A line of the lock file does not name one version of a library with its hashes.",
    fix="create it with `bicycle plugins lock`, next to the pyproject.toml or with the wheel",
)


LOCK_INCOMPLETE = BicycleError.row(
    "BIC-2344",
    "{title} requires {missing_text}, which no lock file pins; nothing was installed",
    cause="The wheel requires libraries that no lock file pins.",
    fix="send a lock file too; `bicycle plugins lock` next to the pyproject.toml creates it",
)


ENVIRONMENT_NOT_BUILT = BicycleError.row(
    "BIC-2345",
    "the environment of {title} was not built: {reason}",
    cause="The installer failed, or exceeded its limit of time, memory or disk.",
    fix="{hint}",
)


UPLOAD_GONE = BicycleError.row(
    "BIC-2346",
    "the uploaded files of {title} no longer exist",
    cause="An upload was removed before its installation, for example after a failed installation.",
    fix="upload the wheel again",
)


PROJECT_UNREADABLE = BicycleError.row(
    "BIC-2347",
    "{path} cannot be locked: {problem}",
    cause="The input is neither a wheel nor a project with declared dependencies.",
    fix="{hint}",
)
