"""Entries of one key: all that reading everything finds, from files that are read once."""

import pytest

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.jobs.checkpoints.sealed_queries import Selection, keys_meant, select
from bicycle_runtime.jobs.checkpoints.sealed_states import open_epoch
from bicycle_runtime.state.errors import StateFileError
from bicycle_runtime.state.sealed import refs
from bicycle_runtime.state.stores.contents import KeptContents
from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import RichAsyncFunction
from tests.unit.cli.state_jobs import every_state

NAMES = ["ada", "adele", "bob", "", "42", "ä"]
ASKED = [
    *NAMES, "42", '"42"', "1", "2", "2.0", "true", "0", "null", "tea", '["ada", 1]', "eve",
    '{"a": 1}', '["x", {"a": 1}]', "1e400", "123456789012345678901234567890", "\ud800",
]  # fmt: skip


def everything(sealed):
    return [placed for operator in sealed.operators() for placed in sealed.entries(operator)]


def meant(entries, text):
    return [p for p in entries if any(p.entry.key == key for key in keys_meant(text))]


def identities(found):
    return {(p.operator, *map(repr, p.entry.identity), p.entry.data, p.task) for p in found}


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_a_look_up_finds_what_reading_everything_finds(backend, monkeypatch):
    monkeypatch.setattr(refs, "BASE_BYTES_MIN", 1)
    engine = EngineOptions(state_backend=backend)
    contents, databases = KeptContents(), 0
    with Harness(every_state, parallelism=2, engine=engine) as harness:
        harness.push([("tea", 3), ("jam", 5)], source="prices")
        for epoch in range(1, 4):
            names = NAMES[: 1 + epoch % len(NAMES)]
            harness.push([(name, number) for name in names for number in (1, 2)], source="records")
            harness.run_epoch()
            sealed = open_epoch(harness.storage, contents=contents)
            databases += sum(
                ref.is_database
                for state in sealed.manifest.states.values()
                for part in state.ranges
                for ref in part.files
            )
            entries = everything(sealed)
            for text in ASKED:
                found = identities(select(sealed, Selection(key=text)))
                assert found == identities(meant(entries, text)), (epoch, text)
        contents.close()
    assert bool(databases) == (backend == "rocksdb")


class Own(RichAsyncFunction):
    """Has a dict of its own, whose keys are not those of the stream."""

    def __init__(self):
        self.marks: dict[str, int] = {}

    def process(self, value, ctx):
        self.marks["mark"] = self.marks.get("mark", 0) + 1
        return []


def owning(env):
    env.add_source(script_source(str)).key_by(str).process(Own()).uid("own").collect("out")


def test_a_key_of_a_dict_is_found_in_every_key_group():
    with Harness(owning, parallelism=3) as harness:
        words = ["a", "b", "c", "d", "a"]
        harness.push(words)
        harness.run_epoch()
        found = list(select(open_epoch(harness.storage), Selection(key="mark")))
        assert sum(placed.entry.value() for placed in found) == len(words)
        whole = everything(open_epoch(harness.storage))
        assert identities(found) == identities(meant(whole, "mark"))


def counting(env):
    env.add_source(script_source(str)).key_by(str).count().uid("counts").collect("out")


def test_one_key_of_many_reads_no_file_twice(monkeypatch):
    with Harness(counting) as harness:
        harness.push([f"word{number}" for number in range(3_000)])
        harness.run_epoch()
        contents = KeptContents()
        storage, read = harness.storage, []
        original = type(storage).read

        def reading(self, path):
            read.append(path)
            return original(self, path)

        monkeypatch.setattr(type(storage), "read", reading)
        for number in (7, 8, 7):
            sealed = open_epoch(storage, contents=contents)
            [placed] = select(sealed, Selection(operator="counts", key=f"word{number}"))
            assert (placed.entry.key, placed.entry.value()) == (f"word{number}", 1)
        states = [path for path in read if path.startswith("state/")]
        assert len(states) == len(set(states)) == 1


def test_damage_is_told_and_not_kept():
    with Harness(counting) as harness:
        harness.push(["ada"])
        harness.run_epoch()
        contents, storage = KeptContents(), harness.storage
        [path] = storage.list("state")
        data = storage.read(path)
        storage.write(path, data[:-1] + b"!")
        with pytest.raises(StateFileError):
            list(select(open_epoch(storage, contents=contents), Selection(key="ada")))
        storage.write(path, data)
        assert list(select(open_epoch(storage, contents=contents), Selection(key="ada")))
