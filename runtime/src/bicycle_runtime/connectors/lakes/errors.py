"""Errors of tables of lakes. Codes 30xx."""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError

LAKE_UNREACHABLE = BicycleError.row(
    "BIC-3000",
    "vertex {vertex!r}: table {table!r} cannot be used after {waited_ms} ms: {reason}",
    cause="The storage or the catalogue of a table does not answer, or refuses what was asked.",
    fix="see that the place is there and may be written, then start again: output that is sealed "
    "is kept",
)
LAKE_HISTORY_AHEAD = BicycleError.row(
    "BIC-3001",
    "vertex {vertex!r}: the job begins with epoch {epoch}, and table {table!r} has its output up "
    "to epoch {published}; rows would come again",
    cause="An older epoch or savepoint was restored than was written to the table.",
    fix="restore the newest epoch; or set on_rewind=publish_again, which is right for upserts",
)
LAKE_REFUSED = BicycleError.row(
    "BIC-3002",
    "vertex {vertex!r}: table {table!r} refused epoch {epoch}: {reason}; nothing of it was "
    "written, and its output is kept",
    cause="A table refuses rows of a sealed epoch: a constraint, or columns that were changed.",
    fix="change the table so that it takes the rows, and start the job again",
)
