"""The word count on Spark with its counts on disk, and a restart that finds them there."""

import pytest

from tests.spark.cli_process import Bicycle, counts_in, expected_counts

pytestmark = pytest.mark.spark

LINES = [f"word{number % 700} word{number % 31}\n" for number in range(2_000)]


@pytest.fixture
def bicycle(tmp_path, spark_cache):
    return Bicycle(tmp_path / "home", tmp_path / "site", spark_cache)


def test_counts_on_disk_go_on_after_a_restart(bicycle, tmp_path):
    source, output, local = (tmp_path / name for name in ("in.txt", "out", "local"))
    words = (
        *("run", "--plugin", "wordcount", "--name", "disk"),
        *("--set", f"input={source}", "--set", f"output={output}"),
        *("--checkpoint-dir", str(tmp_path / "checkpoints"), "--max-records-per-epoch", "400"),
        *("--state-backend", "rocksdb", "--state-dir", str(local)),
        *("--state-cache-entries", "1000"),
    )
    for end in (1_000, 2_000):
        source.write_text("".join(LINES[:end]))
        done = bicycle.run(*words)
        assert done.returncode == 0, done.stderr
        assert counts_in(output) == expected_counts("".join(LINES[:end]))
        assert "state_folder" not in done.stderr
        assert list(local.glob("*/slot-*/rocksdb-*/CURRENT"))
