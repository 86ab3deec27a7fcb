"""Output that is sealed and held back when the job gets another output directory."""

import json
import shutil

import pytest
from pyarrow import parquet

from bicycle_runtime.contract import ConnectorSpec
from bicycle_runtime.testing.connectors.running import SinkRun, services_in
from tests.unit.connectors.conftest import Event


@pytest.fixture(params=["jsonl_file", "parquet_file"])
def run_in(request, tmp_path):
    """Return a function that starts a run with an output directory, on the state of another one."""

    def start(folder, before=None, *, job="."):
        spec = ConnectorSpec(
            vertex_id="v",
            connector_type=request.param,
            properties={"path": str(tmp_path / folder), "roll_ms": 86_400_000},
            record_type=Event,
        )
        found = {}
        if before is not None:
            before.stop()
            found = {"state": before.state, "epoch": before.epoch, "is_sealed": before.is_sealed}
        return SinkRun(spec, services_in(tmp_path / job), **found).start()

    return start


@pytest.fixture
def numbers(tmp_path):
    """Return a function that reads the numbers that are visible in an output directory."""

    def read(folder):
        names = sorted((tmp_path / folder).glob("part-*"))
        texts = [path.read_text() for path in names if path.suffix == ".jsonl"]
        rows = [json.loads(line) for text in texts for line in text.splitlines()]
        tables = [parquet.read_table(path) for path in names if path.suffix == ".parquet"]
        return [row["n"] for row in [*rows, *(r for t in tables for r in t.to_pylist())]]

    return read


def event(number):
    return {"user": "ada", "n": number}


def test_rows_that_are_held_for_another_directory_appear_there(run_in, numbers):
    run = run_in("a")
    run.run_epoch([[event(1)]])
    other = run_in("b", run)
    other.seal([[event(2)]])
    third = run_in("c", other)
    third.run_epoch([[event(3)]], is_last=True)

    assert [numbers(name) for name in "abc"] == [[1], [2], [3]]


def test_an_epoch_that_was_sealed_for_another_directory_appears_there(run_in, numbers):
    run = run_in("a")
    run.seal([[event(1)]], is_last=True)
    run_in("b", run).run_epoch([[event(2)]], is_last=True)

    assert [numbers(name) for name in "ab"] == [[1], [2]]


def test_a_job_that_continues_elsewhere_has_the_held_rows_in_its_own_directory(
    run_in, numbers, tmp_path
):
    run = run_in("a")
    run.run_epoch([[event(1)]])
    # The files of the job are copied, as a savepoint does.
    copied = services_in(tmp_path / "elsewhere").storage.root
    shutil.copytree(run.services.storage.root, copied, dirs_exist_ok=True)
    other = run_in("b", run, job="elsewhere")
    other.run_epoch([[event(2)]], is_last=True)

    assert [numbers(name) for name in "ab"] == [[], [1, 2]]


def test_held_rows_of_an_older_version_are_written_as_before(run_in, numbers):
    run = run_in("a")
    run.run_epoch([[event(1)]])
    run.state = {name: run.state[name] for name in run.state if name not in ("place", "path")}
    run_in("b", run).run_epoch([[event(2)]], is_last=True)

    assert [numbers(name) for name in "ab"] == [[], [1, 2]]
