"""Sources of pipelines; ``SOURCES`` maps a kind to its keys.

All sources have the keys ``time_field`` and ``fields``. The kinds in this module have more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from bicycle_runtime.endpoints.catalog import Direction
from bicycle_runtime.endpoints.checking import Checks
from bicycle_runtime.endpoints.ends import EndKeys, Kinds
from bicycle_runtime.endpoints.field_functions import PayloadSchema
from bicycle_runtime.endpoints.positions import KeyPath
from bicycle_runtime.endpoints.values import NOTHING_NAMED, FieldType, describe
from bicycle_sdk.connector_options import SourceOptions
from bicycle_sdk.connectors import collection_source
from bicycle_sdk.descriptors import SourceDescriptor
from bicycle_sdk.formats import Format, type_given_by

_FORMAT_OF_FILES = Literal["jsonl", "csv", "parquet", "text"]
_TIME_FIELD = "timestamp_field"

# The names of the key for the field with the event time.
TIME_FIELD_KEYS = ("time_field", _TIME_FIELD)


class SourceKeys(EndKeys, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The common keys of all sources."""

    role: ClassVar[Direction] = "source"
    aliases: ClassVar[Mapping[str, str]] = {_TIME_FIELD: "time_field"}
    hidden: ClassVar[frozenset[str]] = frozenset({_TIME_FIELD})

    time_field: Annotated[
        str | None, describe("Field with the event time: RFC 3339, or ms since 1970.")
    ] = None
    fields: Annotated[
        dict[str, FieldType] | None,
        describe(
            "Types of the fields; a type with a question mark allows null and missing values. "
            "A record with another type is invalid. Other fields are dropped."
        ),
    ] = None

    @property
    def reads_time(self) -> bool:
        """True if the source can read event times from a field itself."""
        return _TIME_FIELD in self.all_options

    @property
    def has_times(self) -> bool:
        """True if records have event times without a field."""
        found = getattr(self.options(), "gives_times", self.connector.gives_times)
        return found is not False and not self.reads_time

    @property
    def is_csv(self) -> bool:
        """True if records are rows of CSV, in which an empty value may be missing."""
        return "csv" in (self.connector_name, self.value_of("value_format"))

    @property
    def adds_message(self) -> bool:
        """True if records get the topic, partition and offset of their message."""
        return False

    def source(self, *, with_times: bool = False) -> SourceDescriptor[Any]:
        """Return the source that they describe.

        Args:
            with_times: Whether the source reads event times from the field itself.
        """
        properties = self.graph_properties()
        if with_times and self.time_field is not None:
            properties[_TIME_FIELD] = self.time_field
        return SourceDescriptor(
            connector_type=self.connector_name,
            properties=properties,
            payloads=self.payloads(),
            output_type=self.record_type(properties),
        )

    def payloads(self) -> dict[str, Any]:
        """Return the objects of the source that are not JSON."""
        return {}

    def record_type(self, properties: Mapping[str, Any]) -> Any:
        """Return the type of records; a format of objects accepts no other values."""
        if "value_format" in self.all_options:
            return type_given_by(properties.get("value_format", "string")) or dict
        options = self.options()
        return options.output_type() if isinstance(options, SourceOptions) else None

    def check(self, checks: Checks, path: KeyPath) -> None:
        """Note contradictions between the keys."""
        if self.fields is not None and self.time_field not in (None, *self.fields):
            at = (*path, "time_field")
            text = f"{checks.label(at)} is {self.time_field}, which is not a declared field"
            checks.note(at, text)
        if self.connector_name == "text":
            for key in ("time_field", "fields"):
                at = (*path, key)
                if getattr(self, key) is not None:
                    checks.note(at, f"{checks.label(at)} is set, but lines of text have no fields")
        super().check(checks, path)


class _Files(SourceKeys, forbid_unknown_fields=True, frozen=True, kw_only=True):
    about: ClassVar[str] = "Files: JSON lines, CSV with a header line, Parquet, or lines of text."
    kind: ClassVar[str] = "jsonl"

    format: Annotated[_FORMAT_OF_FILES, describe("Format of the files.")] = "jsonl"

    @property
    def reads_time(self) -> bool:
        return self.format != "text"

    @property
    def connector_name(self) -> str:
        return self.format


class _Messages(SourceKeys, forbid_unknown_fields=True, frozen=True, kw_only=True):
    about: ClassVar[str] = (
        "Messages of Kafka topics. With the format any (default), an object gets the fields "
        '_topic, _partition and _offset; other text becomes {"bytes": text}, and other bytes '
        '{"bytes_b64": base64}. With another format, values of another form are invalid records.'
    )
    client_names: ClassVar[bool] = True
    more_formats: ClassVar[tuple[str, ...]] = ("any",)
    needs: ClassVar[tuple[tuple[str, ...], ...]] = (("topic", "topics", "topic_pattern"),)

    commit_interval_ms: Annotated[
        int | None, describe(f"{NOTHING_NAMED}: progress is sealed and reported with each epoch.")
    ] = None
    path: Annotated[str, describe(f"{NOTHING_NAMED}.")] = ""

    @property
    def adds_message(self) -> bool:
        return self.value_of("value_format") in (None, "any")

    def format_of_values(self) -> Format | None:
        return Format("schema") if self.adds_message else super().format_of_values()

    def payloads(self) -> dict[str, Any]:
        return {"value_schema": PayloadSchema()} if self.adds_message else {}

    def record_type(self, properties: Mapping[str, Any]) -> Any:
        return None if self.adds_message else super().record_type(properties)


class _Records(SourceKeys, forbid_unknown_fields=True, frozen=True, kw_only=True):
    about: ClassVar[str] = "Records in the pipeline file."

    items: Annotated[list[Any], describe("The records.")]

    def source(self, *, with_times: bool = False) -> SourceDescriptor[Any]:  # noqa: ARG002 - the contract
        return collection_source(self.items)


SOURCES: Kinds[SourceKeys] = Kinds(
    "source", SourceKeys, {"file": _Files, "kafka": _Messages, "collection": _Records}
)
