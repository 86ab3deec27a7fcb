"""Headers of CSV files: blank lines before them, and those that cannot be read."""

from dataclasses import dataclass

import pytest

from bicycle_runtime.contract import Budget, ConnectorSpec
from bicycle_runtime.operators.errors import RECORD_UNDECODABLE
from bicycle_runtime.testing import Harness
from bicycle_runtime.testing.connectors.running import SourceRun, services_in
from bicycle_sdk import dead_letter
from tests.raising import raises

ROWS = [{"name": "a", "n": "1"}, {"name": "b", "n": "2"}]


@dataclass
class Row:
    name: str
    n: int


def read(path, tmp_path, *, record_type=None, parallelism=1, **properties):
    spec = ConnectorSpec(
        vertex_id="v",
        connector_type="csv",
        properties={"path": str(path), **properties},
        record_type=record_type,
    )
    run = SourceRun(spec, services_in(tmp_path)).start()
    budget = Budget(record_count=1_000_000, byte_count=1 << 20, parallelism=parallelism)
    epochs = run.drain(budget)
    run.stop()
    batches = [batch for epoch in epochs for part in epoch.batches for batch in part]
    values = [value for batch in batches for value in batch.values]
    return values, [bad for batch in batches for bad in batch.failures]


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize(
    "blank", [b"\n", b"\r\n", b"\n\r\n\n\n\n\n", b"\xef\xbb\xbf\n", b"  \n", b'""\n']
)
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_blank_lines_before_the_header_are_passed_over(tmp_path, blank, end, parallelism):
    path = tmp_path / "in.csv"
    path.write_bytes(blank + end.join([b"name,n", b"a,1", b"", b"b,2", b""]))

    assert read(path, tmp_path, parallelism=parallelism) == (ROWS, [])
    typed = read(path, tmp_path, record_type=Row, parallelism=parallelism)
    assert typed == ([Row("a", 1), Row("b", 2)], [])


@pytest.mark.parametrize("data", [b"", b"\n", b"\n\n  \n", b"\n\nname,n\n"])
def test_a_file_without_rows_has_no_records(tmp_path, data):
    path = tmp_path / "in.csv"
    path.write_bytes(data)

    assert read(path, tmp_path) == ([], [])


@pytest.mark.parametrize(
    ("data", "properties", "reason"),
    [
        (b"name,n\ra,1\rb,2\r", {}, "carriage return"),
        (b"name,n\ra,1\nb,2\n", {}, "carriage return"),
        (b"x" * (2 << 20) + b",n\na,1\n", {"line_bytes_max": 1 << 20}, "line_bytes_max"),
        (b'"name,n\n' + b"a,1\n" * 300_000, {"line_bytes_max": 1 << 20}, "quote"),
    ],
)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_header_that_cannot_be_read_is_a_bad_record(
    tmp_path, data, properties, reason, parallelism
):
    path = tmp_path / "in.csv"
    path.write_bytes(data)

    values, failures = read(path, tmp_path, parallelism=parallelism, **properties)

    assert values == []
    assert failures[0].offset == 0
    assert all(reason in failure.reason for failure in failures)
    assert data.startswith(failures[0].raw)


def test_files_beside_one_with_a_bad_header_are_read(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_bytes(b"name,n\ra,1\r")
    (folder / "b.csv").write_bytes(b"name,n\na,1\nb,2\n")

    def job(env):
        env.read_csv(folder).uid("in").on_error(dead_letter()).collect("out")

    with Harness(job) as harness:
        harness.run()
        assert harness.results("out") == ROWS
        [letter] = harness.dead_letters
    assert "carriage return" in letter["message"]
    assert letter["offset"] == 0


def test_a_job_that_fails_on_bad_records_names_the_file(tmp_path):
    path = tmp_path / "in.csv"
    path.write_bytes(b"name,n\ra,1\r")

    def job(env):
        env.read_csv(path).uid("in").collect("out")

    with Harness(job) as harness, raises(RECORD_UNDECODABLE) as caught:
        harness.run()
    assert "in.csv line 1" in str(caught.value)


def test_a_header_that_is_still_being_written_is_waited_for(tmp_path):
    path = tmp_path / "in.csv"
    path.write_bytes(b"\nna")

    def job(env):
        env.read_csv(path, follow=True).uid("in").collect("out")

    with Harness(job) as harness:
        for _ in range(5):
            harness.run_epoch()
        with path.open("ab") as file:
            file.write(b"me,n\na,1\nb,2\n")
        while len(harness.results("out")) < 2:
            harness.run_epoch()
        assert harness.results("out") == ROWS


@pytest.mark.parametrize("record_type", [Row, None])
def test_a_bad_row_is_kept_as_it_is_in_the_file(tmp_path, record_type):
    path = tmp_path / "in.csv"
    bad = [b'"a, ""b""\nc","x",', b'"d","e;f","g"']
    path.write_bytes(b"\n".join([b"name,n", bad[0], b'"good",1', b"", bad[1], b""]))

    values, failures = read(path, tmp_path, record_type=record_type)

    assert [value.name if record_type else value["name"] for value in values] == ["good"]
    assert [failure.raw for failure in failures] == bad
