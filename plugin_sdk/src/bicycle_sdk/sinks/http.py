"""Sinks that send records to a server by HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bicycle_sdk.connectors import SinkDescriptor
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.secrets import Secret
from bicycle_sdk.sinks.tables import given

__all__ = ["HttpBody", "HttpServer", "http_sink"]

HttpBody = Literal["array", "object", "keyed"]


@dataclass(frozen=True, slots=True)
class HttpServer:
    """An address with the files for TLS.

    Args:
        url: ``https://…``, without a password.
        ca_file: PEM file with the trusted certificates; None for those of the HTTP client.
        cert_file: PEM file with the certificate of this client, if the server asks for one.
        key_file: PEM file with its private key.
    """

    url: str
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


def http_sink(
    url: str | HttpServer,
    *,
    headers: Mapping[str, str | Secret] | None = None,
    body: HttpBody | None = None,
    batch_records: int | None = None,
    idempotent: bool | None = None,
    on_refused: Literal["keep", "fail"] | None = None,
    method: Literal["POST", "PUT"] | None = None,
    request_timeout_ms: int | None = None,
) -> SinkDescriptor[Any]:
    """Return a sink of requests to a server, with records of sealed epochs as JSON.

    Args:
        url: ``http://…`` or ``https://…``, without a password; or a server with its certificates.
        headers: More headers; a value may say where a secret is.
        body: ``array`` of records; ``object``: one record by itself; ``keyed``: an array of
            ``{"key": …, "record": …}``. None for ``array``.
        batch_records: So many records are in a request, at most; 1 where the body is one record.
        idempotent: The server drops a request whose ``Idempotency-Key`` it has seen, so each
            record arrives exactly once; else at least once.
        on_refused: Keep a record that the server refuses for good in a file beside the
            checkpoint, or end the job.
        method: POST unless told otherwise.
        request_timeout_ms: How long an answer may take.
    """
    if body == "object" and batch_records not in (None, 1):
        raise StreamDefinitionError(
            call="http_sink",
            problem=f"a body of one record requires batch_records=1, got {batch_records}",
            hint="remove batch_records, or use body='array'",
        )
    server = HttpServer(url) if isinstance(url, str) else url
    properties: dict[str, Any] = {"url": server.url}
    if headers is not None:
        properties["headers"] = {
            name: value.to_json() if isinstance(value, Secret) else value
            for name, value in headers.items()
        }
    properties |= given(
        "http_sink",
        body=body,
        batch_records=1 if body == "object" else batch_records,
        idempotent=idempotent,
        on_refused=on_refused,
        method=method,
        request_timeout_ms=request_timeout_ms,
        ca_file=server.ca_file,
        cert_file=server.cert_file,
        key_file=server.key_file,
    )
    return SinkDescriptor(connector_type="http", properties=properties)
