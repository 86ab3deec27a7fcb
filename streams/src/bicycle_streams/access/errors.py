"""Errors of servers: unknown callers, invalid tokens, refused addresses."""

from bicycle_sdk.errors import BicycleError

LOGIN_NEEDED = BicycleError.row(
    "BIC-2320",
    "request for {path} is not authenticated",
    cause="The service requires authentication, and the request has no credentials.",
    fix="send a token: `Authorization: Bearer …`; `bicycle token create` creates a token",
)
TOKEN_REFUSED = BicycleError.row(
    "BIC-2321",
    "token rejected: it is unknown, expired or revoked",
    cause="The token of a request is unknown, expired or revoked.",
    fix="run `bicycle token list`; `bicycle token create` creates a new token",
)
ROLE_TOO_LOW = BicycleError.row(
    "BIC-2322",
    "{name!r} has the role {found}, but {least} is required",
    cause="The role of the caller does not permit the request.",
    fix="ask a user with this role, or request a token with the role {least}",
)
TOKEN_UNKNOWN = BicycleError.row(
    "BIC-2323",
    "token {token!r} not found",
    cause="No token has this id.",
    fix="use an id from `bicycle token list`",
)
TOKEN_NAME_INVALID = BicycleError.row(
    "BIC-2324",
    "{name!r} cannot be the name of a token: {problem}",
    cause=(
        "The name of a token is empty, too long, or contains characters that cannot be displayed."
    ),
    fix="use 1 to {length_max} letters, digits, dots, dashes and spaces",
)
TOKEN_LIFETIME_INVALID = BicycleError.row(
    "BIC-2325",
    "token lifetime must be between {low_ms:duration} and {high_ms:duration}, got "
    "{lifetime_ms:duration}",
    cause="The lifetime of a token is out of bounds.",
    fix="choose a lifetime within these bounds",
)
RATE_EXCEEDED = BicycleError.row(
    "BIC-2326",
    "too many {kind} in a short time",
    cause="A token or address exceeded its rate limit.",
    fix="repeat the request after {wait_s} s",
)
OWNER_FOREIGN = BicycleError.row(
    "BIC-2327",
    "{name!r} is limited to {owners_text}",
    cause="A token is limited to some owners, and the request concerns other owners, or all.",
    fix="ask a user whose token covers all owners",
)
TOKEN_OWNER_INVALID = BicycleError.row(
    "BIC-2329",
    "{owner!r} is not a valid owner of jobs",
    cause="An owner of jobs must be a valid name of a token.",
    fix=(
        "use 1 to {length_max} letters, digits, dots, dashes and spaces; omit the owner for all "
        "owners"
    ),
)
TOKEN_UNUSABLE = BicycleError.row(
    "BIC-2333",
    "the given token cannot be registered: {problem}",
    cause="A token in a file is malformed, or its id belongs to another token.",
    fix="use the output of `bicycle token create`, also of another home",
)
CONNECTIONS_TOO_MANY = BicycleError.row(
    "BIC-2330",
    "a token or address may have at most {limit} {what} at once",
    cause="A token or address has too many open requests or event streams.",
    fix="close some of them first; several pages or programs may share one token",
)
CONNECTIONS_EXHAUSTED = BicycleError.row(
    "BIC-2331",
    "the service may have at most {limit} {what} at once, and other callers use all of them",
    cause="All callers together have too many open requests or event streams.",
    fix="try again after some seconds; health, stop, drain and cancel still work",
)
DATABASE_UNUSABLE = BicycleError.row(
    "BIC-2303",
    "database {path} cannot be used: {reason}",
    cause=(
        "A newer version wrote the database of the service, or the file is damaged or not a "
        "database of Bicycle."
    ),
    fix=(
        "use the version of bicycle-runtime that wrote it. If the file is damaged, stop the "
        "service and restore the file from a copy, try `sqlite3 {path} .recover`, or move the file "
        "away: `bicycle up` creates a new one. Jobs and checkpoints are kept; {lost} are lost with "
        "the file"
    ),
)
DATABASE_SERVER_UNAVAILABLE = BicycleError.row(
    "BIC-2317",
    "database {server} is not available: {reason}",
    cause=(
        "The PostgreSQL server of the service cannot be reached, rejects the login, or cannot "
        "execute a statement now."
    ),
    fix=(
        "start the server, and check --database and --database-password; the service connects "
        "again by itself, and jobs continue meanwhile"
    ),
)
DATABASE_SERVER_UNUSABLE = BicycleError.row(
    "BIC-2318",
    "database {server} cannot be used: {reason}",
    cause=(
        "A newer version wrote the tables of the service, they belong to another program or "
        "another service, the user may not create tables, or the URL is invalid."
    ),
    fix=(
        "use the version of bicycle-runtime that wrote it; otherwise set --database to a database "
        "of its own, or to a schema: `postgresql://user@host/database?options=-csearch_path%3Djobs`"
    ),
)
HOME_UNUSABLE = BicycleError.row(
    "BIC-1912",
    "home directory {path} cannot be used: {reason}",
    cause="The home directory cannot be used.",
    fix="set BICYCLE_HOME to a directory that this user may write",
)
ADDRESS_REFUSED = BicycleError.row(
    "BIC-2501",
    "{host!r} ({found}) is reachable from other machines, but {missing}; nothing was started",
    cause="Other machines could reach the service and run code as its user.",
    fix=(
        "create a token with `bicycle token create NAME --role admin`, and set --tls-cert FILE "
        "--tls-key FILE; or listen on 127.0.0.1 and connect with `ssh -L {port}:127.0.0.1:{port}`"
    ),
)
ADDRESS_TAKEN = BicycleError.row(
    "BIC-2502",
    "cannot listen on {host} port {port}: {reason}; nothing was started",
    cause="The server cannot listen on the address.",
    fix="choose another port; 0 selects a free port",
)
TLS_INCOMPLETE = BicycleError.row(
    "BIC-2503",
    "TLS also needs {missing}; nothing was started",
    cause="An option for TLS is missing that another option requires.",
    fix="set --tls-cert with --tls-key, and --tls-client-ca with --client-role NAME=ROLE",
)
TLS_UNUSABLE = BicycleError.row(
    "BIC-2504",
    "TLS cannot be configured with {files}: {reason}; nothing was started",
    cause="A certificate or key cannot be read, or they do not match.",
    fix="use PEM files that this user may read, the key without a passphrase",
)
