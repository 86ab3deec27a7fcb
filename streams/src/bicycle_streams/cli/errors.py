"""Errors of any command line, and of the live view of streams."""

from bicycle_sdk.errors import BicycleError

USAGE_REFUSED = BicycleError.row(
    "BIC-2001",
    "{problem}",
    cause="The arguments of a command are invalid.",
    fix="run `{command} --help`",
)
INTERNAL_ERROR = BicycleError.row(
    "BIC-2099",
    "internal error: {exception}: {exception_message}",
    cause="An unexpected exception was raised in Bicycle.",
    fix="run the command again with --debug and report the traceback",
)
OUTPUT_FULL = BicycleError.row(
    "BIC-2015",
    "the output was written only in part: {reason}",
    cause="The standard output, or a file of the command, accepts no more data.",
    fix="free space, or write to another target; the output so far is incomplete",
)
NO_TERMINAL = BicycleError.row(
    "BIC-2016",
    "the live view needs a terminal, but the {name} is not a terminal",
    cause=(
        "The live view of `bicycle stream top` was started in a pipe, with a file or in a script."
    ),
    fix="add --once to print the current values, as text or with --json",
)
TOP_LIBRARY_MISSING = BicycleError.row(
    "BIC-2014",
    "the live view needs the library {library!r}, which is not installed",
    cause="The live view of `bicycle stream top` needs a library that is an extra of the toolkit.",
    fix="pip install 'bicycle-streams[top]', or add --once to print the current values",
)
