"""Options of connectors: declared once, for the call, the stored graph and the runtime."""

import inspect
import typing
from pathlib import Path

import pytest

from bicycle_runtime.connectors.errors import CONNECTOR_OPTION_WRONG
from bicycle_runtime.connectors.settings import read_options
from bicycle_runtime.contract import ConnectorSpec
from bicycle_sdk import Secret, kafka, sinks, sources
from bicycle_sdk.connector_options import Conflict, SinkOptions, sink_call
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.option_values import split_none
from bicycle_sdk.options import describe, from_mapping, option
from bicycle_sdk.sinks import (
    DeltaSinkOptions,
    IcebergCatalog,
    IcebergSinkOptions,
    ParquetSinkOptions,
    Rolling,
    by_date,
    delta_sink,
    iceberg_sink,
    parquet_sink,
)
from tests.raising import raises

ADDRESS = "sqlite:////data/lake.db"
DATABASE = "postgresql://ada@host/shop"
LISTEN = {"host": "127.0.0.1", "port": 9_000}
DECLARED = {
    sources.CsvFileSourceOptions: {"path": "in.csv", "follow": False},
    sources.GeneratorSourceOptions: {"rate_ms": 5},
    sources.JsonlFileSourceOptions: {"path": "in.jsonl", "follow": False},
    sources.ParquetFileSourceOptions: {"path": "in.parquet", "follow": False},
    sources.PostgresSourceOptions: {
        "url": DATABASE, "table": "payments", "column": "id", "follow": False,
    },
    sources.SocketSourceOptions: LISTEN,
    sources.TextFileSourceOptions: {"path": "in.txt", "follow": False},
    kafka.KafkaSourceOptions: {"brokers": "b:1", "topics": ["t"]},
    kafka.KafkaSinkOptions: {"brokers": "b:1", "topic": "t"},
    sinks.CollectSinkOptions: {"name": "words"},
    sinks.ConsoleSinkOptions: {},
    sinks.ConsoleTableSinkOptions: {"format": "table"},
    DeltaSinkOptions: {"path": "out"},
    sinks.DuckdbSinkOptions: {"path": "lake.duckdb", "table": "payments"},
    sinks.FileSinkOptions: {"path": "out"},
    sinks.HttpSinkOptions: {"url": "https://host/records"},
    IcebergSinkOptions: {"catalog": ADDRESS, "table": "shop.payments", "warehouse": "lake"},
    ParquetSinkOptions: {"path": "out"},
    sinks.PostgresSinkOptions: {"url": DATABASE, "table": "payments"},
    sinks.SocketSinkOptions: LISTEN,
}  # fmt: skip
SAMPLES = {
    Secret: Secret.env("WORD"),
    kafka.KafkaProperties: kafka.KafkaProperties({"sasl.password": Secret.env("WORD")}),
    kafka.StartingOffsets: kafka.StartingOffsets(mode="timestamp", timestamp_ms=5),
    kafka.TopicPlan: kafka.TopicPlan(partitions=3, config={"retention.ms": "5"}),
    "columns": {"b": "str", "a": "decimal(12,2)"},
    "encoding": "utf-8",  # The only one.
    "headers": {"X-Shop": "7", "Authorization": Secret.env("WORD")},
}
# They contradict the class itself: a table has no lines, and lines of text have no fields.
UNSETTABLE = {
    (sinks.ConsoleTableSinkOptions, "format"),
    (sources.TextFileSourceOptions, "timestamp_field"),
}


class TideSinkOptions(SinkOptions, connector="tide", extra="tides", call="tide_sink"):
    """The options of a sink of another package."""

    gauge: str = option(kw_only=False, doc="Name of the gauge.")
    keep_ms: int = option(default=60_000, low=1, doc="Time for which readings are kept.")
    keep_forever: bool = option(default=False, doc="Whether readings are never removed.")
    token: Secret | None = option(default=None, doc="A reference to the token.")

    def conflicts(self):
        if self.keep_forever and "keep_ms" in self.given_options():
            yield Conflict("keep_ms", "readings are kept forever", "remove keep_ms")


tide_sink = sink_call(TideSinkOptions, "Return a sink of readings.")


