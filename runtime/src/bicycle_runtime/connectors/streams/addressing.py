"""Addresses of streams in jobs."""

from __future__ import annotations

from collections.abc import Collection

from bicycle_runtime.connectors.errors import STREAM_ADDRESS_WRONG
from bicycle_runtime.contract import ConnectorSpec
from bicycle_runtime.streams.addresses import StreamUrl
from bicycle_runtime.streams.errors import StreamError

__all__ = ["address_error", "url_of"]


def url_of(
    spec: ConnectorSpec, address: str, protocols: Collection[str], *, is_one: bool = False
) -> StreamUrl:
    """Return the address of streams of a backend; ``is_one``: of one stream.

    Raises:
        STREAM_ADDRESS_WRONG: it is none.
    """
    try:
        url = StreamUrl.parse(address)
    except StreamError as error:
        raise address_error(spec, address, error.summary) from None
    if not url.stream_keys:
        raise address_error(spec, address, "it names no stream")
    if is_one and len(url.stream_keys) != 1:
        raise address_error(spec, address, "a sink writes one stream")
    if url.streamer.protocol not in protocols:
        raise address_error(spec, address, f"its protocol is none of {', '.join(protocols)}")
    return url


def address_error(spec: ConnectorSpec, address: str, problem: str) -> Exception:
    """Return the error that says what is wrong with an address."""
    return STREAM_ADDRESS_WRONG(vertex=spec.vertex_id, address=address, problem=problem)
