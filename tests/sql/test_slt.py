"""The test files of this folder hold under all conditions, and their rows are DuckDB's."""

import random
from itertools import product

import pytest

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.tables.logic_records import LogicText, difference, read_records
from bicycle_runtime.tables.logic_tests import LogicTest
from bicycle_runtime.testing import Harness
from tests.sql.by_duckdb import FILES, Duck

# A crash after each step of an epoch, by the point at which the process dies.
CRASHES = {
    "plan": "read", "run": "delta_written", "seal": "after_seal", "publish": "half_published",
}  # fmt: skip
MISHAPS = ("none", *CRASHES, "rescale")
PARALLELISMS, EPOCHS, BACKENDS = (1, 2, 3), (1, 7, "random"), ("memory", "rocksdb")
NAMES = [path.stem for path in FILES]
PATHS = dict(zip(NAMES, FILES, strict=True))
STATEMENTS_MIN = 200


class Unlucky(Harness):
    """A harness to whose job something happens in the first or second run of epochs."""

    def __init__(self, env, *, mishap, at, **settings):
        super().__init__(env, **settings)
        self.mishap, self.at, self.runs = mishap, at, 0

    def run(self):
        self.runs += 1
        if self.runs == self.at and self.mishap in CRASHES:
            self.fail_at(CRASHES[self.mishap])
        elif self.runs == self.at and self.mishap == "rescale":
            self.rescale(2 if self._job.parallelism == 3 else 3)
        super().run()


def failures(name, condition, **settings):
    """Return the failures of a file under a condition, and the crashes of its job."""
    parallelism, epochs, backend, mishap = condition
    made = []

    def new_harness(env, sources):
        harness = Unlucky(
            env, mishap=mishap, at=1 if epochs == 1 else 2, scripted=sources,
            parallelism=parallelism, engine=EngineOptions(state_backend=backend), **settings,
        )  # fmt: skip
        made.append(harness)
        return harness

    test = LogicTest(PATHS[name], new_harness, epochs=epochs)
    if mishap != "none":  # Records with errors are jobs of their own.
        test.records = [each for each in test.records if each.error is None]
    found = test.run()
    return [(each.line, each.text) for each in found], made[0].crash_count


def pairs(name):
    """Return the conditions of a file in the core tier: in all files each pair occurs."""
    row = NAMES.index(name) % len(MISHAPS)
    return [
        (PARALLELISMS[at], EPOCHS[(at + row) % 3], BACKENDS[(row + (at == 1)) % 2], MISHAPS[row])
        for at in range(3)
    ]


def assert_holds(name, condition, **settings):
    parallelism, epochs, backend, mishap = condition
    if epochs == "random":
        epochs = random.randint(2, 12)

    found, crashes = failures(name, (parallelism, epochs, backend, mishap), **settings)

    assert found == [], f"with the input in {epochs} epochs"
    assert crashes == int(mishap in CRASHES)


def name_of(value):
    """Return the name of a condition in the names of tests: 3-7-rocksdb-seal."""
    return "-".join(map(str, value)) if isinstance(value, tuple) else value


CORE = [(name, condition) for name in NAMES for condition in pairs(name)]
ALL = list(product(PARALLELISMS, EPOCHS, BACKENDS, MISHAPS))


@pytest.mark.parametrize(("name", "condition"), CORE, ids=name_of)
def test_a_file_holds(name, condition):
    assert_holds(name, condition)


@pytest.mark.extended
@pytest.mark.parametrize(
    ("name", "condition"), [case for case in product(NAMES, ALL) if case not in CORE], ids=name_of
)
def test_a_file_holds_under_each_condition(name, condition):
    assert_holds(name, condition)


def test_the_core_conditions_have_each_pair():
    for first, second in ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)):
        found = {(case[first], case[second]) for _, case in CORE}
        assert found == {(case[first], case[second]) for case in ALL}


@pytest.mark.parametrize("name", NAMES)
def test_expected_rows_are_those_of_duckdb(name):
    for record, rows in Duck(PATHS[name]).results():
        if record.error is not None:
            assert rows, f"line {record.line} does not fail in DuckDB"
        else:
            assert difference(record, rows) is None, record.line


@pytest.mark.parametrize("name", NAMES)
def test_duckdb_computes_each_expected_row(name):
    text = LogicText(name, "", PATHS[name].read_text("utf-8"))

    def lines(engine):
        return {
            each.line
            for each in read_records(text, engine)
            if each.kind in ("query", "changes") and each.error is None
            and each.words[1] != "$dead_letters"
        }  # fmt: skip

    assert lines("bicycle") == lines("duckdb")


def test_there_are_many_statements():
    count = 0
    for path in FILES:
        text = LogicText(path.name, "", path.read_text("utf-8"))
        count += sum(each.kind in ("statement", "query") for each in read_records(text))

    assert count >= STATEMENTS_MIN
