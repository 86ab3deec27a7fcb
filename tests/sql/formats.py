"""The input of a test file as real files: JSON, CSV and Parquet files, and Avro messages."""

import asyncio
import csv
import io
import json
import re
from datetime import UTC, datetime, time

import fastavro
import pyarrow
import pyarrow.parquet

from bicycle_runtime.expressions.sql.types import arrow_type, decimal_digits
from bicycle_streams import StreamUrl, connect

AVRO = {
    "BIGINT": "long", "DOUBLE": "double", "VARCHAR": "string", "BOOLEAN": "boolean",
    "TIMESTAMP": {"type": "long", "logicalType": "timestamp-millis"},
    "DATE": {"type": "int", "logicalType": "date"},
    "TIME": {"type": "int", "logicalType": "time-millis"},
}  # fmt: skip


def with_input(text, tables, folder, form):
    """Return the text of a test whose tables read real input of a format from a folder."""
    for name in tables:
        begin = re.search(rf"CREATE TABLE {name} \(", text).end()
        depth, at = 1, begin
        while depth:
            depth += {"(": 1, ")": -1}.get(text[at], 0)
            at += 1
        path = folder / f"{name}.{form}"
        options = f"kind = 'file', format = '{form}', path = '{path}'"
        if form == "avro":
            schema = folder / f"{name}.avsc"
            options = (
                f"kind = 'stream_file', address = 'file://{folder}/{name}.ss/{name}', "
                f"bounded = TRUE, start = 'earliest', format = 'avro', schema = '{schema}'"
            )
        text = f"{text[:at]} WITH ({options}){text[at:]}"
    return text


def write_input(rows, types, name, folder, form):
    """Write rows as a real input.

    Args:
        rows: Dicts of plain values.
        types: The types of their columns.
        name: The name of the table.
        folder: The folder.
        form: ``jsonl``, ``csv``, ``parquet`` or ``avro``.
    """
    path = folder / f"{name}.{form}"
    if form in ("parquet", "avro"):
        rows = [{each: typed(row.get(each), word) for each, word in types.items()} for row in rows]
    if form == "parquet":
        schema = pyarrow.schema([(each, arrow_type(word)) for each, word in types.items()])
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema), path)
    elif form == "avro":
        write_messages(rows, types, name, folder)
    elif form == "csv":
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(types)
            writer.writerows([text_of(row.get(each)) for each in types] for row in rows)
    else:
        path.write_text("".join(f"{json.dumps(row, default=text_of)}\n" for row in rows), "utf-8")


def typed(value, word):
    """Return a value of a script as a value of the libraries of the formats."""
    if word == "JSON" and value is not None:
        return json.dumps(value)
    return time.fromisoformat(value) if word == "TIME" and isinstance(value, str) else value


def text_of(value):
    """Return a value as the text of a CSV or JSON file."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return value if value is None or isinstance(value, (int, float, str)) else str(value)


def write_messages(rows, types, name, folder):
    fields = [{"name": each, "type": ["null", avro_type(word)]} for each, word in types.items()]
    schema = {"type": "record", "name": name, "fields": fields}
    (folder / f"{name}.avsc").write_text(json.dumps(schema))
    parsed = fastavro.parse_schema(schema)
    payloads = []
    for row in rows:
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, parsed, row)
        payloads.append(buffer.getvalue())

    async def send():
        url = StreamUrl.parse(f"file://{folder}/{name}.ss/{name}")
        async with connect(url, {"create": "if-missing"}) as streamer:
            (await streamer.create_producer(url.stream_key)).send_many(payloads)

    asyncio.run(send())


def avro_type(word):
    if word.endswith("[]"):
        return {"type": "array", "items": ["null", avro_type(word.removesuffix("[]"))]}
    if digits := decimal_digits(word):
        kind = {"type": "bytes", "logicalType": "decimal"}
        return {**kind, "precision": digits[0], "scale": digits[1]}
    return AVRO[word]
