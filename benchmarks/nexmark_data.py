"""The rows of Nexmark: bids, auctions and persons of an auction house, drawn with a seed.

Of 50 events 1 is a person, 3 are auctions and 46 are bids. Half of the bids go to an auction that
is popular at that time, and three quarters come from a bidder who is active at that time. Names of
columns are those of the queries in ``tests/sql/nexmark``.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = ["TABLES", "events", "side_rows", "write_events"]

TABLES = ("person", "auction", "bid")
_BEGIN_MS = 1_436_918_400_000  # 2015-07-15T00:00:00Z
_CYCLE = "pa" + "b" * 16 + "a" + "b" * 15 + "a" + "b" * 15
_CHANNELS = ("Apple", "Google", "Facebook", "Baidu")
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Seattle")
_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter")
_SURNAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
_FIRST_CATEGORY, _CATEGORIES = 10, 5
_HOT_BIDS, _HOT_BIDDERS = 0.5, 0.75
_HOT_RATIO = 100  # An auction of so many is popular, and a person of so many is active.
_AUCTIONS_OPEN, _PERSONS_ACTIVE = 100, 1_000


def _moment(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1_000, UTC):%Y-%m-%dT%H:%M:%S}.{ms % 1_000:03}"


class _House:
    """The state of an auction house while events are drawn."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.persons = self.auctions = 0

    def text(self, low: int, high: int) -> str:
        letters = "abcdefghijklmnopqrstuvwxyz"
        return "".join(self.chance.choices(letters, k=self.chance.randint(low, high)))

    def price(self) -> int:
        return round(10 ** (self.chance.random() * 6) * 100)

    def person(self, at: int) -> dict[str, Any]:
        self.persons += 1
        name = f"{self.chance.choice(_NAMES)} {self.chance.choice(_SURNAMES)}"
        return {
            "id": 1_000 + self.persons - 1, "name": name,
            "emailAddress": f"{self.text(5, 7)}@{self.text(4, 5)}.com",
            "creditCard": " ".join(f"{self.chance.randrange(10_000):04}" for _ in range(4)),
            "city": self.chance.choice(_CITIES), "state": self.chance.choice(_STATES),
            "dateTime": _moment(at), "extra": self.text(20, 90),
        }  # fmt: skip

    def auction(self, at: int) -> dict[str, Any]:
        self.auctions += 1
        first = self.price()
        return {
            "id": 1_000 + self.auctions - 1, "itemName": self.text(5, 20),
            "description": self.text(20, 80), "initialBid": first, "reserve": first + self.price(),
            "dateTime": _moment(at), "expires": _moment(at + self.chance.randint(1, 20_000)),
            "seller": self._person(), "extra": self.text(40, 200),
            "category": _FIRST_CATEGORY + self.chance.randrange(_CATEGORIES),
        }  # fmt: skip

    def bid(self, at: int) -> dict[str, Any]:
        auction = max(0, self.auctions - 1)
        if self.chance.random() < _HOT_BIDS:
            auction = auction // _HOT_RATIO * _HOT_RATIO
        else:
            auction -= self.chance.randint(0, min(auction, _AUCTIONS_OPEN))
        folders = "/".join(self.text(3, 5) for _ in range(3))
        if self.chance.random() < 0.5:
            channel = self.chance.choice(_CHANNELS)
            url = f"https://www.nexmark.com/{folders}/item.htm?query=1"
        else:
            number = self.chance.randrange(10_000)
            channel = f"channel-{number}"
            tail = f"&channel_id={number}" if self.chance.random() < 0.9 else ""
            url = f"https://www.nexmark.com/{folders}/item.htm?query=1{tail}"
        return {
            "auction": 1_000 + auction, "bidder": self._person(), "price": self.price(),
            "channel": channel, "url": url, "dateTime": _moment(at), "extra": self.text(20, 90),
        }  # fmt: skip

    def _person(self) -> int:
        newest = max(0, self.persons - 1)
        if self.chance.random() < _HOT_BIDDERS:
            return 1_000 + newest // _HOT_RATIO * _HOT_RATIO
        return 1_000 + newest - self.chance.randint(0, min(newest, _PERSONS_ACTIVE))


def events(
    count: int, *, seed: int = 7, per_second: int = 1_000, disorder_ms: int = 0
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield events as the name of their table and their row.

    Args:
        count: The number of events.
        seed: Of the chance.
        per_second: Events in a second of event time.
        disorder_ms: The longest delay of an event.
    """
    house = _House(seed)
    for index in range(count):
        at = _BEGIN_MS + index * 1_000 // per_second
        at -= house.chance.randint(0, disorder_ms)
        match _CYCLE[index % len(_CYCLE)]:
            case "p":
                yield "person", house.person(at)
            case "a":
                yield "auction", house.auction(at)
            case _:
                yield "bid", house.bid(at)


def side_rows(count: int = 10_000) -> list[dict[str, Any]]:
    """Return the rows of the table of constants."""
    return [
        {"key": key, "value": f"value {key}", "since": "1970-01-01T00:00:00.000"}
        for key in range(count)
    ]


def write_events(folder: Path, count: int, *, files: int = 2, **settings: Any) -> dict[str, int]:
    """Write events as JSON lines, a folder for each table; return the rows by table.

    Args:
        folder: The folder; made when missing.
        count: The number of events.
        files: Files of each table, which get its rows in turns.
        settings: Of ``events``.
    """
    counts = dict.fromkeys(TABLES, 0)
    lines: dict[str, list[list[str]]] = {name: [[] for _ in range(files)] for name in TABLES}
    for name, row in events(count, **settings):
        lines[name][counts[name] % files].append(json.dumps(row))
        counts[name] += 1
    every = {**lines, "side_input": [[json.dumps(row) for row in side_rows()]]}
    for name, parts in every.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for at, part in enumerate(parts):
            (folder / name / f"{at}.jsonl").write_text("".join(f"{line}\n" for line in part))
    return counts
