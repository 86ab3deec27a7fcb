"""Sinks that send records to a server by HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from bicycle_sdk.client_options import Publication, ServerUrl
from bicycle_sdk.connector_options import Conflict, SinkOptions, sink_call
from bicycle_sdk.options import option
from bicycle_sdk.secrets import Secret
from bicycle_sdk.tls_files import TlsFiles

if TYPE_CHECKING:
    from urllib.parse import SplitResult

__all__ = ["HttpBody", "HttpServer", "HttpSinkOptions", "http_sink"]

HttpBody = Literal["array", "object", "keyed"]


@dataclass(frozen=True, slots=True)
class HttpServer:
    """An address with the files for TLS; an earlier form of four options.

    Args:
        url: ``https://…``, without a password.
        ca_file: PEM file with the trusted certificates; None for the default of the HTTP client.
        cert_file: PEM file with the certificate of this client, if the server requires one.
        key_file: PEM file with its private key.
    """

    url: str
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


class HttpSinkOptions(
    ServerUrl,
    Publication,
    TlsFiles,
    SinkOptions,
    connector="http",
    extra="http",
    call="http_sink",
):
    """The options of the HTTP sink: target, form, and handling of refused records."""

    method: Literal["POST", "PUT"] = option(default="POST", doc="HTTP method of the requests.")
    headers: Mapping[str, str | Secret] | None = option(
        default=None, doc="Headers by name; a value may be a reference to a secret."
    )
    body: HttpBody = option(
        default="array",
        doc=(
            "array: a JSON array of records; object: a single record, with batch_records=1; "
            "keyed: an array of {key, record}, with a key for each record."
        ),
    )
    batch_records: int = option(
        default=100, low=1, high=100_000, doc="Maximum number of records per request."
    )
    idempotent: bool = option(
        default=False,
        doc=(
            "The server ignores a repeated Idempotency-Key, so that each record arrives exactly "
            "once."
        ),
    )
    on_refused: Literal["keep", "fail"] = option(
        default="keep",
        doc=(
            "Reaction to a record that the server rejects (400, 413, 422): write it to the dead "
            "letters, or end the job."
        ),
    )
    request_timeout_ms: int = option(
        default=10_000,
        low=100,
        high=3_600_000,
        doc="Time limit for a response.",
        words=("timeout",),
    )

    @classmethod
    def from_arguments(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return arguments with an ``HttpServer`` as options, and the size of a batch."""
        server = given.get("url")
        if isinstance(server, HttpServer):
            files = {name: getattr(server, name) for name in ("ca_file", "cert_file", "key_file")}
            given = files | given | {"url": server.url}
        if given.get("body") == "object" and given.get("batch_records") is None:
            given = given | {"batch_records": 1}
        return given

    @classmethod
    def from_address(cls, parts: SplitResult) -> dict[str, Any]:
        """Return the URL, without a query: the query has the options."""
        return {"url": f"{parts.scheme}://{parts.netloc}{parts.path}"}

    def conflicts(self) -> Iterator[Conflict]:
        """Yield a batch of several records where a body is one record."""
        if self.body == "object" and self.batch_records != 1:
            problem = f"a body of one record requires batch_records=1, got {self.batch_records}"
            yield Conflict("batch_records", problem, "remove batch_records, or use body='array'")


http_sink = sink_call(
    HttpSinkOptions, "Return a sink of requests to a server, with records of sealed epochs as JSON."
)
