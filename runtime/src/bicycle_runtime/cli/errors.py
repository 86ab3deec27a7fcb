"""Errors of the command line itself."""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError

USAGE_REFUSED = BicycleError.row(
    "BIC-2001",
    "{problem}",
    cause="The words of the command line cannot be read.",
    fix="see `{command} --help`",
)
INTERNAL_ERROR = BicycleError.row(
    "BIC-2099",
    "internal error: {exception}: {exception_message}",
    cause="Bicycle itself failed in a way that it has no words for.",
    fix="run the command again with --debug and report the traceback",
)
SERVICE_UNREACHABLE = BicycleError.row(
    "BIC-2010",
    "the service at {url} does not answer: {reason}",
    cause="Nothing listens at the address of the service, or it is none of Bicycle.",
    fix="start it with `bicycle up`, or name the right one with --service",
)
SERVICE_URL_UNUSABLE = BicycleError.row(
    "BIC-2011",
    "{url!r} is no address of a service",
    cause="The address of the service is no URL with http or https and a host.",
    fix="give the address that `bicycle up` prints, such as http://127.0.0.1:9000",
)
TOKEN_EXPOSED = BicycleError.row(
    "BIC-2012",
    "a token is not sent to {url}: everybody between could read it",
    cause="A token is given, and the address of the service is one of another machine without TLS.",
    fix="use the https address of the service, or reach it through `ssh -L`",
)
TOKEN_UNREADABLE = BicycleError.row(
    "BIC-2013",
    "the token in {path} cannot be read: {reason}",
    cause="The file with the token of the service cannot be read, or is empty.",
    fix="write what `bicycle token create` prints into the file, or give another one",
)
OUTPUT_FULL = BicycleError.row(
    "BIC-2015",
    "not all could be written: {reason}",
    cause="What the standard output goes to, or a file of the command, takes nothing more.",
    fix="make room, or write to another place; what was written so far is only a part",
)
NO_TERMINAL = BicycleError.row(
    "BIC-2016",
    "a page needs a terminal, and the {name} is none",
    cause="The page of `bicycle stream top` was asked for in a pipe, a file or a script.",
    fix="add --once to see the figures as they are now, as text or with --json",
)
TOP_LIBRARY_MISSING = BicycleError.row(
    "BIC-2014",
    "the page needs the library {library!r}, which is not installed",
    cause="The page of `bicycle stream top` needs a library that is an extra of the runtime.",
    fix="pip install 'bicycle-runtime[top]', or add --once to see the figures as they are now",
)