def sample(info):
    """Return another value than the default."""
    if info.name in SAMPLES or info.hint in SAMPLES:
        return SAMPLES.get(info.name, SAMPLES.get(info.hint))
    if info.choices:
        return next(choice for choice in info.choices if choice != info.default)
    if info.hint in (int, bool):
        return info.hint((info.default or 0) + 1) if info.hint is int else not info.default
    return ("a", "b") if info.is_list else "%Y" if "format" in info.name else "other"


def contradicting(cls, name):
    """Return further options that an option needs."""
    needed = {
        (DeltaSinkOptions, "mode"): {"keys": ("a",)},
        (kafka.KafkaSourceOptions, "topic_pattern"): {"topics": ()},
        (sinks.DuckdbSinkOptions, "mode"): {"keys": ("a",)},
        (IcebergSinkOptions, "mode"): {"keys": ("a",)},
        (IcebergSinkOptions, "table"): {"table": "shop.others"},
        (ParquetSinkOptions, "partition_by"): {"partition_field": "a"},
        (sinks.ConsoleSinkOptions, "columns"): {"format": "table"},
        (sinks.ConsoleSinkOptions, "rows"): {"format": "table"},
        (sinks.HttpSinkOptions, "body"): {"batch_records": 1},
        (sinks.SocketSinkOptions, "heads"): {"stream": "a"},
        (sources.SocketSourceOptions, "heads"): {"stream": "a"},
        (sinks.PostgresSinkOptions, "delete_field"): {"keys": ("a",)},
        (sinks.PostgresSinkOptions, "mode"): {"keys": ("a",)},
        (ParquetSinkOptions, "partition_field"): {"partition_by": "field"},
        (ParquetSinkOptions, "partition_format"): {"partition_by": "date"},
    }
    return needed.get((cls, name), {})


@pytest.mark.parametrize(
    ("cls", "info"),
    [
        pytest.param(cls, info, id=f"{cls.connector.call}-{info.name}")
        for cls in DECLARED
        for info in describe(cls)
        if (cls, info.name) not in UNSETTABLE
    ],
)
def test_each_option_is_set_by_the_call_and_read_from_the_stored_properties(cls, info):
    given = {**DECLARED[cls], info.name: sample(info), **contradicting(cls, info.name)}
    built = cls(**given)
    stored = built.build_connector().properties

    assert info.name in stored
    assert from_mapping(cls, stored) == built
    assert getattr(built, info.name) == given[info.name]


def test_each_declared_class_is_tested():
    declared = {
        found
        for package in (sinks, sources, kafka)
        for found in (getattr(package, name) for name in package.__all__)
        if getattr(found, "connector", TideSinkOptions.connector).word not in ("", "tide")
    }
    assert declared == set(DECLARED)


def test_the_keywords_for_checkers_of_types_are_the_options_of_files():
    hints = typing.get_type_hints(sources.FileSourceArguments)
    infos = {info.name: info for info in describe(sources.FileSourceOptions)}

    assert set(hints) == set(infos) - {"path"}
    assert all(split_none(hint)[0] == infos[name].hint for name, hint in hints.items())


@pytest.mark.parametrize("cls", DECLARED)
def test_only_given_options_are_stored(cls):
    assert cls(**DECLARED[cls]).build_connector().properties == DECLARED[cls]


def test_values_of_python_become_json():
    sink = delta_sink(Path("out"), columns={"at": int, "cents": "decimal(12,2)"}, keys=["id"])

    assert sink.connector_type == "delta"
    assert sink.properties == {
        "path": "out",
        "columns": [["at", "int"], ["cents", "decimal(12,2)"]],
        "keys": ["id"],
        "mode": "upsert",
    }


@pytest.mark.parametrize(
    ("earlier", "now"),
    [
        (lambda: delta_sink(out_dir="out"), lambda: delta_sink("out")),
        (
            lambda: delta_sink("out", rolling=Rolling(rows=5, size_bytes=6, age_ms=7)),
            lambda: delta_sink("out", roll_rows=5, roll_bytes=6, roll_ms=7),
        ),
        (
            lambda: parquet_sink("out", max_rows=5, max_bytes=6, max_age=7, time_field="at"),
            lambda: parquet_sink("out", roll_rows=5, roll_bytes=6, roll_ms=7, timestamp_field="at"),
        ),
        (
            lambda: parquet_sink("out", folders=by_date("%Y")),
            lambda: parquet_sink(
                "out", partition_by="date", partition_field="", partition_format="%Y"
            ),
        ),
        (
            lambda: iceberg_sink(
                IcebergCatalog(address=ADDRESS, warehouse="lake", password=Secret.env("P")), "a.b"
            ),
            lambda: iceberg_sink(
                ADDRESS, "a.b", warehouse="lake", catalog_password=Secret.env("P")
            ),
        ),
    ],
)
def test_earlier_names_make_the_same_sink(earlier, now):
    assert earlier() == now()


