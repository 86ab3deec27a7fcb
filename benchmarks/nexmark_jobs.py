"""The queries of Nexmark as jobs: SQL files of ours, and the texts that other systems get.

A query that another system writes differently is in a file beside it, ``q5.duckdb.sql`` for
example. ``tumble`` and ``hop`` count bids in windows of an hour for eight keys; those of
``hop`` begin each second.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from measuring import ROOT

from bicycle_runtime.tables.job import sql_job
from bicycle_sdk import StreamEnvironment, bicycle_plugin

__all__ = ["COLUMNS", "QUERIES", "WINDOWS", "file_of", "nexmark", "query_of"]

FOLDER = ROOT / "tests" / "sql" / "nexmark"
# The columns of each result. Prices in euros are floats.
_BID = "auction BIGINT, bidder BIGINT, price {}, "
_COUNTED = "bidder BIGINT, bid_count BIGINT, starttime TIMESTAMP(3), endtime TIMESTAMP(3)"
_HOURLY = "lane BIGINT, bid_count BIGINT, endtime TIMESTAMP(3)"
COLUMNS = {
    "q0": _BID.format("BIGINT") + "dateTime TIMESTAMP(3), extra VARCHAR",
    "q1": _BID.format("DOUBLE") + "dateTime TIMESTAMP(3), extra VARCHAR",
    "q2": "auction BIGINT, price BIGINT",
    "q5": "auction BIGINT, num BIGINT",
    "q7": "auction BIGINT, price BIGINT, bidder BIGINT, dateTime TIMESTAMP(3), extra VARCHAR",
    "q8": "id BIGINT, name VARCHAR, starttime TIMESTAMP(3)",
    "q10": _BID.format("BIGINT")
    + "dateTime TIMESTAMP(3), extra VARCHAR, bid_day VARCHAR, bid_minute VARCHAR",
    "q11": _COUNTED,
    "q14": _BID.format("DOUBLE")
    + "bidTimeType VARCHAR, dateTime TIMESTAMP(3), extra VARCHAR, c_counts BIGINT",
    "q21": _BID.format("BIGINT") + "channel VARCHAR, channel_id VARCHAR",
    "q22": _BID.format("BIGINT") + "channel VARCHAR, dir1 VARCHAR, dir2 VARCHAR, dir3 VARCHAR",
    "tumble": _HOURLY,
    "hop": _HOURLY,
}
QUERIES = tuple(COLUMNS)
WINDOWS = ("q5", "q7", "q8", "q11", "tumble", "hop")
_WINDOWED = """
SELECT mod(auction, 8) AS lane, count(*) AS bid_count, window_end AS endtime
FROM TABLE({}(TABLE bid, DESCRIPTOR(dateTime), {}INTERVAL '1' HOUR))
GROUP BY mod(auction, 8), window_start, window_end;
"""
_OURS = {
    "tumble": _WINDOWED.format("TUMBLE", ""),
    "hop": _WINDOWED.format("HOP", "INTERVAL '1' SECOND, "),
}


def query_of(name: str, system: str = "") -> str:
    """Return the text of a query for a system; ours without one."""
    own = FOLDER / f"{name}.{system}.sql"
    if own.is_file():
        return own.read_text("utf-8")
    return _OURS.get(name) or (FOLDER / f"{name}.sql").read_text("utf-8")


def file_of(name: str, source: Path, output: Path) -> str:
    """Return our SQL file of a query."""
    tables = (FOLDER / "tables.sql").read_text("utf-8")
    for table in ("person", "auction", "bid", "side_input"):
        tables = tables.replace(f"path = '{table}'", f"path = '{source / table}'")
    target = f"CREATE TABLE answer ({COLUMNS[name]}) WITH (kind = 'file', path = '{output}');"
    return f"{tables}\n{target}\nINSERT INTO answer\n{query_of(name)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NexmarkParams:
    """A query, the folder of its tables, and the folder of its result."""

    query: str
    input: str
    output: str


@bicycle_plugin(name="nexmark", version="1")
def nexmark(env: StreamEnvironment, params: NexmarkParams) -> None:
    """Run a query."""
    text = file_of(params.query, Path(params.input), Path(params.output))
    sql_job(text, file=f"{params.query}.sql")(env)
