"""What ran on Spark comes out the same when it is replayed in one process, beside the job."""

import json

import pytest

from tests.spark.cli_process import Bicycle, end

pytestmark = pytest.mark.spark
LINES = [f"ada bob cid{number % 7} dan{number % 3}" for number in range(40)]


@pytest.fixture
def bicycle(tmp_path, spark_cache):
    return Bicycle(tmp_path / "home", tmp_path / "site", spark_cache)


def words(command, folder, *more):
    settings = ("--set", f"input={folder / 'in.txt'}", "--set", f"output={folder / 'out'}")
    place = ("--checkpoint-dir", str(folder / "checkpoints"), "--name", "replayed")
    return [command, "--plugin", "wordcount", *settings, *place, *more]


def test_epochs_of_a_running_job_are_replayed_with_the_result_that_was_sealed(bicycle, tmp_path):
    (tmp_path / "in.txt").write_text("\n".join(LINES) + "\n")
    limits = ("--max-records-per-epoch", "10", "--retained-epochs", "9", "--parallelism", "2")
    process = bicycle.start(*words("run", tmp_path, "--follow", *limits))
    try:
        bicycle.wait_until("replayed", lambda status: status["record_count"] == len(LINES))
        before = {path: path.stat().st_mtime_ns for path in (tmp_path / "checkpoints").rglob("*")}
        reports = [bicycle.answer("replay", "replayed", "--epoch", str(n)) for n in (1, 2, 4)]
        unknown = bicycle.run("replay", "replayed", "--epoch", "next", "--json")
        after = {path: path.stat().st_mtime_ns for path in (tmp_path / "checkpoints").rglob("*")}
    finally:
        end(process)

    assert [report["differences"] for report in reports] == [[], [], []]
    assert all(report["was_sealed"] and report["is_same_plugin"] for report in reports)
    counts = [{row["operator"]: row for row in report["operators"]} for report in reports]
    assert all(1 <= each["lines-v1"]["records_in"] <= 10 for each in counts)  # Fewer when slow.
    assert json.loads(unknown.stdout)["code"] == "BIC-1970"
    manifests = [path for path in before if path.suffix == ".manifest"]
    assert [before[path] for path in manifests] == [after[path] for path in manifests]
