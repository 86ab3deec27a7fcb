"""Errors of PostgreSQL connectors. Codes 280x."""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError

POSTGRES_UNREACHABLE = BicycleError.row(
    "BIC-2800",
    "vertex {vertex!r}: PostgreSQL at {server} cannot be used after {waited_ms} ms: {reason}",
    cause="No server answers, or it refuses the login.",
    fix="see that the server runs and that url, user and password are right, then start again: "
    "output that is sealed is kept",
)
POSTGRES_TABLE_UNSUITABLE = BicycleError.row(
    "BIC-2801",
    "vertex {vertex!r}: table {table!r} cannot be used: {problem}; nothing was written",
    cause="The table is missing, or its columns, keys or rights do not fit the records.",
    fix="{hint}",
)
POSTGRES_SOURCE_UNSUITABLE = BicycleError.row(
    "BIC-2804",
    "vertex {vertex!r}: table {table!r} cannot be read: {problem}; nothing was read",
    cause="The table is missing, or it has no column by which new rows can be told from old ones.",
    fix="{hint}",
)
POSTGRES_REFUSED = BicycleError.row(
    "BIC-2802",
    "vertex {vertex!r}: table {table!r} refused epoch {epoch}: {reason}; nothing of it was "
    "written, and its output is kept",
    cause="A constraint, a trigger or a change of the table refuses rows of a sealed epoch.",
    fix="change the table so that it takes the rows, and start the job again",
)
POSTGRES_HISTORY_AHEAD = BicycleError.row(
    "BIC-2803",
    "vertex {vertex!r}: the job begins with epoch {epoch}, and table {table!r} has its output up "
    "to epoch {published}; rows would come again",
    cause="An older epoch or savepoint was restored than was written to the table.",
    fix="restore the newest epoch; or set on_rewind=publish_again, which is right for upserts",
)
