"""Sinks with columns: every key reaches the graph, and folders are what the keys say."""

import pytest

from bicycle_sdk.secrets import Secret
from tests.unit.pipelines.pipeline_runs import graph

TEXT = """
    [source]
    kind = "file"
    path = "in.jsonl"
    {time}

    [sink]
    {keys}
"""


def properties(keys, time='time_field = "at"'):
    details = graph(TEXT.format(keys=keys, time=time)).vertex("sink").details["connector"]
    return details["connector_type"], details["properties"]


def test_every_key_of_parquet_reaches_the_graph():
    found = properties(
        """
        kind = "parquet"
        out_dir = "out"
        columns = { user = "string", cents = "int", at = "datetime" }
        partition_field = "city"
        compression = "zstd"
        max_rows = 10
        max_bytes = 1000
        max_age = "5m"
        time_field = "when"
        """
    )

    assert found == (
        "parquet_file",
        {
            "path": "out",
            "columns": {"user": "str", "cents": "int", "at": "datetime"},
            "partition_by": "field",
            "partition_field": "city",
            "compression": "zstd",
            "roll_rows": 10,
            "roll_bytes": 1_000,
            "roll_ms": 300_000,
            "timestamp_field": "when",
        },
    )


@pytest.mark.parametrize(
    ("keys", "time", "folders"),
    [
        ("", 'time_field = "at"', ("date", "", "%Y-%m-%d")),
        ("", "", (None, None, None)),
        ('partition_by = "none"', 'time_field = "at"', (None, None, None)),
        ('partition_format = "%Y-%m"', "", ("date", "", "%Y-%m")),
        ('partition_field = "event_time"', "", ("date", "", "%Y-%m-%d")),
        ('partition_field = "day"\npartition_format = "%Y"', "", ("date", "day", "%Y")),
        ('partition_by = "date"\npartition_field = "day"', "", ("date", "day", "%Y-%m-%d")),
        ('partition_field = "city"', 'time_field = "at"', ("field", "city", None)),
    ],
)
def test_folders_are_by_date_by_field_or_none(keys, time, folders):
    _, found = properties(f'kind = "parquet"\nout_dir = "out"\n{keys}', time)

    names = ("partition_by", "partition_field", "partition_format")
    assert tuple(found.get(name) for name in names) == folders


def test_every_key_of_postgres_reaches_the_graph():
    found = properties(
        """
        kind = "postgres"
        url = "postgresql://u@h/d"
        table = "public.t"
        columns = { user = "string", total = "decimal" }
        password = "env:DB_PASSWORD"
        keys = ["user"]
        delete_field = "gone"
        create_table = true
        on_rewind = "publish_again"
        """
    )

    assert found == (
        "postgres",
        {
            "url": "postgresql://u@h/d",
            "table": "public.t",
            "columns": {"user": "str", "total": "decimal"},
            "password": Secret.env("DB_PASSWORD").to_json(),
            "mode": "upsert",
            "keys": ["user"],
            "delete_field": "gone",
            "create_table": True,
            "on_rewind": "publish_again",
        },
    )
