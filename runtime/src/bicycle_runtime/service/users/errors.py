"""Errors about who asks: nobody known, a token that is none, a role that is too low."""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError

LOGIN_NEEDED = BicycleError.row(
    "BIC-2320",
    "a request for {path} does not say who asks",
    cause="The service demands to know who asks, and the request does not say.",
    fix="send a token: `Authorization: Bearer …`; `bicycle token create` makes one",
)


TOKEN_REFUSED = BicycleError.row(
    "BIC-2321",
    "this token is not taken: it is unknown, expired or revoked",
    cause="A token was sent that this service does not know, or does not take any more.",
    fix="look at `bicycle token list`; `bicycle token create` makes a new one",
)


ROLE_TOO_LOW = BicycleError.row(
    "BIC-2322",
    "{name!r} may not do this as {found}; {least} is needed",
    cause="Who asks may not do this.",
    fix="ask somebody who may, or for a token of the role {least}",
)


TOKEN_UNKNOWN = BicycleError.row(
    "BIC-2323",
    "there is no token {token!r}",
    cause="There is no token of this id.",
    fix="take the id from `bicycle token list`",
)


TOKEN_NAME_INVALID = BicycleError.row(
    "BIC-2324",
    "{name!r} cannot be the name of a token: {problem}",
    cause="The name of a token is empty, too long, or has letters that cannot be shown.",
    fix="give 1 to {length_max} letters, digits, dots, dashes and spaces",
)


TOKEN_LIFETIME_INVALID = BicycleError.row(
    "BIC-2325",
    "a token cannot live for {lifetime_ms:duration}",
    cause="The lifetime of a token is out of bounds.",
    fix="give {low_ms:duration} to {high_ms:duration}",
)


RATE_EXCEEDED = BicycleError.row(
    "BIC-2326",
    "too many {kind} in a short time",
    cause="More was asked in a short time than one token or address may ask.",
    fix="ask again in {wait_s} s",
)


OWNER_FOREIGN = BicycleError.row(
    "BIC-2327",
    "{name!r} may do this for {owners_text} only",
    cause="A token counts for some owners, and this is about others, or about all.",
    fix="ask somebody whose token counts for all owners",
)


JOB_NAME_TAKEN = BicycleError.row(
    "BIC-2328",
    "a job {job!r} belongs to somebody else",
    cause="Names of jobs stay with their owner, and this one is not theirs.",
    fix="give the job another name",
)


TOKEN_OWNER_INVALID = BicycleError.row(
    "BIC-2329",
    "{owner!r} cannot be an owner of jobs",
    cause="An owner of jobs is the name of a token, and this can be none.",
    fix="give 1 to {length_max} letters, digits, dots, dashes and spaces; leave it out for all",
)


CONNECTIONS_TOO_MANY = BicycleError.row(
    "BIC-2330",
    "one token or address may have {limit} {what} at once, and has them",
    cause="One token or address has as many requests or event streams open as it may.",
    fix="end some of them first; several pages or programs may share one token",
)


CONNECTIONS_EXHAUSTED = BicycleError.row(
    "BIC-2331",
    "the service answers {limit} {what} at once, and others have them all",
    cause="All callers together have as many requests or event streams open as the service takes.",
    fix="try again in some seconds; health, stop, drain and cancel are answered meanwhile",
)


LOCATION_TAKEN = BicycleError.row(
    "BIC-2332",
    "{location} belongs to somebody else",
    cause="A job or a savepoint was to be written where the checkpoints of another owner are.",
    fix="give another directory, or leave it out for that of the home",
)
