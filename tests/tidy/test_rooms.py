"""No two rooms share a name."""

from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
SDK = ROOT / "plugin_sdk/src/bicycle_sdk"
RUNTIME = ROOT / "runtime/src/bicycle_runtime"
# The folders whose folders are rooms. Each system has a folder in `streams` and in `connectors`, so
# only the connectors' names are compared, with the rooms of both distributions.
HOMES = (SDK, RUNTIME, RUNTIME / "connectors")
# `bicycle_sdk.state` and `bicycle_sdk.kafka` are public import paths: the handles of the state that
# the room `state` stores, and the options of the sources and sinks that `connectors.kafka` runs.
# The room `tables` has the tables of SQL files, `connectors.tables` writes rows of tables.
SHARED = {"kafka", "state", "tables"}


def shared_names(homes):
    """Return the names of folders with Python code that occur in two of these folders."""
    found = defaultdict(list)
    for home in homes:
        for room in sorted(home.iterdir()):
            if any(room.glob("*.py")):
                found[room.name].append(room)
    return {name: rooms for name, rooms in found.items() if len(rooms) > 1}


def test_no_two_rooms_share_a_name():
    assert not {n: r for n, r in shared_names(HOMES).items() if n not in SHARED}


def test_an_exception_is_still_needed():
    assert set(shared_names(HOMES)) == SHARED


def test_a_shared_name_is_found(tmp_path):
    homes = [tmp_path / name for name in ("one", "two")]
    for home in homes:
        for room in ("streams", f"{home.name}_only"):
            (home / room).mkdir(parents=True)
            (home / room / "clients.py").touch()

    assert list(shared_names(homes)) == ["streams"]
