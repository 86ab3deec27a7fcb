"""Sinks with columns: every key reaches the graph, and folders are what the keys say."""

import duckdb
import pytest

from bicycle_sdk.secrets import Secret
from tests.unit.pipelines.pipeline_runs import finish, graph, lines

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
            "columns": [["user", "str"], ["cents", "int"], ["at", "datetime"]],
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
            "columns": [["user", "str"], ["total", "decimal"]],
            "password": Secret.env("DB_PASSWORD").to_json(),
            "mode": "upsert",
            "keys": ["user"],
            "delete_field": "gone",
            "create_table": True,
            "on_rewind": "publish_again",
        },
    )


def test_every_key_of_delta_reaches_the_graph():
    found = properties(
        """
        kind = "delta"
        out_dir = "lake/clicks"
        columns = { page = "string", count = "int" }
        keys = ["page"]
        partition_by = ["page"]
        time_field = "at"
        compression = "zstd"
        max_rows = 10
        max_bytes = 1000
        max_age = "5m"
        on_rewind = "publish_again"
        """
    )

    assert found == (
        "delta",
        {
            "path": "lake/clicks",
            "mode": "upsert",
            "keys": ["page"],
            "columns": [["page", "str"], ["count", "int"]],
            "partition_by": ["page"],
            "timestamp_field": "at",
            "compression": "zstd",
            "roll_rows": 10,
            "roll_bytes": 1_000,
            "roll_ms": 300_000,
            "on_rewind": "publish_again",
        },
    )


def test_the_column_of_the_event_time_may_be_a_key(tmp_path):
    path = lines(tmp_path, *({"at": at, "n": n} for n, at in enumerate([1_000, 2_000, 1_000])))
    finish(
        f"""
        [source]
        kind = "file"
        path = "{path}"
        timestamp_field = "at"
        fields = {{ at = "int", n = "int" }}
        [sink]
        kind = "duckdb"
        path = "{tmp_path}/rows.db"
        table = "t"
        columns = {{ n = "int" }}
        timestamp_field = "when"
        keys = ["when"]
        """
    )

    with duckdb.connect(str(tmp_path / "rows.db")) as file:
        rows = file.execute('select n, epoch_ms("when") from t order by n').fetchall()
    assert rows == [(1, 2_000), (2, 1_000)]


def test_every_key_of_iceberg_reaches_the_graph():
    kind, found = properties(
        """
        kind = "iceberg"
        catalog = "postgresql://lake@db/lake"
        catalog_name = "main"
        catalog_password = "file:/run/secret"
        warehouse = "lake"
        table = "shop.clicks"
        columns = { page = "string" }
        """
    )

    assert kind == "iceberg"
    assert (found["catalog"], found["catalog_name"]) == ("postgresql://lake@db/lake", "main")
    assert found["catalog_password"] == Secret.file("/run/secret").to_json()
    assert (found["warehouse"], found["table"]) == ("lake", "shop.clicks")
    assert found["columns"] == [["page", "str"]]


def test_every_key_of_http_reaches_the_graph():
    found = properties(
        """
        kind = "http"
        url = "https://api.example/clicks"
        method = "PUT"
        headers = { Accept = "application/json" }
        secret_headers = { Authorization = "env:API_TOKEN" }
        body = "keyed"
        batch_records = 7
        idempotent = true
        on_refused = "fail"
        timeout = "3s"
        """
    )

    assert found == (
        "http",
        {
            "url": "https://api.example/clicks",
            "headers": {
                "Accept": "application/json",
                "Authorization": Secret.env("API_TOKEN").to_json(),
            },
            "body": "keyed",
            "batch_records": 7,
            "idempotent": True,
            "on_refused": "fail",
            "method": "PUT",
            "request_timeout_ms": 3_000,
        },
    )


def test_the_console_shows_lines_or_tables():
    assert properties('kind = "console"') == ("console", {})
    table = 'kind = "console"\nformat = "table"\nrows = 5\ncolumns = { page = "string" }'
    assert properties(table) == (
        "console", {"format": "table", "columns": [["page", "str"]], "rows": 5},
    )  # fmt: skip
