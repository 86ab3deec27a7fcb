"""Sinks of pipelines; ``SINKS`` maps a kind to its keys.

A kind in this module has keys beside the options of its connector, or defaults that follow from the
pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, field

from bicycle_runtime.endpoints.catalog import Direction
from bicycle_runtime.endpoints.checking import Checks, check_secret
from bicycle_runtime.endpoints.ends import EndKeys, Kinds
from bicycle_runtime.endpoints.field_functions import FieldText
from bicycle_runtime.endpoints.positions import KeyPath
from bicycle_runtime.endpoints.values import NOTHING_NAMED, describe
from bicycle_sdk.descriptors import SinkDescriptor
from bicycle_sdk.secrets import Secret

_EVENT_TIME = "event_time"


class SinkKeys(EndKeys, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The keys of a sink."""

    role: ClassVar[Direction] = "sink"

    def sink(self, *, is_timed: bool = False) -> SinkDescriptor[Any]:
        """Return the sink that they describe.

        Args:
            is_timed: Whether records have an event time.
        """
        return SinkDescriptor(
            connector_type=self.connector_name,
            properties=self.sink_properties(is_timed=is_timed),
            payloads=self.payloads(),
        )

    def sink_properties(self, *, is_timed: bool) -> dict[str, Any]:  # noqa: ARG002 - some need it
        """Return the options of the sink, as they are in the graph."""
        return self.graph_properties()

    def payloads(self) -> dict[str, Any]:
        """Return the objects of the sink that are not JSON."""
        return {}

    def check(self, checks: Checks, path: KeyPath) -> None:
        """Note names that are not columns, if the columns are declared."""
        columns = self.value_of("columns")
        known = [*(columns or ()), self.value_of("timestamp_field")]
        for key in ("keys", "partition_by") if columns else ():
            names = self.value_of(key)
            for index, name in enumerate(names if isinstance(names, list) else ()):
                if name not in known:
                    at = (*path, key, index)
                    checks.note(at, f"{checks.label(at)} is {name}, which is not a column")
        super().check(checks, path)


class _Files(SinkKeys, forbid_unknown_fields=True, frozen=True, kw_only=True):
    about: ClassVar[str] = "Files in a directory; without a directory, lines on the console."
    kind: ClassVar[str] = "jsonl_file"

    path: Annotated[str, describe("The directory; it is created if it is missing.")] = ""
    format: Annotated[Literal["jsonl", "csv", "text"], describe("Format of the files.")] = "jsonl"

    @property
    def connector_name(self) -> str:
        return f"{self.format}_file" if self.path else "console"

    def given_properties(self) -> dict[str, Any]:
        return super().given_properties() if self.path else {}

    def check(self, checks: Checks, path: KeyPath) -> None:
        if self.format == "text" and self.value_of("timestamp_field") is not None:
            at = (*path, "timestamp_field")
            checks.note(at, f"{checks.label(at)} is set, but lines of text have no fields")
        super().check(checks, path)


class _Messages(SinkKeys, forbid_unknown_fields=True, frozen=True, kw_only=True):
    about: ClassVar[str] = "A Kafka topic."
    client_names: ClassVar[bool] = True

    acks: Annotated[
        str | int,
        Meta(
            description="Brokers that must acknowledge a message: always all of them.",
            extra_json_schema={"enum": ["all", "-1", -1]},
        ),
    ] = "all"
    key_field: Annotated[str | None, describe("Field with the key of messages.")] = None
    out_dir: Annotated[str, describe(f"{NOTHING_NAMED}.")] = ""

    def payloads(self) -> dict[str, Any]:
        return {} if self.key_field is None else {"key": FieldText(self.key_field)}

    def check(self, checks: Checks, path: KeyPath) -> None:
        if str(self.acks) not in ("all", "-1"):
            at = (*path, "acks")
            checks.note(at, f"{checks.label(at)} is {self.acks}; acks=all is always used")
        super().check(checks, path)


class _Parquet(SinkKeys, forbid_unknown_fields=True, frozen=True, kw_only=True):
    about: ClassVar[str] = "Parquet files in folders; rows appear when their file is complete."
    kind: ClassVar[str] = "parquet_file"

    partition_by: Annotated[
        Literal["date", "field", "none"] | None,
        describe(
            "Folders dt=DATE, folders FIELD=VALUE, or none. Default: according to the next two "
            "keys; without them by date, if records have event time."
        ),
    ] = None
    partition_field: Annotated[
        str | None,
        describe(
            "Field whose values name the folders. For dates, event_time or no field means the "
            "event time."
        ),
    ] = None
    partition_format: Annotated[
        str | None, describe("Format of dates, such as %Y-%m. Default: %Y-%m-%d.")
    ] = None

    def given_properties(self) -> dict[str, Any]:
        found = super().given_properties()
        if self.partition_field == _EVENT_TIME:
            found["partition_field"] = ""
        return {"partition_by": self._kind_of_folders() or "none", **found}

    def sink_properties(self, *, is_timed: bool) -> dict[str, Any]:
        found = super().sink_properties(is_timed=is_timed)
        kind = self._kind_of_folders() or ("date" if is_timed else "none")
        field = found.pop("partition_field", "")
        if kind == "none":
            return {name: value for name, value in found.items() if name != "partition_by"}
        dates = {"partition_format": "%Y-%m-%d"} if kind == "date" else {}
        return {**dates, **found, "partition_by": kind, "partition_field": field}

    def _kind_of_folders(self) -> str | None:
        """Return the folders that the keys select; None if they depend on event time."""
        if self.partition_by is not None:
            return self.partition_by
        if self.partition_format is not None or self.partition_field == _EVENT_TIME:
            return "date"
        return "field" if self.partition_field else None


class _Requests(SinkKeys, forbid_unknown_fields=True, frozen=True, kw_only=True):
    about: ClassVar[str] = "Requests to a server, with records as JSON."
    tables: ClassVar[frozenset[str]] = frozenset({"secret_headers"})

    secret_headers: Annotated[
        dict[str, str], describe("Headers with secrets; each value is env:NAME or file:PATH.")
    ] = field(default_factory=dict)

    def given_properties(self) -> dict[str, Any]:
        found = super().given_properties()
        secrets = {name: Secret.parse(text).to_json() for name, text in self.secret_headers.items()}
        return {**found, "headers": {**found.get("headers", {}), **secrets}} if secrets else found

    def check(self, checks: Checks, path: KeyPath) -> None:
        for name, text in self.secret_headers.items():
            check_secret(checks, text, (*path, "secret_headers", name))
        super().check(checks, path)


_SPECIAL: Mapping[str, type[SinkKeys]] = {
    "file": _Files,
    "http": _Requests,
    "kafka": _Messages,
    "parquet": _Parquet,
}
SINKS: Kinds[SinkKeys] = Kinds("sink", SinkKeys, _SPECIAL)