def test_stored_properties_may_have_earlier_names():
    assert from_mapping(DeltaSinkOptions, {"out_dir": "out", "max_age": "5m"}) == DeltaSinkOptions(
        "out", roll_ms=300_000
    )


def test_none_means_that_an_option_is_not_given():
    assert delta_sink("out", columns=None, roll_rows=None, keys=()) == delta_sink("out")


def test_an_option_twice_or_of_an_unknown_name_is_a_wrong_call():
    with pytest.raises(TypeError, match="multiple values for argument 'path'"):
        delta_sink("out", out_dir="other")
    with pytest.raises(TypeError, match="rows_max"):
        delta_sink("out", rows_max=5)
    with pytest.raises(TypeError, match="takes 1 positional"):
        delta_sink("out", "other")
    with pytest.raises(TypeError, match="path"):
        delta_sink()


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda: delta_sink("out", roll_rows=0), "roll_rows is 0, expected whole number from 1"),
        (lambda: delta_sink("out", compression="lz9"), "compression is 'lz9', expected one of"),
        (lambda: delta_sink("out", keys="id"), "keys must be a tuple, got the text 'id'"),
        (lambda: delta_sink("out", columns={}), "columns is empty"),
        (lambda: delta_sink("out", columns={"a": complex}), "column 'a' has the type complex"),
        (lambda: delta_sink("out", mode="upsert"), "keys must be set for an upsert"),
        (lambda: parquet_sink("out", partition_by="field"), "it must be set for folders by field"),
        (lambda: iceberg_sink(ADDRESS, "payments", warehouse="lake"), "has no namespace"),
    ],
)
def test_a_wrong_value_is_refused_where_it_is_given(call, problem):
    with pytest.raises(StreamDefinitionError) as caught:
        call()

    assert problem in caught.value.facts["problem"]
    assert caught.value.facts["call"].endswith("_sink")
    assert caught.value.facts["location"].startswith(__file__)


def test_a_password_as_text_is_refused_and_not_shown():
    with pytest.raises(StreamDefinitionError) as caught:
        iceberg_sink(ADDRESS, "a.b", warehouse="lake", catalog_password="opensesame")

    assert "opensesame" not in str(caught.value)
    spec = ConnectorSpec(
        connector_type="iceberg",
        vertex_id="lake",
        properties={**DECLARED[IcebergSinkOptions], "catalog_password": "opensesame"},
    )
    with raises(CONNECTOR_OPTION_WRONG) as refused:
        read_options(IcebergSinkOptions, spec)
    assert "opensesame" not in str(refused.value)


def test_builder_and_runtime_refuse_the_same_conflict():
    with pytest.raises(StreamDefinitionError) as caught:
        tide_sink("dover", keep_forever=True, keep_ms=5)
    spec = ConnectorSpec(
        connector_type="tide",
        vertex_id="tides",
        properties={"gauge": "dover", "keep_forever": True, "keep_ms": 5},
    )
    with raises(CONNECTOR_OPTION_WRONG) as refused:
        read_options(TideSinkOptions, spec)

    assert caught.value.facts["problem"] == refused.value.facts["problem"]
    assert refused.value.facts["name"] == "keep_ms"


def test_a_connector_of_another_package_uses_the_same_base():
    sink = tide_sink("dover", token=Secret.env("TIDES"))

    assert sink.connector_type == "tide"
    assert sink.properties == {"gauge": "dover", "token": {"secret": {"env": "TIDES"}}}
    assert TideSinkOptions.connector.extra == "tides"
    assert list(inspect.signature(tide_sink).parameters) == [
        "gauge", "keep_ms", "keep_forever", "token",
    ]  # fmt: skip
