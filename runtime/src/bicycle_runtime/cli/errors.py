"""Errors of the command line of jobs: the service, tokens, commands of extensions."""

from bicycle_sdk.errors import BicycleError

SERVICE_UNREACHABLE = BicycleError.row(
    "BIC-2010",
    "service at {url} does not respond: {reason}",
    cause="No Bicycle service responds at the address.",
    fix="start the service with `bicycle up`, or set its address with --service",
)
SERVICE_URL_UNUSABLE = BicycleError.row(
    "BIC-2011",
    "service address must be an http or https URL with a host, got {url!r}",
    cause="The address of the service is not a URL with http or https and a host.",
    fix="use the address that `bicycle up` prints, such as http://127.0.0.1:9000",
)
TOKEN_EXPOSED = BicycleError.row(
    "BIC-2012",
    "token is not sent to {url} without TLS, because others on the network could read it",
    cause="A token is set, and the address of the service is another machine without TLS.",
    fix="use the https address of the service, or connect through `ssh -L`",
)
TOKEN_UNREADABLE = BicycleError.row(
    "BIC-2013",
    "token file {path} cannot be read: {reason}",
    cause="The file with the token of the service cannot be read, or is empty.",
    fix="write the output of `bicycle token create` into the file, or choose another file",
)
COMMAND_UNKNOWN = BicycleError.row(
    "BIC-2017",
    "command {name!r} not found; {refusal_text}",
    cause="The command does not exist, or its extension could not be loaded.",
    fix="run `bicycle --help` for the commands, or repair or remove the extension",
)
EXTENSION_COMMAND_UNUSABLE = BicycleError.row(
    "BIC-2018",
    "command {name!r} of extension {extension} cannot be loaded: {reason}",
    cause="An extension offers a command whose module or function cannot be imported.",
    fix="update or remove the distribution of the extension",
)
