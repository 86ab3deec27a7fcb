"""The pipeline of the README between a real broker and a lake, killed again and again."""

import json
import random
import signal
from collections import Counter

import duckdb
import pytest
from deltalake import DeltaTable

from bicycle_runtime.extraction.extract import extract
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.options import JobOptions
from bicycle_runtime.jobs.plugins.environments import find_plugin
from tests.docs.pipeline_blocks import readme_pipeline
from tests.kafka.kafka_feeding import feed
from tests.kafka.light_driver import LightSite
from tests.waiting import until

MESSAGES, PARTITIONS, MINUTE = 12_000, 2, 60_000
# Each at its second passage: output is held, sealed, or visible in part.
FAULTS = [
    "delta_written@2",
    "before_seal@2",
    "after_seal@2",
    "before_publish@3",
    "half_published@1",
]
END = json.dumps({"page": "end", "at": 1_000 * MINUTE}).encode()


@pytest.fixture
def clicks(kafka_broker, topic):
    """Return the topic, and the clicks that are in it by page and minute."""
    name = topic(partitions=PARTITIONS)
    drawn = random.Random(25)
    expected: Counter[tuple[int, str]] = Counter()
    for partition in range(PARTITIONS):
        values = []
        for number in range(MESSAGES // PARTITIONS):
            at = number * 50 + drawn.randrange(2_000)
            page = f"/{drawn.randrange(40)}"
            expected[at // MINUTE * MINUTE, page] += 1
            values.append(json.dumps({"page": page, "at": at}).encode())
        feed(kafka_broker, name, [*values, END], partition=partition)
    return name, expected


def rows_in(folder, kind):
    """Return what DuckDB reads: of all files, or of those that the table names."""
    if kind == "parquet":
        if not list(folder.rglob("part-*.parquet")):
            return []
        table = duckdb.read_parquet(f"{folder}/**/*.parquet")
    else:
        if not DeltaTable.is_deltatable(str(folder)):
            return []
        table = duckdb.from_arrow(DeltaTable(str(folder)).to_pyarrow_table())
    return table.filter("page <> 'end'").project("window_start_ms, page, count").fetchall()


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_what_duckdb_reads_is_exact_after_five_kills(kafka_broker, clicks, tmp_path, kind):
    name, expected = clicks
    lake = tmp_path / "lake"
    text = readme_pipeline()
    for before, after in (
        ("localhost:9092", kafka_broker.client_settings()["bootstrap.servers"]),
        ('topic = "clicks"', f'topic = "{name}"'),
        ('kind = "delta"', f'kind = "{kind}"'),
        ('path = "lake"', f'path = "{lake}"'),
        ('roll_ms = "1m"', 'roll_ms = "100ms"'),
    ):
        assert before in text
        text = text.replace(before, after)
    (tmp_path / "clicks.toml").write_text(text)
    options = JobOptions(plugin=str(tmp_path / "clicks.toml"))
    environment = find_plugin(options, Home(tmp_path / "home"))
    bundle = extract(environment.ref, {}).to_bytes()
    site = LightSite(tmp_path / "site", {}, plugin="clicks-per-page", bundle=bundle)

    try:
        for fault in FAULTS:
            life = site.start(faults=f"{fault}=kill", records_max=1_500)
            assert life.wait() == -signal.SIGKILL, life.stderr
        life = site.start(records_max=1_500)
        until(lambda: len(rows_in(lake, kind)) >= len(expected), lambda: f"all rows: {life.stderr}")
        site.stop(life)
    finally:
        site.kill_everything()

    found = rows_in(lake, kind)
    assert {(start, page): count for start, page, count in found} == expected
    assert len(found) == len(expected)
    assert sum(count for _, _, count in found) == MESSAGES
